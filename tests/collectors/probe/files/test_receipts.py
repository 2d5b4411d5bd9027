"""The probe reads the receipts of trainmon-run: each once, then what is new of those without an end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collectors.probe.files import receipts
from collectors.probe.files.receipts import Receipts
from collectors.probe.gpu.card import Processes
from tests.collectors.probe.wire import readings_of
from tests.trainmon.job.commands import seen, until, wrapped

HOST = os.uname().nodename
NAMESPACE = str(Path("/proc/self/ns/pid").readlink())


def sense(folder: Path, **more: Any) -> Receipts:
    return Receipts({"receipts": [str(folder / "receipts")], "every_receipt": True, **more})


def news(one: Receipts, slow: bool = False) -> list[Any]:
    """The receipts that are new."""
    return [receipt for reading in readings_of(one, slow) for receipt in reading.receipts]


def write(folder: Path, name: str, **files: object) -> None:
    (folder / "receipts" / name).mkdir(parents=True)
    for file, value in files.items():
        (folder / "receipts" / name / f"{file}.json").write_text(json.dumps(value) + "\n")


def test_how_a_command_began_and_ended_is_reported_once(tmp_path: Path):
    seen([*wrapped(tmp_path, "--run", "llm"), "sh", "-c", "exit 3"])
    one = sense(tmp_path)
    [found] = news(one)
    start, end = json.loads(found.start), json.loads(found.end)
    assert (start["run"], start["host"], end["status"]) == ("llm", HOST, 3)
    assert found.path == str(tmp_path / "receipts" / found.name)
    assert news(one, slow=True) == []


def test_a_running_command_is_reported_and_its_end_when_it_comes(tmp_path: Path):
    one = sense(tmp_path)
    with subprocess.Popen([*wrapped(tmp_path), "cat"], stdin=subprocess.PIPE) as process:
        until(lambda: list(tmp_path.glob("receipts/*/command.json")))
        [found] = news(one)
        assert (found.end, found.gone) == (None, False)
        assert news(one) == []
        assert process.stdin is not None
        process.stdin.close()
    [found] = news(one)
    assert json.loads(found.end)["status"] == 0


def test_a_command_that_was_killed_with_trainmon_run_is_gone(tmp_path: Path):
    one = sense(tmp_path)
    with subprocess.Popen([*wrapped(tmp_path), "sleep", "60"], process_group=0) as process:
        until(lambda: any(found.read_text().endswith("\n") for found in tmp_path.glob("receipts/*/command.json")))
        (found,) = news(one)
        until(lambda: Processes().described(found.command_pid))  # right after its start a process has no command
        described = Processes().described(found.command_pid)
        assert described is not None
        assert (found.gone, described[1]["parents"][0]) == (False, process.pid)
        os.killpg(process.pid, signal.SIGKILL)
    command = json.loads(next(tmp_path.glob("receipts/*/command.json")).read_text())["pid"]
    until(lambda: receipts.began(command) is None)
    assert [(found.end, found.gone, found.command_pid) for found in news(one)] == [(None, True, command)]
    assert news(one, slow=True) == []


def test_a_command_that_outlives_trainmon_run_is_not_gone(tmp_path: Path):
    one = sense(tmp_path)
    with subprocess.Popen([*wrapped(tmp_path), "sleep", "60"], process_group=0) as process:
        until(lambda: list(tmp_path.glob("receipts/*/command.json")))
        process.kill()
    try:
        assert [found.gone for found in news(one)] == [False]
    finally:
        os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("other", ["host", "pid_namespace"])
def test_only_its_own_host_can_tell_whether_a_command_still_runs(other: str, tmp_path: Path):
    own = {"host": HOST, "pid": 1 << 22, "started_at": 1.0, "pid_namespace": NAMESPACE}
    write(tmp_path, "n1-20261123T010000Z-5", start=own | {other: "another"})
    write(tmp_path, "n1-20261123T010000Z-6", start=own)
    assert [(found.name[-1], found.gone) for found in news(sense(tmp_path))] == [("6", True), ("5", None)]


def test_a_pid_that_another_process_has_now_is_gone(tmp_path: Path):
    start = {"host": HOST, "pid": os.getpid(), "started_at": 1.0, "pid_namespace": NAMESPACE}
    write(tmp_path, "n1-20261123T010000Z-5", start=start)
    assert [found.gone for found in news(sense(tmp_path))] == [True]


def test_a_node_reads_its_own_receipts_and_one_host_those_of_all(tmp_path: Path):
    for host in (HOST, "another"):
        write(tmp_path, f"{host}-20261123T010000Z-5", start={"host": host, "pid": 1, "started_at": 1.0})
    one = sense(tmp_path, every_receipt=False)
    assert [found.name.rpartition("-2026")[0] for found in news(one)] == [HOST]
    one.configure({"receipts": [str(tmp_path / "receipts")], "every_receipt": True})
    assert {found.name.rpartition("-2026")[0] for found in news(one)} == {HOST, "another"}


def test_the_newest_receipts_come_first_and_only_so_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(receipts, "NEWEST", 5)
    monkeypatch.setattr(receipts, "AT_ONCE", 3)
    for second in range(7):
        write(tmp_path, f"n1-20261123T01000{second}Z-5", start={"host": "n1"}, end={"status": 0})
    one = sense(tmp_path)
    assert [[found.name[-4] for found in news(one)] for _ in range(3)] == [["6", "5", "4"], ["3", "2"], []]


def test_the_place_without_a_setting_is_that_of_trainmon_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRAINMON_RECEIPTS", str(tmp_path / "receipts"))
    seen([*wrapped(tmp_path), "true"])
    assert len(news(Receipts({"receipts": [""]}))) == 1
    monkeypatch.delenv("TRAINMON_RECEIPTS")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "trainmon-tui").mkdir()
    (tmp_path / "receipts").rename(tmp_path / "trainmon-tui" / "receipts")
    assert len(news(Receipts({"receipts": [""]}))) == 1


def test_a_directory_that_cannot_be_read_says_why(tmp_path: Path):
    one = sense(tmp_path)
    [reading] = readings_of(one, slow=True)
    assert reading.error == f"does not exist; the nearest existing parent is {tmp_path}"
    assert readings_of(one) == readings_of(one, slow=True) == []
    write(tmp_path, "n1-20261123T010000Z-5", start={"host": "n1"}, end={"status": 0})
    [reading] = readings_of(one, slow=True)
    assert (reading.error, len(reading.receipts)) == (None, 1)


@pytest.mark.parametrize("text", ['{"v": 1', "x" * 40_000 + "\n", "7\n"])
def test_a_broken_receipt_is_reported_as_such(text: str, tmp_path: Path):
    write(tmp_path, "n1-20261123T010000Z-5", start={})
    (tmp_path / "receipts" / "n1-20261123T010000Z-5" / "start.json").write_text(text)
    [found] = news(sense(tmp_path))
    assert found.error is not None


@pytest.mark.parametrize("put", [Path.symlink_to, lambda path, secret: os.mkfifo(path)])
def test_a_receipt_that_is_a_link_to_another_file_is_not_read(put: Callable[[Path, Path], None], tmp_path: Path):
    write(tmp_path, "n1-20261123T010000Z-5", start={"host": "n1"})
    (tmp_path / "secret").write_text('{"token": "4711"}\n')
    put(tmp_path / "receipts" / "n1-20261123T010000Z-5" / "end.json", tmp_path / "secret")
    [found] = news(sense(tmp_path))
    assert "not a regular file: it is not read" in (found.error or "")
    assert "4711" not in repr(found)


def test_a_receipt_of_which_a_backup_is_a_second_link_is_read(tmp_path: Path):
    write(tmp_path, "n1-20261123T010000Z-5", start={"host": "n1"}, end={"status": 0})
    for path in (tmp_path / "receipts" / "n1-20261123T010000Z-5").iterdir():
        (tmp_path / path.name).hardlink_to(path)  # as cp -al makes it
    [found] = news(sense(tmp_path))
    assert (found.start is not None, found.end is not None, found.error) == (True, True, None)


def test_a_long_command_line_and_many_attached_files_do_not_hide_how_a_command_ended(tmp_path: Path):
    left_out = [{"path": f"/fsx/checkpoints/{number:09}", "bytes": 1} for number in range(2000)]
    write(
        tmp_path,
        "n1-20261123T010000Z-5",
        start={"host": "n1", "started_at": 1.0, "argv": ["python", "train.py", *["x" * 100] * 2000]},
        end={"ended_at": 2.0, "status": 3, "artifacts": {"left_out": left_out}},
    )
    [found] = news(sense(tmp_path))
    assert found.error is None
    assert json.loads(found.start)["argv"][:2] == ["python", "train.py"]
    assert json.loads(found.end) == {"ended_at": 2.0, "status": 3}
    assert len(found.start) + len(found.end) < receipts.MAX_LINE


def test_other_names_are_left_alone(tmp_path: Path):
    write(tmp_path, "notes", start={})
    assert news(sense(tmp_path)) == []
