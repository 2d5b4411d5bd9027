"""Eight ranks of PyTorch over gloo, of which one is held up in four ways: both sources name it, and all go on."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.gloo import Training
from tests.lab.torchrun import py_spy
from trainmon.lib import SystemClock
from trainmon.model import RankLook, RunLooked
from trainmon.runtime.looks import Nodes, Request, Stacks, proc
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
            by_proc = proc.look(Request(state, state.runs["gloo"], nodes, SystemClock(), print, lambda: state))
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
