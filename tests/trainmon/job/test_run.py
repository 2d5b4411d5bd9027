"""trainmon-run does what the bare command does, and leaves a receipt."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.probe.interpreters import found
from tests.lab.terminal import Terminal
from tests.trainmon.job.commands import PYTHON, TRAINER, Seen, script, seen, state_of, training, until, wrapped

COMMANDS = {
    "exit 0": ["sh", "-c", "echo out; echo err >&2"],
    "exit 1": ["sh", "-c", "echo out; exit 1"],
    "exit 3": ["sh", "-c", "exit 3"],
    "exit 137": ["sh", "-c", "exit 137"],
    "TERM": ["sh", "-c", "kill -TERM $$"],
    "KILL": ["sh", "-c", "kill -KILL $$"],
    "SEGV": ["sh", "-c", "ulimit -c 0; kill -SEGV $$"],
    "a script without a first line": ["env", "./script"],
    "input": ["cat"],
    "bytes": ["sh", "-c", r"printf '\000\377\r\n\033[1m'"],
}


def receipt(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    (one,) = (folder / "receipts").iterdir()
    assert one.stat().st_mode & 0o777 == 0o700
    return json.loads((one / "start.json").read_text()), json.loads((one / "end.json").read_text())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "script").write_text("echo a script; exit 4\n")
    (tmp_path / "script").chmod(0o755)
    (tmp_path / "data").write_text("text\n")
    return tmp_path


def ran(argv: list[str], folder: Path, into: str) -> Seen:
    """What is seen of a command whose output is a pipe, a file or a terminal."""
    if into == "terminal":
        terminal = Terminal(["sh", "-c", 'cd "$0"; exec "$@"', str(folder), *argv])
        terminal.keys("\x04")
        return Seen(terminal.wait(), bytes(terminal.screen).replace(b"^D\b\b", b""), b"")
    if into == "pipe":
        return seen(argv, cwd=folder, input=b"hello\n")
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err, (folder / "data").open("rb") as data:
        done = subprocess.run(argv, cwd=folder, stdin=data, stdout=out, stderr=err, timeout=60, check=False)
    return Seen(done.returncode, (folder / "out").read_bytes(), (folder / "err").read_bytes())


@pytest.mark.parametrize("into", ["pipe", "file", "terminal"])
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("options", [(), ("--log", "copy")], ids=["inherited", "copied"])
def test_a_command_ends_and_writes_as_if_it_were_bare(
    name: str, into: str, options: tuple[str, ...], folder: Path
) -> None:
    bare = COMMANDS[name] if name.startswith(("a ", "in", "by")) else ["/bin/sh", *COMMANDS[name][1:]]
    assert ran([*wrapped(folder, *options), *bare], folder, into) == ran(bare, folder, into)
    start, end = receipt(folder)
    status = ran(bare, folder, into).status
    assert (end["status"], end["signal"]) == ((status, None) if status >= 0 else (None, -status))
    assert start["argv"] == bare
    assert start["stdout"]["kind"] == into


def test_a_missing_command_and_one_that_cannot_be_executed_and_none(folder: Path) -> None:
    before = wrapped(folder)
    assert seen([*before, "no-such"]) == Seen(127, b"", b"trainmon-run: no-such: No such file or directory\n")
    assert seen([*before, "./data"], cwd=folder) == Seen(126, b"", b"trainmon-run: ./data: Permission denied\n")
    assert seen([*before]) == Seen(2, b"", b"trainmon-run: no command is given; --help tells more\n")
    assert seen([*before[:-1], "--budget", "much", "--", "true"]).status == 2
    assert seen([*before[:-1], "--colour", "--", "true"]).status == 2
    assert seen([*before[:-1], "--help"]).out.startswith(b"usage: trainmon-run")


def test_a_command_reads_and_controls_the_terminal(folder: Path) -> None:
    script = "test -t 0 && test -t 1 && test -t 2 && read line </dev/tty && stty -a | grep -q isig && echo got $line"
    terminal = Terminal([*wrapped(folder), "sh", "-c", script])
    terminal.keys("hello\n")
    assert terminal.wait() == 0
    assert b"got hello" in terminal.screen


@pytest.mark.parametrize("name", ["TERM", "USR1", "INT", "HUP", "CONT", "WINCH", "QUIT"])
@pytest.mark.parametrize("to", ["process", "group"])
def test_a_signal_reaches_the_command_exactly_once(name: str, to: str, folder: Path) -> None:
    number = signal.Signals[f"SIG{name}"]
    results = []
    for before in ([], wrapped(folder)):
        with training(folder, before) as one:
            for _ in range(1 if name == "TERM" else 2):
                count = len(one.signals())
                (os.kill if to == "process" else os.killpg)(one.process.pid, number)
                until(lambda one=one, count=count: len(one.signals()) > count)
                time.sleep(0.2)  # a second one would come at once
            if name != "TERM":
                one.process.send_signal(signal.SIGTERM)
            out, err = one.process.communicate(timeout=60)
            results.append((one.signals(), one.process.returncode, out, err))
    assert results[1] == results[0]


def test_a_signal_is_not_lost_while_the_companion_waits_for_a_disk(folder: Path) -> None:
    with training(folder, wrapped(folder)) as one:
        (companion,) = set(one.others()) - {one.pid}
        os.kill(companion, signal.SIGSTOP)  # as a write that does not return: it looks at nothing
        until(lambda: state_of(companion) == "T")
        os.killpg(one.process.pid, signal.SIGUSR1)
        until(lambda: one.signals() == ["SIGUSR1"])
        until(lambda: one.is_idle(one.process.pid))  # it has taken the first, and waits for the companion
        os.kill(one.process.pid, signal.SIGUSR1)
        until(lambda: len(one.signals()) == 2)
        os.kill(companion, signal.SIGCONT)
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(60) == 7
        assert one.signals() == ["SIGUSR1", "SIGUSR1", "SIGTERM"]


@pytest.mark.parametrize("to", ["process", "group"])
def test_stop_and_continue_work_as_under_a_shell(to: str, folder: Path) -> None:
    tell = os.kill if to == "process" else os.killpg
    with training(folder, wrapped(folder)) as one:
        for count in (1, 2):
            tell(one.process.pid, signal.SIGTSTP)
            pid, status = os.waitpid(one.process.pid, os.WUNTRACED)
            assert (pid, os.WIFSTOPPED(status), os.WSTOPSIG(status)) == (one.process.pid, True, signal.SIGTSTP)
            assert state_of(one.pid) == "T"
            tell(one.process.pid, signal.SIGCONT)
            until(lambda count=count: one.signals() == ["SIGCONT"] * count)
            assert state_of(one.pid) != "T"
            until(one.is_idle)  # the next stop would take a SIGCONT back that nobody has looked at yet
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(60) == 7


@pytest.mark.parametrize("to", ["process", "group"])
def test_a_continue_right_after_the_stop_is_not_lost(to: str, folder: Path) -> None:
    tell = os.kill if to == "process" else os.killpg
    with training(folder, wrapped(folder)) as one:
        tell(one.process.pid, signal.SIGTSTP)
        until(lambda: state_of(one.pid) == "T", every=0.0005)  # trainmon-run has yet to stop itself
        tell(one.process.pid, signal.SIGCONT)
        until(lambda: one.signals() == ["SIGCONT"])
        one.process.send_signal(signal.SIGTERM)
        assert one.process.wait(60) == 7


def test_control_c_in_a_terminal_tells_the_command_once(folder: Path) -> None:
    told = folder / "told"
    terminal = Terminal([*wrapped(folder), sys.executable, "-c", TRAINER, str(told)])
    until(lambda: told.exists() and "ready" in told.read_text())
    terminal.keys("\x03")
    until(lambda: "SIGINT" in told.read_text())
    time.sleep(0.2)
    assert told.read_text().splitlines()[1:] == ["SIGINT"]
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.wait() == 7


@pytest.mark.parametrize("options", [(), ("--log", "copy")], ids=["inherited", "copied"])
def test_control_z_and_fg_in_an_interactive_shell_stop_and_continue_the_command(
    options: tuple[str, ...], folder: Path
) -> None:
    told = folder / "told"
    command = shlex.join([*wrapped(folder, *options), sys.executable, "-c", TRAINER, str(told)])
    (folder / "job").write_text(command)
    with Terminal(["bash", "--noprofile", "--norc", "-i"]) as terminal:
        terminal.keys(f"cd {folder}; . ./job\n")
        until(lambda: told.exists() and "ready" in told.read_text())
        terminal.keys("\x1a")
        terminal.wait_for(b"Stopped")
        assert state_of(int(told.read_text().split()[1])) == "T"
        terminal.keys("echo the shell answers | tr a-z A-Z\n")
        terminal.wait_for(b"THE SHELL ANSWERS")
        terminal.keys("fg\n")
        until(lambda: "SIGCONT" in told.read_text())
        terminal.keys("\x03")
        until(lambda: "SIGINT" in told.read_text())
        os.kill(int(told.read_text().split()[1]), signal.SIGTERM)
        terminal.wait_for(b"SAVED")
        terminal.keys("echo status=$?\n")
        terminal.wait_for(b"status=7")
        terminal.keys("exit\n")
        terminal.wait()
    assert told.read_text().splitlines()[1:] == ["SIGCONT", "SIGINT", "SIGTERM"]


def test_without_forwarding_only_the_wrapper_is_told_and_with_always_the_command_twice(folder: Path) -> None:
    for forward, expected in (("never", []), ("always", ["SIGUSR1", "SIGUSR1"])):
        with training(folder, wrapped(folder, "--forward", forward)) as one:
            if forward == "always":  # the whole group, one after the other: two at once may count as one
                for pid in one.others():
                    os.kill(pid, signal.SIGUSR1)
                until(lambda one=one: one.signals() == ["SIGUSR1"])
            one.process.send_signal(signal.SIGUSR1)
            until(lambda one=one, expected=expected: one.signals() == expected)
            time.sleep(0.2)
            assert one.signals() == expected


def test_the_command_goes_on_when_the_wrapper_is_killed(folder: Path) -> None:
    for options in ((), ("--log", str(folder / "copy"))):
        with training(folder, wrapped(folder, *options)) as one:
            one.process.kill()
            one.process.wait(60)
            os.kill(one.pid, signal.SIGUSR1)
            until(lambda one=one: one.signals() == ["SIGUSR1"])
            os.kill(one.pid, signal.SIGTERM)
            assert one.process.communicate(timeout=60) == (b"SAVED\n", b"")


def test_a_log_on_a_full_disk_ends_the_copy_and_neither_the_command_nor_its_output(folder: Path) -> None:
    script = "for n in 1 2 3; do echo $n; sleep 0.1; done; exit 3"
    done = seen([*wrapped(folder, "--log", "/dev/full"), "sh", "-c", script])
    assert (done.status, done.out) == (3, b"1\n2\n3\n")
    assert done.err == b"trainmon-run: the copy of the output ends: [Errno 28] No space left on device\n"


def test_a_grandchild_that_keeps_the_output_keeps_nobody_waiting(folder: Path) -> None:
    for options in ((), ("--log", str(folder / "copy"))):
        argv = [*wrapped(folder, *options), "sh", "-c", "(sleep 1; echo late) & echo soon"]
        before = time.monotonic()
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
            assert process.wait(60) == 0
            assert time.monotonic() - before < 0.9
            assert process.stdout is not None
            assert process.stdout.read() == b"soon\nlate\n"
    assert (folder / "copy").read_bytes() == b"soon\nlate\n"


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


def test_a_receipt_that_cannot_be_written_is_one_line_and_the_command_runs(folder: Path) -> None:
    (folder / "receipts").write_text("a file")
    done = seen([*wrapped(folder), "sh", "-c", "echo out; exit 3"])
    assert (done.status, done.out) == (3, b"out\n")
    assert done.err.startswith(b"trainmon-run: no receipt can be written: ")
    assert done.err.count(b"\n") == 1


@pytest.mark.parametrize("version", sorted(found(), key=lambda one: int(one.split(".")[1])))
def test_every_python_runs_it(version: str, folder: Path) -> None:
    argv = [
        found()[version],
        "-I",
        "-S",
        *wrapped(folder, "--log", str(folder / "copy"))[3:],
        "sh",
        "-c",
        "echo hi; exit 3",
    ]
    assert seen(argv) == Seen(3, b"hi\n", b"")
    assert receipt(folder)[1]["status"] == 3


def test_the_command_of_the_product_is_the_same(folder: Path) -> None:
    interned = [sys.intern(chr(code)) for code in range(128)]  # as other parts of a long process do
    printed = subprocess.check_output([sys.executable, "-m", "trainmon", "run", "--print-script"], text=True)
    assert printed == Path(script(folder)).read_text()
    assert interned
    argv = [sys.executable, "-m", "trainmon", "run", "--receipts", str(folder / "receipts"), "--", "sh", "-c", "exit 6"]
    assert seen(argv).status == 6
    assert receipt(folder)[0]["argv"] == ["sh", "-c", "exit 6"]
    assert PYTHON
