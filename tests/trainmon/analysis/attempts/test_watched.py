"""How long an attempt was watched while it made steps, and how much of that it hung or saved."""

from __future__ import annotations

from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import JOB, SPEC, Story, ended
from trainmon.model import Attempt

LOGGED = replace(SPEC, log="/fsx/88.out")
SAVING = "saving checkpoint at iteration      40 to /fsx/ckpt in torch_dist format"
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
