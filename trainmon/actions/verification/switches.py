"""Switches and signals after the act: the file appears and is taken, a checkpoint follows, the trainer exits. Pure."""

from __future__ import annotations

from trainmon.actions.verification.observed import (
    CLOCKS,
    COMMIT_AT_LEAST,
    COMMIT_SAVES,
    COMMITTED,
    EXIT_LISTED,
    Followed,
    Told,
    committed,
    exited_at,
    is_blind,
    new_checkpoint,
    save_s,
)
from trainmon.lib import Seconds, duration
from trainmon.model import Milestone, Run

TAKE_STEPS, TAKE_AT_LEAST = 10.0, 600.0
"""A switch is read every iteration; ten of them, or ten minutes, is long."""

APPEARS, TAKEN, SAVES, EXITS, GONE = (
    "the file appears", "the trainer takes it", "the trainer saves", "it exits", "the file is gone"
)  # fmt: skip


def _appears(one: Followed) -> Milestone:
    switch = one.switch
    is_there = switch is not None and switch.exists and (one.action.id in (switch.why or "") or one.has_looked())
    at = None if not is_there or switch is None else max(switch.armed_at or one.now, one.since - CLOCKS)
    if at is None and is_gone(one):
        at = one.since  # it was made, and taken between two looks
    error = None if switch is None else switch.error
    return one.mark(APPEARS, at, f"it is not seen: {error}" if error else None)


def is_gone(one: Followed) -> bool:
    switch = one.switch
    if switch is None or switch.exists is not False:
        return False
    return one.has_looked() or (switch.taken_at is not None and switch.taken_at >= one.since - CLOCKS)


def _taken_back(one: Followed) -> str | None:
    """Who took the switch back meanwhile."""
    undo = "unkill" if one.action.verb == "kill" else "unsave"
    for record in one.state.actions.values():
        is_of_it = (record.action.verb, record.action.run, record.status) == (undo, one.action.run, "done")
        if is_of_it and record.done_at is not None and record.done_at > one.since:
            return f"taken back by {record.action.who}"
    return None


def save(one: Followed) -> Told:
    run, switch = one.run, one.switch
    if run is None:
        return one.record.marks, True
    appears = _appears(one)
    back = _taken_back(one)
    if back is not None:
        return (appears, one.mark(TAKEN, None, back)), True
    at = None
    if is_gone(one) and switch is not None:
        at = switch.taken_at if switch.taken_at is not None and switch.taken_at >= one.since - CLOCKS else one.now
    limit = _take_limit(run)
    late = f"not taken within {duration(limit)}: a trainer that hangs does not read it" if one.is_past(limit) else None
    taken = one.mark(TAKEN, at, late)
    saved = committed(one, COMMITTED, taken.at)
    # A save of a second is committed before anybody has looked at the switch again: that look is waited for.
    return (appears, taken, saved), taken.at is not None and (saved.at is not None or is_blind(one))


def kill(one: Followed) -> Told:
    run = one.run
    if run is None:
        return one.record.marks, True
    appears = _appears(one)
    back = _taken_back(one)
    if back is not None:
        return (appears, one.mark(EXITS, None, back)), True
    if one.action.job is None and f"slurm:{one.action.cluster}" in one.state.sources:
        return (appears,), appears.at is not None  # nothing of it ran: there is nobody to exit
    limit = _take_limit(run) + COMMIT_SAVES * (save_s(run) or COMMIT_AT_LEAST / 3)
    late = f"still there after {duration(limit)}: a trainer that hangs does not read the file; C cancels its job"
    exits = one.mark(EXITS, exited_at(one), late if one.is_past(limit) else None)
    saves = one.mark(SAVES, new_checkpoint(one), _without_save(one, exits))
    return (appears, saves, exits), exits.at is not None and (saves.at is not None or saves.missed is not None)


def _without_save(one: Followed, exits: Milestone) -> str | None:
    if exits.at is None or one.now - exits.at < EXIT_LISTED:
        return None
    return "its checkpoints are not seen" if is_blind(one) else "it ended without a new checkpoint"


def undo(one: Followed) -> Told:
    gone = one.mark(GONE, one.now if is_gone(one) else None)
    if gone.at is None and one.is_past(60.0) and one.has_looked():
        gone = one.mark(GONE, None, "it is there again, or still")
    return (gone,), gone.at is not None or gone.missed is not None


def _take_limit(run: Run) -> Seconds:
    return max(TAKE_STEPS * (run.progress.cadence_s or 0.0), TAKE_AT_LEAST)


def signal(one: Followed) -> Told:
    if is_blind(one):
        missed = "no checkpoint directory of it can be seen"
        return (one.mark(COMMITTED, None, missed),), True
    saved, exited = committed(one, COMMITTED, one.since), exited_at(one)
    if saved.at is None and exited is not None and one.now - exited > EXIT_LISTED:
        return (one.mark(COMMITTED, None, "it ended without a new checkpoint"),), True
    return (saved,), saved.at is not None
