"""What becomes of an action, seen from outside."""

from __future__ import annotations

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
from tests.trainmon.actions.verification.records import (
    SAVE_ACTION,
    THERE,
    after,
    marks_of,
    restarted,
    saved,
    with_switch,
)
from trainmon.actions.verification import followed_directories
from trainmon.engine.reducers.reduce import reduce
from trainmon.model import (
    ActionChanged,
    Asked,
    Checkpoint,
    Record,
    Run,
    SchedulerNode,
    SchedulerNodesListed,
    Switch,
    Trainer,
    Verb,
)

KILL_ACTION = only(planned("kill"))


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


def test_a_save_is_not_credited_with_a_regular_checkpoint() -> None:
    """The run saves every 1,000 steps by itself; the next regular save comes while the switch waits to be read."""
    armed = with_switch(SAVE, exists=True, armed_at=NOW, why=f"… ({SAVE_ACTION.id})")
    record = after(done(SAVE_ACTION), 20, saved(armed, 13_000, 18, 3))
    assert marks_of(record)["a new checkpoint is committed"] is None, "the trainer has not read the switch"
    taken = saved(with_switch(SAVE, exists=False, taken_at=NOW + 40), 13_000, 18, 3)
    record = after(record, 41, taken)
    assert marks_of(record)["a new checkpoint is committed"] is None, "it was complete before the switch was read"
    writing = saved(taken, 13_010, 42, 41, "writing")
    assert marks_of(after(record, 90, writing))["a new checkpoint is committed"] is None
    assert marks_of(after(record, 95, saved(taken, 13_010, 94, 41)))["a new checkpoint is committed"] == 94


KNOWN = Checkpoint(step=11_000, state="superseded", path="/fsx/ckpt/11000", layout="megatron", at=NOW - 4440)
REGULAR = replace(RUN, checkpoints=replace(CHECKPOINTS, list=(*CHECKPOINTS.list, KNOWN)))
"""The run with two regular checkpoints, at the steps 11,000 and 12,000."""


def test_a_regular_checkpoint_counts_only_if_no_other_follows() -> None:
    taken = replace(REGULAR, save=Switch(path=SAVE, exists=False, taken_at=NOW + 20))
    just_before = saved(taken, 13_000, 22, 15)
    record = after(done(SAVE_ACTION), 24, just_before)
    assert marks_of(record)["a new checkpoint is committed"] is None, "it fits the interval and began before the read"
    assert marks_of(after(record, 28, saved(just_before, 13_001, 27, 23)))["a new checkpoint is committed"] == 27
    assert marks_of(after(record, 60, just_before))["a new checkpoint is committed"] == 22
    slow = replace(just_before, progress=replace(RUN.progress, cadence_s=60.0))
    assert marks_of(after(record, 60, slow))["a new checkpoint is committed"] is None, "its next step comes later"


def test_a_regular_checkpoint_at_the_very_step_at_which_the_switch_was_read_counts() -> None:
    taken = replace(REGULAR, save=Switch(path=SAVE, exists=False, taken_at=NOW + 20))
    record = after(done(SAVE_ACTION), 26, saved(taken, 13_000, 25, 21))
    assert marks_of(record)["a new checkpoint is committed"] == 25


def test_a_single_file_of_an_earlier_step_is_not_the_one_requested() -> None:
    """A single file does not show when its save began: it was written while the action was requested."""
    checkpoints = replace(REGULAR.checkpoints, every_steps=1000) if REGULAR.checkpoints else None
    action = replace(SAVE_ACTION, step=13_005)
    taken = replace(REGULAR, checkpoints=checkpoints, save=Switch(path=SAVE, exists=False, taken_at=NOW + 6))
    begun_before = saved(taken, 13_000, 5, 5)
    record = after(done(action), 90, one_file(begun_before))
    assert marks_of(record)["a new checkpoint is committed"] is None
    record = after(done(action), 90, one_file(saved(taken, 13_007, 30, 30)))
    assert marks_of(record)["a new checkpoint is committed"] == 30


def one_file(run: Run) -> Run:
    """The run whose newest checkpoint is a single file."""
    assert run.checkpoints is not None
    newest, *others = run.checkpoints.list
    return replace(run, checkpoints=replace(run.checkpoints, list=(replace(newest, began_at=None), *others)))


