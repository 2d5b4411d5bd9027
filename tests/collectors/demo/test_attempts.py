"""Each story of the demo has an attempt, a cause and an explanation."""

from __future__ import annotations

from pathlib import Path

import pytest

from collectors.demo.stories import RUNS, STORIES, Schedule
from tests.collectors.demo.stage import Stage
from trainmon.analysis.explanation import AttemptRecords, Explanation, explain, page
from trainmon.engine.reducers.reduce import reduce
from trainmon.ledger.attempts import columns_of
from trainmon.model import Attempt, State

ENDED_BY = {"lost": "gpu-hardware", "hang": "nccl-timeout", "restart": "host-oom", "nan": "diverged"}
"""The stories that end an attempt, and why. In the others the attempts of the victim go on."""

ENDANGERED = {
    "hang": ("hangs: no step since ", "hang"),
    "nan": ("its loss has diverged", "diverged"),
    "spike": ("its loss has jumped", "diverged"),
    "disk": ("fsx is almost full", "disk-full"),
}
"""What is wrong with the attempts of the victim while the story goes on, and what their cause is if they end then. In
the others nothing endangers an attempt: a hot GPU slows itself down, and an attempt trains on without W&B, without
SSH, with a wrong clock, beside a second W&B run, and with a log that grows fast."""


def told(story: str, directory: Path, *, is_over: bool) -> State:
    """The State late in the first act of a story, or after it."""
    incident = Schedule(story).round(0)[0]
    stage = Stage(directory, story=story).play(incident.ends + 25.0 if is_over else incident.ends - 6.0)
    state, batch, until = State(demo=True, at=stage.clock.now() - stage.clock.passed), [], 2.0
    for at, event in stage.events:
        if at > until:
            state, batch, until = reduce(state, batch, state.at + (at - until) + 2.0), [], at + 2.0
        batch.append(event)
    stage.demo.stop()
    return reduce(state, batch, stage.clock.now())


def of_victim(story: str, state: State) -> list[Attempt]:
    """The attempts of the run, or of the runs on the node, that the story hits; all of them for a disk or W&B."""
    victim = Schedule(story).round(0)[0].victim.partition("/")[0]
    runs = {run.name for run in RUNS if victim in (run.name, *run.nodes)} or {run.name for run in RUNS}
    return [one for one in state.attempts.values() if one.run_id in runs]


def explained(attempt: Attempt, state: State) -> Explanation:
    return explain(attempt, AttemptRecords(attempts=tuple(state.attempts.values())))


@pytest.mark.parametrize("story", ENDED_BY)
def test_a_story_that_ends_an_attempt_has_its_cause_and_its_explanation(story: str, tmp_path: Path) -> None:
    state = told(story, tmp_path / "demo", is_over=True)
    attempts = of_victim(story, state)
    (ended,) = [one for one in attempts if one.end is not None]
    assert ended.end is not None
    assert ended.end.cause is not None
    assert ended.end.cause.cause == ENDED_BY[story]
    assert ended.outlook is None
    one = explained(ended, state)
    assert ended.run_id in one.sentence
    assert f": {ENDED_BY[story]}" in one.sentence
    assert one.context or one.facts
    assert one.timeline[-1].what in ("ended", "next-attempt")
    assert one.resumes_at is None or one.resumes_at.is_wrong is False
    assert [check for check in one.checks if check.topic == "placement" and check.to_add] == []


HARMLESS = [story for story in STORIES if story not in (*ENDED_BY, *ENDANGERED)]


@pytest.mark.parametrize(
    "story", [*ENDANGERED, HARMLESS[0], *(pytest.param(story, marks=pytest.mark.slow) for story in HARMLESS[1:])]
)
def test_a_story_that_goes_on_says_what_endangers_the_attempt_or_that_nothing_does(story: str, tmp_path: Path) -> None:
    state = told(story, tmp_path / "demo", is_over=False)
    attempts = [one for one in of_victim(story, state) if one.end is None]
    assert attempts
    what, cause = ENDANGERED.get(story, ("", None))
    for attempt in attempts:
        one, columns = explained(attempt, state), columns_of(attempt, state.at)
        assert columns["termination_reason"] is None
        assert attempt.run_id in one.sentence
        if cause is None:
            assert one.sentence.endswith(". No problem detected.")
            assert one.facts == ()
            continue
        assert what in one.sentence.partition(", and ")[2]
        assert one.sentence.endswith(f"; if it ends now, its cause is {cause}.")
        assert one.facts
        (evidence,) = [section for section in page(one) if section.title == "Evidence"]
        assert [row.text.partition(":")[0] for row in evidence.rows if row.label == "if it ends"] == [cause]


def test_every_story_is_asserted() -> None:
    assert {*ENDED_BY, *ENDANGERED} <= {*STORIES}
