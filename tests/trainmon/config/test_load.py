"""What a good config becomes, and which file is taken."""

from __future__ import annotations

import grp
import os
import pwd
import struct
from pathlib import Path

import pytest

from trainmon.config import load as config
from trainmon.config.load import ClusterSettings, Settings
from trainmon.config.notify import NtfySettings
from trainmon.lib import ConfigError
from trainmon.model import RetryLimit

DESIGNED = """
read_only = false
[[cluster]]
name = "prod"
login = "login1"
nodes = ["gpu-[001-032]"]
users = ["me"]
every = "2s"
slurm_every = "30s"
spares = 2
connect = { at_once = 8, timeout = "10s" }
python = "python3"
[[run]]
name = "video-2b"
cluster = "prod"
wandb = "team/project"
group = "video-2b-final"
restart_grace = "15m"
job = "video-2b"
log = "/fsx/video/logs/*.out"
checkpoints = "/fsx/video/ckpt"
kill_switch = "/fsx/video/kill-switch"
save_switch = "/fsx/video/save-switch"
script = "/fsx/video/train.slurm"
stall_after = "15m"
target_step = 100_000
model_family = "reasoning"
labels = { owner = "team-a" }
[[disk]]
path = "/fsx"
on = "login"
usable = "80%"
lag = "30m"
quota = { command = ["lfs", "quota", "-u", "me", "/fsx"], parser = "lustre" }
[[rule]]
type = "gpu-hot"
hold = "5m"
[[notify]]
type = "ntfy"
topic = "env:NTFY_TOPIC"
severity = "critical"
[heartbeat]
every = "4h"
ping = "env:HEALTHCHECK_URL"
[daemon]
host = "bastion"
[retry]
auto_requeue = "off"
cuda-oom = { times = 1, within = "1d", after_change = ["batch", "checkpointing", "placement"] }
[[eval]]
run = "video-2b"
results = "/fsx/video/evals/*.jsonl"
command = "sbatch '/fsx/my eval.sh' {checkpoint}"
[[eval]]
run = "video-2b"
results = "/fsx/video/other.jsonl"
command = ["sbatch", "--comment", '{"kind": "eval", "home": "${home}"}', "eval.sh", "{run}", "{step}"]
[ledger]
copy_to = "env:LEDGER_COPY"
keep = "90d"
"""


def load(folder: Path, text: str) -> Settings:
    file = folder / "trainmon.toml"
    file.write_text(text)
    return config.load(file)


def test_every_table_of_the_design_becomes_a_value(tmp_path: Path) -> None:
    settings = load(tmp_path, DESIGNED)
    cluster = settings.clusters[0]
    assert (cluster.login, len(cluster.nodes or ()), (cluster.nodes or ())[31]) == ("login1", 32, "gpu-032")
    assert (cluster.every, cluster.slurm_every, cluster.connect.at_once, cluster.connect.timeout) == (2, 30, 8, 10)
    run = settings.runs[0]
    assert (run.restart_grace, run.target_step, run.labels) == (900, 100_000, {"owner": "team-a"})
    disk = settings.disks[0]
    assert disk.quota is not None
    assert (disk.usable, disk.lag, disk.quota.command[0], disk.quota.parser) == (0.8, 1800, "lfs", "lustre")
    assert (settings.rules[0].values, settings.notify[0].own) == ({"for": 300}, NtfySettings(topic="env:NTFY_TOPIC"))
    assert settings.retry is not None
    assert settings.ledger is not None
    assert (settings.heartbeat.every, settings.daemon.host) == (14_400, "bastion")
    assert settings.retry.limits == {
        "cuda-oom": RetryLimit(times=1, within=86_400, after_change=("batch", "checkpointing", "placement"))
    }
    assert (settings.evals[0].run, settings.ledger.keep) == ("video-2b", 90 * 86_400)
    assert config.run_specs(settings)[0].eval_commands == (
        ("sbatch", "/fsx/my eval.sh", "{checkpoint}"),
        ("sbatch", "--comment", '{"kind": "eval", "home": "${home}"}', "eval.sh", "{run}", "{step}"),
    )