def test_a_kill_is_credited_with_a_regular_checkpoint_only_when_the_run_has_ended() -> None:
    there = replace(REGULAR, kill=Switch(path=KILL, exists=True, armed_at=NOW, why=f"({KILL_ACTION.id})"))
    record = after(done(KILL_ACTION), 30, saved(there, 13_000, 20, 4))
    assert marks_of(record)["the trainer saves"] is None
    ended = replace(RUNNING, state="COMPLETED", ends_at=NOW + 31)
    record = after(record, 35, saved(there, 13_000, 20, 4), (WAITING, ended))
    assert marks_of(record)["the trainer saves"] == 20


def test_directories_are_followed_while_an_action_waits_for_a_checkpoint() -> None:
    def directories(record: Record) -> frozenset[str]:
        return followed_directories(state(actions={record.action.id: record}))

    assert directories(done(SAVE_ACTION)) == {"/fsx/ckpt"}
    assert directories(done(KILL_ACTION, status="asked")) == {"/fsx/ckpt"}
    assert directories(done(only(planned("signal", seen=readback(RUNNING))))) == {"/fsx/ckpt"}
    assert directories(done(SAVE_ACTION, settled_at=NOW + 9)) == frozenset()
    assert directories(done(only(planned("requeue")))) == frozenset(), "no checkpoint is expected of it"


def test_a_loop_that_removes_the_switch_after_its_save_is_credited_with_it() -> None:
    asked = Asked("save", "the save switch", NOW + 5, 13_007)
    trainer = Trainer(path="/fsx/kill.status", host="login", at=NOW + 5, phase="saving", asked=asked)
    saving = replace(with_switch(SAVE, exists=True, armed_at=NOW + 0.5), trainer=trainer)
    record = after(done(SAVE_ACTION), 800, saving)
    assert (marks_of(record)["the trainer consumes it"], record.is_open) == (None, True)
    gone = replace(saving, save=Switch(path=SAVE, exists=False, taken_at=NOW + 850))
    record = after(record, 900, saved(gone, 13_007, 820, 6))
    assert marks_of(record)["the trainer consumes it"] == 850
    assert marks_of(record)["a new checkpoint is committed"] == 820


def test_a_switch_that_is_not_taken_is_overdue_after_ten_minutes_and_may_still_be_taken() -> None:
    record = after(done(SAVE_ACTION), 601, THERE)
    assert marks_of(record)["the trainer consumes it"] == "not consumed within 10m: a hung trainer ignores it"
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
        "still there after 13m: a hung trainer will not see the switch; press C to cancel the job"
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


def test_where_prometheus_has_no_processes_the_exit_is_observed_by_the_memory() -> None:
    bare, there = replace(KILL_ACTION, job=None), with_switch(KILL, exists=True, armed_at=NOW)
    alone = {"node:login": source("node:login", answered_at=NOW + 200)}

    def ends(memory: int) -> float | None:
        one = replace(node("n1", processes=0), gpus_at=NOW + 200, probe="prometheus")
        gpus = tuple(replace(gpu, memory_used_mib=memory) for gpu in one.gpus)
        left = {name: replace(one, name=name, gpus=gpus) for name in ("n1", "n2")}
        return marks_of(after(done(bare), 200, there, (), sources=alone, nodes=left))["it exits"]  # type: ignore[return-value]

    assert ends(70_000) is None
    assert ends(4) == 200


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


def test_no_action_is_followed_for_ever() -> None:
    record = after(done(SAVE_ACTION), 3601, THERE)
    assert record.settled_at == NOW + 3601
    assert after(record, 4000, TAKEN) is record


def test_what_failed_or_was_refused_is_left_alone() -> None:
    for status in ("failed", "refused"):
        record = done(SAVE_ACTION, status=status)
        assert after(record, 100, THERE) is record


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
    settled = done(SAVE_ACTION, settled_at=NOW + 1)
    known = reduce(known, [ActionChanged(settled), ActionChanged(done(SAVE_ACTION))], NOW + 1)
    assert known.actions[SAVE_ACTION.id].settled_at == NOW + 1


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
