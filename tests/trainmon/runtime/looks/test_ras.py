"""NCCL's RAS service is asked on a node over SSH: of processes that share its port, and only where that is safe."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.lab.nccl_ras import Job
from tests.lab.sshd import Sshd, free_port
from trainmon.lib import CommandFailed, HostUnreachable, SystemClock
from trainmon.model import (
    Attempt,
    Log,
    Node,
    RankLook,
    RankMap,
    RankProcess,
    RankProcesses,
    Run,
    RunSpec,
    State,
    Verdict,
)
from trainmon.runtime.looks import Nodes, Request, ras
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import Shell
from trainmon.transport.ssh.client import Dialer

SITE = "lib/python3.11/site-packages"


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    loop = EventLoop()
    loop.start()
    with Sshd.start(tmp_path_factory.mktemp("sshd")) as sshd:
        dialer = Dialer(loop, config_file=sshd.ssh_config())
        yield dialer.dial("n0")
        dialer.close()
    loop.stop()


class Node0:
    """A job on n0 and another node, which is down. Of the ranks of n0, two are real processes that answer."""

    def __init__(self, shell: Shell, folder: Path) -> None:
        self.shell, self.folder, self.port = shell, folder, free_port()
        self.stack = ExitStack()
        self.pids: list[int] = []
        self.log: tuple[str, ...] = ()
        self.said: list[str] = []
        self.verdict: Verdict = "hung"

    def start(self, scenario: str = "stuck", seed: int = 1, *, of_job: bool = True, **more: object) -> int:
        """One more process: `of_job`, or of another job of the same user."""
        version = str(more.get("version", "2.28.9"))
        library = self.folder / str(more.pop("library", f"libnccl.so.{version}"))
        library.parent.mkdir(parents=True, exist_ok=True)
        library.write_bytes(b"ELF")
        given = {"port": self.port, "scenario": scenario, "seed": seed, "version": version, "library": str(library)}
        pids = {"pids": str(self.folder / "pids")} if of_job else {}
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.lab.nccl_ras", json.dumps({**given, **pids, **more})],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.stack.callback(process.communicate)
        self.stack.callback(process.kill)
        assert process.stdout is not None
        assert process.stdout.readline() == f"{process.pid}\n"
        if of_job:
            self.pids.append(process.pid)
        return process.pid

    def look(self, scenario: str = "stuck", seed: int = 1) -> RankLook:
        job = Job(scenario, seed, ranks=16)
        job.pids[: len(self.pids)] = self.pids
        (self.folder / "pids").write_text(json.dumps(self.pids))
        nodes, ranks = {}, {}
        for number, name in enumerate(("n0", "n1")):
            own = range(8 * number, 8 * number + 8)
            there = tuple(RankProcess(job.pids[rank], 9.0, (), "torchrun", rank, 16) for rank in own)
            nodes[name] = Node(name=name, cluster="prod", boot_time=1.0, ranks=RankProcesses(1, 1.0, there, "ana"))
            ranks[name] = {rank: (rank % 8,) for rank in own}
        known = RankMap(launcher="torchrun", ranks=16, nodes=ranks)
        attempt = Attempt(attempt_id="a", run_id="llm", cluster="prod", nodes=("n0", "n1"), ranks=known)
        log = Log(host="n0", lines=self.log) if self.log else None
        run = Run(spec=RunSpec(name="llm", cluster="prod", nodes=("n0", "n1")), log=log, verdict=self.verdict)
        state = State(nodes=nodes, attempts={"a": attempt}, runs={"llm": run})
        asked = Nodes(self.shell_of, lambda host: sys.executable, lambda seconds: None)
        return ras.look(Request(state, run, asked, SystemClock(), self.said.append, lambda: state), self.port)

    def shell_of(self, host: str) -> Shell:
        if host != "n0":
            raise HostUnreachable(host, f"no route to {host}")
        return self.shell

    def refusal(self) -> str:
        with pytest.raises(CommandFailed) as caught:
            self.look()
        return caught.value.message


@pytest.fixture
def node(shell: Shell, tmp_path: Path) -> Iterator[Node0]:
    one = Node0(shell, tmp_path)
    with one.stack:
        yield one


def victims(seed: int) -> tuple[int, ...]:
    return Job("stuck", seed, ranks=16).victims


@pytest.mark.parametrize("version", ["2.28.7", "2.30.7"])
def test_the_rank_that_is_behind_is_named(node: Node0, version: str) -> None:
    node.start(version=version)
    node.start(version=version)
    look = node.look()
    assert look.ranks == victims(1)
    assert " has been at " in look.summary
    assert node.said == ["n0 has answered; asking again in 15s"]
    node.verdict = "unknown"
    look = node.look()
    assert look.ranks == ()
    assert look.summary.endswith("; it is not known whether the run makes its steps")


def test_the_version_is_that_of_the_package_beside_the_library(node: Node0) -> None:
    node.start("dead", 3, version="2.28.9", library=f"{SITE}/nvidia/nccl/lib/libnccl.so.2")
    (node.folder / SITE / "nvidia_nccl_cu12-2.28.9.dist-info").mkdir()
    look = node.look("dead", 3)
    assert "left: NCCL has reached no process" in look.summary


def test_a_process_that_is_stopped_accepts_and_never_answers_and_the_next_one_does(node: Node0) -> None:
    os.kill(node.start(), signal.SIGSTOP)
    node.start()
    node.start()
    assert node.look().ranks == victims(1)


def test_of_two_jobs_on_one_port_only_its_own_answer_counts(node: Node0) -> None:
    node.start()
    node.start("ok", 2, of_job=False)
    assert node.look().ranks == victims(1)


def test_it_is_not_asked_where_that_is_not_certainly_safe(node: Node0) -> None:
    unsafe = (
        "NCCL's RAS service is not asked: here is NCCL 2.27.7, it answers in JSON from 2.28.7 on, and questions have "
        "crashed 2.27"
    )
    unknown = "NCCL's RAS service on n0 is not asked: which version of NCCL would answer is not known"
    node.start(version="2.27.7")
    assert node.refusal() == unsafe
    node.pids.clear()
    node.stack.close()
    node.start(library="libnccl.so.2")
    assert node.refusal() == unknown
    node.log = ("n0: NCCL version 2.28.9+cuda12.4",)
    assert node.look().ranks == victims(1)
    node.log = ("NCCL version 2.27.3+cuda12.4", *node.log)
    assert node.refusal() == unsafe.replace("2.27.7", "2.27.3, 2.28.9")
    node.log = node.log[1:]
    other = node.start("ok", 2, of_job=False, library="other/libnccl.so.2")
    assert node.refusal() == unknown  # the kernel may choose the other job
    os.kill(other, signal.SIGKILL)


def test_one_that_has_no_such_service_or_no_json_is_not_asked(node: Node0) -> None:
    for version in ("2.26.2", "2.21.5"):
        node.start(version=version, how="silent")
        assert node.refusal().startswith("NCCL's RAS service is not asked: here is NCCL 2.2")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("off", "nothing listens on port 28028 of n0: NCCL's RAS service is off, in the network of a container, or "
                "at the address of NCCL_RAS_ADDR, which is not read"),
        ("torn", "NCCL's RAS service on n0: its answer cannot be read: it is cut off; "),
        ("huge", "the answer of NCCL's RAS service on n0 is longer than 16 MB"),
    ],
)  # fmt: skip
def test_why_there_is_no_answer(node: Node0, how: str, why: str) -> None:
    node.start(how=how)
    assert node.refusal().startswith(why)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("silent", "no process on n0 answers on NCCL's RAS port: they may be stopped"),
        ("slow", "the answer of NCCL's RAS service on n0 did not end in time"),
    ],
)
def test_one_that_never_answers_is_given_up(node: Node0, how: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ras, "ASKED_FOR", 2.0)
    node.start(how=how)
    assert node.refusal() == why


def test_of_a_job_that_has_none_or_has_ended_another_one_is_not_asked(node: Node0) -> None:
    node.start(how="off")
    node.start("ok", 2, of_job=False)
    assert node.refusal() == "only other jobs answer on NCCL's RAS port on n0"
    node.stack.close()
    assert node.refusal() == "the processes of its ranks on n0 have ended"
