"""What the script of a look reads from /proc: with each Python that a node may have, and without rights."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.collectors.probe.interpreters import found
from tests.lab.sshd import until
from trainmon.analysis.attempts.looks import Sample, activities
from trainmon.runtime.looks.nodes import SCRIPTS, code
from trainmon.runtime.looks.on_node.run import BEGIN

TICKS = os.sysconf("SC_CLK_TCK")
PAUSES = (0.0, 0.3, 0.5)
BURNER = "import signal, sys\nsignal.alarm(60)\nprint(flush=True)\nwhile True: pass"
PROGRAMS = {
    0: "import signal, sys, time\nsignal.alarm(60)\nprint(flush=True)\ntime.sleep(60)",
    1: BURNER,
    2: "import signal, sys\nsignal.alarm(60)\nprint(flush=True)\nsys.stdin.read()",
    3: "import signal, time\nsignal.alarm(60)\nprint(flush=True)\ntime.sleep(60)",
}


@contextmanager
def ranks() -> Iterator[dict[int, subprocess.Popen[str]]]:
    """One that sleeps, one that burns a core, one that waits for input, and one that is stopped."""
    running = {
        rank: subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for rank, program in PROGRAMS.items()
    }
    try:
        for one in running.values():
            assert one.stdout is not None
            one.stdout.readline()
        running[3].send_signal(signal.SIGSTOP)
        until(lambda: [state(one.pid) for rank, one in running.items() if rank != 1] == ["S", "S", "T"], "they do it")
        yield running
    finally:
        for one in running.values():
            one.kill()
            one.communicate()


def fields(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def state(pid: int) -> str:
    return fields(pid)[0]


def asked(running: dict[int, subprocess.Popen[str]]) -> list[Any]:
    return [(rank, one.pid, int(fields(one.pid)[19]) / TICKS, []) for rank, one in running.items()]


def look(asked: object, python: str = sys.executable, *before: str) -> list[tuple[int, list[Sample | None]]]:
    argv = [*before, python, "-I", "-S", "-B", "-", json.dumps(asked), "60"]
    done = subprocess.run(argv, input=code("proc"), capture_output=True, timeout=70, check=False)
    assert done.returncode == 0, done.stderr.decode()
    answer = json.loads(zlib.decompress(done.stdout.partition(BEGIN)[2]))
    return msgspec.convert(answer, list[tuple[int, list[Sample | None]]])


def kinds(read: list[tuple[int, list[Sample | None]]]) -> dict[int, str]:
    return {rank: one.text.format(s="s", be="is").partition(" in `")[0] for rank, one in activities(dict(read)).items()}


@pytest.mark.parametrize(
    "version",
    [version if version == "3.6" else pytest.param(version, marks=pytest.mark.slow) for version in sorted(found())],
)
def test_each_python_says_what_processes_do(version: str) -> None:
    with ranks() as running:
        said = kinds(look((PAUSES, asked(running)), found()[version]))
    assert said == {0: "waits", 1: "burns a core in user space", 2: "waits", 3: "is stopped (state T)"}


def test_what_has_ended_and_another_process_with_its_pid_are_not_read() -> None:
    with ranks() as running:
        (_, pid, started, _), *_ = asked(running)
        gone = subprocess.Popen(["true"])
        gone.wait()
        read = look((PAUSES, [(0, pid, started, []), (1, pid, started - 1 / TICKS, []), (2, gone.pid, started, [])]))
    assert [rank for rank, samples in read if None not in samples] == [0]


def test_a_process_that_ends_meanwhile_does_nothing_that_can_be_compared() -> None:
    brief = subprocess.Popen(["sleep", "0.3"])
    started = int(fields(brief.pid)[19]) / TICKS
    ((_, samples),) = look(((0.0, 0.6), [(0, brief.pid, started, [])]))
    brief.wait()
    assert [one is None for one in samples] == [False, True]
    assert activities({0: samples}) == {}


def test_nothing_that_is_sent_for_a_look_needs_more_than_python_3_6() -> None:
    vermin = Path(sys.executable).with_name("vermin")
    sent = [str(path) for path in SCRIPTS.glob("*.py")]
    argv = [str(vermin), "-t=3.6-", "--no-tips", "--violations", *sent]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_sees_states_but_not_where_a_rank_waits() -> None:
    with ranks() as running:
        nobody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        python = shutil.which("python3", path="/usr/bin:/usr/local/bin") or sys.executable
        read = look((PAUSES, asked(running)), python, *nobody)
    assert kinds(read) == {0: "waits", 1: "burns a core in user space", 2: "waits", 3: "is stopped (state T)"}
    assert {(one.wchan, one.call) for _, samples in read for one in samples if one is not None} == {("", "")}


def test_workers_count_only_below_their_rank() -> None:
    with ranks() as running:
        below = [running[1].pid]
        family = [(0, os.getpid(), int(fields(os.getpid())[19]) / TICKS, below), (1, *asked(running)[0][1:3], below)]
        until(lambda: int(fields(below[0])[11]) > TICKS // 10, "the worker works")
        read = dict(look(((0.0, 0.1), family)))
    assert all(one is not None and one.workers >= 0.1 for one in read[0])
    assert [one and one.workers for one in read[1]] == [0, 0]


def test_256_ranks_with_their_workers_fit_into_one_question() -> None:
    own = (os.getpid(), int(fields(os.getpid())[19]) / TICKS, [os.getpid()] * 16)
    assert set(kinds(look(((0.0, 0.3), [(rank, *own) for rank in range(256)]))).values()) == {"waits"}
