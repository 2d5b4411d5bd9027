"""Ends that were seen before their log and checkpoints were read, and logs that come after the end."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import (
    BEGIN,
    DIED,
    FAILED,
    JOB,
    SPEC,
    STEP,
    Story,
    ended,
    trained,
)
from trainmon.analysis.attempts import ending_directories
from trainmon.model import (
    Attempt,
    AttemptsRestored,
    GpuSample,
    GpuSamples,
    JobsAccounted,
    NodeReading,
)

REQUEUED = replace(JOB, state="PENDING", submitted_at=BEGIN + 80, started_at=None, restarts=1)


def told(attempt: Attempt) -> tuple[object, ...]:
    """How it ended, as a person reads it."""
    end = attempt.end
    assert end is not None
    cause = None if end.cause is None else end.cause.cause
    return attempt.ended_at, end.scheduler_state, end.exit_code, cause, attempt.retry_decision


def test_a_failure_that_was_seen_stays_one_when_its_job_is_requeued_before_its_checkpoints_are_listed() -> None:
    story = trained().queue(55, FAILED).log(56, STEP.format(40), *DIED)
    assert story.attempt.is_open
    assert ending_directories(story.queue(90, REQUEUED).state) == {"/fsx/ckpt"}
    assert story.at(120).say().attempt.last_step == 40
    assert told(story.attempt) == (BEGIN + 50, "FAILED", 1, "cuda-oom", "after-change")


def test_a_requeued_job_whose_processes_are_still_ending_has_not_started_again() -> None:
    """Slurm then counts the next restart, which starts always now."""
    ending = replace(JOB, state="COMPLETING", restarts=1)
    story = trained()
    for at in (61, 76):
        story.queue(at, replace(ending, started_at=BEGIN + at, ends_at=BEGIN + at + 3_600))
    story.queue(91, REQUEUED).at(140).say()
    assert told(story.attempt)[:2] == (BEGIN + 61, "REQUEUED")
    unlimited = trained().queue(61, replace(ending, started_at=BEGIN + 61, ends_at=None))
    assert len(unlimited.attempts) == 1
    again = replace(JOB, restarts=1, submitted_at=BEGIN + 80, started_at=BEGIN + 200, state="COMPLETING")
    assert len(story.queue(260, replace(again, ends_at=BEGIN + 259)).attempts) == 2, "it ends, and is not requeued"


def test_a_failure_whose_log_nobody_reads_stays_one_when_its_job_is_requeued() -> None:
    story = trained().queue(55, FAILED).queue(85, REQUEUED).at(120).say()
    assert told(story.attempt)[:3] == (BEGIN + 50, "FAILED", 1)
    gone = trained().queue(55, FAILED).queue(56).at(120).say()
    assert told(gone.attempt)[:3] == (BEGIN + 50, "FAILED", 1)


def test_a_failure_that_was_seen_stays_one_when_the_daemon_restarts_before_it_is_closed() -> None:
    stored = trained().queue(55, FAILED).log(56, *DIED).attempt
    story = Story(watched_from=70.0).say(AttemptsRestored((stored,))).queue(90, REQUEUED).at(120).say()
    assert told(story.attempt) == (BEGIN + 50, "FAILED", 1, "cuda-oom", "after-change")


@pytest.mark.parametrize(
    ("code", "cause"), [("1:0", "unknown"), ("137:0", "unknown"), ("0:11", "segfault"), ("93:0", "no-restart")]
)
def test_an_exit_code_that_comes_after_an_attempt_was_closed_changes_its_cause(code: str, cause: str) -> None:
    """Slurm shows the details of a job that has failed late, and there is no accounting."""
    failed = replace(FAILED, exit_code="0:0")
    story = trained().queue(55, failed).log(56, "the end").checkpoints(57, 10, 20).at(120).say()
    stored = story.attempt
    assert told(stored)[2:] == (None, "unknown", "now")
    story.queue(150, replace(FAILED, exit_code=code))
    late = story.attempt
    number, _, signal = code.partition(":")
    assert late.end is not None
    assert (*told(late)[2:4], late.end.signal) == (int(number), cause, int(signal) or None)
    assert late.retry_decision == {"no-restart": "stop"}.get(cause, "now")
    assert story.queue(160, failed).say(AttemptsRestored((stored,))).attempt == late


@pytest.mark.parametrize("is_first", ["queue", "accounting"])
def test_the_cause_names_the_exit_code_that_the_queue_shows(is_first: str) -> None:
    """sacct prints exit codes above 128 without the 128."""
    story = trained()
    in_queue, in_sacct = replace(FAILED, exit_code="139:0"), JobsAccounted("prod", (replace(FAILED, exit_code="11:0"),))
    if is_first == "queue":
        story.queue(55, in_queue).say(in_sacct).log(58, "the end").checkpoints(59, 20)
    else:
        story.say(in_sacct).log(56, "the end").checkpoints(57, 20).at(110).say(in_sacct).queue(120, in_queue)
    story.at(150).say(in_sacct)
    assert told(story.attempt)[2:4] == (139, "unknown")
    end = story.attempt.end
    assert end is not None
    assert end.cause is not None
    assert [one.text for one in end.cause.evidence if one.line is None] == ["exit status 139"]


def test_a_requeue_has_no_exit_code_whoever_reports_it() -> None:
    story = trained().queue(85, REQUEUED).at(140).say()
    assert told(story.attempt) == (BEGIN + 80, "REQUEUED", None, "requeued", "none")
    accounted = replace(JOB, state="REQUEUED", ends_at=BEGIN + 80, exit_code="0:0")
    story.say(JobsAccounted("prod", (accounted,)))
    assert told(story.attempt) == (BEGIN + 80, "REQUEUED", None, "requeued", "none")


def test_a_preemption_that_accounting_reports_stays_one() -> None:
    story = trained().queue(85, REQUEUED).at(140).say()
    story.say(JobsAccounted("prod", (replace(JOB, state="PREEMPTED", ends_at=BEGIN + 80, exit_code="0:0"),)))
    assert told(story.attempt)[3:] == ("preempted", "now")


def test_a_job_that_starts_at_once_in_the_same_log_does_not_hide_how_the_one_before_it_ended() -> None:
    story = trained().queue(55, FAILED).log(56, *DIED)
    following = replace(JOB, id="89", number=89, submitted_at=BEGIN + 20, started_at=BEGIN + 60)
    story.queue(65, FAILED, following).log(66, "loading", path="/fsx/88.out").queue(100, FAILED, following)
    assert told(story.attempts[0])[3] == "cuda-oom"


def closed_unread() -> Story:
    """A daemon starts again after the end of a job, and closes it before it is connected to the host of its log."""
    story = Story(watched_from=500.0).say(AttemptsRestored((trained().attempt,))).queue(505, FAILED).at(560).say()
    assert told(story.attempt) == (BEGIN + 50, "FAILED", 1, "unknown", "now")
    assert (story.attempt.last_step, story.attempt.last_committed_step) == (30, 20)
    return story


def test_a_log_that_comes_after_its_attempt_was_closed_completes_it_once() -> None:
    story = closed_unread()
    story.log(600, STEP.format(1), STEP.format(40), *DIED, mtime=BEGIN + 50, size=200)
    story.checkpoints(601, 10, 20, 35, since=45)
    one = story.attempt
    assert told(one) == (BEGIN + 50, "FAILED", 1, "cuda-oom", "after-change")
    assert one.end is not None
    assert (one.first_step, one.last_step, one.last_committed_step, one.steps_lost) == (1, 40, 35, 5)
    assert (one.end.log_tail or "").endswith(DIED[-1])
    story.log(610, STEP.format(50), mtime=BEGIN + 55).queue(620, FAILED).checkpoints(640, 10, 20, 35, 50, since=55)
    assert story.say(AttemptsRestored((one,))).attempts == (one,)


def test_a_log_that_comes_late_completes_what_accounting_has_closed() -> None:
    story = Story(watched_from=500.0).say(JobsAccounted("prod", (FAILED,))).at(560).say()
    assert told(story.attempt)[3] == "unknown"
    story.log(600, STEP.format(40), *DIED, mtime=BEGIN + 50, size=200).checkpoints(601, 10, 20, since=45)
    assert told(story.attempt) == (BEGIN + 50, "FAILED", 1, "cuda-oom", "after-change")


def test_a_log_that_comes_after_the_next_attempt_began_completes_nothing() -> None:
    again = replace(JOB, submitted_at=BEGIN + 520, started_at=BEGIN + 570, restarts=1)
    story = closed_unread().queue(580, again).log(600, *DIED, mtime=BEGIN + 50).checkpoints(601, 10, 20, since=45)
    assert told(story.queue(620, again).attempts[0])[3] == "unknown"


def test_a_lost_gpu_stays_the_cause_when_the_log_comes_late() -> None:
    story = Story(watched_from=-10).gpus(-5).queue(10, JOB)
    story.say(NodeReading("n1", "prod", story.now, GpuSamples(1, story.now, (GpuSample(0, "lost", True),))))
    story.queue(55, FAILED).at(100).say()
    assert told(story.attempt)[3] == "gpu-hardware"
    story.gpus(300).log(310, "RuntimeError: boom", mtime=BEGIN + 50).checkpoints(311, 10, since=45)
    assert told(story.attempt)[3] == "gpu-hardware"
    assert story.attempt.end is not None
    assert story.attempt.end.log_tail == "RuntimeError: boom"


@pytest.mark.parametrize(("line", "seen"), [
    ("slurmstepd: error: *** JOB 88 ON n1 CANCELLED AT 2026-11-23T01:02:03 DUE TO PREEMPTION ***", {}),
    ("slurmstepd: error: *** STEP 88.0 ON n1 CANCELLED AT 2026-11-23T01:02:03 DUE TO PREEMPTION ***", {}),
    ("bye", {"preempted_at": BEGIN + 45}),
])  # fmt: skip
def test_without_accounting_a_job_that_was_preempted_and_requeued_is_preempted(line: str, seen: dict[str, Any]) -> None:
    again = replace(JOB, state="PENDING", submitted_at=BEGIN + 50, started_at=None, restarts=1)
    one = trained().queue(48, replace(JOB, **seen)).queue(55, again).log(56, line).checkpoints(57, 20).attempt
    assert one.end is not None
    assert one.end.cause is not None
    assert (one.end.cause.cause, one.retry_decision, one.ended_at) == ("preempted", "now", BEGIN + 50)


def test_a_preemption_of_which_nothing_came_does_not_explain_a_later_requeue() -> None:
    again = replace(JOB, state="PENDING", submitted_at=BEGIN + 50, started_at=None, restarts=1)
    story = trained().queue(48, replace(JOB, preempted_at=BEGIN - 500)).queue(55, again).log(56, "bye")
    one = story.checkpoints(57, 20).attempt
    assert one.end is not None
    assert one.end.scheduler_state == "REQUEUED"


def test_what_a_daemon_reads_first_after_the_end_is_of_the_attempt_that_wrote_it() -> None:
    """Slurm's times are whole seconds: the last line may be younger than the end."""
    stored = Story().gpus(-50).queue(10, JOB).steps(20, 1, 2, 3, 4).attempt
    story = Story(watched_from=100.0).say(AttemptsRestored((stored,))).queue(101, FAILED)
    story.steps(102, *range(1, 31), mtime=BEGIN + 50.4, size=1).checkpoints(103, 28, since=49).at(160).say()
    one = story.attempt
    assert (one.first_step, one.last_step, one.steps_lost) == (1, 30, 2)