def test_a_run_keeps_what_the_engine_needs_of_it(tmp_path: Path) -> None:
    (spec,) = config.run_specs(load(tmp_path, DESIGNED))
    assert (spec.name, spec.cluster, spec.log) == ("video-2b", "prod", "/fsx/video/logs/*.out")
    assert (spec.kill_switch, spec.target_step, spec.stall_after) == ("/fsx/video/kill-switch", 100_000, 900)
    assert not spec.may_hang_early, "its stall_after is set"
    (plain,) = config.run_specs(load(tmp_path, '[[run]]\nname = "a"\n'))
    assert (plain.stall_after, plain.may_hang_early) == (900, True)


def test_a_run_has_the_retries_of_the_config_and_may_be_requeued_by_a_setting_of_its_own(tmp_path: Path) -> None:
    text = '[retry]\nauto_requeue = "suggest"\nrendezvous = 5\nhost-oom = 2\n[[run]]\nname = "a"\n'
    first, second = config.run_specs(load(tmp_path, f'{text}[[run]]\nname = "b"\nauto_requeue = "on"\n'))
    assert (first.retry.auto_requeue, second.retry.auto_requeue) == ("suggest", "on")
    assert first.retry.limits == second.retry.limits == {
        "rendezvous": RetryLimit(times=5),
        "host-oom": RetryLimit(times=2, after_change=("batch", "checkpointing", "placement")),
    }  # fmt: skip
    (plain,) = config.run_specs(load(tmp_path, '[[run]]\nname = "a"\n'))
    assert (plain.retry.auto_requeue, plain.retry.limits) == ("off", {})


def test_the_jobs_of_a_run_may_be_anothers_and_are_watched_then(tmp_path: Path) -> None:
    run, alices = '[[run]]\nname = "r"\n', '[[run]]\nname = "a"\njob = "r"\nuser = "alice"\n'
    for users, whose, watched in (
        ("", [None, "alice"], ("me", "alice")),
        ('users = ["bob"]\n', ["bob", "alice"], ("bob", "alice")),
        ('users = ["me", "alice"]\n', [None, "alice"], ("me", "alice")),
    ):
        settings = load(tmp_path, f'[cluster]\nname = "prod"\n{users}{run}{alices}')
        assert [spec.user for spec in config.run_specs(settings)] == whose
        assert config.queue_users(settings, settings.clusters[0]) == watched
    settings = load(tmp_path, run)
    assert config.queue_users(settings, settings.clusters[0]) == ()


def test_one_cluster_may_be_a_plain_table_and_owns_the_runs(tmp_path: Path) -> None:
    settings = load(tmp_path, '[cluster]\nname = "prod"\nnodes = ["n1"]\n[[run]]\nname = "r"\n')
    assert settings.clusters == (ClusterSettings(name="prod", nodes=("n1",)),)
    assert config.run_specs(settings)[0].cluster == "prod"


def test_an_empty_file_watches_this_machine(tmp_path: Path) -> None:
    assert load(tmp_path, "").clusters == (ClusterSettings(name="local", login=None, nodes=()),)


def test_clusters_without_a_login_and_without_shared_files_stand_side_by_side(tmp_path: Path) -> None:
    text = '[[cluster]]\nname = "p"\nnodes = ["a"]\n[[cluster]]\nname = "q"\nlogin = "b"\nnodes = ["b"]\n'
    assert [cluster.name for cluster in load(tmp_path, text).clusters] == ["p", "q"]


def test_the_nodes_of_slurm_jobs_are_not_a_list(tmp_path: Path) -> None:
    assert load(tmp_path, '[cluster]\nnodes = "slurm"\n').clusters[0].nodes is None


