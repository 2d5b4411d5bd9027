"""The effects of commands to Slurm: requeue, cancel, hold, signal, queue, exclude and drain."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.trainmon.actions.cluster import (  # fmt: skip
    DONE,
    NOW,
    RUN,
    RUNNING,
    WAITING,
    done,
    only,
    planned,
    readback,
    source,
    state,
)
from tests.trainmon.actions.verification.records import AGAIN, REQUEUE, after, marks_of, saved
from trainmon.model import Asked, Attempt, AttemptEnd, Run, SchedulerNode, Trainer, has_task


def test_a_requeue_is_observed_by_its_state_and_its_restarts() -> None:
    record = after(done(REQUEUE), 15)
    assert marks_of(record) == {"it is pending again": None, "it starts anew": None}
    record = after(record, 31, jobs=(AGAIN,))
    assert marks_of(record) == {"it is pending again": 31, "it starts anew": None}
    record = after(record, 160, jobs=(replace(RUNNING, restarts=1, started_at=NOW + 150),))
    assert marks_of(record) == {"it is pending again": 31, "it starts anew": 150}
    assert not record.is_open


def test_a_requeue_that_starts_again_between_two_polls_is_observed_too() -> None:
    record = after(done(REQUEUE), 160, jobs=(replace(RUNNING, restarts=1, started_at=NOW + 150),))
    assert marks_of(record) == {"it is pending again": 160, "it starts anew": 150}


def test_a_requeued_job_that_ends_again_between_two_polls_does_not_run() -> None:
    again = replace(RUNNING, restarts=1, state="FAILED", exit_code="7:0", started_at=NOW + 150, ends_at=NOW + 151)
    record = after(done(REQUEUE), 160, jobs=(again,))
    assert marks_of(record)["it starts anew"] == "it has started and ended again: exited with code 7"
    assert not record.is_open


def test_a_requeued_element_waits_in_the_row_of_its_array() -> None:
    gone, row = replace(RUNNING, gone_at=NOW + 20), replace(WAITING, id="88_[3,5-10%1]", tasks="3,5-10%1")
    record = after(done(REQUEUE), 31, jobs=(gone, row))
    assert marks_of(record) == {"it is pending again": 31, "it starts anew": None}
    lost = after(done(REQUEUE), 31, jobs=(gone, WAITING))
    assert marks_of(lost)["it is pending again"] == "the job is no longer in the queue"


def test_where_no_checkpoints_are_listed_the_report_of_the_loop_shows_its_save() -> None:
    blind = replace(RUN, checkpoints=None, spec=replace(RUN.spec, checkpoints=None))
    record = after(done(only(planned("signal", seen=readback(RUNNING)))), 10, reporting(blind))
    assert record.is_open
    record = after(record, 20, reporting(blind, Asked("save", "SIGUSR1 on rank 0", NOW + 12)))
    assert marks_of(record)["the training loop obeys"] == 12
    assert not record.is_open
    trainer = reporting(blind).trainer
    assert trainer is not None
    gone, kill = (replace(RUNNING, state="COMPLETED", ends_at=NOW + 15),), done(only(planned("kill")))
    record = after(kill, 20, replace(blind, trainer=replace(trainer, saved_at=NOW - 60)), jobs=gone)
    assert (marks_of(record)["the trainer saves"], record.is_open) == (None, True)
    record = after(record, 20, replace(blind, trainer=replace(trainer, saved_at=NOW + 14)), jobs=gone)
    assert (marks_of(record)["the trainer saves"], record.is_open) == (14, False)


@pytest.mark.parametrize(
    ("tasks", "named"),
    [("3", [3]), ("1,3-4%1", [1, 3, 4]), ("2-10:4,12%2", [2, 6, 10, 12]), ("", []), ("1-3,...", [1, 2, 3])],
)
def test_the_elements_that_an_expression_names(tasks: str, named: list[int]) -> None:
    assert [number for number in range(15) if has_task(tasks, number)] == named


def test_a_requeue_of_a_job_that_had_ended_did_nothing() -> None:
    ended = replace(RUNNING, state="COMPLETED", ends_at=NOW - 1)
    assert after(done(REQUEUE), 5, jobs=(ended,)).is_open
    record = after(done(REQUEUE), 45, jobs=(ended,))
    assert marks_of(record)["it is pending again"] == ("nothing happened: it had ended before (exited with code 0)")
    assert not record.is_open


def test_a_job_that_had_ended_starts_again_or_slurm_did_nothing() -> None:
    seen = state(replace(DONE, requeue=True, batch=True))
    started = done(only(planned("requeue", of=seen)))
    missed = after(started, 45, jobs=(DONE,))
    assert marks_of(missed)["it is pending again"] == (
        "nothing happened: Slurm has not requeued it (exited with code 1)"
    )
    waits = replace(DONE, state="PENDING", restarts=1, submitted_at=NOW + 1)
    assert marks_of(after(started, 31, jobs=(waits,)))["it is pending again"] == 31


def test_a_requeue_that_slurm_does_not_do_is_reported() -> None:
    record = after(done(REQUEUE), 200)
    assert marks_of(record)["it is pending again"] == "it still runs: Slurm has not requeued it"
    assert record.is_open


def test_while_slurm_is_silent_nothing_is_concluded() -> None:
    silent = {
        "slurm:prod": source("slurm:prod", answered_at=NOW - 5, health="down"),
        "node:login": source("node:login"),
    }
    for action in (REQUEUE, only(planned("hold")), only(planned("cancel", "prod/88_[]"))):
        record = after(done(action), 300, jobs=(RUNNING,), sources=silent)
        assert all(mark.at is None and mark.missed is None for mark in record.marks)
        assert record.is_open


def test_a_cancel_is_over_when_the_job_has_ended_or_is_gone() -> None:
    action = only(planned("cancel"))
    ended = replace(RUNNING, state="CANCELLED", ends_at=NOW + 3)
    assert marks_of(after(done(action), 20, jobs=(ended,))) == {"it has ended": 3}
    assert marks_of(after(done(action), 20, jobs=(replace(RUNNING, gone_at=NOW + 20),))) == {"it has ended": 20}
    late = after(done(action), 200, jobs=(replace(RUNNING, state="COMPLETING"),))
    assert marks_of(late)["it has ended"] == "Slurm still lists it: it may wait for processes that do not end"
    elements = only(planned("cancel", "prod/88_[]"))
    assert marks_of(after(done(elements), 20, jobs=(RUNNING,))) == {"it has ended": 20}


def test_hold_and_release_are_observed_by_priority() -> None:
    hold, held = only(planned("hold")), replace(WAITING, priority=0, reason="JobHeldUser")
    assert marks_of(after(done(hold), 20, jobs=(RUNNING, held))) == {"it is held": 20}
    assert marks_of(after(done(hold), 45)) == {"it is held": "it is not held"}
    release = only(planned("release", of=state(held)))
    assert marks_of(after(done(release), 20, jobs=(WAITING,))) == {"it is released": 20}
    assert marks_of(after(done(release), 45, jobs=(held,))) == {"it is released": "it is still held (JobHeldUser)"}
    assert marks_of(after(done(hold), 20, jobs=(RUNNING,))) == {"it is held": "the job is no longer in the queue"}


def test_a_signal_is_followed_to_the_checkpoint_or_the_end() -> None:
    action = only(planned("signal", seen=readback(RUNNING)))
    assert marks_of(after(done(action), 90, saved(RUN, 12_881, 80, 4))) == {"a new checkpoint is committed": 80}
    ended = (replace(RUNNING, state="FAILED", ends_at=NOW + 2),)
    assert after(done(action), 60, jobs=ended).is_open
    record = after(done(action), 130, jobs=ended)
    assert marks_of(record) == {"a new checkpoint is committed": "it ended without a new checkpoint"}
    assert not record.is_open


def reporting(run: Run, *asked: Asked) -> Run:
    """The run with a training loop that reports by trainmon_hooks."""
    trainer = Trainer(
        path="/fsx/llm/kill.status", host="login", at=NOW, phase="training", asked=next(iter(asked), None),
        signals={"SIGTERM": "stop", "SIGUSR1": "save"},
    )  # fmt: skip
    return replace(run, trainer=trainer)


def test_a_training_loop_that_reports_shows_that_it_obeys_a_signal_or_a_requeue() -> None:
    action = only(planned("signal", seen=readback(RUNNING)))
    before, then = Asked("save", "the save switch", NOW - 60), Asked("save", "SIGUSR1 on rank 0", NOW + 3)
    record = after(done(action), 10, reporting(RUN, before))
    assert marks_of(record) == {"the training loop obeys": None, "a new checkpoint is committed": None}
    record = after(record, 90, reporting(saved(RUN, 12_881, 80, 4), then))
    assert marks_of(record) == {"the training loop obeys": 3, "a new checkpoint is committed": 80}
    assert not record.is_open
    record = after(done(REQUEUE), 31, reporting(RUN, Asked("stop", "SIGTERM on rank 0", NOW + 2)), jobs=(AGAIN,))
    record = after(record, 160, reporting(RUN), jobs=(replace(RUNNING, restarts=1, started_at=NOW + 150),))
    seen = {"the training loop obeys": 2, "it is pending again": 31, "it starts anew": 150}
    assert marks_of(record) == {**seen, "it resumes": None}
    assert record.is_open
    quiet = reporting(RUN)
    assert quiet.trainer is not None
    deaf = replace(quiet, trainer=replace(quiet.trainer, signals={}))
    assert "the training loop obeys" not in marks_of(after(done(REQUEUE), 31, deaf, jobs=(AGAIN,)))
    assert marks_of(after(record, 170, reporting(RUN), jobs=(replace(RUNNING, restarts=1, state="FAILED"),))) == {
        **seen, "it resumes": "it ended before its first step",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("committed", "first", "text"),
    [
        (12_880, 12_881, "0 steps"),
        (12_000, 12_001, "880 steps"),
        (12_880, 12_001, "880 steps"),
        (12_879, 12_880, "1 step"),
    ],
)
def test_a_requeue_of_a_loop_that_reports_is_followed_until_it_resumes(committed: int, first: int, text: str) -> None:
    old = Attempt(
        attempt_id="prod/88_3", run_id="llm", cluster="prod", job_id="88_3", started_at=NOW - 7200, last_step=12_880,
        last_committed_step=committed, has_checkpoints=True,
    )  # fmt: skip
    ended = replace(old, end=AttemptEnd(at=NOW + 30, source="scheduler", noticed_at=NOW + 31))
    new = Attempt(attempt_id="prod/88_3.1", run_id="llm", cluster="prod", job_id="88_3", started_at=NOW + 150)
    goes_on = replace(new, first_step=first, first_step_at=NOW + 160)
    jobs = (replace(RUNNING, restarts=1, started_at=NOW + 150),)
    record = done(REQUEUE)
    older = replace(ended, attempt_id="prod/88_3.0", started_at=NOW - 9000)
    for attempts in ((old,), (older, replace(ended, first_step=1)), (ended, new), (old, goes_on)):
        known = {one.attempt_id: one for one in attempts}
        record = after(record, 155, reporting(RUN), jobs=jobs, attempts=known)
        assert marks_of(record)["it resumes"] is None
    uncounted = reporting(RUN)
    assert uncounted.trainer is not None
    uncounted = replace(uncounted, trainer=replace(uncounted.trainer, step=12_890, at=NOW + 280))
    assert marks_of(after(record, 281, uncounted, jobs=jobs))["it resumes"] == 280, "its log shows no first step"
    record = after(record, 165, reporting(RUN), jobs=jobs, attempts={one.attempt_id: one for one in (ended, goes_on)})
    assert marks_of(record)[f"it resumes with {text} lost"] == 160
    assert not record.is_open


def test_a_signal_is_not_credited_with_the_regular_checkpoint_that_was_being_written() -> None:
    action = only(planned("signal", seen=readback(RUNNING)))
    assert RUN.checkpoints is not None
    older = replace(RUN.checkpoints.list[0], step=11_000, state="superseded", at=NOW - 4440)
    regular = replace(RUN, checkpoints=replace(RUN.checkpoints, list=(*RUN.checkpoints.list, older)))
    record = after(done(action), 20, saved(regular, 13_000, 15, -3))
    assert marks_of(record)["a new checkpoint is committed"] is None, "it fits the interval: it came by itself"
    record = after(record, 40, saved(saved(regular, 13_000, 15, -3), 13_002, 38, 19))
    assert marks_of(record)["a new checkpoint is committed"] == 38


def test_a_queued_job_is_observed_by_its_number() -> None:
    action = only(planned("queue"))
    new = replace(WAITING, id="95_[1-3%1]", number=95, array=95, tasks="1-3%1")
    assert marks_of(after(done(action, made="95"), 20, jobs=(RUNNING, new))) == {"it is in the queue": 20}
    assert marks_of(after(done(action, made="95"), 45)) == {"it is in the queue": "the queue does not show job 95"}
    assert marks_of(after(done(action), 1)) == {"it is in the queue": "it is not known which job was submitted"}


def test_an_excluded_node_is_observed_in_the_job_and_a_drained_one_at_the_node() -> None:
    operator = {"prod": replace(state().clusters["prod"], may_operate=True)}
    keep, drain = planned("exclude", "n1", of=state(clusters=operator)).actions
    kept = replace(WAITING, excluded=("n7", "n1"))
    assert marks_of(after(done(keep), 20, jobs=(RUNNING, kept))) == {"the job excludes the node": 20}
    assert marks_of(after(done(keep), 200)) == {"the job excludes the node": "Slurm does not show it"}
    drained = {"n1": SchedulerNode(name="n1", cluster="prod", state="IDLE", flags=("DRAIN",))}
    assert marks_of(after(done(drain), 20, scheduler_nodes=drained)) == {"the node is drained": 20}
