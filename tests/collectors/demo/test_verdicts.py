"""The demo's faults as the engine judges them: the same fold and verdicts as for real nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.demo.stories import STORIES, Schedule
from tests.collectors.demo.stage import Stage
from trainmon.engine.reducers.reduce import reduce
from trainmon.model import State

FINE = {"healthy", "saving"}


def judged(directory: Path, story: str | None, until: float) -> list[State]:
    """A State every two seconds, as often as a node answers, while one story is told."""
    stage = Stage(directory, story=story)
    states = [State(demo=True)]
    while stage.clock.passed < until:
        stage.play(stage.clock.passed + 2.0)
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
    assert states[1].runs[run].verdict in FINE
    assert states[-1].runs[run].verdict in (FINE if verdict == "healthy" else {verdict})
    others = [other for other in states[-1].runs.values() if other.name != run and story != "lost"]
    assert all(other.verdict in FINE for other in others)


def is_seen(story: str, state: State) -> bool:
    """Whether the screen says what the first story is about."""
    nodes, runs, sources = state.nodes, state.runs, state.sources
    match story:
        case "hot":
            return (nodes["gpu-003"].gpus[5].temperature_c or 0) >= 87
        case "lost":
            return nodes["gpu-014"].gpus[3].state == "lost" and runs["moe-1b"].verdict not in FINE
        case "hang":
            return runs["llm-7b"].verdict == "hung"
        case "disk":
            disk = next(disk for key, disk in state.disks.items() if "/fsx" in key)
            return (disk.free_bytes or 1) < 0.05 * (disk.total_bytes or 1)
        case "clock":
            return (nodes["gpu-008"].clock_skew_s or 0.0) > 400
        case "login":
            return sources["node:gpu-011"].phase == "held"
        case "spike":
            return (runs["smol-3b"].progress.loss or 0.0) > 3.0
        case "node":
            return sources["node:gpu-006"].health == "down"
        case "restart":
            return runs["smol-3b"].verdict not in FINE
        case "two-active":
            wandb = runs["moe-1b"].wandb
            return wandb is not None and wandb.phase == "several"
        case "burst":
            log = runs["llm-7b"].log
            return log is not None and log.dropped > 0
        case "nan":
            return runs["video-2b"].verdict == "diverged"
    return sources["wandb:llm-7b"].health == "down"


@pytest.mark.parametrize("story", STORIES)
def test_a_story_that_is_asked_for_is_seen_and_told_within_10_s(story: str, tmp_path: Path) -> None:
    states = judged(tmp_path / "demo", story, 9.9)
    assert is_seen(story, states[-1])
    assert states[-1].story == Schedule(story).round(0)[0].told


def test_a_demo_without_a_name_begins_calm_and_then_tells_its_newest_story(tmp_path: Path) -> None:
    states = judged(tmp_path / "demo", None, 70.0)
    told = list(dict.fromkeys(state.story for state in states[1:]))
    assert told == [
        "nothing is wrong yet",
        "GPU 5 of gpu-003 overheats · press 2, Enter",
        "GPU 3 of gpu-014 is lost, and its run dies · press 2, Enter",
    ]


def test_a_dropped_node_is_late_and_then_down(tmp_path: Path) -> None:
    states = judged(tmp_path / "demo", "node", 40.0)
    healths = [state.sources["node:gpu-006"].health for state in states[1:]]
    assert list(dict.fromkeys(healths)) == ["ok", "late", "down"]


def test_a_node_with_its_clock_off_stays_fresh(tmp_path: Path) -> None:
    states = judged(tmp_path / "demo", "clock", 30.0)
    assert all(state.sources["node:gpu-008"].health == "ok" for state in states[1:])
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
