"""init writes a config that loads, privately, and never over another."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier

import click
import pytest
from msgspec.structs import fields

from tests.trainmon.cli.test_main import trainmon
from trainmon.cli.init import FoundFacts, SlurmReport, _write, config_text
from trainmon.config import load as config
from trainmon.config import table_of
from trainmon.model import SchedulerNode


def test_what_it_writes_loads_and_is_private(tmp_path: Path) -> None:
    done = trainmon("init", "login1", "gpu-[001-004]", cwd=tmp_path, HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "wrote trainmon.toml; next: trainmon-tui check\n")
    file = tmp_path / "trainmon.toml"
    assert file.stat().st_mode & 0o777 == 0o600
    cluster = config.load(file).clusters[0]
    assert (cluster.login, cluster.nodes) == ("login1", ("gpu-001", "gpu-002", "gpu-003", "gpu-004"))


def test_a_node_that_is_named_twice_is_one_and_without_a_login_host_it_says_how_to_give_one(tmp_path: Path) -> None:
    done = trainmon("init", "gpu-1", "gpu-[1-3]", cwd=tmp_path, HOME=str(tmp_path))
    said = "files such as logs are read on this machine; if they are not here: --login HOST\n"
    assert (done.returncode, done.stderr) == (0, said)
    cluster = config.load(tmp_path / "trainmon.toml").clusters[0]
    assert (cluster.login, cluster.nodes) == (None, ("gpu-1", "gpu-2", "gpu-3"))


def test_every_comment_is_a_setting_that_loads(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text(re.sub(r"(?m)^# (?=\[|\w+ = )", "", config_text("main", "login1", ["gpu-[001-004]"], FoundFacts())))
    settings = config.load(file)
    assert settings.read_only
    assert settings.runs[0].nodes == ("gpu-001", "gpu-002", "gpu-003", "gpu-004")
    assert (settings.log_formats[0].name, [disk.path for disk in settings.disks]) == ("mine", ["/", "/shared"])


@pytest.mark.parametrize("table", [config.ClusterSettings, config.RunSettings, config.DiskSettings])
def test_every_setting_that_is_used_is_in_it(table: type) -> None:
    from tests.docs import field_descriptions

    used = {name for name, note in field_descriptions(table).items() if "Not used yet." not in note}
    written = config_text("main", "login1", ["gpu-001"], FoundFacts())
    assert {name for name in used if f"{name} = " not in written} == set()


def test_every_table_of_the_config_is_in_it() -> None:
    lines = config_text("main", "login1", ["gpu-001"], FoundFacts()).replace("# ", "").splitlines()
    tables = [one.encode_name for one in fields(config.Settings) if table_of(one.type)[0] is not None]
    assert {name for name in tables if not {f"[{name}]", f"[[{name}]]"} & set(lines)} == set()


def test_a_config_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "trainmon.toml").mkdir()
    done = trainmon("init", "gpu-001", "--force", cwd=tmp_path, HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "trainmon-tui: trainmon.toml cannot be written: is a directory" in done.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["trainmon.toml"]


def test_a_name_that_no_file_can_have_is_an_error_of_its_own(tmp_path: Path) -> None:
    done = trainmon("init", "gpu-001", "--output", f"{'x' * 300}.toml", cwd=tmp_path, HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert ".toml cannot be written: file name too long" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_old_file_stays_unless_forced(tmp_path: Path) -> None:
    file = tmp_path / "trainmon.toml"
    file.write_text("read_only = true\n")
    done = trainmon("init", "gpu-001", cwd=tmp_path, HOME=str(tmp_path))
    assert done.returncode == 2
    assert "trainmon-tui: trainmon.toml already exists; --force replaces it" in done.stderr
    assert file.read_text() == "read_only = true\n"
    assert trainmon("init", "gpu-001", "--force", cwd=tmp_path, HOME=str(tmp_path)).returncode == 0
    assert config.load(file).clusters[0].nodes == ("gpu-001",)
    assert [path.name for path in tmp_path.iterdir()] == ["trainmon.toml"]


def test_of_two_that_write_at_once_one_is_refused(tmp_path: Path) -> None:
    with ThreadPoolExecutor() as pool:
        for number in range(50):
            both = Barrier(2)
            file = tmp_path / f"{number}.toml"

            def wrote(text: str, both: Barrier = both, file: Path = file) -> bool:
                both.wait()
                with suppress(click.UsageError):
                    _write(file, text, force=False)
                    return True
                return False

            one, other = pool.map(wrote, ("one", "other"))
            assert one != other
            assert file.read_text() == ("one" if one else "other")


def test_a_directory_that_others_can_write_is_reported_at_once(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    done = trainmon("init", "gpu-001", cwd=tmp_path, HOME=str(tmp_path))
    assert done.stderr == (
        "files such as logs are read on this machine; if they are not here: --login HOST\n"
        "trainmon-tui: it will not be read from here: other users can write to its directory\ntry: chmod go-w .\n"
    )


@pytest.mark.parametrize("host", ["gpu-[001-", "a b", "-oProxyCommand=id", "a\x1b[2J", '"\n[daemon]'])
def test_a_bad_host_is_refused_and_nothing_is_written(tmp_path: Path, host: str) -> None:
    done = trainmon("init", "--", host, cwd=tmp_path, HOME=str(tmp_path))
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert "\x1b" not in done.stderr


def test_it_can_be_printed(tmp_path: Path) -> None:
    done = trainmon("init", "gpu-001", "--output", "-", cwd=tmp_path, HOME=str(tmp_path))
    assert 'nodes = ["gpu-001"]' in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_slurm_of_one_node_has_one_node() -> None:
    alone = SchedulerNode(name="gpu-1", cluster="main", state="IDLE")
    assert SlurmReport("me", "22.05.8", (alone,), ()).summary == "Slurm 22.05.8: 1 node, gpu-1; 1 IDLE"
