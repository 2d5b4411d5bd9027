"""How many steps an attempt has lost: only what must be trained again, and only where that is known."""

from __future__ import annotations

from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, FAILED, JOB, SPEC, Story, ended, trained
from trainmon.alerting.rules import WrongResume
from trainmon.analysis.explanation import AttemptRecords, explain, page, resume_of
from trainmon.analysis.retries import decide
from trainmon.model import CheckpointEntry, CheckpointListing, FileGroup, NodeReading, RetryPolicy


def saved(story: Story, seconds: float, name: str, *files: str) -> Story:
    """A trainer has written these files to a directory."""
    story.at(seconds)
    at = story.now - 8
    entry = CheckpointEntry(name, "dir", mtime=at, groups=tuple(FileGroup(file, 1, 9, at, at) for file in files))
    listing = CheckpointListing(1, story.now, "/fsx/ckpt", entries=(entry,))
    return story.say(NodeReading("login1", "prod", story.now, listing))


def checkpoint_rows(story: Story) -> list[str]:
    sections = page(explain(story.attempt, AttemptRecords(attempts=story.attempts)))
    return [f"{row.label}: {row.text}" for one in sections if one.title == "Checkpoints" for row in one.rows]


def test_how_much_is_lost_is_not_known_if_the_format_of_the_checkpoints_is_not_recognised() -> None:
    story = saved(trained().queue(60, FAILED), 65, "step_25", "weights.msgpack", "opt.msgpack")
    story.log(110).queue(120, FAILED)
    one = story.attempt
    assert (one.ended_at, one.last_step, one.last_committed_step) == (BEGIN + 50, 30, 20)
    assert (one.may_have_later, one.steps_lost) == (True, None)
    rows = checkpoint_rows(story)
    assert "committed: step 20; later: not known: the format of its newest checkpoint is not recognised" in rows
    assert "trained: to step 30 of 5,000" in rows
    assert not any("should resume" in row for row in rows)


def test_a_directory_with_weights_and_the_state_of_hf_counts_under_any_name() -> None:
    story = saved(trained(), 45, "step_25", "model.safetensors", "trainer_state.json").queue(60, FAILED)
    story.log(110)
    saved(story, 112, "step_25", "model.safetensors", "trainer_state.json").queue(120, FAILED)
    assert (story.attempt.last_committed_step, story.attempt.steps_lost) == (25, 5)


def completed(target: int) -> Story:
    """Job 88 ends well at step 45. Its last checkpoint is of step 40."""
    story = Story(replace(SPEC, target_step=target)).gpus(-50).queue(10, JOB).steps(20, 1, 40).checkpoints(25, 40)
    done = ended(JOB, 50, "COMPLETED", "0:0")
    return (
        story.steps(40, 45).queue(55, done).log(56, "Training completed.").checkpoints(57, 40, since=17).at(120).say()
    )


def test_a_run_that_ended_as_planned_has_lost_nothing() -> None:
    story = completed(45)
    assert (story.attempt.last_committed_step, story.attempt.last_step, story.attempt.steps_lost) == (40, 45, 0)
    assert explain(story.attempt, AttemptRecords(attempts=story.attempts)).sentence.endswith(
        "0.03 GPU hours, 0 steps lost."
    )
    rows = checkpoint_rows(story)
    assert "trained: to step 45 of 45; no committed checkpoint has the last 5 steps" in rows
    assert not any("next attempt" in row for row in rows), "none is needed"


def test_a_run_that_ended_without_an_error_before_its_target_must_train_the_last_steps_again() -> None:
    story = completed(1_000)
    assert story.attempt.steps_lost == 5
    assert "trained: to step 45 of 1,000; 5 steps lost" in checkpoint_rows(story)
    decision = decide(story.attempt, story.attempts, RetryPolicy())
    assert decision is not None
    assert decision.choice == "after-change"
    assert decision.why.startswith("it ended without an error at step 45 of 1,000: ")


def test_after_a_rewind_the_newest_checkpoint_is_the_one_that_the_trainer_would_resume_from() -> None:
    """It has fewer steps than one that is left in the directory."""
    again = replace(JOB, submitted_at=BEGIN + 80, started_at=BEGIN + 100, restarts=1)
    story = trained().queue(55, FAILED).log(56, "loss: nan").checkpoints(57, 10, 20, since=50)
    story.queue(105, again).checkpoints(106, 10, 20, since=50)
    story.steps(120, 11, 12, 15).steps(140, 17).checkpoints(150, 10, 15, 20, since=135, latest=15)
    story.queue(165, ended(again, 160, "FAILED", "1:0")).log(166, "killed").checkpoints(
        167, 10, 15, 20, since=135, latest=15
    )
    first, second = story.attempts
    assert (first.last_committed_step, second.last_committed_step, second.steps_lost) == (20, 15, 2)


def with_late_pointer(story: Story, seconds: float, latest: int, *steps: int) -> Story:
    """KempnerForge has saved these in the background, each 10 s after the one before, the first at second 20."""
    story.at(seconds)
    names = ("__#_#.distcp", ".metadata", "train_state.pt")
    times = {step: BEGIN + 20 + 10 * index for index, step in enumerate(steps)}
    entries = [
        CheckpointEntry(f"step_{step}", "dir", mtime=at, groups=tuple(FileGroup(name, 1, 9, at, at) for name in names))
        for step, at in times.items()
    ]
    pointer = CheckpointEntry("latest", "link", mtime=max(times.values()), target=f"step_{latest}")
    listing = CheckpointListing(1, story.now, "/fsx/ckpt", entries=(*entries, pointer))
    return story.say(NodeReading("login1", "prod", story.now, listing))


def test_a_trainer_that_points_to_a_save_only_with_the_next_one_resumes_where_it_points() -> None:
    again = replace(JOB, submitted_at=BEGIN + 80, started_at=BEGIN + 100, restarts=1)
    story = with_late_pointer(Story().gpus(-50).queue(10, JOB).steps(20, 1, 10), 25, 10, 10)
    with_late_pointer(story.steps(30, 20), 35, 10, 10, 20).steps(40, 25)
    story.queue(55, FAILED).log(56, "killed")
    with_late_pointer(story, 57, 10, 10, 20).queue(105, again).steps(120, 11, 12).queue(130, again)
    first, second = story.attempts
    assert (first.last_committed_step, first.steps_lost, second.first_step) == (10, 15, 11)
    assert resume_of([first], second).is_wrong is False
    assert [*WrongResume().check(story.state, story.now)] == []
