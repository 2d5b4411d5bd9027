"""How long an attempt was watched while it made steps, and how much of that it hung or saved."""

from __future__ import annotations

from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, JOB, SPEC, STEP, Story, ended
from trainmon.model import SILENT, Attempt

LOGGED = replace(SPEC, log="/fsx/88.out")
SAVING = "saving checkpoint at iteration      40 to /fsx/ckpt in torch_dist format"
TIMEOUT = (
    "[rank3]: [E ProcessGroupNCCL.cpp:632] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, "
    "OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
)
SAVED = "  successfully saved checkpoint from iteration      40 to /fsx/ckpt [ t 1/1, p 1/1 ]"


def tick(story: Story, *seconds: float) -> Story:
    """Time passes; Slurm still lists the job, and its log has no new line."""
    for second in seconds:
        story.log(second).queue(second, JOB)
    return story


def spent(one: Attempt) -> tuple[float, float, float, int]:
    return round(one.watched_s), round(one.hung_s), round(one.saving_s), one.saves


def test_a_save_that_blocks_the_training_is_measured() -> None:
    story = tick(Story(LOGGED).queue(10, JOB).steps(20, 1, 2, 3), 30, 40)
    story.steps(44, 40).log(45, SAVING)
    tick(story, 50, 60, 70)
    story.log(75, SAVED)
    tick(story.steps(79, 41), 80)
    assert spent(story.attempt) == (60, 0, 30, 1)


def test_a_silence_counts_from_the_last_step_to_the_next_one() -> None:
    story = tick(Story(replace(LOGGED, stall_after=60.0)).queue(10, JOB).steps(20, 1, 2, 3), 50, 100, 150)
    assert story.state.runs["llm"].verdict in ("stalled", "hung")
    assert (story.attempt.hung_since, spent(story.attempt)) == (story.state.runs["llm"].progress.at, (130, 0, 0, 0))
    tick(story.steps(200, 4), 210)
    assert (story.attempt.hung_since, spent(story.attempt)) == (None, (190, 180, 0, 0))


def test_a_silence_that_lasts_to_the_end_is_kept() -> None:
    story = tick(Story(replace(LOGGED, stall_after=60.0)).queue(10, JOB).steps(20, 1, 2, 3), 50, 100, 150)
    story.queue(160, ended(JOB, 155, "CANCELLED")).queue(290)
    assert story.attempt.end is not None
    assert story.attempt.end.at - (story.attempt.hung_since or 0.0) == 135


def test_what_nobody_watched_is_not_counted() -> None:
    story = tick(Story(LOGGED).queue(10, JOB).steps(20, 1, 2, 3), 40)
    known = story.attempt
    assert spent(known)[0] == 20
    later = Story(LOGGED, watched_from=1000)
    later.state = replace(later.state, attempts={known.attempt_id: known}, has_restored_attempts=True)
    tick(later.steps(1010, 100, 101), 1020, 1040)
    assert later.attempt.watched_s == 20 + 20


def test_a_short_pause_is_no_gap() -> None:
    story = tick(Story(LOGGED).queue(10, JOB).steps(20, 1, 2, 3), 40).queue(200, JOB)
    assert story.state.runs["llm"].verdict == "unknown", "its host has not answered for 2m40s"
    assert tick(story.steps(300, 60, 61), 310).attempt.watched_s == 290


def test_a_silence_or_a_save_of_which_nobody_saw_the_end_counts_as_long_as_it_was_watched() -> None:
    """The laptop sleeps for eight hours; its log then shows steps that were made all the time."""
    story = tick(Story(replace(LOGGED, stall_after=60.0)).queue(10, JOB).steps(20, 1, 2, 3), 50, 100, 150)
    story.queue(28_900, JOB)
    tick(story.steps(28_901, 5000, 5001), 28_910)
    assert (story.attempt.hung_since, spent(story.attempt)) == (None, (140, 130, 0, 0))
    story = tick(Story(LOGGED).queue(10, JOB).steps(20, 1, 2, 3), 40)
    tick(story.steps(44, 40).log(45, SAVING), 50, 60).queue(28_900, JOB)
    tick(story.log(28_901, SAVED, STEP.format(5000)), 28_910)
    assert (story.attempt.saving_since, spent(story.attempt)) == (None, (50, 0, 15, 1))


def test_a_clock_that_is_set_forward_makes_no_hang() -> None:
    """Its host answers at once, and its log is read a second later."""
    story = tick(Story(replace(LOGGED, stall_after=60.0)).queue(10, JOB).steps(20, 1, 2, 3), 40).gpus(3_640, "login1")
    assert story.queue(3_641, JOB).attempt.hung_since is None
    tick(story.steps(3_642, 20, 21), 3_650)
    assert (story.attempt.hung_since, spent(story.attempt)[1]) == (None, 0)


def test_a_save_during_which_its_host_does_not_answer_is_one_save() -> None:
    story = tick(Story(LOGGED).queue(10, JOB).steps(20, 1, 2, 3), 40)
    tick(story.steps(44, 40).log(45, SAVING), 50, 60).queue(240, JOB)
    assert story.state.runs["llm"].verdict == "unknown"
    tick(tick(story, 250, 260).log(275, SAVED).steps(279, 41), 280)
    assert spent(story.attempt) == (260, 0, 230, 1)


def test_a_silence_after_a_save_begins_when_that_has_ended() -> None:
    story = tick(Story(replace(LOGGED, stall_after=60.0)).queue(10, JOB).steps(20, 1, 2, 3), 40)
    tick(story.steps(44, 40).log(45, SAVING), 60)
    tick(story.log(75, SAVED), 100, 150, 200)
    assert story.attempt.hung_since == BEGIN + 75
    assert spent(tick(story.steps(300, 41), 310).attempt) == (290, 225, 30, 1)


def test_the_time_of_a_save_that_hangs_is_hung() -> None:
    story = tick(Story(replace(LOGGED, stall_after=60.0)).queue(10, JOB).steps(20, 1, 2, 3), 30)
    tick(story.steps(44, 40).log(45, SAVING), *range(50, 400, 25))
    assert story.state.runs["llm"].verdict in SILENT
    one = story.attempt
    assert (one.hung_since, one.saving_s, one.saves) == (BEGIN + 44, 0.0, 0)


def test_what_the_cause_of_the_end_proves_is_hung_also_if_the_next_job_waits() -> None:
    waiting = replace(JOB, id="89", number=89, state="PENDING", started_at=None, nodes=())
    story = tick(Story(LOGGED).queue(10, JOB).steps(20, 1, 2, 3), 50, 100)
    story.log(400, TIMEOUT).queue(400, JOB, waiting)
    story.queue(410, ended(JOB, 405, "FAILED", "1:0"), waiting).log(411).queue(500, waiting)
    one = story.attempts[0]
    assert (one.cause and one.cause.cause, one.hung_since) == ("nccl-timeout", BEGIN + 20)
    story.steps(520, 1, 2, path="/fsx/89.out").queue(530, replace(waiting, state="RUNNING", started_at=BEGIN + 510))
    assert story.attempts[0].hung_since == BEGIN + 20, "a step of the next attempt ends no silence of this one"


def test_an_attempt_of_which_nothing_new_is_seen_is_the_same_value() -> None:
    story = tick(Story(LOGGED).queue(10, JOB).steps(20, 1, 2, 3), 41)
    known = story.attempt
    assert known.watched_s > 0
    assert story.log(42).log(43).attempt is known
