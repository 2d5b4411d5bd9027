"""The demo's W&B as the engine sees it: the real watcher asks, the demo answers."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from collectors.demo.stories import RUNS, TRAINERS, Trainer
from collectors.demo.trainers import NAMES
from collectors.demo.wandb import HEIGHT, ROWS_KEPT, WIDTH, MetricHistory, frame
from tests.collectors.demo.stage import Stage
from trainmon.analysis.log_formats import parse_line
from trainmon.engine.engine import Engine
from trainmon.model import Curve, Run, State, Wandb

STEP = 1.0


class Session:
    """A demo with an engine behind it."""

    def __init__(self, directory: Path, story: str = "hot") -> None:
        self.stage = Stage(directory, story=story)
        self.engine = Engine(self.stage.clock, demo=True)

    def until(self, seconds: float, condition: Callable[[State], bool] = lambda state: False) -> State:
        """Let time pass, at most until so many seconds after the start."""
        while self.stage.clock.passed < seconds and not condition(self.engine.state):
            self.stage.play(min(seconds, self.stage.clock.passed + STEP))
            self.engine.step([event for _, event in self.stage.events], self.stage.clock.now())
            self.stage.events.clear()
        return self.engine.state

    def curve(self, wandb: Wandb, key: str, attempt: int = 0) -> Curve:
        """One metric of one attempt, the last being 0."""
        known = {run.id: run for run in wandb.runs}
        return self.engine.curve(known[wandb.attempts[attempt]].path, key)

    def close(self) -> None:
        self.stage.demo.stop()


class Calm(NamedTuple):
    """The first seconds, in which nothing is wrong: one for the tests that change nothing."""

    session: Session
    first: State
    """After half a second."""
    early: State
    """After 2 s."""
    state: State
    """After 17 s."""


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Calm]:
    session = Session(tmp_path_factory.mktemp("calm") / "demo")
    yield Calm(session, session.until(0.5), session.until(2.0), session.until(17.0))
    session.close()


def wandb_of(run: Run) -> Wandb:
    assert run.wandb is not None
    return run.wandb


def loss_of(trainer: Trainer) -> str:
    return NAMES[trainer.format].loss


def test_each_run_is_the_active_one_of_its_group_with_attempts_before_it(calm: Calm) -> None:
    for spec in RUNS:
        wandb = wandb_of(calm.early.runs[spec.name])
        assert (wandb.phase, calm.early.sources[f"wandb:{spec.name}"].health) == ("active", "ok")
        assert wandb.runs[0].state == "running"
        assert {run.state for run in wandb.runs[1:]} <= {"finished", "failed", "crashed", "killed"}
        assert len(wandb.runs) >= 2
        assert wandb.before is not None


def test_the_curves_are_those_of_the_log_at_the_same_steps(calm: Calm) -> None:
    for trainer in (TRAINERS[0], TRAINERS[3]):
        run = calm.state.runs[trainer.run.name]
        curve = calm.session.curve(wandb_of(run), loss_of(trainer))
        logged = {int(step): value for step, value in zip(curve.steps, curve.values, strict=True)}
        assert run.log is not None
        steps = [found[1] for line in run.log.lines if (found := parse_line(line)) is not None]
        both = [(found.loss, logged[found.step]) for found in steps if found.step in logged]
        assert len(both) > 40
        assert all(loss == pytest.approx(value, abs=0.01) for loss, value in both)


def test_earlier_attempts_bump_at_the_same_step(calm: Calm) -> None:
    wandb = wandb_of(calm.state.runs["video-2b"])
    now, before = (calm.session.curve(wandb, "lm loss", attempt) for attempt in (0, 1))
    assert before.steps[0] < now.steps[0] < before.steps[-1] < now.steps[-1]
    begin, end = now.steps[0], before.steps[-1]
    highest = [max((v, s) for s, v in zip(c.steps, c.values, strict=True) if begin <= s <= end) for c in (now, before)]
    assert abs(highest[0][1] - highest[1][1]) < 0.02 * (end - begin)


def test_learning_rates_warm_up_and_fall_and_validation_comes_at_other_steps(calm: Calm) -> None:
    wandb = wandb_of(calm.state.runs["llm-7b"])
    rate, validation, loss = (
        calm.session.curve(wandb, key, -1 if key == "lr" else 0)
        for key in ("lr", "validation_metrics/loss", "loss_metrics/global_avg_loss")
    )
    assert rate.values[0] < 0.01 * max(rate.values)
    assert rate.values[-1] < max(rate.values)
    assert 5 < len(validation.steps) < len(loss.steps) / 5


def test_a_spike_is_reported_with_the_band_that_it_leaves_and_comes_back(tmp_path: Path) -> None:
    session = Session(tmp_path / "demo", "spike")
    session.until(2.0)
    seen = session.until(60.0, lambda state: wandb_of(state.runs["smol-3b"]).loss_state == "spike")
    assert wandb_of(seen.runs["smol-3b"]).loss_why.startswith("spike: ")
    later = wandb_of(session.until(100.0).runs["smol-3b"])
    session.close()
    assert later.loss_why.endswith("and back since")
    others = [wandb_of(run).loss_state for name, run in seen.runs.items() if name != "smol-3b"]
    assert set(others) == {"fine"}


def test_a_loss_that_is_no_number_is_nan_in_the_curve(tmp_path: Path) -> None:
    session = Session(tmp_path / "demo", "nan")
    state = session.until(40.0)
    curve = session.curve(wandb_of(state.runs["video-2b"]), "lm loss")
    session.close()
    assert wandb_of(state.runs["video-2b"]).loss_state == "nan"
    assert math.isnan(curve.values[-1])


def test_a_restart_is_waited_for_and_the_next_run_is_taken_up_by_itself(tmp_path: Path) -> None:
    session = Session(tmp_path / "demo", "restart")
    first = wandb_of(session.until(2.0).runs["smol-3b"]).current
    waiting = wandb_of(session.until(45.0).runs["smol-3b"])
    assert waiting.phase == "waiting"
    assert waiting.why.startswith("smol-3b-418100 ")
    assert waiting.why.endswith(" for the next W&B run")
    wandb = wandb_of(session.until(90.0).runs["smol-3b"])
    session.close()
    assert first is not None
    assert wandb.current is not None
    assert wandb.current.id != first.id
    assert wandb.before is not None
    assert (wandb.before.id, wandb.before.state, wandb.phase) == (first.id, "failed", "active")


def test_two_active_runs_are_named_until_one_of_them_ends(tmp_path: Path) -> None:
    session = Session(tmp_path / "demo", "two-active")
    wandb = wandb_of(session.until(50.0).runs["moe-1b"])
    assert wandb.phase == "several"
    assert "moe-1b-debug" in wandb.why
    assert "moe-1b-418277" in wandb.why
    assert wandb_of(session.until(112.0).runs["moe-1b"]).phase == "active"
    session.close()


def test_while_wandb_is_down_its_sources_say_so_and_the_runs_are_healthy(tmp_path: Path) -> None:
    session = Session(tmp_path / "demo", "wandb-down")
    state = session.until(40.0)
    assert {source.health for name, source in state.sources.items() if name.startswith("wandb:")} == {"down"}
    assert all(run.verdict in ("healthy", "saving") for run in state.runs.values())
    state = session.until(112.0)
    assert {source.health for name, source in state.sources.items() if name.startswith("wandb:")} == {"ok"}
    session.close()


def test_a_killed_run_has_crashed_for_wandb_and_nobody_waits_for_another(tmp_path: Path) -> None:
    session = Session(tmp_path / "demo")
    session.until(4.0)
    (session.stage.home("llm-7b") / "kill-switch").touch()
    wandb = wandb_of(session.until(48.0).runs["llm-7b"])
    session.close()
    assert (wandb.phase, wandb.runs[0].state) == ("ended", "finished")


def test_samples_are_saved_as_real_pictures_where_a_person_wants_them(tmp_path: Path) -> None:
    session = Session(tmp_path / "demo")
    session.until(2.0)
    received: list[str] = []
    for run in ("video-2b", "smol-3b"):
        session.stage.demo.save_samples(run, str(tmp_path / "saved"), received.append)
    session.until(3.0)
    state = session.until(14.0)
    assert received == [f"saved 1 sample of video-2b in {tmp_path}/saved", "smol-3b has no samples"]
    (saved,) = (tmp_path / "saved").iterdir()
    assert saved.read_bytes().startswith(b"\x89PNG\r\n")
    (sample,) = wandb_of(state.runs["video-2b"]).samples
    assert sample.kept is not None, "one is kept ready"
    assert Path(sample.kept).read_bytes() == saved.read_bytes()
    session.close()
    assert not Path(sample.kept).exists()


def test_samples_that_cannot_be_written_are_a_sentence(tmp_path: Path) -> None:
    session = Session(tmp_path / "demo")
    session.until(2.0)
    (tmp_path / "file").touch()
    received: list[str] = []
    session.stage.demo.save_samples("video-2b", str(tmp_path / "file"), received.append)
    session.until(3.0)
    session.close()
    assert len(received) == 1
    assert received[0].startswith("no sample of video-2b was saved: ")
    assert received[0].endswith(": file exists")


def test_of_weeks_the_newest_rows_are_kept_and_stay_rows() -> None:
    column = MetricHistory()
    for step in range(2 * ROWS_KEPT):
        column.add(step, 10.0 * step, -step)
    points = column.since(2 * ROWS_KEPT - 3)
    assert [*zip(points.steps, points.times, points.values, strict=True)] == [
        (step, 10.0 * step, -step) for step in range(2 * ROWS_KEPT - 3, 2 * ROWS_KEPT)
    ]
    steps, times, values = column.columns
    assert len(steps) == len(times) == len(values) <= ROWS_KEPT


def test_a_frame_is_a_whole_png_that_becomes_clearer() -> None:
    early, late = frame(100, 0.0), frame(100, 0.9)
    assert len(late) < len(early), "less grain packs better"
    assert struct.unpack(">II", late[16:24]) == (WIDTH, HEIGHT)
    begin = late.index(b"IDAT")
    length = struct.unpack(">I", late[begin - 4 : begin])[0]
    assert len(zlib.decompress(late[begin + 4 : begin + 4 + length])) == HEIGHT * (1 + 3 * WIDTH)


def test_the_first_seconds_are_calm(calm: Calm) -> None:
    """What was logged before the start is at the pace of what comes."""
    first, later = calm.first.runs, calm.state.runs
    compared = 0
    for name in first:
        for field in ("step_time_s", "samples_per_s", "tokens_per_s", "loss"):
            one, other = getattr(first[name].progress, field), getattr(later[name].progress, field)
            assert one is None or one == pytest.approx(other, rel=0.15), (name, field)
            compared += one is not None
    assert compared >= 2 * len(first), "each run tells its loss and its pace"
