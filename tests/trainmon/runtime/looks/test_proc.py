"""What the script of a look reads from /proc: with each Python that a node may have, and without rights."""

from __future__ import annotations

import json
import os
import re
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
from msgspec.structs import replace

from tests.collectors.probe.interpreters import found
from tests.lab.sshd import until
from trainmon.analysis.attempts.looks.activity import Sample, activities
from trainmon.lib import HostUnreachable, SystemClock
from trainmon.model import (
    Attempt,
    Node,
    Progress,
    RankMap,
    RankProcess,
    RankProcesses,
    Run,
    RunLooked,
    RunSpec,
    State,
    Verdict,
)
from trainmon.runtime.looks import Nodes, Request, Stacks
from trainmon.runtime.looks.nodes import SCRIPTS, calm, code, look_at_processes
from trainmon.runtime.looks.on_node.run import BEGIN
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import LocalShell, Shell

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
    return [(rank, one.pid, int(fields(one.pid)[19]) / TICKS) for rank, one in running.items()]


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
    assert said == {0: "waits", 1: "burns a core", 2: "waits", 3: "is stopped (state T)"}


def test_what_has_ended_and_another_process_with_its_pid_are_not_read() -> None:
    with ranks() as running:
        (_, pid, started), *_ = asked(running)
        gone = subprocess.Popen(["true"])
        gone.wait()
        read = look((PAUSES, [(0, pid, started), (1, pid, started - 1 / TICKS), (2, gone.pid, started)]))
    assert [rank for rank, samples in read if None not in samples] == [0]


def test_a_process_that_ends_meanwhile_does_nothing_that_can_be_compared() -> None:
    brief = subprocess.Popen(["sleep", "0.3"])
    started = int(fields(brief.pid)[19]) / TICKS
    ((_, samples),) = look(((0.0, 0.6), [(0, brief.pid, started)]))
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
    assert kinds(read) == {0: "waits", 1: "burns a core", 2: "waits", 3: "is stopped (state T)"}
    assert {(one.wchan, one.call) for _, samples in read for one in samples if one is not None} == {("", "")}


def test_256_ranks_fit_into_one_question() -> None:
    own = (os.getpid(), int(fields(os.getpid())[19]) / TICKS)
    assert set(kinds(look(((0.0, 0.1, 0.2), [(rank, *own) for rank in range(256)]))).values()) == {"waits"}


@pytest.mark.parametrize(
    ("verdict", "cadence_s", "quiet", "why"),
    [
        ("hung", None, 900.0, ""),
        ("hung", 1.0, 900.0, ""),
        ("healthy", 1.0, 4.0, ""),
        ("healthy", 1.0, 2.0, "its last step came 2s ago, usually one comes every 1s"),
        ("saving", 1.0, 40.0, "it is saving"),
        ("healthy", None, 40.0, "it is not known whether the run makes its steps"),
        ("healthy", None, None, "it is not known whether the run makes its steps"),
        ("unknown", 1.0, 900.0, "it is not known whether the run makes its steps"),
    ],
)
def test_nobody_is_named_unless_the_run_is_late(
    verdict: Verdict, cadence_s: float | None, quiet: float | None, why: str
) -> None:
    progress = Progress(at=None if quiet is None else 5_000.0 - quiet, cadence_s=cadence_s)
    assert calm(Run(spec=RunSpec(name="llm", cluster="c"), verdict=verdict, progress=progress), 5_000.0) == why


def cluster(rows: dict[str, list[RankProcess]]) -> State:
    """What the monitor knows of a run that hangs, with these ranks on its nodes."""
    places = {name: {one.rank: () for one in own} for name, own in rows.items()}
    nodes = {
        name: Node(name=name, cluster="c", ranks=RankProcesses(1, 0.0, tuple(own), user="me", host_pids=True))
        for name, own in rows.items()
    }
    known = RankMap(launcher="torchrun", ranks=8, nodes=places)
    return State(
        runs={"llm": Run(spec=RunSpec(name="llm", cluster="c"), verdict="hung")},
        nodes=nodes,
        attempts={"llm/1": Attempt(attempt_id="llm/1", run_id="llm", cluster="c", ranks=known)},
    )


def test_a_node_that_does_not_answer_is_shown_and_the_others_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainmon.runtime.looks.nodes.PAUSES", PAUSES)
    loop = EventLoop()
    loop.start()

    def shell_of(host: str) -> Shell:
        if host == "n2":
            raise HostUnreachable(host, "no answer in 10s")
        return LocalShell(loop)

    with ranks() as running:
        sleeper, burner = (RankProcess(pid, started, (), "torchrun", 0, 8) for _, pid, started in asked(running)[:2])
        rows = {
            "n1": [replace(sleeper, rank=rank) for rank in range(6)] + [replace(burner, rank=6)],
            "n2": [replace(sleeper, rank=7)],
        }
        state = cluster(rows)
        nodes = Nodes(shell_of, lambda host: sys.executable)
        found = look_at_processes(
            Request(state, state.runs["llm"], nodes, SystemClock(), lambda said: None, lambda: state)
        )
    loop.stop()
    assert found.ranks == (6,)
    assert re.fullmatch(r"6 of 8 ranks wait in `\w+`; rank 6 \(n1\) burns a core: differs, 7 of 8 read", found.summary)
    assert found.lines[-1] == "1 rank on n2: no answer in 10s"


def test_stacks_are_kept_with_the_attempt_of_which_they_are() -> None:
    def shell_of(host: str) -> Shell:
        raise HostUnreachable(host, "no answer in 10s")

    state, submitted = cluster({"n1": [RankProcess(4700, 50.0, (), "torchrun", 3, 8)]}), list[RunLooked]()
    stacks = Stacks(lambda: state, Nodes(shell_of), submitted.append, SystemClock())
    ways = stacks.find("llm")
    assert [(one.way, one.why) for one in ways] == [("", "1 rank on n1: no answer in 10s")]
    assert stacks.read("llm", ways) == "no rank is named: none could be read, 0 of 8 read"
    assert [(one.run, one.attempt, one.look.source) for one in submitted] == [("llm", "llm/1", "stacks")]