def test_charts_need_a_project_or_the_files_of_the_client(tmp_path: Path) -> None:
    run = '[[run]]\nname = "r"\ncharts = ["loss"]\n'
    settings = load(tmp_path, run + 'wandb_dir = "/fsx/run/wandb"\n')
    [spec] = config.run_specs(settings)
    assert (spec.wandb, spec.wandb_dir, spec.charts) == (None, "/fsx/run/wandb", ("loss",))
    with pytest.raises(ConfigError, match="charts needs a W&B project"):
        load(tmp_path, run)


def test_a_console_log_at_wandb_is_no_path(tmp_path: Path) -> None:
    settings = load(tmp_path, '[[run]]\nname = "r"\nlog = "wandb"\nwandb = "team/project"\ngroup = "g"\n')
    assert settings.runs[0].log == "wandb"
    assert config.run_specs(settings)[0].log is None


@pytest.mark.parametrize(
    ("lists", "hosts"),
    [
        (["gpu-[001-003]"], ("gpu-001", "gpu-002", "gpu-003")),
        (["b", "a"], ("b", "a")),
        (["n[1-2,7]", "x"], ("n1", "n2", "n7", "x")),
        (["rack[1-2]-n[1-2]"], ("rack1-n1", "rack1-n2", "rack2-n1", "rack2-n2")),
        (["me@gpu-[1-2]"], ("me@gpu-1", "me@gpu-2")),
        (["10.0.0.1", "fe80::1"], ("10.0.0.1", "fe80::1")),
    ],
)
def test_host_lists_are_read_as_slurm_writes_them(lists: list[str], hosts: tuple[str, ...]) -> None:
    assert config.default_settings(lists).clusters[0].nodes == hosts


def test_slurm_is_queried_on_the_login_host_of_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert config.default_settings(["gpu-1", "login1"]).clusters[0].login == "login1"
    assert config.default_settings(["gpu-1", "gpu-2"]).clusters[0].login == "gpu-1"
    squeue = tmp_path / "squeue"
    squeue.touch(mode=0o755)
    assert config.default_settings(["gpu-1", "gpu-2"]).clusters[0].login is None, "this machine has Slurm"
    assert config.default_settings(["gpu-1", "login1"]).clusters[0].login == "login1"


def test_hosts_of_the_command_line_are_watched_once_each() -> None:
    assert config.default_settings(["n1", "n[1-2]"]).clusters[0].nodes == ("n1", "n2")


def test_a_host_that_looks_like_an_option_is_refused() -> None:
    with pytest.raises(ConfigError) as caught:
        config.default_settings(["-oProxyCommand=id"])
    assert caught.value.problems == [
        'the command line has an invalid host list "-oProxyCommand=id": write it like "gpu-[001-032]"'
    ]


