"""What becomes of an action, seen from outside."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.actions.cluster import (  # fmt: skip
    CHECKPOINTS,
    KILL,
    NOW,
    RUN,
    RUNNING,
    SAVE,
    WAITING,
    done,
    node,
    only,
    planned,
    readback,
    source,
    state,
)
from trainmon.actions.verification.observation import has_task
from trainmon.actions.verification.verify import verify_record
from trainmon.engine.reducers import reduce
from trainmon.model import (
    ActionChanged,
    Checkpoint,
    Job,
    Record,
    Run,
    SchedulerNode,
    SchedulerNodesListed,
    State,
    Switch,
    Verb,
)

SAVE_ACTION = only(planned("save"))
KILL_ACTION = only(planned("kill"))


def seen(after: float, run: Run = RUN, jobs: tuple[Job, ...] = (RUNNING, WAITING), **fields: Any) -> State:
    """The State some seconds after the act, with every source heard just now."""
    at = NOW + after
    sources = {name: source(name, answered_at=at) for name in ("slurm:prod", "node:login")}
    return state(*jobs, run=run, **{"at": at, "sources": sources} | fields)


def after(
    record: Record, seconds: float, run: Run = RUN, jobs: tuple[Job, ...] = (RUNNING, WAITING), **more: Any
) -> Record:
    return verify_record(record, seen(seconds, run, jobs, **more), NOW + seconds)


def restarted(record: Record, seconds: float, **changes: Any) -> Record:
    """The same, of a program that was started anew at NOW."""
    return after(record, seconds, **{"started_at": NOW} | changes)


def marks_of(record: Record) -> dict[str, float | str | None]:
    """Its marks: when, in seconds after the act; else what was missed; else nothing yet."""
    return {mark.name: mark.missed if mark.at is None else round(mark.at - NOW, 1) for mark in record.marks}


def with_switch(path: str, **fields: Any) -> Run:
    name = "save" if path == SAVE else "kill"
    return replace(RUN, **{name: Switch(path=path, **fields)})


def saved(run: Run, step: int, at: float, began: float, state: str = "committed") -> Run:
    new = Checkpoint(step=step, state=state, path="/fsx/x", layout="dcp", at=NOW + at, began_at=NOW + began)  # type: ignore[arg-type]
    return replace(run, checkpoints=replace(CHECKPOINTS, list=(new, *CHECKPOINTS.list)))


THERE = with_switch(SAVE, exists=True, armed_at=NOW + 0.5, why=f"… ({SAVE_ACTION.id})")
TAKEN = with_switch(SAVE, exists=False, taken_at=NOW + 6)


def test_a_save_is_followed_from_the_file_to_the_checkpoint() -> None:
    record = after(done(SAVE_ACTION), 1)
    assert marks_of(record) == {
        "the file appears": None, "the trainer consumes it": None, "a new checkpoint is committed": None,
    }  # fmt: skip
    record = after(record, 2, THERE)
    assert marks_of(record)["the file appears"] == 0.5
    record = after(record, 7, TAKEN)
    assert marks_of(record)["the trainer consumes it"] == 6
    record = after(record, 60, saved(TAKEN, 12_881, 60, 8, "writing"))
    assert (marks_of(record)["a new checkpoint is committed"], record.is_open) == (None, True)
    record = after(record, 96, saved(TAKEN, 12_881, 95, 8))
    assert marks_of(record) == {
        "the file appears": 0.5, "the trainer consumes it": 6, "a new checkpoint is committed": 95,
    }  # fmt: skip
    assert record.settled_at == NOW + 96


def test_a_file_that_was_taken_between_two_polls_was_there() -> None:
    quick = with_switch(SAVE, exists=False)
    assert marks_of(after(done(SAVE_ACTION), 3, quick))["the trainer consumes it"] is None, "the last look may be older"
    record = after(done(SAVE_ACTION), 6, quick)
    assert marks_of(record)["the file appears"] == 0
    assert marks_of(record)["the trainer consumes it"] == 6


def test_a_checkpoint_that_was_being_written_already_is_not_the_one_requested() -> None:
    record = after(done(SAVE_ACTION), 60, saved(TAKEN, 12_500, 30, -40))
    assert marks_of(record)["a new checkpoint is committed"] is None
    assert marks_of(after(record, 90, saved(TAKEN, 12_000, 80, 20)))["a new checkpoint is committed"] is None


def test_a_switch_that_is_not_taken_is_overdue_after_ten_minutes_and_may_still_be_taken() -> None:
    record = after(done(SAVE_ACTION), 601, THERE)
    assert (
        marks_of(record)["the trainer consumes it"] == "not consumed within 10m: a trainer that hangs does not read it"
    )
    assert record.is_open
    record = after(record, 700, with_switch(SAVE, exists=False, taken_at=NOW + 699))
    assert marks_of(record)["the trainer consumes it"] == 699


def test_a_slow_run_has_ten_of_its_own_steps() -> None:
    slow = replace(THERE, progress=replace(RUN.progress, cadence_s=120.0))
    assert marks_of(after(done(SAVE_ACTION), 1100, slow))["the trainer consumes it"] is None
    assert "within 20m" in str(marks_of(after(done(SAVE_ACTION), 1300, slow))["the trainer consumes it"])


def test_taken_without_a_checkpoint_is_reported_once_and_never_changes_its_words() -> None:
    record = after(done(SAVE_ACTION), 10, TAKEN)
    late = after(record, 920, TAKEN)
    assert marks_of(late)["a new checkpoint is committed"] == ("no new checkpoint within 15m of the request")
    assert late.is_open
    assert after(late, 930, TAKEN) is late


def test_without_a_checkpoint_directory_it_ends_when_it_is_taken() -> None:
    blind = replace(TAKEN, checkpoints=None, spec=replace(TAKEN.spec, checkpoints=None))
    record = after(done(SAVE_ACTION), 10, blind)
    assert marks_of(record)["a new checkpoint is committed"] == "no checkpoint directory of the run can be read"
    assert not record.is_open


@pytest.mark.parametrize("verb", ["save", "signal"])
def test_a_directory_that_was_not_listed_yet_is_waited_for(verb: Verb) -> None:
    early = replace(TAKEN, checkpoints=None)
    record = restarted(done(only(planned(verb, seen=readback(RUNNING)))), 10, run=early)
    assert (marks_of(record)["a new checkpoint is committed"], record.is_open) == (None, True)
    assert marks_of(after(record, 20, saved(TAKEN, 12_900, 8, 4)))["a new checkpoint is committed"] == 8
    late = restarted(record, 130, run=early)
    assert (marks_of(late)["a new checkpoint is committed"], late.is_open) == (
        "no checkpoint directory of the run can be read", False,
    )  # fmt: skip


def test_a_save_that_is_taken_back_is_over() -> None:
    undo = only(planned("unsave", of=state(run=THERE)))
    back = done(replace(undo, who="ben"), done_at=NOW + 30)
    gone = with_switch(SAVE, exists=False, taken_at=NOW + 30)
    record = after(done(SAVE_ACTION), 31, gone, actions={back.action.id: back})
    assert marks_of(record)["the trainer consumes it"] == "removed by ben"
    assert not record.is_open


def test_a_kill_is_followed_to_the_exit() -> None:
    there = with_switch(KILL, exists=True, armed_at=NOW, why=f"({KILL_ACTION.id})")
    record = after(done(KILL_ACTION), 2, there)
    assert marks_of(record) == {"the file appears": 0, "the trainer saves": None, "it exits": None}
    record = after(record, 95, saved(there, 12_882, 92, 4))
    assert marks_of(record)["the trainer saves"] == 92
    ended = replace(RUNNING, state="COMPLETED", ends_at=NOW + 100)
    record = after(record, 120, saved(there, 12_882, 92, 4), (WAITING, ended))
    assert marks_of(record) == {"the file appears": 0, "the trainer saves": 92, "it exits": 100}
    assert record.settled_at == NOW + 120


def test_an_exit_without_a_checkpoint_is_reported_after_a_while() -> None:
    ended = (replace(RUNNING, gone_at=NOW + 100),)
    there = with_switch(KILL, exists=True, armed_at=NOW)
    record = after(done(KILL_ACTION), 101, there, ended)
    assert (marks_of(record)["it exits"], marks_of(record)["the trainer saves"], record.is_open) == (100, None, True)
    record = after(record, 230, there, ended)
    assert marks_of(record)["the trainer saves"] == "it ended without a new checkpoint"
    assert not record.is_open


def test_a_hung_run_does_not_exit_and_c_is_offered() -> None:
    record = after(done(KILL_ACTION), 800, with_switch(KILL, exists=True, armed_at=NOW))
    assert marks_of(record)["it exits"] == (
        "still there after 13m: a trainer that hangs does not read the file; C cancels its job"
    )
    assert record.is_open


def test_without_slurm_the_exit_is_observed_by_the_gpus() -> None:
    bare = replace(KILL_ACTION, job=None)
    alone = {"node:login": source("node:login", answered_at=NOW + 200)}
    there = with_switch(KILL, exists=True, armed_at=NOW)
    busy = {name: replace(node(name), gpus_at=NOW + 200) for name in ("n1", "n2")}
    left = {name: replace(node(name, processes=0), gpus_at=NOW + 200) for name in ("n1", "n2")}
    one = after(done(bare), 200, there, (), sources=alone, nodes=busy)
    assert marks_of(one)["it exits"] is None
    two = after(done(bare), 200, there, (), sources=alone, nodes=left)
    assert marks_of(two)["it exits"] == 200


def test_a_kill_for_jobs_to_come_is_over_when_the_file_is_there() -> None:
    action = only(planned("kill", of=state(WAITING)))
    record = after(done(action), 6, with_switch(KILL, exists=True, armed_at=NOW), (WAITING,))
    assert marks_of(record) == {"the file appears": 0}
    assert not record.is_open


def test_a_switch_taken_back_is_gone_or_there_again() -> None:
    action = only(planned("unkill", of=state(run=with_switch(KILL, exists=True))))
    gone = after(done(action), 6, with_switch(KILL, exists=False))
    assert (marks_of(gone), gone.is_open) == ({"the file is gone": 6}, False)
    again = after(done(action), 61, with_switch(KILL, exists=True))
    assert (marks_of(again), again.is_open) == ({"the file is gone": "the file is still there, or there again"}, False)


REQUEUE = only(planned("requeue"))
AGAIN = replace(RUNNING, state="PENDING", reason="BeginTime", restarts=1, started_at=None, starts_at=NOW + 121)


def test_a_requeue_is_observed_by_its_state_and_its_restarts() -> None:
    record = after(done(REQUEUE), 15)
    assert marks_of(record) == {"it waits again": None, "it starts anew": None}
    record = after(record, 31, jobs=(AGAIN,))
    assert marks_of(record) == {"it waits again": 31, "it starts anew": None}
    record = after(record, 160, jobs=(replace(RUNNING, restarts=1, started_at=NOW + 150),))
    assert marks_of(record) == {"it waits again": 31, "it starts anew": 150}
    assert not record.is_open


def test_a_requeue_that_starts_again_between_two_polls_is_observed_too() -> None:
    record = after(done(REQUEUE), 160, jobs=(replace(RUNNING, restarts=1, started_at=NOW + 150),))
    assert marks_of(record) == {"it waits again": 160, "it starts anew": 150}


def test_a_requeued_element_waits_in_the_row_of_its_array() -> None:
    gone, row = replace(RUNNING, gone_at=NOW + 20), replace(WAITING, id="88_[3,5-10%1]", tasks="3,5-10%1")
    record = after(done(REQUEUE), 31, jobs=(gone, row))
    assert marks_of(record) == {"it waits again": 31, "it starts anew": None}
    lost = after(done(REQUEUE), 31, jobs=(gone, WAITING))
    assert marks_of(lost)["it waits again"] == "the job is no longer in the queue"


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
    assert marks_of(record)["it waits again"] == (
        "nothing happened: Slurm does not requeue ended jobs (its script ended with status 0)"
    )
    assert not record.is_open


def test_a_requeue_that_slurm_does_not_do_is_reported() -> None:
    record = after(done(REQUEUE), 200)
    assert marks_of(record)["it waits again"] == "it still runs: Slurm has not requeued it"
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


def test_no_action_is_followed_for_ever() -> None:
    record = after(done(SAVE_ACTION), 3601, THERE)
    assert record.settled_at == NOW + 3601
    assert after(record, 4000, TAKEN) is record


def test_what_failed_or_was_refused_is_left_alone() -> None:
    for status in ("failed", "refused"):
        record = done(SAVE_ACTION, status=status)
        assert after(record, 100, THERE) is record


# ---- after a crash -------------------------------------------------------------------------------------------------


def broken(action: Any, **fields: Any) -> Record:
    """Written down a minute before this program started, and never told to be done."""
    return done(action, **{"status": "asked", "written_at": NOW - 60, "done_at": None} | fields)


def test_an_action_that_is_being_done_is_not_verified() -> None:
    record = done(SAVE_ACTION, status="asked", done_at=None)
    assert after(record, 60, with_switch(SAVE, exists=False)) is record


@pytest.mark.parametrize(
    ("verb", "changes"),
    [
        ("save", {"run": THERE}),
        ("requeue", {"jobs": (AGAIN,)}),
        ("cancel", {"jobs": (replace(RUNNING, state="CANCELLED", ends_at=NOW),)}),
        ("hold", {"jobs": (RUNNING, replace(WAITING, priority=0))}),
        ("exclude", {"jobs": (RUNNING, replace(WAITING, excluded=("n1",)))}),
    ],
)
def test_an_action_that_was_interrupted_is_done_where_what_it_was_for_is_observed(
    verb: Verb, changes: dict[str, Any]
) -> None:
    subjects = ("n1",) if verb == "exclude" else ()
    record = restarted(broken(only(planned(verb, *subjects))), 10, **changes)
    assert record.status == "done"
    assert record.outcome == "its effect is observed: it was done"


@pytest.mark.parametrize("verb", ["save", "kill", "requeue", "cancel", "hold", "signal", "queue"])
def test_an_action_that_was_broken_off_and_left_no_trace_is_unknown_and_not_repeated(verb: Verb) -> None:
    record = broken(only(planned(verb, seen=readback(RUNNING))))
    assert restarted(record, 10) is record, "the sources may not have told yet"
    record = restarted(record, 200)
    assert (record.status, record.settled_at) == ("unknown", NOW + 200)
    assert record.outcome == ("it was interrupted: it is not known whether it was done, and it is not repeated")


def test_a_job_that_was_queued_before_the_program_died_is_found_by_its_name_and_its_time() -> None:
    record = broken(only(planned("queue", seen=readback(RUNNING))))
    chain = record.action.expected.chain
    assert chain is not None
    new = replace(WAITING, id="99", number=99, array=None, name=chain.name, submitted_at=NOW - 58)

    found = restarted(record, 1, jobs=(RUNNING, new))
    assert (found.status, found.made, found.outcome) == ("done", "99", "its effect is observed: it was done")
    for other in (
        replace(new, submitted_at=NOW - 70), replace(new, name="another"), replace(new, submitted_at=NOW + 300),
    ):  # fmt: skip
        assert restarted(record, 1, jobs=(RUNNING, other)).status == "asked"
    theirs = {"other": replace(record, action=replace(record.action, id="other"), status="done", made="99")}
    assert restarted(record, 1, jobs=(RUNNING, new), actions=theirs).status == "asked"


def test_an_action_of_long_ago_is_judged_by_the_first_poll_of_the_queue() -> None:
    record = broken(only(planned("queue", seen=readback(RUNNING))), written_at=NOW - 600)
    assert restarted(record, 0) is record, "the queue has not been read yet"
    assert restarted(record, 1).status == "unknown"


def test_a_switch_of_somebody_else_does_not_make_it_done() -> None:
    other = with_switch(SAVE, exists=True, armed_at=NOW, why="touched by ben")
    assert restarted(broken(SAVE_ACTION), 10, run=other).status == "asked"


def test_an_action_whose_command_did_not_answer_is_judged_too() -> None:
    record = done(REQUEUE, status="unknown", outcome="it is not known whether it was done: no answer")
    record = after(record, 40, jobs=(AGAIN,))
    assert (record.status, marks_of(record)["it waits again"]) == ("done", 40)
    assert record.outcome.endswith("no answer; its effect is observed: it was done")


# ---- in the State --------------------------------------------------------------------------------------------------


def test_the_fold_follows_open_actions_each_tick() -> None:
    known = reduce(state(), [ActionChanged(done(SAVE_ACTION))], NOW)
    assert [mark.at for mark in known.actions[SAVE_ACTION.id].marks] == [None, None, None]
    known = reduce(replace(known, runs={"llm": replace(THERE, jobs=("prod/88_3",))}), [], NOW + 2)
    assert known.actions[SAVE_ACTION.id].marks[0].at == NOW + 0.5


def test_a_word_that_comes_late_does_not_undo_a_later_one() -> None:
    first = done(SAVE_ACTION, status="asked", done_at=None)
    known = reduce(state(), [ActionChanged(done(SAVE_ACTION)), ActionChanged(first)], NOW)
    assert known.actions[SAVE_ACTION.id].status == "done"


def test_the_word_of_the_act_keeps_what_was_seen_before_it() -> None:
    first = done(SAVE_ACTION, status="asked", done_at=None)
    known = reduce(state(), [ActionChanged(replace(first, marks=after(done(SAVE_ACTION), 2, THERE).marks))], NOW)
    known = reduce(known, [ActionChanged(done(SAVE_ACTION))], NOW + 1)
    assert known.actions[SAVE_ACTION.id].marks[0].at == NOW + 0.5


def test_what_is_long_over_leaves_and_what_is_open_stays() -> None:
    over = done(SAVE_ACTION, settled_at=NOW - 10)
    open_one = done(KILL_ACTION)
    known = reduce(state(), [ActionChanged(over), ActionChanged(open_one)], NOW)
    assert set(known.actions) == {SAVE_ACTION.id, KILL_ACTION.id}
    known = reduce(known, [], NOW + 3595)
    assert set(known.actions) == {KILL_ACTION.id}


def test_the_number_of_actions_is_bounded() -> None:
    many = [ActionChanged(done(replace(SAVE_ACTION, id=f"{number:012x}"), settled_at=NOW)) for number in range(600)]
    known = reduce(state(), many, NOW)
    assert len(known.actions) == 500
    assert next(iter(known.actions)) == f"{100:012x}"


def test_a_quiet_state_is_not_copied() -> None:
    record = done(SAVE_ACTION, settled_at=NOW)
    known = reduce(state(), [ActionChanged(record)], NOW)
    assert reduce(known, [], NOW + 1).actions is known.actions


def test_the_nodes_of_the_scheduler_are_used_as_they_come() -> None:
    operator = {"prod": replace(state().clusters["prod"], may_operate=True)}
    drain = planned("exclude", "n1", of=state(clusters=operator)).actions[1]
    drained = SchedulerNode(name="n1", cluster="prod", state="IDLE", flags=("DRAIN",))
    events = [ActionChanged(done(drain)), SchedulerNodesListed("prod", NOW + 5, (drained,))]
    assert not reduce(state(), events, NOW + 5).actions[drain.id].is_open
