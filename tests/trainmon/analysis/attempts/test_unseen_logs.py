"""Jobs that ended while nobody watched, or several between two polls: the log of each one is read."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, JOB, SPEC, STEP, Story
from tests.trainmon.analysis.attempts.test_whose_log import DISK, OOM, causes, died_of_memory, failed
from trainmon.analysis.attempts import logs_to_read
from trainmon.model import AttemptsRestored, JobsAccounted


def wanted(story: Story) -> dict[str, str]:
    """By job: the file that a host is told to read."""
    jobs = {f"log of {one.attempt_id}": one.job_id or "" for one in story.attempts}
    return {jobs[log.id]: log.pattern for log in logs_to_read(story.state).get("prod", ())}


def read(story: Story, number: int, *lines: str, path: str = "", mtime: float, **more: object) -> Story:
    """A host has read the end of the log of an attempt that ended."""
    name = next(one.attempt_id for one in story.attempts if one.job_id == str(number))
    return story.log(
        story.now - BEGIN + 1,
        *lines,
        id=f"log of {name}",
        path=path or f"/fsx/{number}.out",
        mtime=BEGIN + mtime,
        size=sum(len(line) + 1 for line in lines),
        **more,
    )


def between_two_polls() -> Story:
    """Jobs 89 to 91 fail between two polls; only the log of the newest one is followed."""
    story = died_of_memory().queue(300, *(failed(number, 100 + 10 * (number - 89)) for number in (89, 90, 91)))
    return story.log(310, DISK, path="/fsx/91.out", restarted="newer", mtime=BEGIN + 125).checkpoints(311, 10).at(360)


def test_the_log_of_every_job_that_ended_between_two_polls_is_read() -> None:
    story = between_two_polls().say()
    assert wanted(story) == {"90": "/fsx/90.out", "89": "/fsx/89.out"}
    assert list(wanted(story)) == ["90", "89"], "the newest first"
    read(story, 89, STEP.format(7), STEP.format(8), OOM, mtime=105)
    assert wanted(story) == {"90": "/fsx/90.out"}
    read(story, 90, STEP.format(3), DISK, mtime=115)
    assert wanted(story) == {}
    first, second = causes(story)["89"], causes(story)["90"]
    assert (first[0], first[1], str(first[2]).split("\n")[-1], first[3]) == ("/fsx/89.out", 8, OOM, True)
    assert (second[0], second[1], str(second[2]).split("\n")[-1], second[3]) == ("/fsx/90.out", 3, DISK, False)
    assert [one.end.cause.cause for one in story.attempts[2:] if one.end and one.end.cause] == ["disk-full"] * 2
    stored = story.attempts
    assert story.queue(400, failed(91, 120)).say(AttemptsRestored(stored)).attempts == stored, "each is closed once"


def test_of_jobs_that_ended_while_the_daemon_was_off_the_path_follows_from_the_number() -> None:
    """Accounting does not name the output file of a job. The file of the newest one is named by its number."""
    old = replace(failed(88, 0), stdout=None)
    story = Story(watched_from=500.0).queue(501, failed(89, 10)).log(502, DISK, path="/fsx/89.out", mtime=BEGIN + 15)
    story.checkpoints(503, 10).say(JobsAccounted("prod", (old,))).at(560).say()
    assert wanted(story) == {"88": "/fsx/88.out"}
    read(story, 88, STEP.format(4), OOM, mtime=5)
    assert causes(story)["88"] == ("/fsx/88.out", 4, f"{STEP.format(4)}\n{OOM}", True)


def test_the_log_of_an_earlier_job_is_read_while_that_of_the_present_one_is_still_empty() -> None:
    old, now = replace(failed(88, 0), stdout=None), replace(JOB, id="89", number=89, started_at=BEGIN + 490)
    story = Story(watched_from=500.0).queue(501, replace(now, stdout="/fsx/89.out"))
    story.log(502, path="/fsx/89.out", mtime=BEGIN + 500, size=0).checkpoints(503, 10)
    story.say(JobsAccounted("prod", (old,))).at(560).say()
    read(story, 88, STEP.format(4), OOM, mtime=5)
    found = next(one for one in story.attempts if one.job_id == "88")
    assert (found.log_path, found.last_step, found.cause and found.cause.cause) == ("/fsx/88.out", 4, "cuda-oom")


def test_a_log_that_is_not_there_or_that_a_later_attempt_has_written_says_nothing() -> None:
    story = between_two_polls().say()
    before = causes(story)
    read(story, 89, error="/fsx/89.out does not exist", mtime=0)
    assert wanted(story) == {"90": "/fsx/90.out", "89": "/fsx/89.out"}, "it may come: a file server is slow"
    read(story, 90, DISK, mtime=300)
    assert (causes(story), wanted(story)) == (before, {"89": "/fsx/89.out"})
    assert wanted(story.at(1_000).say()) == {}, "it is not awaited for ever"


def test_a_log_that_the_newest_attempt_writes_is_not_read_for_an_earlier_one() -> None:
    """All restarts of a job write the same file."""
    again = replace(JOB, submitted_at=BEGIN + 80, started_at=BEGIN + 90, restarts=1)
    story = Story().queue(10, JOB).steps(20, 1, 2).queue(100, again).steps(110, 3).at(180).say()
    assert [one.is_open for one in story.attempts] == [False, True]
    assert wanted(story) == {}


def test_of_very_many_logs_a_few_are_read_at_a_time_and_only_the_newest_ones() -> None:
    story = died_of_memory().queue(1_000, *(failed(number, 100 + 5 * (number - 89)) for number in range(89, 250)))
    story.at(1_060).say()
    seen: list[str] = []
    while now := wanted(story):
        assert len(now) <= 20
        for number in now:
            read(story, int(number), DISK, mtime=100 + 5 * (int(number) - 89) + 4)
        seen += now
    assert seen == [str(number) for number in range(248, 148, -1)]


PLAIN = replace(SPEC, job=None, log="/fsx/*.out")


def left_open(watched_from: float = 500.0, **more: float) -> Story:
    """Without a scheduler: trainmon ends at 15 s, the run goes on, and the next start of trainmon finds a newer log."""
    stored = Story(PLAIN, slurm=False).steps(0, 1, 2).steps(10, 3).attempts
    story = Story(PLAIN, slurm=False, watched_from=watched_from).say(AttemptsRestored(stored))
    story.log(watched_from + 2, STEP.format(90), path="/fsx/b.out", mtime=BEGIN + watched_from, size=9_999_999, **more)
    return story.checkpoints(watched_from + 3, 10).at(watched_from + 70).say().say()


def logs_wanted(story: Story) -> list[str]:
    return [log.pattern for log in logs_to_read(story.state).get("prod", ())]


@pytest.mark.parametrize("more", [{"born": BEGIN + 400}, {}], ids=["known start", "unknown start"])
def test_without_a_scheduler_the_log_of_an_attempt_that_ended_while_the_daemon_was_off_is_read(
    more: dict[str, float],
) -> None:
    story = left_open(**more)
    assert logs_wanted(story) == ["/fsx/88.out"]
    name = story.attempts[0].attempt_id
    story.log(580, STEP.format(40), OOM, id=f"log of {name}", mtime=BEGIN + 200, size=99_999)
    one = story.attempts[0]
    assert one.end is not None
    assert one.end.cause is not None
    assert (one.ended_at, one.last_step, one.end.cause.cause) == (BEGIN + 200, 40, "cuda-oom")
    assert str(one.end.log_tail).endswith(OOM)
    assert (one.is_reconstructed, one.attempt_id) == (True, name)
    assert one.retry_decision != "now"
    assert story.attempts[1].is_open
    assert logs_wanted(story) == []


def test_without_a_scheduler_a_log_that_is_gone_stays_unknown_and_is_not_awaited_for_ever() -> None:
    story = left_open()
    story.log(580, id=f"log of {story.attempts[0].attempt_id}", error="/fsx/88.out does not exist", mtime=None, seen=0)
    assert logs_wanted(story) == ["/fsx/88.out"], "it may come: a file server is slow"
    assert logs_wanted(story.at(2_000).say()) == []


def test_a_log_that_two_attempts_without_a_scheduler_have_written_is_not_read_for_the_first_one() -> None:
    story = Story(PLAIN, slurm=False).steps(0, 1, 2).steps(10, 3).steps(100, 1, restarted="truncated")
    story.steps(300, 1, path="/fsx/b.out", restarted="newer").checkpoints(301, 1).at(360).say()
    assert [one.is_open for one in story.attempts] == [False, False, True]
    assert logs_wanted(story) == []
