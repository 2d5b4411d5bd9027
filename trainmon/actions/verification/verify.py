"""What becomes of an action, seen from outside: a switch taken, a checkpoint committed, a job that waits again. Pure.

An exit status of 0 says little: `scontrol requeue Incomplete` says nothing and does nothing for a job that has ended,
and a switch file that exists was not yet read by anybody. So every action is followed until what it was for is seen.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from trainmon.actions.planning import is_held
from trainmon.actions.verification.jobs import cancel, exclude, hold, is_anew, keeps_off, made, queue, requeue
from trainmon.actions.verification.observed import Followed, Told
from trainmon.actions.verification.switches import is_gone, kill, save, signal, undo
from trainmon.lib import Instant, Seconds
from trainmon.model import Record, State, Verb

IN_THE_MIDDLE: Seconds = 180.0
"""After this a word on an action that was begun will not come any more: the program was ended in the middle."""

GIVE_UP: Seconds = 3_600.0
"""An action that is not over by then is followed no longer; what was missed stays written."""

OF_THE_QUEUE = frozenset({"requeue", "cancel", "hold", "release", "queue"})
"""Verbs of which one look at the queue tells whether they were done."""

FOLLOW: dict[Verb, Callable[[Followed], Told]] = {
    "save": save,
    "kill": kill,
    "unkill": undo,
    "unsave": undo,
    "requeue": requeue,
    "cancel": cancel,
    "hold": hold,
    "release": hold,
    "signal": signal,
    "queue": queue,
    "exclude": exclude,
}


def advance(record: Record, state: State, now: Instant) -> Record:
    """Follow an open record by what is seen now."""
    if not record.is_open or record.status in ("failed", "refused"):
        return record
    one = Followed(record, state, now)
    if record.status in ("asked", "unknown"):
        record = _judged(one)
        if record.status != "done":
            return record
        one = Followed(record, state, now)
    marks, is_over = FOLLOW[record.action.verb](one)
    is_over = is_over or one.is_past(GIVE_UP)
    if marks == record.marks and not is_over:
        return record
    return replace(record, marks=marks, settled_at=now if is_over else None)


def _judged(one: Followed) -> Record:
    """What is true of an action whose end was not seen: it is looked for, and never repeated."""
    record = one.record
    begun = record.written_at or one.action.asked_at
    if record.status == "asked" and begun >= one.state.started_at and one.now - begun < IN_THE_MIDDLE:
        return record  # it is being done now
    if _is_seen(one):
        words = "what it was for is seen: it was done"
        outcome = f"{record.outcome}; {words}" if record.outcome else words
        number = made(one) if record.made is None else record.made
        return replace(record, status="done", outcome=outcome, done_at=record.done_at or begun, made=number)
    is_told = one.now - begun >= IN_THE_MIDDLE and _has_been_looked_for(one)
    if not is_told and one.now - max(begun, one.state.started_at) < IN_THE_MIDDLE:
        return record
    words = (
        record.outcome or "it was broken off in the middle: whether it was done is not known, and it is not repeated"
    )
    return replace(record, status="unknown", outcome=words, settled_at=one.now)


def _has_been_looked_for(one: Followed) -> bool:
    """Whether the queue was read since this program began, where it would show the act: no more will be known of it."""
    queue_of = one.state.sources.get(f"slurm:{one.action.cluster}")
    seen_at = None if queue_of is None else queue_of.seen_at
    return one.action.verb in OF_THE_QUEUE and seen_at is not None and seen_at > one.state.started_at


def _is_seen(one: Followed) -> bool:
    """Whether what is seen now can only come from this action."""
    switch, job, action = one.switch, one.job, one.action
    match action.verb:
        case "save" | "kill":
            return switch is not None and bool(switch.exists) and action.id in (switch.why or "")
        case "unkill" | "unsave":
            return is_gone(one)
        case "requeue":
            return job is not None and is_anew(one, job)
        case "cancel":
            return job is not None and job.state == "CANCELLED"
        case "hold" | "release":
            return job is not None and one.polls() > 0 and is_held(job) == (action.verb == "hold")
        case "exclude":
            return keeps_off(one)
        case "queue":
            return made(one) is not None
        case _:
            return False
