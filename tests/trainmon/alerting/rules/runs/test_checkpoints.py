"""Checkpoints: overdue, torn, and a pointer that leads astray."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.rules.runs.states import (
    NOW,
    READER,
    blind,
    changed,
    checkpoint,
    checkpoints,
    found,
    job,
    state,
    summary,
    without,
)
from trainmon.alerting.rules.runs.checkpoints import CheckpointOverdue, CheckpointPointer, CheckpointTorn
from trainmon.model import Checkpoints

LATE = state(job(), checkpoints=checkpoints(checkpoint(11_500, 5_500)))
TORN = checkpoint(12_500, 1_300, state="torn", why="no metadata.json yet")
WRECK = state(job(), checkpoints=checkpoints(TORN, checkpoint(12_000, 3_600)))
LOST = state(
    job(),
    checkpoints=checkpoints(
        checkpoint(12_500, 900), resumes="/fsx/ckpt/iter_0012000", problem="latest is empty", trouble="latest is empty"
    ),
)


def test_a_checkpoint_that_is_twice_as_far_behind_as_ever_is_overdue() -> None:
    finding = found(CheckpointOverdue(), LATE)
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.summary == (
        "the last checkpoint of llm, of step 11,500, is 1h31m old; usually it saves every 500 steps; "
        "1,380 steps are at risk"
    )
    assert (finding.since, finding.evidence) == (NOW - 5_500, ("/fsx/ckpt",))
    assert "trainmon-tui save llm" in finding.advice


def test_names_that_count_epochs_and_not_steps_are_late_by_time_alone() -> None:
    """`epoch_5` is no step 5 of 12,880."""
    known = checkpoints(checkpoint(5, 900), checkpoint(4, 2_900), every_steps=1)
    assert found(CheckpointOverdue(), state(job(), checkpoints=known)) is None
    late = checkpoints(checkpoint(5, 5_500), every_steps=1)
    assert summary(CheckpointOverdue(), state(job(), checkpoints=late)) == (
        "the last checkpoint of llm, of step 5, is 1h31m old; usually it saves every 33m"
    )


def test_time_counts_where_steps_are_not_known() -> None:
    known = checkpoints(checkpoint(None, 5_500), every_steps=None)
    assert "usually it saves every 33m" in summary(CheckpointOverdue(), state(job(), checkpoints=known))
    early = checkpoints(checkpoint(None, 3_000), every_steps=None)
    assert found(CheckpointOverdue(), state(job(), checkpoints=early)) is None


@pytest.mark.parametrize(
    "known",
    [
        checkpoints(checkpoint(12_000, 3_600)),
        checkpoints(checkpoint(11_500, 5_500), listed_at=NOW - 2_000),
        checkpoints(checkpoint(12_500, 10, state="writing"), checkpoint(11_500, 5_500)),
        checkpoints(checkpoint(11_500, 5_500), every_steps=None, every_s=None),
        checkpoints(),
    ],
    ids=["in time", "in time at the last listing", "being written", "no cadence is known", "a job that is young"],
)
def test_a_checkpoint_that_is_in_time_or_on_its_way_says_nothing(known: Checkpoints) -> None:
    assert found(CheckpointOverdue(), state(job(started_at=NOW - 7_200), checkpoints=known)) is None


def test_a_job_that_trains_for_hours_without_any_checkpoint_is_reported() -> None:
    assert summary(CheckpointOverdue(), state(job(), checkpoints=checkpoints())).startswith(
        "llm has trained for 11h06m in job 88, and has no checkpoint; 12,880 steps are at risk"
    )


def test_a_run_that_does_not_step_needs_no_checkpoint_and_resolves_none() -> None:
    hung = changed(LATE, verdict="hung", why="no step")
    assert blind(CheckpointOverdue(), LATE, hung) == "llm is hung: no step"
    unlisted = checkpoints(error="it is not there")
    assert blind(CheckpointOverdue(), LATE, changed(LATE, checkpoints=unlisted)) == (
        "its checkpoints cannot be listed: it is not there"
    )
    assert blind(CheckpointOverdue(), LATE, changed(without(LATE, READER), verdict="unknown")) is not None
    writing = checkpoints(checkpoint(12_800, 10, state="writing"), checkpoint(11_500, 5_500))
    assert blind(CheckpointOverdue(), LATE, changed(LATE, checkpoints=writing)) == "a checkpoint is being written now"
    done = checkpoints(checkpoint(12_800, 10))
    assert blind(CheckpointOverdue(), LATE, changed(LATE, checkpoints=done)) is None


def test_a_last_save_that_is_torn_says_why_and_how_far_back_a_restart_goes() -> None:
    finding = found(CheckpointTorn(), WRECK)
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.summary == (
        "the last save of llm, step 12,500, was left incomplete 21m ago: no metadata.json yet; "
        "the last complete one is step 12,000, 880 steps back"
    )


def test_a_torn_one_that_a_whole_one_has_followed_is_no_trouble() -> None:
    assert found(CheckpointTorn(), state(job(), checkpoints=checkpoints(checkpoint(12_800, 60), TORN))) is None
    assert found(CheckpointTorn(), state(job(), checkpoints=checkpoints(checkpoint(12_800, 60)))) is None


def test_a_wreck_is_not_gone_because_its_directory_cannot_be_listed() -> None:
    after = changed(WRECK, checkpoints=checkpoints(error="stale file handle"))
    assert blind(CheckpointTorn(), WRECK, after) == "its checkpoints cannot be listed: stale file handle"
    assert blind(CheckpointTorn(), WRECK, changed(WRECK, checkpoints=None)) is not None


def test_a_checkpoint_of_an_unknown_format_fires_nothing_and_resolves_nothing() -> None:
    strange = checkpoint(12_800, 10, state="unknown", layout="unknown", why="its format is not recognised")
    old = checkpoint(500, 60_000, state="torn", why="it is empty")
    known = state(job(), checkpoints=checkpoints(strange, old))
    for rule in (CheckpointOverdue(), CheckpointTorn(), CheckpointPointer()):
        assert found(rule, known) is None
    later = changed(LATE, checkpoints=checkpoints(strange, checkpoint(11_500, 5_500)))
    assert blind(CheckpointOverdue(), LATE, later) == "the format of step 12,800 is not recognised"
    stale = changed(later, checkpoints=replace(later.runs["llm"].checkpoints, error="stale file handle"))
    assert blind(CheckpointOverdue(), LATE, stale) == "the format of step 12,800 is not recognised"


def test_a_pointer_that_leads_astray_is_worse_where_a_job_is_about_to_follow_it() -> None:
    finding = found(CheckpointPointer(), LOST)
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.summary == "a restart of llm would fail or lose steps: latest is empty"
    assert finding.evidence == ("/fsx/ckpt", "it would resume from /fsx/ckpt/iter_0012000")
    queued = found(CheckpointPointer(), changed(LOST, verdict="queued"))
    assert queued is not None
    assert queued.severity == "critical"
    assert "trainmon-tui hold llm" in queued.advice


def test_what_is_so_at_every_beginning_is_no_trouble() -> None:
    empty = checkpoints(problem="no committed checkpoint found: the directory is empty, nothing was saved yet")
    assert found(CheckpointPointer(), state(job(), checkpoints=empty)) is None


def test_a_pointer_is_not_mended_because_nobody_can_look() -> None:
    dark = without(changed(LOST, checkpoints=checkpoints()), READER)
    assert blind(CheckpointPointer(), LOST, dark) == f"{READER}: no answer in 10s"
    assert blind(CheckpointPointer(), LOST, changed(LOST, checkpoints=checkpoints(checkpoint(12_500, 900)))) is None
