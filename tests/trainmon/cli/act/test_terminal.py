"""A person at a terminal acts on this machine: asked first, and a real switch file is there or is not."""

from __future__ import annotations

import json
import socket
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.lab.terminal import Terminal
from tests.trainmon.cli.test_main import trainmon
from tests.trainmon.ledger.records import action
from trainmon.ledger.ledger import Ledger
from trainmon.model import CreateFile, Record


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with both switches, on this machine."""
    (tmp_path / "c.toml").write_text(
        f'[[run]]\nname = "toy"\nkill_switch = "{tmp_path}/kill it"\nsave_switch = "{tmp_path}/save"\n'
    )
    return tmp_path


def at_terminal(folder: Path, *argv: str) -> Terminal:
    command = [sys.executable, "-m", "trainmon", *argv, "--config", str(folder / "c.toml")]
    return Terminal(command, columns=200, env={"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")})


@pytest.mark.parametrize("answer", ["", "yes please"])
def test_nothing_is_done_without_a_yes(folder: Path, answer: str) -> None:
    with at_terminal(folder, "kill", "toy") as terminal:
        terminal.wait_for(b"Proceed? [y/N] ")
        assert f"file             {folder}/kill it" in terminal.text()
        terminal.keys(f"{answer}\n")
        assert terminal.wait() == 4
        assert b"nothing was done" in terminal.screen
    assert not (folder / "kill it").exists()


def test_read_only_refuses_even_a_yes(folder: Path) -> None:
    done = trainmon(
        "kill", "toy", "--yes", "--read-only", "--config", str(folder / "c.toml"),
        cwd=folder, HOME=str(folder), XDG_STATE_HOME=str(folder / "state"),
    )  # fmt: skip
    assert done.returncode == 4
    assert "read-only: nothing is changed from here" in done.stdout
    assert not (folder / "kill it").exists()


def test_a_yes_drops_the_file_and_reports_that_it_is_observed(folder: Path) -> None:
    with at_terminal(folder, "kill", "toy", "--why", "loss is $(nan)") as terminal:
        terminal.wait_for(b"Proceed? [y/N] ")
        assert not (folder / "kill it").exists()
        terminal.keys("y\n")
        assert terminal.wait(30) == 0
        assert f"done: {folder}/kill it is there" in terminal.text()
        assert "the file appears" in terminal.text()
    assert ": loss is $(nan) (" in (folder / "kill it").read_text()
    done = trainmon("actions", "toy", "--json", cwd=folder, HOME=str(folder), XDG_STATE_HOME=str(folder / "state"))
    (row,) = json.loads(done.stdout)
    assert (row["verb"], row["run"], row["status"], row["why"]) == ("kill", "toy", "done", "loss is $(nan)")
    assert (row["command"], row["marks"][0]["at"] is not None) == (f"create '{folder}/kill it'", True)


def test_ctrl_c_at_the_question_does_nothing(folder: Path) -> None:
    with at_terminal(folder, "save", "toy") as terminal:
        terminal.wait_for(b"Proceed? [y/N] ")
        terminal.keys("\x03")
        assert terminal.wait() == 130
        assert b"Traceback" not in terminal.screen
    assert not (folder / "save").exists()


def test_a_config_that_is_read_only_refuses_with_a_message(folder: Path) -> None:
    (folder / "c.toml").write_text("read_only = true\n" + (folder / "c.toml").read_text())
    done = trainmon("kill", "toy", "--yes", "--config", "c.toml", cwd=folder, HOME=str(folder))
    assert done.returncode == 4
    assert "refused: toy: read-only: nothing is changed from here" in done.stdout
    assert not (folder / "kill it").exists()


def test_an_action_that_was_broken_off_is_checked_again_and_not_repeated(folder: Path) -> None:
    killed = action("0123456789ab", verb="kill", subject="toy", run="toy", job=None, requested_at=time.time() - 600)
    line = "by ana (0123456789ab)"
    killed = replace(
        killed, cluster="local", host=socket.gethostname(), operation=CreateFile(f"{folder}/kill it", line)
    )
    ledger = Ledger(folder / "state" / "trainmon-tui", print)
    ledger.start()
    ledger.write(Record(action=killed, written_at=killed.requested_at))
    ledger.stop()
    (folder / "kill it").write_text(f"{line}\n")
    before = (folder / "kill it").stat().st_mtime_ns
    environ = {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    done = trainmon("save", "toy", "--yes", "--config", "c.toml", cwd=folder, **environ)
    assert done.returncode == 0, done.stderr
    first, second = json.loads(trainmon("actions", "--json", cwd=folder, **environ).stdout)
    assert (first["id"], first["status"], first["outcome"]) == (
        "0123456789ab", "done", "its effect is observed: it was done",
    )  # fmt: skip
    assert (second["verb"], second["status"]) == ("save", "done")
    assert (folder / "kill it").stat().st_mtime_ns == before


def test_a_dry_run_leaves_nothing_behind(folder: Path) -> None:
    environ = {"HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    done = trainmon("kill", "toy", "--dry-run", "--config", "c.toml", cwd=folder, **environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Create the kill switch of toy\n")
    assert sorted(path.name for path in folder.rglob("*")) == ["c.toml", "state", "trainmon-tui", "trainmon.log"]