def test_hosts_narrow_a_config_that_is_named(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(
        '[cluster]\nname = "p"\nnodes = ["n[1-4]"]\n'
        '[[run]]\nname = "a"\nnodes = ["n[1-2]"]\n[[run]]\nname = "b"\nnodes = ["n[3-4]"]\n'
    )
    settings, found = config.load_settings(file, ["n2"])
    assert found == file
    assert settings.clusters[0].nodes == ("n2",)
    assert [(run.name, run.nodes) for run in settings.runs] == [("a", ("n2",))]


def test_a_host_that_the_named_config_lacks_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[cluster]\nnodes = ["gpu-[001-004]"]\n')
    with pytest.raises(ConfigError) as caught:
        config.load_settings(file, ["gpu-0O1"])
    assert caught.value.problems == ['no node "gpu-0O1" in the config; did you mean "gpu-001"?']


# ---- which file -----------------------------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    own = tmp_path / "home" / ".config" / "trainmon-tui"
    own.mkdir(parents=True)
    (own / "config.toml").touch()
    return tmp_path / "home"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    folder = tmp_path / "here"
    folder.mkdir(mode=0o755)
    return folder


def test_the_environment_wins_over_the_working_directory(home: Path, here: Path) -> None:
    (here / "trainmon.toml").touch(mode=0o644)
    environ = {"TRAINMON_CONFIG": "/etc/t.toml", "HOME": str(home)}
    assert config.find_file(environ, here) == Path("/etc/t.toml")


def test_the_working_directory_wins_over_the_home(home: Path, here: Path) -> None:
    (here / "trainmon.toml").touch(mode=0o644)
    assert config.find_file({"HOME": str(home)}, here) == Path("trainmon.toml")


def test_the_users_own_config_is_the_last_place(home: Path, here: Path) -> None:
    own = home / ".config" / "trainmon-tui" / "config.toml"
    assert config.find_file({"HOME": str(home)}, here) == own
    assert config.find_file({"HOME": "/x", "XDG_CONFIG_HOME": str(home / ".config")}, here) == own
    assert config.find_file({"HOME": str(here)}, here) is None


# ---- whom it belongs to ---------------------------------------------------------------------------------------------


def refusal(file: Path) -> str:
    """Why a file is not read; empty if it is."""
    try:
        config.load(file)
    except ConfigError as error:
        return str(error)
    return ""


def why(file: Path, *, user: int | None = None) -> str | None:
    """Why another user, or this one, does not trust a file."""
    problem = config.why_not_trusted(file, file.stat(), os.getuid() if user is None else user)
    return problem[0] if problem else None


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o400, 0o755])
def test_a_config_that_only_its_user_can_write_is_read(mode: int, here: Path) -> None:
    file = here / "trainmon.toml"
    file.touch()
    file.chmod(mode)
    assert refusal(file) == ""


