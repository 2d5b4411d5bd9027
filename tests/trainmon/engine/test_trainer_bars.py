"""The log of a real Hugging Face Trainer as it grew, read by the probe, in a job of Slurm: what the engine says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec.structs import replace

from tests.collectors.probe.files.log_reader import Log as FollowedLog
from tests.collectors.probe.files.test_bars import tqdm
from tests.lab.hf_trainer import pieces
from trainmon.alerting.manager import AlertManager
from trainmon.alerting.pipeline.routing import Routing
from trainmon.alerting.rules import RULES
from trainmon.engine.engine import Engine
from trainmon.engine.snapshot import snapshot
from trainmon.model import Event, Job, JobsListed, NodeReading, RunsChanged, RunSpec, Source, SourceChanged, State

START = 100_000.0


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at = START

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


class Seen(NamedTuple):
    """A run after one look."""

    verdict: str
    why: str
    step: int | None
    target: int | None


class Watched:
    """A run whose log grows, and its job."""

    def __init__(self, log: Path, logs: Path | None = None) -> None:
        self.log, self.clock = log, Clock()
        log.write_bytes(b"")
        self.follower = FollowedLog(logs or log)
        alerting = AlertManager(tuple(rule() for rule in RULES), Routing(), None, clock=self.clock)
        self.engine = Engine(self.clock, alerting=alerting)
        spec = RunSpec(name="run", cluster="lab", log=str(logs or log), stall_after=900)
        self.engine.step([RunsChanged((spec,)), self.slurm(), self.jobs()], START)
        self.seen: list[Seen] = []
        self.announced: set[str] = set()
        """The ids of alerts that it has finished."""

    def slurm(self) -> SourceChanged:
        at = self.clock.at
        return SourceChanged(
            Source(name="slurm:lab", kind="slurm", cluster="lab", phase="up", answered_at=at, period=30)
        )

    def jobs(self, **changes: object) -> JobsListed:
        job = {"cluster": "lab", "id": "7", "number": 7, "name": "run", "user": "ana", "state": "RUNNING"}
        return JobsListed("lab", self.clock.at, (Job(**job | {"started_at": START - 5.0} | changes),))  # type: ignore[arg-type]

    def look(self, *more: Event, after: float = 2.0) -> State:
        self.clock.at += after
        chunks = [replace(one, t=self.clock.at) for one in self.follower.chunks(slow=True, after=after)]
        readings = [NodeReading("n1", "lab", self.clock.at, one) for one in chunks]
        state = self.engine.step([*readings, self.slurm(), *more], self.clock.at)
        found = snapshot(state, self.clock.at)["runs"][0]
        self.seen.append(Seen(found["verdict"], found["why"], found["step"], found["target_step"]))
        self.announced |= {one.id for one in state.alerts.values() if one.rule == "finished"}
        return state

    def grows(self, blocks: Sequence[bytes]) -> None:
        for block in blocks:
            with self.log.open("ab") as file:
                file.write(block)
            self.look()


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path / "slurm-7.out")


@pytest.mark.parametrize("together", [1, 4, 7])
def test_a_run_is_finished_once_its_job_completed_and_never_before(watched: Watched, together: int) -> None:
    watched.grows(pieces("finished", together))
    assert {one.verdict for one in watched.seen} <= {"starting", "healthy", "evaluating"}
    assert any(one.target == 150 and 90 <= (one.step or 0) < 110 for one in watched.seen)
    assert watched.announced == set()
    assert watched.seen[-1][2:] == (150, 150)
    assert watched.seen[-1].why.endswith("; target reached, job still runs")
    watched.look(watched.jobs(state="COMPLETED", exit_code="0:0", ends_at=watched.clock.at))
    for _ in range(60):
        watched.look(after=60.0)
    assert watched.seen[-1].verdict == "finished"
    assert len(watched.announced) == 1


@pytest.mark.parametrize(("name", "step"), [("killed", 247), ("stopped", 380)])
def test_a_run_that_was_killed_between_evaluations_is_dead(watched: Watched, name: str, step: int) -> None:
    watched.grows(pieces(name, 3))
    state = watched.look(watched.jobs(state="FAILED", exit_code="0:9", ends_at=watched.clock.at))
    state = watched.look(after=61.0)
    assert watched.seen[-1].verdict == "dead"
    assert watched.seen[-1].step == step
    assert "run-dead" in {one.rule for one in state.alerts.values() if one.is_firing}
    assert watched.announced == set()


def test_a_run_whose_evaluation_fails_after_its_target_is_dead_and_not_finished(watched: Watched) -> None:
    watched.grows(pieces("finished", 2))
    watched.grows([b"Traceback (most recent call last):\n", b"RuntimeError: no metric 'accuracy'\n"])
    state = watched.look(watched.jobs(state="FAILED", exit_code="1:0", ends_at=watched.clock.at), after=30.0)
    assert watched.seen[-1].verdict == "dead"
    assert "at step 150, its target" in watched.seen[-1].why
    assert watched.announced == set()
    (dead,) = [one for one in state.alerts.values() if one.rule == "run-dead"]
    assert dead.severity == "critical"


def test_an_error_at_the_end_of_a_log_counts_although_a_script_hides_it(watched: Watched) -> None:
    watched.grows(pieces("finished", 2))
    error = b'Traceback (most recent call last):\n  File "/x/train.py", line 9, in <module>\nRuntimeError: no metric\n'
    watched.grows([error])
    watched.look(watched.jobs(state="COMPLETED", exit_code="0:0", ends_at=watched.clock.at), after=30.0)
    for _ in range(3):
        assert watched.seen[-1].verdict == "dead"
        assert ", at step 150, its target, with an error: python-exception" in watched.seen[-1].why
        watched.look(after=61.0)
    assert watched.announced == set()


def test_a_run_at_its_target_hangs_only_after_stall_after(watched: Watched) -> None:
    watched.grows(pieces("finished", 4))
    for _ in range(14):
        watched.look(after=60.0)
        assert watched.seen[-1].verdict in ("healthy", "evaluating")
    watched.look(after=120.0)
    assert watched.seen[-1].verdict == "stalled"
    assert watched.seen[-1].why.endswith("; target reached, job still runs")


def test_an_alert_that_it_finished_hides_nothing_of_its_next_job(watched: Watched) -> None:
    watched.grows(pieces("finished", 4))
    watched.look(watched.jobs(state="COMPLETED", exit_code="0:0", ends_at=watched.clock.at))
    watched.look()
    began = watched.clock.at
    down = Source(name="node:n1", kind="node", cluster="lab", phase="down", answered_at=began - 600.0, period=2)
    state = watched.look(SourceChanged(down), watched.jobs(id="8", number=8, started_at=began))
    for _ in range(20):
        state = watched.look(SourceChanged(down), after=8.0)
    assert watched.seen[-1].verdict == "unknown"
    assert "finished" not in {one.rule for one in state.alerts.values() if one.is_firing}


@pytest.mark.parametrize("how", ["truncated", "newer", "appended"])
def test_the_next_training_of_a_run_has_its_own_target(tmp_path: Path, how: str) -> None:
    watched = Watched(tmp_path / "a.log", logs=tmp_path / "*.log")
    watched.grows(pieces("finished", 4))
    watched.look(watched.jobs(state="COMPLETED", exit_code="0:0", ends_at=watched.clock.at))
    assert watched.seen[-1].verdict == "finished"
    began = watched.clock.at
    watched.log = tmp_path / "b.log" if how == "newer" else watched.log
    watched.log.write_bytes(watched.log.read_bytes() if how == "appended" else b"")
    watched.look(watched.jobs(id="8", number=8, started_at=began))
    first = len(watched.seen)
    watched.grows(pieces("finished", 4))
    assert {one.target for one in watched.seen[first:]} <= {None, 150}
    assert watched.seen[-1][2:] == (150, 150)
    watched.look(watched.jobs(id="8", number=8, started_at=began, state="COMPLETED", ends_at=watched.clock.at))
    assert watched.seen[-1].verdict == "finished"


def test_the_bar_of_an_epoch_that_begins_again_is_no_restart(watched: Watched) -> None:
    for epoch in range(3):
        blocks = [f"\n{tqdm(step, 20, 'train: ', ', loss=0.5')}\x1b[A" for step in (5, 10, 20)]
        watched.grows([*map(str.encode, blocks), f"{tqdm(20, 20, 'train: ', ', loss=0.5')}\n".encode()])
        watched.grows([f"\r{tqdm(epoch + 1, 3, 'Epoch: ')}\n".encode()])
    run = watched.look().runs["run"]
    assert run.memory.back_at is None
    assert [one for one in run.memory.spans[1:] if one.is_start] == []


@pytest.mark.parametrize("torn", ["", "step 300/40", "step 300/40000 loss 2.98"])
@pytest.mark.parametrize("end", ["{}\r", "\r{}"])
def test_steps_that_carriage_returns_end_are_read_before_the_line_ends(watched: Watched, end: str, torn: str) -> None:
    blocks = ["".join(end.format(f"step {step}/40000 loss 2.98") for step in range(first, first + 100))
        for first in (0, 100, 200)]  # fmt: skip
    watched.grows([block.encode() for block in blocks])
    watched.grows([("\r" + torn).encode()])
    assert watched.seen[-1][2:] == (299, 40000)
    (tail,) = snapshot(watched.look(), watched.clock.at)["runs"][0]["log"]["tail"]
    assert tail == torn or tail == "step 299/40000 loss 2.98"


@pytest.mark.parametrize("at", range(600, 17_500, 211))
def test_a_fresh_look_is_at_most_one_state_behind_wherever_the_bytes_are_cut(tmp_path: Path, at: int) -> None:
    """A program that has just started has nothing but the end of the file, which a buffer may have cut anywhere."""
    written = b"".join(pieces("finished"))[:at]
    steps = [int(step) for step in re.findall(rb"(\d+)/150 \[", written)]
    watched = Watched(tmp_path / "log")
    watched.log.write_bytes(written)
    watched.look()
    assert watched.seen[-1].step in steps[-2:]
