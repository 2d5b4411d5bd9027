"""trainmon-run leaves a receipt, and the command does not notice."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Literal

import pytest

from tests.lab import failing_files
from tests.lab.hung_mount import HungMount
from tests.trainmon.job.commands import Seen, receipt, seen, until, wrapped


def test_the_receipt_says_what_ran_where_and_how_it_ended(folder: Path) -> None:
    git = folder / "work"
    subprocess.run(["git", "init", "-q", "-b", "main", git], check=True)
    commit = ["git", "-C", git, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"]
    subprocess.run(commit, check=True)
    head = subprocess.check_output(["git", "-C", git, "rev-parse", "HEAD"], text=True).strip()
    (git / "sub").mkdir()
    log = folder / "train.log"
    log.write_text("before\n")
    environ = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "88", "SLURM_RESTART_COUNT": "2"}
    command = ["sh", "-c", "echo step 1; exit 3", "--api-key", "abc", "--lr=1", "--hf-token=hf_x", "https://a:b@c/d"]
    command += ["PGPASSWORD=abc", "DB_PASS=abc", "PWD=/fsx"]
    with log.open("ab") as out:
        before = wrapped(folder, "--run", "llm")
        subprocess.run([*before, *command], cwd=git / "sub", stdout=out, env=environ, check=False)
    start, end = receipt(folder)
    masked = ["PGPASSWORD=***", "DB_PASS=***", "PWD=/fsx"]
    assert start["argv"][3:] == ["--api-key", "***", "--lr=1", "--hf-token=***", "https://***@c/d", *masked]
    assert (start["run"], start["cwd"], start["git_commit"]) == ("llm", str(git / "sub"), head)
    assert start["slurm"] == {"job_id": "88", "restart_count": "2"}
    status = log.stat()
    assert start["stdout"] == {
        "kind": "file", "path": str(log), "device": status.st_dev, "inode": status.st_ino, "offset": 7,
        "through": None,
    }  # fmt: skip
    assert (end["status"], end["output"]["offset"], end["output"]["tail_bytes"]) == (3, 14, 7)
    assert Path(end["output"]["tail"]).read_bytes() == b"step 1\n"
    assert end["output"]["tail_sha256"] == hashlib.sha256(b"step 1\n").hexdigest()
    assert start["started_at"] <= end["ended_at"] <= time.time()


def test_attached_files_are_kept_smallest_first_as_far_as_the_budget_reaches(folder: Path) -> None:
    for name, size in (("c.json", 10), ("a.json", 30), ("b.json", 20)):
        (folder / name).write_bytes(bytes(size))
    message = folder / "message"
    before = wrapped(
        folder, "--run", "llm", "--attach", f"{folder}/*.json", "--budget", "35", "--notify", f"cat >{message}"
    )
    assert seen([*before, "true"]).status == 0
    _, end = receipt(folder)
    said = f"2 of 3 files kept; left out: {folder}/a.json (30 bytes)"
    assert end["artifacts"]["message"] == said
    assert [Path(one["kept"]).stat().st_size for one in end["artifacts"]["kept"]] == [10, 20]
    assert end["artifacts"]["left_out"] == [{"path": f"{folder}/a.json", "bytes": 30}]
    until(
        lambda: (
            message.exists()
            and message.read_text() == f"llm ended with status 0 after 0s on {os.uname().nodename}. {said}\n"
        )
    )


def test_an_attached_file_that_cannot_be_read_costs_neither_the_others_nor_the_end(folder: Path) -> None:
    (folder / "a.json").write_bytes(b"kept")
    unreadable = f"/proc/{os.getpid()}/mem"
    done = seen([*wrapped(folder, "--attach", f"{folder}/a.json", "--attach", unreadable), "sh", "-c", "exit 3"])
    assert done == Seen(3, b"", b"")
    _, end = receipt(folder)
    assert (end["status"], end["artifacts"]["message"]) == (
        3, f"1 of 2 files kept; left out: {unreadable} (Input/output error)"
    )  # fmt: skip
    assert [Path(one["kept"]).read_bytes() for one in end["artifacts"]["kept"]] == [b"kept"]


def test_the_end_is_written_before_the_attached_files_and_a_signal_ends_the_wait_for_them(folder: Path) -> None:
    """Slurm kills what remains of a job: files that take long must not cost the end."""
    mount = HungMount.at(folder / "shared", folder)
    (folder / "shared" / "a.json").touch()
    mount.hang()
    with (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            [*wrapped(folder, "--attach", f"{folder}/shared/a.json"), "sh", "-c", "exit 3"], stderr=err, env=mount.env
        )
    try:
        until(lambda: list(folder.glob("receipts/*/end.json")))
        assert receipt(folder)[1]["status"] == 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 3
    finally:
        mount.recover()
    said = "trainmon-run: the attached files are not all kept: a signal came first\n"
    assert (folder / "err").read_text() == said


def test_a_receipt_in_a_directory_that_the_options_name_from_here_names_its_files_from_the_root(folder: Path) -> None:
    with (folder / "out").open("wb") as out:
        subprocess.run([*wrapped(folder, "--receipts", "receipts"), "true"], stdout=out, cwd=folder, check=True)
    _, end = receipt(folder)
    assert Path(end["output"]["tail"]).parent.parent == folder / "receipts"


def test_the_message_says_how_it_ended(folder: Path) -> None:
    message = folder / "message"
    assert seen([*wrapped(folder, "--notify", f"cat >{message}"), "sh", "-c", "kill -9 $$"]).status == -9
    said = f"sh was ended by signal 9 after 0s on {os.uname().nodename}.\n"
    until(lambda: message.exists() and message.read_text() == said)


@pytest.mark.parametrize("notify", ["sleep 30", "exit 9", "/no/such"])
def test_a_notification_changes_neither_the_status_nor_the_time(notify: str, folder: Path) -> None:
    before = time.monotonic()
    assert seen([*wrapped(folder, "--notify", notify), "sh", "-c", "exit 5"]) == Seen(5, b"", b"")
    assert time.monotonic() - before < 5.0


def test_an_output_that_was_removed_meanwhile_does_not_cost_the_receipt(folder: Path) -> None:
    with (folder / "out").open("wb") as out:
        subprocess.run([*wrapped(folder), "rm", str(folder / "out")], stdout=out, check=True)
    _, end = receipt(folder)
    assert end["status"] == 0
    assert "No such file" in end["output"]["error"]


@pytest.mark.parametrize("put", ["ln -sf secret out", "ln -f secret out", "rm out; mkfifo out"])
def test_another_file_in_the_place_of_the_output_is_not_kept(put: str, folder: Path) -> None:
    (folder / "secret").write_text("topic-4711")
    with (folder / "out").open("wb") as out:
        subprocess.run([*wrapped(folder), "sh", "-c", put], stdout=out, cwd=folder, check=True, timeout=60)
    _, end = receipt(folder)
    assert end["status"] == 0
    assert end["output"]["error"] == f"{folder}/out is another file now"
    assert list(folder.glob("receipts/*/tail.log")) == []


def test_a_fifo_in_the_place_of_the_log_does_not_hold_the_end(folder: Path) -> None:
    done = seen([*wrapped(folder, "--log", "log"), "sh", "-c", "rm log; mkfifo log"], cwd=folder)
    assert done.status == 0
    assert "error" in receipt(folder)[1]["output"]


def test_a_receipt_that_cannot_be_written_is_one_line_and_the_command_runs(folder: Path) -> None:
    (folder / "receipts").write_text("a file")
    done = seen([*wrapped(folder), "sh", "-c", "echo out; exit 3"])
    assert (done.status, done.out) == (3, b"out\n")
    assert done.err.startswith(b"trainmon-run: no receipt can be written: ")
    assert done.err.count(b"\n") == 1


@pytest.mark.parametrize(
    ("call", "number"), [("write", errno.ENOSPC), ("write", errno.EDQUOT), ("create", errno.EROFS)]
)
def test_a_disk_that_is_full_or_read_only_costs_one_line(
    call: Literal["write", "create"], number: int, folder: Path
) -> None:
    before = failing_files.prefix(failing_files.build(folder), folder / "receipts", call, number)
    done = seen([*before, *wrapped(folder), "sh", "-c", "echo out; exit 3"])
    assert (done.status, done.out) == (3, b"out\n")
    assert done.err.startswith(b"trainmon-run: no receipt can be written: [Errno %d]" % number)
    assert done.err.count(b"\n") == 1


def test_a_disk_that_hangs_costs_two_seconds_and_one_line(folder: Path) -> None:
    mount = HungMount.at(folder / "receipts", folder)
    mount.hang()
    try:
        done = seen([*wrapped(folder), "sh", "-c", "echo out; exit 3"], env=mount.env)
    finally:
        mount.recover()
    assert (done.status, done.out) == (3, b"out\n")
    assert re.fullmatch(rb"trainmon-run: no receipt can be written: the filesystem of \S+ does not answer\n", done.err)