@pytest.mark.parametrize("mode", [0o666, 0o602, 0o646])
def test_a_config_that_others_can_write_is_refused_wherever_it_is_named(
    mode: int, home: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(here)
    own = home / ".config" / "trainmon-tui" / "config.toml"
    for environ, file, named in (
        ({}, here / "trainmon.toml", Path("trainmon.toml")),
        ({"HOME": str(home)}, own, own),
        ({"TRAINMON_CONFIG": str(here / "t.toml")}, here / "t.toml", here / "t.toml"),
    ):
        file.touch()
        file.chmod(mode)
        with pytest.raises(ConfigError) as caught:
            config.load_settings(None, [], environ)
        sentence = f"{named}: not read, because other users can write to it, and a config may contain commands"
        assert str(caught.value) == f"{sentence} (chmod go-w {named.absolute() if named != file else file})".replace(
            f"{here}/trainmon.toml)", "trainmon.toml)"
        )
        with pytest.raises(ConfigError, match="other users can write to it"):
            config.load_settings(file, [], {})
        file.unlink()


def test_a_config_in_a_directory_that_others_can_write_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = here / "trainmon.toml"
    file.touch(mode=0o644)
    here.chmod(0o777)
    assert refusal(file) == (
        f"{file}: not read, because other users can write to its directory, and a config may contain commands "
        f"(chmod go-w {here})"
    )
    monkeypatch.chdir(here)
    assert refusal(Path("trainmon.toml")).endswith("(chmod go-w .)")


def test_a_config_in_a_directory_for_everybodys_files_is_refused_without_advice_to_close_it(here: Path) -> None:
    file = here / "trainmon.toml"
    file.touch(mode=0o644)
    here.chmod(0o1777)
    assert refusal(file).endswith(f"(if you trust it: mkdir -m 700 ~/trainmon; cp {file} ~/trainmon)")


def test_the_group_of_a_config_may_write_if_its_user_is_the_only_member(here: Path) -> None:
    file = here / "trainmon.toml"
    file.touch()
    file.chmod(0o664)
    own = config.is_only_member(pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(file.stat().st_gid), pwd.getpwall())
    assert (why(file) is None) == own
    here.chmod(0o775)
    file.chmod(0o644)
    assert (why(file) is None) == own


@pytest.mark.parametrize(
    ("group", "members", "primary", "is_own"),
    [
        ("ana", [], ["ana"], True),
        ("ana", [], [], True),
        ("ana", ["ana"], ["ana"], True),
        ("proj", ["ana"], [], True),
        ("proj", ["ana", "root"], [], True),
        ("proj", [], ["ana"], True),
        ("proj", ["ana", "bob"], [], False),
        ("proj", ["ana"], ["bob"], False),
        ("ana", [], ["ana", "bob"], False),
        ("ana", ["bob"], [], False),
        ("users", [], [], False),
        ("proj", ["bob"], [], False),
    ],
)
def test_a_group_is_ones_own_without_other_members(
    group: str, members: list[str], primary: list[str], is_own: bool
) -> None:
    everyone = [pwd.struct_passwd((name, "x", 1, 7, "", "", "")) for name in primary]
    everyone.append(pwd.struct_passwd(("carl", "x", 2, 8, "", "", "")))
    assert config.is_only_member("ana", grp.struct_group((group, "x", 7, members)), everyone) == is_own


def test_a_config_of_somebody_else_is_refused_and_one_of_root_is_read(here: Path) -> None:
    file = here / "trainmon.toml"
    file.touch(mode=0o644)
    values = list(file.stat())
    for owner, expected in ((os.getuid(), None), (0, None), (4_711, "it belongs to another user")):
        about = os.stat_result((*values[:4], owner, *values[5:]))
        problem = config.why_not_trusted(file, about, os.getuid())
        assert (problem[0] if problem else None) == expected


def test_a_link_to_a_config_is_judged_by_the_file_and_by_both_directories(here: Path, tmp_path: Path) -> None:
    shared, link = tmp_path / "shared", here / "trainmon.toml"
    shared.mkdir()
    (shared / "t.toml").touch(mode=0o644)
    link.symlink_to(shared / "t.toml")
    assert refusal(link) == ""
    shared.chmod(0o777)
    assert "because other users can write to its directory" in refusal(link)
    shared.chmod(0o755)
    (shared / "t.toml").chmod(0o666)
    assert "because other users can write to it," in refusal(link)


def test_a_pipe_is_refused_without_waiting_for_it(here: Path) -> None:
    os.mkfifo(here / "trainmon.toml")
    assert "trainmon.toml: not read, because it is not a regular file" in refusal(here / "trainmon.toml")


def test_what_an_access_list_allows_others_is_found(here: Path) -> None:
    file = here / "trainmon.toml"
    file.touch(mode=0o644)
    # Version 2: rw for the owner and for user 4711, r for the group, mask rw, nothing for others (acl(5)).
    entries = ((1, 6, -1), (2, 6, 4_711), (4, 4, -1), (16, 6, -1), (32, 0, -1))
    data = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    os.setxattr(file, "system.posix_acl_access", data)
    assert why(file) == "other users can write to it"


def test_a_runs_jobs_are_called_as_it_is_unless_it_says_otherwise(tmp_path: Path) -> None:
    text = '[[run]]\nname = "a"\n[[run]]\nname = "b"\njob = "train-b"\nscript = "/fsx/b.slurm"\n'
    first, second = config.run_specs(load(tmp_path, text))
    assert (first.job, first.script) == ("a", None)
    assert (second.job, second.script) == ("train-b", "/fsx/b.slurm")


def test_the_same_job_name_on_two_clusters_is_two_runs(tmp_path: Path) -> None:
    clusters = '[[cluster]]\nname = "x"\nlogin = "lx"\n[[cluster]]\nname = "y"\nlogin = "ly"\n'
    runs = '[[run]]\nname = "a"\ncluster = "x"\njob = "t"\n[[run]]\nname = "b"\ncluster = "y"\njob = "t"\n'
    assert len(load(tmp_path, clusters + runs).runs) == 2
