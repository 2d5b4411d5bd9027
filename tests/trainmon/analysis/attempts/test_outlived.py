"""A trainer that goes on after Slurm has ended its job, and what only looks like one."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, JOB, SPEC, Story, ended, trained
from trainmon.model import AttemptsRestored, GpuFacts, GpuFactsAll, NodeReading, Process, RunsChanged

LOST = ended(JOB, 50, "NODE_FAIL", "0:0")
WORDS = "trainer outlived its job 88"


def lost() -> Story:
    """Job 88 trained to step 30; its node does not answer Slurm any more."""
    return trained().say(RunsChanged((replace(SPEC, log="/fsx/88.out"),))).queue(55, LOST)


def is_outlived(story: Story) -> bool:
    return story.attempts[-1].is_outlived(story.now, 900.0)


def why(story: Story) -> str:
    return story.state.runs["llm"].why


def test_steps_after_the_end_are_those_of_a_trainer_that_outlived_its_job_and_do_not_resolve_the_end() -> None:
    story = lost()
    verdicts = []
    for seconds in range(56, 300, 4):
        story.queue(seconds, LOST).steps(float(seconds), seconds)
        verdicts.append(story.state.runs["llm"].verdict)
    assert set(verdicts) == {"dead"}
    assert is_outlived(story)
    assert f"{WORDS} (NODE_FAIL, 4m ago): it still writes on n1, last step" in why(story)
    assert (story.attempt.last_step or 0) <= 112, "its own steps, not those of the survivor"


def test_one_late_value_proves_nothing_and_two_do() -> None:
    story = lost().steps(60, 31).steps(79, 32).steps(85, 33).queue(86, LOST)
    assert (story.attempt.outlived_by, is_outlived(story)) == (1, False)
    assert is_outlived(story.steps(95, 34))


def test_until_slurm_is_asked_again_the_steps_may_be_those_of_a_job_that_has_just_started() -> None:
    story = lost()
    for seconds in range(85, 115):
        story.steps(float(seconds), seconds)
    again = replace(JOB, id="89", number=89, submitted_at=BEGIN + 60, started_at=BEGIN + 80, restarts=None)
    story.queue(115, replace(again), LOST)
    for seconds in range(116, 200):
        story.steps(float(seconds), seconds)
    assert not any(one.is_outlived(story.now, 900.0) for one in story.attempts)


def test_checkpoints_that_advance_are_as_good_as_steps() -> None:
    story = lost().checkpoints(60, 10, 20).checkpoints(100, 20, 40, latest=40)
    assert not is_outlived(story.queue(120, LOST))
    assert is_outlived(story.checkpoints(140, 40, 60, latest=60))


@pytest.mark.parametrize("seconds", [81.0, 400.0])
def test_a_copy_of_a_checkpoint_that_is_completed_after_the_end_is_none(seconds: float) -> None:
    story = lost().checkpoints(60, 10, 20).checkpoints(seconds, 20, 30, latest=30)
    assert story.checkpoints(seconds + 40, 10, 20, 30, latest=30).attempt.outlived_by == 0


def test_a_log_that_is_read_late_was_written_before_the_end() -> None:
    story = lost()
    for number in range(10):
        story.queue(200.0 + number, LOST).steps(200.0 + number, 31 + number, mtime=BEGIN + 49)
    assert story.attempt.outlived_by == 0


def test_a_buffer_that_appears_at_once_after_the_end_is_one_value() -> None:
    story = lost()
    for number in range(10):
        story.queue(200.0 + number, LOST).steps(200.0 + number, 31 + number, mtime=BEGIN + 190)
    assert (story.attempt.outlived_by, is_outlived(story)) == (1, False)


@pytest.mark.parametrize("ahead", [-3_600.0, 3_600.0])
def test_the_clock_of_the_node_counts(ahead: float) -> None:
    """Slurm and the node agree; our own clock is an hour off."""
    story = trained()
    story.queue(55, replace(LOST, ends_at=BEGIN + 50 + ahead))
    for seconds in (60.0, 70.0, 78.0):
        story.steps(seconds, int(seconds), mtime=BEGIN + seconds + ahead, t=BEGIN + seconds + ahead)
    assert story.attempt.outlived_by == 0
    for seconds in (85.0, 90.0):
        story.queue(seconds, replace(LOST, ends_at=BEGIN + 50 + ahead)).steps(
            seconds, int(seconds), mtime=BEGIN + seconds + ahead, t=BEGIN + seconds + ahead
        )
    assert is_outlived(story)


def test_the_steps_of_the_next_attempt_are_its_own() -> None:
    again = replace(JOB, submitted_at=BEGIN + 60, started_at=BEGIN + 70, restarts=1)
    story = lost().queue(75, again)
    for seconds in range(80, 200, 10):
        story.steps(float(seconds), seconds)
    assert [one.outlived_by for one in story.attempts] == [0, 0]
    assert story.state.runs["llm"].verdict == "healthy"


def test_a_job_that_slurm_has_requeued_may_be_outlived_too() -> None:
    waits = replace(JOB, state="PENDING", submitted_at=BEGIN + 50, started_at=None, nodes=(), restarts=1)
    story = trained().queue(55, waits).steps(70, 31).steps(90, 40).queue(99, waits).steps(100, 50)
    assert is_outlived(story)
    assert story.state.runs["llm"].verdict == "queued"
    assert WORDS in why(story)


def test_a_trainer_that_still_saves_while_slurm_ends_its_job_has_not_outlived_it() -> None:
    """KillWait and GraceTime may be minutes."""
    ending = replace(JOB, state="COMPLETING", submitted_at=BEGIN + 50, restarts=1)
    story = trained().queue(55, ending)
    for seconds in range(60, 200, 10):
        story.steps(float(seconds), seconds)
    waits = replace(ending, state="PENDING", started_at=None, nodes=())
    assert not is_outlived(story.queue(201, waits).queue(300, waits))


def test_a_person_who_trains_on_by_hand_is_another_start() -> None:
    story = lost().log(80, "loading checkpoint from /fsx/ckpt at iteration 20").steps(90, 21)
    for seconds in range(100, 400, 10):
        story.queue(seconds, LOST).steps(float(seconds), seconds)
    assert story.attempts[0].outlived_by == 0
    assert story.state.runs["llm"].verdict == "healthy"


def survivor(**more: Any) -> Story:
    story = lost()
    for seconds in (60.0, 85.0, 90.0, 100.0):
        story.queue(seconds, LOST).steps(seconds, int(seconds), **more)
    assert is_outlived(story)
    return story


def test_it_counts_as_running_until_it_has_written_nothing_for_stall_after() -> None:
    story = survivor().log(800, "still evaluating")
    assert is_outlived(story.queue(1_600, LOST))
    assert not is_outlived(story.queue(1_701, LOST))
    assert story.state.runs["llm"].verdict == "dead", "its steps resolve nothing afterwards, either"


def gpus(story: Story, seconds: float, *pids: int) -> Story:
    story.at(seconds)
    held = (GpuFacts(0, processes=tuple(Process(pid=pid, user="ana") for pid in pids)),)
    return story.say(NodeReading("n1", "prod", story.now, GpuFactsAll(1, story.now, held)))


def test_it_counts_as_gone_once_its_processes_are() -> None:
    story = gpus(lost(), 80, 4711).steps(85, 50).queue(87, LOST)
    assert is_outlived(gpus(gpus(story, 89, 4711).steps(90, 60), 95, 4711))
    assert not is_outlived(gpus(story, 99))
    assert is_outlived(gpus(story.queue(110, LOST).steps(120, 70), 121)), "something writes all the same"


def restarted(story: Story, seconds: float) -> Story:
    """The next job runs on another node."""
    again = replace(JOB, id="89", number=89, nodes=("n2",), submitted_at=BEGIN + 99, started_at=BEGIN + 100)
    return story.queue(seconds, again, LOST)


def test_after_the_next_start_its_processes_show_whether_it_still_runs() -> None:
    story = gpus(lost(), 80, 4711).steps(85, 50).queue(87, LOST)
    story = restarted(gpus(story, 89, 4711).steps(90, 60), 100)
    for seconds in range(200, 2_000, 100):
        restarted(gpus(story, seconds, 4711).steps(seconds, seconds), seconds)
    assert [one.is_outlived(story.now, 900.0) for one in story.attempts] == [True, False]
    assert (story.attempts[0].outlived_step, story.attempts[0].outlived_by) == (60, 2), "the others are not its steps"
    gpus(story, 2_010, 815)
    assert not any(one.is_outlived(story.now, 900.0) for one in story.attempts)
    assert not any(one.is_outlived(story.now, 900.0) for one in gpus(story, 2_020, 4711).attempts), "it is another one"


def test_checkpoints_of_another_run_in_the_same_directory_do_not_count() -> None:
    other = replace(SPEC, name="copy", job="copy", log="/fsx/90.out")
    job = replace(JOB, id="90", number=90, name="copy", nodes=("n2",), started_at=BEGIN + 20, stdout="/fsx/90.out")
    story = lost().say(RunsChanged((replace(SPEC, log="/fsx/88.out"), other))).queue(56, LOST, job)
    story.checkpoints(100, 20, 40, latest=40).queue(120, LOST, job).checkpoints(140, 40, 60, latest=60)
    assert not any(one.outlived_by for one in story.attempts)


def test_what_is_known_of_it_outlives_the_program() -> None:
    before = survivor().attempt
    story = Story(watched_from=110)
    story.say(AttemptsRestored((before,))).queue(112, LOST)
    assert is_outlived(story)