@pytest.mark.parametrize("stdout", ["/fsx/log-88", "/fsx/slurm-88.out", None])
def test_the_log_of_a_job_that_fails_within_seconds_is_awaited_until_its_pattern_matches_it(stdout: str | None) -> None:
    """The daemon finds a new file of a pattern a few seconds after the job has written its last words into it."""
    none, job = {"path": None, "mtime": None, "error": "no file matches"}, replace(JOB, stdout=stdout)
    failed = ended(job, 11, "FAILED", "1:0")
    story = Story(replace(SPEC, log="/fsx/log-*")).checkpoints(9).queue(10, job).log(11, **none).queue(12, failed)
    story.checkpoints(14).log(15, **none).queue(16, failed)
    assert story.attempt.is_open, "its log is still to be found"
    story.log(18, *DIED, path="/fsx/log-88", mtime=BEGIN + 11).queue(20, failed)
    assert told(story.attempt)[3] == "cuda-oom"


def test_a_job_that_wrote_no_log_at_all_is_closed_after_the_usual_time() -> None:
    story = Story(replace(SPEC, log="/fsx/log-*")).checkpoints(9).queue(10, JOB)
    story.queue(12, ended(JOB, 11, "FAILED", "1:0")).checkpoints(14).log(15, path=None, mtime=None, error="no file")
    assert not story.queue(60, ended(JOB, 11, "FAILED", "1:0")).attempt.is_open
