"""The demo's faults as the engine judges them: the same fold and verdicts as for real nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.collectors.demo.stage import Stage
from trainmon.engine.reducers.reduce import reduce
from trainmon.model import State

FINE = {"healthy", "saving"}


def judged(directory: Path, story: str, until: float) -> list[State]:
    """A State a second, while one story is told."""
    stage = Stage(directory, story=story)
    states = [State(demo=True)]
    while stage.clock.passed < until:
        stage.play(stage.clock.passed + 1.0)
        events = [event for _, event in stage.events]
        stage.events.clear()
        states.append(reduce(states[-1], events, stage.clock.now()))
    stage.demo.stop()
    return states


@pytest.mark.parametrize(
    ("story", "run", "verdict", "until"),
    [
        ("hang", "llm-7b", "hung", 70.0),
        ("nan", "video-2b", "diverged", 30.0),
        ("lost", "moe-1b", "queued", 90.0),
        ("burst", "llm-7b", "healthy", 30.0),
    ],
)
def test_a_run_is_healthy_until_its_story_shows(
    story: str, run: str, verdict: str, until: float, tmp_path: Path
) -> None:
    states = judged(tmp_path / "demo", story, until)
    assert all(state.runs[run].verdict in FINE for state in states[2:14])
    assert states[-1].runs[run].verdict in (FINE if verdict == "healthy" else {verdict})
    others = [other for other in states[-1].runs.values() if other.name != run and story != "lost"]
    assert all(other.verdict in FINE for other in others)


def test_a_dropped_node_is_late_and_then_down(tmp_path: Path) -> None:
    states = judged(tmp_path / "demo", "node", 40.0)
    healths = [state.sources["node:gpu-006"].health for state in states[2:]]
    assert list(dict.fromkeys(healths)) == ["ok", "late", "down"]


def test_a_node_with_its_clock_off_stays_fresh(tmp_path: Path) -> None:
    states = judged(tmp_path / "demo", "clock", 30.0)
    assert all(state.sources["node:gpu-008"].health == "ok" for state in states[2:])
    assert states[-1].nodes["gpu-008"].clock_skew_s == pytest.approx(437, abs=0.1)


def test_a_lost_gpu_has_its_xid_in_the_state(tmp_path: Path) -> None:
    gpu = judged(tmp_path / "demo", "lost", 20.0)[-1].nodes["gpu-014"].gpus[3]
    assert (gpu.state, gpu.error, gpu.last_xid) == ("lost", "GPU is lost", 79)


def test_every_run_shows_its_step_its_loss_and_a_target(tmp_path: Path) -> None:
    for run in judged(tmp_path / "demo", "hot", 14.0)[-1].runs.values():
        assert run.progress.step
        assert run.progress.loss
        assert run.spec.target_step
        assert run.log is not None
        assert run.log.lines
