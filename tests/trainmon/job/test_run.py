"""trainmon-run does what the bare command does, and leaves a receipt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collectors.probe.interpreters import found
from tests.lab.terminal import Terminal
from tests.trainmon.job.commands import PYTHON, Seen, receipt, script, seen, training, until, wrapped

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

VARIANTS = ("exit 1", "exit 137", "TERM", "SEGV")


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
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in VARIANTS else []) for name in COMMANDS]
)
@pytest.mark.parametrize("options", [(), ("--log", "copy")], ids=["inherited", "copied"])
def test_a_command_ends_and_writes_as_if_it_were_bare(
    name: str, into: str, options: tuple[str, ...], folder: Path
) -> None:
    bare = COMMANDS[name] if name.startswith(("a ", "in", "by")) else ["/bin/sh", *COMMANDS[name][1:]]
    expected = ran(bare, folder, into)
    assert ran([*wrapped(folder, *options), *bare], folder, into) == expected
    start, end = receipt(folder)
    status = expected.status
    assert (end["status"], end["signal"]) == ((status, None) if status >= 0 else (None, -status))
    assert start["argv"] == bare
    assert start["stdout"]["kind"] == into


def test_a_missing_command_and_one_that_cannot_be_executed_and_none(folder: Path) -> None:
    before = wrapped(folder)
    assert seen([*before, "no-such"]) == Seen(127, b"", b"trainmon-run: no-such: No such file or directory\n")
    assert seen([*before, "./data"], cwd=folder) == Seen(126, b"", b"trainmon-run: ./data: Permission denied\n")
    assert seen([*before]) == Seen(2, b"", b"trainmon-run: no command is given; see --help\n")
    for size in ("much", "-5MB", ""):
        assert seen([*before[:-1], "--budget", size, "--", "true"]).status == 2
    assert seen([*before[:-1], "--colour", "--", "true"]).status == 2
    assert seen([*before[:-1], "--help"]).out.startswith(b"usage: trainmon-run")


def test_a_command_reads_and_controls_the_terminal(folder: Path) -> None:
    script = "test -t 0 && test -t 1 && test -t 2 && read line </dev/tty && stty -a | grep -q isig && echo got $line"
    terminal = Terminal([*wrapped(folder), "sh", "-c", script])
    terminal.keys("hello\n")
    assert terminal.wait() == 0
    assert b"got hello" in terminal.screen


def test_a_command_whose_output_is_copied_follows_the_window(folder: Path) -> None:
    script = "trap 'stty size <&1' WINCH; echo ready; while :; do sleep 0.1; done"
    with Terminal([*wrapped(folder, "--log", str(folder / "copy")), "sh", "-c", script]) as terminal:
        terminal.wait_for_text("ready")
        terminal.resize(columns=77, rows=33)
        terminal.wait_for_text("33 77")


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
    gate = folder / "gate"
    os.mkfifo(gate)
    for options in ((), ("--log", str(folder / "copy"))):
        argv = [*wrapped(folder, *options), "sh", "-c", f"(read word <{gate}; echo late) & echo soon"]
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
            assert process.wait(60) == 0
            gate.write_text("now\n")
            assert process.stdout is not None
            assert process.stdout.read() == b"soon\nlate\n"
    assert (folder / "copy").read_bytes() == b"soon\nlate\n"


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
