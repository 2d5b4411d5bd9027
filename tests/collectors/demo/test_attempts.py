"""Each story of the demo has an attempt, a cause and an explanation."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.demo import RUNS, STORIES
from collectors.demo.stories import Schedule
from tests.collectors.demo.stage import Stage
from trainmon.analysis.explanation import AttemptRecords, explain
from trainmon.engine.reducers import reduce
from trainmon.model import Attempt, State

ENDED_BY = {"lost": "gpu-hardware", "hang": "nccl-timeout", "restart": "host-oom", "nan": "diverged"}
"""The stories that end an attempt, and why. In the others the attempts of the victim go on."""


def told(story: str, directory: Path) -> State:
    """The State after the first act of a story."""
    incident = Schedule(story).round(0)[0]
    stage = Stage(directory, story=story).play(incident.ends + 25.0 if story in ENDED_BY else incident.begins + 5.0)
    state, batch, until = State(demo=True, at=stage.clock.now() - stage.clock.passed), [], 1.0
    for at, event in stage.events:
        if at > until:
            state, batch, until = reduce(state, batch, state.at + (at - until) + 1.0), [], at + 1.0
        batch.append(event)
    stage.demo.stop()
    return reduce(state, batch, stage.clock.now())


def of_victim(story: str, state: State) -> list[Attempt]:
    """The attempts of the run, or of the runs on the node, that the story hits; all of them for a disk or W&B."""
    victim = Schedule(story).round(0)[0].victim.partition("/")[0]
    runs = {run.name for run in RUNS if victim in (run.name, *run.nodes)} or {run.name for run in RUNS}
    return [one for one in state.attempts.values() if one.run_id in runs]


@pytest.mark.parametrize("story", STORIES)
def test_each_story_has_an_attempt_a_cause_and_an_explanation(story: str, tmp_path: Path) -> None:
    state = told(story, tmp_path / "demo")
    attempts = of_victim(story, state)
    assert attempts
    causes = [one.end.cause.cause for one in attempts if one.end is not None and one.end.cause is not None]
    assert causes == ([ENDED_BY[story]] if story in ENDED_BY else [])
    for attempt in attempts:
        one = explain(attempt, AttemptRecords(attempts=tuple(state.attempts.values())))
        assert attempt.run_id in one.sentence
        if attempt.end is not None:
            assert f": {ENDED_BY[story]}" in one.sentence
            assert one.context or one.facts
            assert one.timeline[-1].what in ("ended", "next-attempt")
            assert one.resumes_at is None or one.resumes_at.is_wrong is False
        assert [check for check in one.checks if check.topic == "placement" and check.to_add] == []
