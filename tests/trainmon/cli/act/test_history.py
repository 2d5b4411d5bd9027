"""actions: what was done from here, as a table and as JSON."""

from __future__ import annotations

import json
import time
from pathlib import Path
from subprocess import CompletedProcess

from msgspec.structs import replace

from tests.trainmon.cli.test_main import trainmon
from tests.trainmon.ledger.records import DONE, action, record
from trainmon.cli.act.run import action_lines, action_row
from trainmon.ledger.ledger import Ledger
from trainmon.model import CreateFile, Milestone, Record


def actions(home: Path, *argv: str) -> CompletedProcess[str]:
    return trainmon("actions", *argv, cwd=home, HOME=str(home), XDG_STATE_HOME=str(home / "state"), TZ="UTC")


def written(home: Path, *records: Record) -> None:
    ledger = Ledger(home / "state" / "trainmon-tui", print)
    ledger.start()
    for one in records:
        ledger.write(one)
    ledger.stop()


def test_with_no_ledger_there_was_no_action_and_none_is_made(tmp_path: Path) -> None:
    done = actions(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "no actions in this period\n")
    done = actions(tmp_path, "--json")
    assert (done.returncode, done.stdout) == (0, "[]\n")
    assert not (tmp_path / "state" / "trainmon-tui" / "ledger.sqlite").exists()


def test_the_newest_is_last_and_a_run_or_a_job_may_be_requested(tmp_path: Path) -> None:
    now = time.time()
    other = replace(record("a3", at=now - 50), action=action("a3", run=None, job="prod/91_3", requested_at=now - 50))
    written(tmp_path, record("a2", at=now - 100), record("a1", at=now - 200), record("old", at=now - 9 * 86_400), other)
    assert [one["id"] for one in json.loads(actions(tmp_path, "--json").stdout)] == ["a1", "a2", "a3"]
    assert [one["id"] for one in json.loads(actions(tmp_path, "--json", "--since", "90s").stdout)] == ["a3"]
    assert [one["id"] for one in json.loads(actions(tmp_path, "--json", "91_3").stdout)] == ["a3"]
    assert len(actions(tmp_path, "--since", "30d").stdout.splitlines()) == 5
    assert actions(tmp_path, "nobody").stderr == "no actions on nobody in this period\n"


def test_the_log_that_was_kept_can_be_read(tmp_path: Path) -> None:
    now = time.time()
    assert actions(tmp_path, "--log").returncode == 3
    ledger = Ledger(tmp_path / "state" / "trainmon-tui", print)
    ledger.start()
    ledger.write_text("a1", "log", "login1", "/fsx/log", "step 1\nCUDA out of memory")
    ledger.write(record("a1", at=now - 50))
    ledger.write(record("a2", at=now))
    ledger.stop()
    done = actions(tmp_path, "video-2b", "--log")
    assert (done.returncode, done.stdout) == (0, "step 1\nCUDA out of memory\n")
    assert done.stderr.startswith("login1:/fsx/log before: Requeue job 88 of video-2b, ")
    done = actions(tmp_path, "other", "--log")
    assert (done.returncode, done.stderr) == (3, "no log was saved for these actions\n")


def test_a_row_has_every_field_in_plain_values() -> None:
    assert action_row(record(settled_at=1009.0, **DONE)) == {
        "id": "a1", "asked_at": 1000.0, "who": "ana", "from_host": "laptop", "verb": "requeue", "subject": "video-2b",
        "run": "video-2b", "job": "prod/88", "cluster": "prod", "host": "login1",
        "title": "Requeue job 88 of video-2b", "command": "scontrol requeue Incomplete 88", "why": "its node is slow",
        "step": None, "checkpoint": None, "status": "done", "done_at": 1001.0, "outcome": "requeued",
        "marks": [{"name": "it is pending again", "at": 1002.0, "missed": None}], "settled_at": 1009.0, "note": None,
    }  # fmt: skip


def test_the_table_is_for_people_and_harmless() -> None:
    marks = (
        Milestone("the file is there", 1001.0),
        Milestone("taken"),
        Milestone("saved", missed="no checkpoint came"),
    )
    odd = record(status="done", outcome="created\x1b[2J", marks=marks)
    odd = replace(odd, action=replace(odd.action, verb="save", job=None, operation=CreateFile("/s", "x"), why=""))
    _, line = action_lines([odd])
    assert line.partition("  ")[2] == (
        "save    video-2b  ana@laptop  done    created  "
        f"the file is there {time.strftime('%H:%M:%S', time.localtime(1001))}; taken: not yet; "
        "saved: no, no checkpoint came"
    )


def test_a_damaged_ledger_is_exit_3_with_a_message(tmp_path: Path) -> None:
    file = tmp_path / "state" / "trainmon-tui" / "ledger.sqlite"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"nothing that SQLite knows, and long enough for a header of it" * 20)
    done = actions(tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == (
        f"trainmon-tui: the ledger {file}: it is not a ledger, or it is damaged; "
        "move it away, and a new one is created\n"
    )
