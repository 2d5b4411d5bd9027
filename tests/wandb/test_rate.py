"""How often the product asks W&B, counted by the server: the real child and the real SDK, hours of a test clock."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collectors.wandb import Watcher
from collectors.wandb_login import find
from collectors.wandb_sidecar import Client
from tests.lab.wandb_server import WandbServer
from tests.lab.wandb_store import StoredRun
from tests.wandb.parts import ShiftedClock
from tests.wandb.product import pointed_at
from trainmon.model import Event, RunSpec
from trainmon.model_wandb import CurvesGrew, WandbSpec

KEYS = ("train/loss", "grad_norm", "lr", "tokens_per_s", "val/loss", "val/accuracy")
EVERY = 60.0
RUNS = 10


class Watch:
    """A watcher without its thread: time passes when a test says so."""

    def __init__(self, server: WandbServer, clock: ShiftedClock, home: Path, console: bool) -> None:
        env = {"HOME": str(home), "PATH": os.environ["PATH"], **pointed_at(server)}
        specs = [WandbSpec(project="tester/video", group=f"g{number}", console=console) for number in range(RUNS)]
        runs = tuple(RunSpec(name=spec.group or "", cluster="lab", wandb=spec) for spec in specs)
        self.events: list[Event] = []
        self.server, self.clock = server, clock
        self.watcher = Watcher(
            runs, EVERY, self.events.append, clock, client=lambda: Client(env), login=lambda: find(env, home)
        )

    def pass_time(self, seconds: float) -> None:
        """As its thread does, but without the waiting."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            wait = self.watcher.step()
            self.clock.skipped += max(0.01, min(wait if wait is not None else seconds, end - self.clock.now()))

    def minutes(self, since: float) -> list[int]:
        """Requests in each minute of ours since then."""
        counts: dict[int, int] = {}
        for request in self.server.asked():
            if request.at >= since:
                minute = int((request.at - since) // 60)
                counts[minute] = counts.get(minute, 0) + 1
        return [*counts.values()]


@pytest.fixture
def watch(server: WandbServer, clock: ShiftedClock, folder: Path) -> Iterator[Callable[..., Watch]]:
    with contextlib.ExitStack() as stack:

        def start(*, console: bool = False) -> Watch:
            made = Watch(server, clock, folder, console)
            stack.callback(made.watcher.stop)
            return made

        yield start


def train(server: WandbServer, run: StoredRun, steps: int) -> None:
    for _ in range(steps):
        step = len(run.history)
        server.log(run, {"trainer/global_step": step, **dict.fromkeys(KEYS, 2.0 - step / 1000)}, step=step)
    run.print(f"step {len(run.history)}")


@pytest.mark.parametrize("console", [False, True])
def test_ten_runs_of_six_charts_take_twenty_requests_a_minute(
    server: WandbServer, clock: ShiftedClock, watch: Callable[..., Watch], console: bool
) -> None:
    runs = [server.add_run(f"r{number}", group=f"g{number}") for number in range(RUNS)]
    for run in runs:
        train(server, run, 30)
    watched = watch(console=console)
    watched.pass_time(240.0)  # the first look, and what is asked once of each run
    since = clock.now()
    watched.events.clear()
    for _ in range(4):
        for run in runs:
            train(server, run, 5)
        watched.pass_time(60.0)
    print(watched.minutes(since))
    assert max(watched.minutes(since)) <= 2 * RUNS
    grown = [event for event in watched.events if isinstance(event, CurvesGrew)]
    assert {event.path for event in grown} == {run.path for run in runs}
    assert all(len(points.steps) <= 10 for event in grown for points in event.points.values())


def test_only_new_steps_are_asked_for(server: WandbServer, clock: ShiftedClock, watch: Callable[..., Watch]) -> None:
    run = server.add_run("r", group="g0")
    train(server, run, 30)
    watched = watch()
    watched.pass_time(100.0)
    since = clock.now()
    train(server, run, 5)
    watched.pass_time(120.0)
    asked = [request for request in server.asked() if request.at >= since and "specs" in request.variables]
    specs = [json.loads(spec) for request in asked for spec in request.variables["specs"]]
    assert specs
    assert all(spec["minStep"] >= 29 for spec in specs)
    assert sorted(watched_steps(watched)) == [float(step) for step in range(35)]


def watched_steps(watched: Watch) -> list[float]:
    """Every step of the loss that came, each once."""
    grown = [event for event in watched.events if isinstance(event, CurvesGrew)]
    return [step for event in grown if "train/loss" in event.points for step in event.points["train/loss"].steps]
