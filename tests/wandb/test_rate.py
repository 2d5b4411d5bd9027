"""How often the product asks W&B, counted by the server: the real child and the real SDK, hours of a test clock."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors.wandb.child_process import ChildClient
from collectors.wandb.collector import WandbCollector
from collectors.wandb.login import find_credentials
from tests.lab.wandb_server import WandbServer
from tests.lab.wandb_store import StoredRun
from tests.wandb.parts import ShiftedClock
from tests.wandb.product import pointed_at
from trainmon.model import CurvesGrew, Event, RunSpec, WandbSpec

KEYS = ("train/loss", "grad_norm", "lr", "tokens_per_s", "val/loss", "val/accuracy")
EVERY = 60.0
RUNS = 10


class SteppedCollector:
    """A watcher without its thread: time passes when a test says so."""

    def __init__(self, server: WandbServer, clock: ShiftedClock, home: Path) -> None:
        env = {"HOME": str(home), "PATH": os.environ["PATH"], **pointed_at(server)}
        specs = [WandbSpec(project="tester/video", group=f"g{number}", console=number >= 5) for number in range(RUNS)]
        runs = tuple(RunSpec(name=spec.group or "", cluster="lab", wandb=spec) for spec in specs)
        self.events: list[Event] = []
        self.server, self.clock = server, clock
        self.watcher = WandbCollector(
            runs,
            EVERY,
            self.events.append,
            clock,
            client=lambda: ChildClient(env),
            login=lambda: find_credentials(env, home),
        )

    def close(self) -> None:
        self.watcher.stop()

    def pass_time(self, seconds: float) -> None:
        """As its thread does, but without the waiting."""
        end = self.clock.now() + seconds
        while self.clock.now() < end:
            wait = self.watcher.step()
            self.clock.skipped += max(0.01, min(wait if wait is not None else seconds, end - self.clock.now()))

    def minutes(self, since: float) -> list[int]:
        """Requests in each minute of ours since then."""
        counts: dict[int, int] = {}
        for request in self.server.reader_requests():
            if request.at >= since:
                minute = int((request.at - since) // 60)
                counts[minute] = counts.get(minute, 0) + 1
        return [*counts.values()]

    def specs(self, since: float) -> list[dict[str, Any]]:
        """What history was asked for since then, a spec a metric."""
        requests = [request.variables for request in self.server.reader_requests() if request.at >= since]
        return [json.loads(spec) for variables in requests for spec in variables.get("specs", ())]

    def steps(self, run: StoredRun) -> list[float]:
        """Every step of its loss that came."""
        grown = [event for event in self.events if isinstance(event, CurvesGrew) and event.path == run.path]
        return [step for event in grown if "train/loss" in event.points for step in event.points["train/loss"].steps]


@pytest.fixture
def watch(server: WandbServer, clock: ShiftedClock, folder: Path) -> Iterator[SteppedCollector]:
    made = SteppedCollector(server, clock, folder)
    with contextlib.closing(made):
        yield made


def train(server: WandbServer, run: StoredRun, steps: int) -> None:
    for _ in range(steps):
        step = len(run.history)
        server.log(run, {"trainer/global_step": step, **dict.fromkeys(KEYS, 2.0 - step / 1000)}, step=step)
    run.print(f"step {len(run.history)}")


def test_ten_runs_of_six_charts_take_23_requests_a_minute(
    server: WandbServer, clock: ShiftedClock, watch: SteppedCollector
) -> None:
    """Half of them with their console log as well: it takes turns with the history. Only new steps are asked for. Three
    requests ask for new runs of their project."""
    runs = [server.add_run(f"r{number}", group=f"g{number}") for number in range(RUNS)]
    for run in runs:
        train(server, run, 30)
    watch.pass_time(240.0)  # the first look, and what is asked once of each run
    since = clock.now()
    for _ in range(4):
        for run in runs:
            train(server, run, 5)
        watch.pass_time(60.0)
    assert max(watch.minutes(since)) <= 2 * RUNS + 3
    specs = watch.specs(since)
    assert specs
    assert all(spec["minStep"] >= 29 for spec in specs)
    for run in runs[:5]:
        assert sorted(watch.steps(run)) == [float(step) for step in range(50)]
