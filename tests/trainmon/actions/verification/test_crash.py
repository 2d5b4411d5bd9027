"""Actions that were open when the program crashed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.actions.cluster import (  # fmt: skip
    NOW,
    RUNNING,
    SAVE,
    WAITING,
    done,
    only,
    planned,
    readback,
)
from tests.trainmon.actions.verification.records import (
    AGAIN,
    REQUEUE,
    SAVE_ACTION,
    THERE,
    after,
    marks_of,
    restarted,
    with_switch,
)
from trainmon.model import (
    Record,
    Verb,
)

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
    assert (record.status, marks_of(record)["it is pending again"]) == ("done", 40)
    assert record.outcome.endswith("no answer; its effect is observed: it was done")
