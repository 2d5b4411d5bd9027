"""A start that a program with another config has opened: what this one makes of it, and what of it stays."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, JOB, Story, ended, trained
from trainmon.model import Attempt, AttemptsRestored, Job, JobsAccounted


def elsewhere(attempt: Attempt) -> Attempt:
    """The attempt as a program has written it whose config calls its cluster and its run otherwise."""
    name = attempt.attempt_id.replace("prod/", "local/")
    return replace(attempt, attempt_id=name, cluster="local", run_id="train", labels={"owner": "team-b"})


def test_a_start_that_another_config_has_opened_goes_on_under_the_names_of_this_one() -> None:
    """There is no second attempt that would run forever, and what the other program has seen is not lost."""
    stored = elsewhere(trained().attempt)
    story = Story(watched_from=100.0).say(AttemptsRestored((stored,))).queue(110, JOB).queue(140, JOB)
    one = story.attempt
    assert (one.attempt_id, one.cluster, one.run_id) == ("prod/88.0@20231114T221220", "prod", "llm")
    assert (one.first_step, one.last_step, one.start_was_watched) == (1, 30, True)
    story.queue(160, ended(JOB, 150, "FAILED", "1:0")).at(220).say()
    assert [one.is_open for one in story.attempts] == [False]


@pytest.mark.parametrize("seconds", [0.0, 5_000.0])
@pytest.mark.parametrize("reports", ["queue", "accounting"])
def test_an_ended_attempt_is_the_same_whoever_reads_it_later(seconds: float, reports: str) -> None:
    """Only the exit code, which accounting knows better, is added."""
    failed = ended(JOB, 50, "FAILED", "0:0")
    known = trained().queue(60, failed).log(61, "the end").checkpoints(62, 10, 20).at(110).say().attempt
    assert known.end is not None
    better = replace(failed, exit_code="3:0")
    story = Story(watched_from=100.0 + seconds).say(AttemptsRestored((elsewhere(known),)))
    seen = story.at(110 + seconds)
    seen.queue(110 + seconds, better) if reports == "queue" else seen.say(JobsAccounted("prod", (better,)))
    story.steps(120 + seconds, 400, 500).checkpoints(121 + seconds, 400).at(400 + seconds).say()
    one = story.attempt
    assert one.end is not None
    assert one.end.exit_code == 3
    assert _numbers(one) == _numbers(known)


def _numbers(one: Attempt) -> tuple[object, ...]:
    return (
        one.first_step, one.last_step, one.last_committed_step, one.steps_lost, one.gpu_seconds, one.target_step,
        one.ended_at, one.started_at, one.nodes, one.gpus,
    )  # fmt: skip


@pytest.mark.parametrize(
    "other",
    [
        replace(JOB, submitted_at=BEGIN - 61),
        replace(JOB, started_at=BEGIN + 9),
        replace(JOB, id="89", number=89),
        replace(JOB, nodes=("m1",)),
    ],
    ids=["submitted", "started", "job", "nodes"],
)
def test_the_start_of_another_slurm_is_another_attempt(other: Job) -> None:
    stored = elsewhere(trained().attempt)
    story = Story(watched_from=100.0).say(AttemptsRestored((stored,))).queue(110, other).queue(140, other)
    assert {one.cluster for one in story.attempts} == {"local", "prod"}
