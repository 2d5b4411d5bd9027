"""Eight ranks of PyTorch over gloo, of which one is held up in four ways: both sources name it, and all go on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.probe.gpu.ranks import Ranks
from tests.lab.gloo import Training
from tests.lab.torchrun import py_spy
from trainmon.analysis.runs import peers
from trainmon.lib import SystemClock
from trainmon.model import RankLook, RankSteps, RunLooked
from trainmon.runtime.looks import Nodes, Request, Stacks
from trainmon.runtime.looks.nodes import look_at_processes
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import LocalShell

pytestmark = pytest.mark.slow  # PyTorch is a download of many hundred megabytes

PLACES = {"sleep": "train:sleeps", "loop": "train:loops", "input": "train:asks"}


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    loop = EventLoop()
    loop.start()
    yield Nodes(lambda host: LocalShell(loop), lambda host: sys.executable)
    loop.stop()


@pytest.mark.parametrize("way", ["py-spy", "signal"])
def test_the_rank_that_is_held_up_is_named_and_the_training_goes_on(tmp_path: Path, nodes: Nodes, way: str) -> None:
    path = f"{py_spy()}:{os.environ['PATH']}" if way == "py-spy" else os.environ["PATH"]
    with Training(tmp_path, hooks=way == "signal", PATH=path) as training:
        training.wait_for_steps(10)
        state, submitted = training.state(), list[RunLooked]()
        stacks = Stacks(lambda: state, nodes, submitted.append, SystemClock())
        ways = stacks.find("gloo")
        assert {one.way for one in ways} == {way}

        def looks() -> tuple[RankLook, RankLook]:
            by_proc = look_at_processes(Request(state, state.runs["gloo"], nodes, SystemClock(), print, lambda: state))
            stacks.read("gloo", ways)
            return by_proc, submitted[-1].look

        assert [one.ranks for one in looks()] == [(), ()], "it trains"
        for how in ("sleep", "loop", "input", "stop"):
            training.hold(3, how)
            by_proc, by_stack = looks()
            assert (by_proc.ranks, by_stack.ranks) == ((3,), (3,)), (by_proc.summary, by_stack.summary)
            assert (
                f"`train:<module> > {PLACES[how]}`" in by_stack.summary
                if how in PLACES
                else "state T" in by_stack.summary
            )
            training.let_go(3, how)
            training.wait_for_steps(10)
        training.hold(0, "save")
        assert [one.ranks for one in looks()] == [(), ()], "rank 0 writes a checkpoint"
        training.wait_for_steps(10)
        assert "T" not in training.states()


@pytest.mark.parametrize(("late", "says"), [("3.data", "it waits"), ("5.own", "its 7 peers wait")])
def test_a_rank_that_is_late_in_each_step_tells_it_by_its_hooks(tmp_path: Path, late: str, says: str) -> None:
    with Training(tmp_path, hooks=True, LATE=late) as training:
        training.wait_for_steps(10)

        def told() -> dict[int, RankSteps]:
            (line,) = Ranks({}).read()
            rows = {row[0]: row[-1] for row in line["r"]}
            known = {rank: rows.get(pid) for rank, pid in training.pids().items()}
            return {rank: RankSteps(*steps) for rank, steps in known.items() if steps}

        first = dict[int, RankSteps]()
        while len(now := told()) < 8 or any(one == first.setdefault(rank, one) for rank, one in now.items()):
            training.wait_for_steps(5)
        ((rank, text),) = peers.late(now, 3)
        assert (rank, text.startswith(says)) == (int(late[0]), True), text
