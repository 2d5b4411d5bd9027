"""An attempt never gets the log, the steps or the cause of another one."""

from __future__ import annotations

from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, JOB, STEP, Story, ended
from trainmon.model import Attempt, Job, JobsAccounted

OOM = "torch.OutOfMemoryError: CUDA out of memory."
DISK = "OSError: [Errno 28] No space left on device"


def job(number: int, begins: float) -> Job:
    return replace(
        JOB, id=str(number), number=number, submitted_at=BEGIN + begins - 1, started_at=BEGIN + begins,
        stdout=f"/fsx/{number}.out",
    )  # fmt: skip


def failed(number: int, begins: float) -> Job:
    return ended(job(number, begins), begins + 5, "FAILED", "1:0")


def causes(story: Story) -> dict[str | None, tuple[object, ...]]:
    return {one.job_id: _told(one) for one in story.attempts}


def _told(one: Attempt) -> tuple[object, ...]:
    assert one.end is not None
    assert one.end.cause is not None
    return one.log_path, one.last_step, one.end.log_tail, one.end.cause.cause == "cuda-oom"


def died_of_memory() -> Story:
    """Job 88 runs out of memory. The next job is found long after it has ended as well."""
    story = Story().queue(10, JOB).steps(20, 1, 2).queue(55, ended(JOB, 50, "FAILED", "1:0")).log(56, OOM)
    return story.checkpoints(57, 10).queue(70, ended(JOB, 50, "FAILED", "1:0"))


def test_a_job_that_ended_unseen_does_not_get_the_log_of_the_one_before_it() -> None:
    story = died_of_memory().queue(300, failed(89, 100)).log(310).checkpoints(311, 10).at(360).say()
    assert causes(story)["89"] == ("/fsx/89.out", None, None, False)
    story.log(400, STEP.format(7), DISK, path="/fsx/89.out", restarted="newer", mtime=BEGIN + 105)
    story.checkpoints(401, 10)
    path, step, tail, is_memory = causes(story)["89"]
    assert (path, step, str(tail).split("\n")[-1], is_memory) == ("/fsx/89.out", 7, DISK, False)


def test_of_several_jobs_that_ended_unseen_each_has_its_own_log_or_none() -> None:
    story = died_of_memory().queue(300, *(failed(number, 100 + 10 * (number - 89)) for number in (89, 90, 91)))
    story.log(310, DISK, path="/fsx/91.out", restarted="newer", mtime=BEGIN + 125).checkpoints(311, 10).at(360).say()
    assert [causes(story)[number] for number in ("89", "90")] == [
        ("/fsx/89.out", None, None, False), ("/fsx/90.out", None, None, False),
    ]  # fmt: skip
    assert causes(story)["91"] == ("/fsx/91.out", None, DISK, False)
    assert causes(story)["88"][3]


def test_two_jobs_that_ended_while_the_daemon_was_off_have_their_own_logs() -> None:
    """Accounting does not name the output file of a job; the file has the number of the other one."""
    jobs = tuple(replace(failed(number, begins), stdout=None) for number, begins in ((88, 0), (89, 7)))
    for read_at in (501, 505):
        story = Story(watched_from=500.0).log(read_at, STEP.format(8), OOM, mtime=BEGIN + 6).checkpoints(510, 10)
        story.say(JobsAccounted("prod", jobs)).at(560).say()
        assert causes(story)["89"] == (None, None, None, False)


def test_the_steps_of_the_next_job_are_not_those_of_the_one_before_it() -> None:
    story = Story().queue(10, JOB).steps(20, 1, 2).queue(40, JOB)
    story.log(58, STEP.format(3), path="/fsx/89.out", restarted="newer").steps(62, 90, path="/fsx/89.out")
    story.queue(70, ended(JOB, 50, "FAILED", "1:0"), job(89, 55)).at(120).say()
    assert [one.last_step for one in story.attempts] == [2, 90]
