"""This machine as a Shell."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.processes import gone
from tests.lab.sshd import until
from trainmon.lib import CommandFailed, TrainmonError
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import LocalShell, Shell

NASTY = ("a'; echo foo", "$(id)", "two\nlines", "-rf", "", "`id`")


class Received:
    """A sink that keeps what it hears."""

    def __init__(self) -> None:
        self.out, self.err = b"", b""
        self.ends: list[tuple[int | None, TrainmonError | None]] = []
        self.done = threading.Event()

    def received(self, data: bytes) -> None:
        self.out += data

    def stderr_received(self, data: bytes) -> None:
        self.err += data

    def ended(self, status: int | None, error: TrainmonError | None) -> None:
        self.ends.append((status, error))
        self.done.set()


@pytest.fixture
def local() -> Iterator[LocalShell]:
    loop = EventLoop()
    loop.start()
    made = LocalShell(loop)
    yield made
    made.close()
    loop.stop()


def test_it_is_a_shell(local: LocalShell) -> None:
    shell: Shell = local
    assert (shell.host, shell.prompted) == ("localhost", False)


def test_nasty_arguments_arrive_as_they_are(local: LocalShell) -> None:
    done = local.run(["printf", "[%s]", *NASTY], timeout=60)
    assert done.stdout.decode() == "".join(f"[{argument}]" for argument in NASTY)


def test_status_output_and_complaints_come_apart(local: LocalShell) -> None:
    assert local.run(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout=60) == (3, b"out\n", b"err\n")
    assert local.run(["sh", "-c", "kill -TERM $$"], timeout=60).status == -signal.SIGTERM


def test_much_input_and_output_pass_together(local: LocalShell) -> None:
    sent = os.urandom(3_000_000)
    assert local.run(["cat"], stdin=sent, timeout=60).stdout == sent


def test_input_that_nobody_reads_is_let_go(local: LocalShell) -> None:
    assert local.run(["true"], stdin=bytes(1_000_000), timeout=60).status == 0


def test_what_cannot_start_says_so(local: LocalShell) -> None:
    with pytest.raises(CommandFailed, match="localhost: 'no-such-command' cannot be started"):
        local.run(["no-such-command"], timeout=1)


def test_a_command_that_takes_too_long_is_ended(local: LocalShell, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    with pytest.raises(CommandFailed, match="localhost: sh did not end in 2s"):
        local.run(["sh", "-c", 'echo $$ > "$1"; exec sleep 300', "sh", str(pid)], timeout=2)
    until(lambda: gone(int(pid.read_text())), "it is ended")


def test_a_closed_stream_sees_the_end_of_its_input(local: LocalShell) -> None:
    reader = Received()
    stream = local.stream(["sh", "-c", "cat; echo bye"], reader)
    stream.write(b"hello\n")
    stream.close()
    until(reader.done.is_set, "it ends")
    assert (reader.out, reader.ends) == (b"hello\nbye\n", [(0, None)])


def test_a_closed_stream_that_will_not_end_is_killed(local: LocalShell) -> None:
    reader = Received()
    script = (
        "import os, signal, time; signal.signal(15, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(60)"
    )
    stream = local.stream([sys.executable, "-c", script], reader)
    until(lambda: reader.out, "it speaks")
    stream.close()
    until(reader.done.is_set, "it ends")
    assert reader.ends == [(-signal.SIGKILL, None)]


def test_nothing_is_left_behind_when_closed(local: LocalShell) -> None:
    reader = Received()
    local.stream(["sh", "-c", "sleep 60 & echo $$ $!; wait"], reader)
    until(lambda: b"\n" in reader.out, "it speaks")
    pids = [int(pid) for pid in reader.out.split()]
    local.close()
    until(lambda: all(map(gone, pids)), "the command and its own children are gone")
    until(reader.done.is_set, "the sink is told")
