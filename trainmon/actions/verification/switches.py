"""The effect of switches and signals: the file appears and is consumed, a checkpoint follows, the trainer exits."""

from __future__ import annotations

from trainmon.actions.verification.observation import (
    CLOCK_TOLERANCE,
    COMMIT_AT_LEAST,
    COMMIT_SAVES,
    COMMITTED,
    EXIT_LISTED,
    Observation,
    Progress,
    committed,
    exited_at,
    has_no_checkpoints,
    new_checkpoint,
    save_s,
)
from trainmon.lib import Seconds, duration
from trainmon.model import Milestone, Run

TAKE_STEPS, TAKE_AT_LEAST = 10.0, 600.0
"""A trainer reads its switch every iteration. It is late after ten iterations, and after 10 minutes at least."""

APPEARS, TAKEN, SAVES, EXITS, GONE = (
    "the file appears", "the trainer takes it", "the trainer saves", "it exits", "the file is gone"
)  # fmt: skip


def _appears(observed: Observation) -> Milestone:
    switch = observed.switch
    is_there = (
        switch is not None and switch.exists and (observed.action.id in (switch.why or "") or observed.was_read())
    )
    at = (
        None
        if not is_there or switch is None
        else max(switch.armed_at or observed.now, observed.since - CLOCK_TOLERANCE)
    )
    if at is None and is_gone(observed):
        at = observed.since  # it was created and consumed between two polls
    error = None if switch is None else switch.error
    return observed.milestone(APPEARS, at, f"it is not seen: {error}" if error else None)


def is_gone(observed: Observation) -> bool:
    switch = observed.switch
    if switch is None or switch.exists is not False:
        return False
    return observed.was_read() or (switch.taken_at is not None and switch.taken_at >= observed.since - CLOCK_TOLERANCE)


def _undone(observed: Observation) -> str | None:
    """Who removed the switch meanwhile."""
    undo = "unkill" if observed.action.verb == "kill" else "unsave"
    for record in observed.state.actions.values():
        is_of_it = (record.action.verb, record.action.run, record.status) == (undo, observed.action.run, "done")
        if is_of_it and record.done_at is not None and record.done_at > observed.since:
            return f"taken back by {record.action.who}"
    return None


def save(observed: Observation) -> Progress:
    run, switch = observed.run, observed.switch
    if run is None:
        return observed.record.marks, True
    appears = _appears(observed)
    back = _undone(observed)
    if back is not None:
        return (appears, observed.milestone(TAKEN, None, back)), True
    at = None
    if is_gone(observed) and switch is not None:
        at = (
            switch.taken_at
            if switch.taken_at is not None and switch.taken_at >= observed.since - CLOCK_TOLERANCE
            else observed.now
        )
    limit = _take_limit(run)
    late = (
        f"not taken within {duration(limit)}: a trainer that hangs does not read it"
        if observed.is_past(limit)
        else None
    )
    taken = observed.milestone(TAKEN, at, late)
    saved = committed(observed, COMMITTED, taken.at)
    # A save of one second is committed before the switch is read again: wait for that read.
    return (appears, taken, saved), taken.at is not None and (saved.at is not None or has_no_checkpoints(observed))


def kill(observed: Observation) -> Progress:
    run = observed.run
    if run is None:
        return observed.record.marks, True
    appears = _appears(observed)
    back = _undone(observed)
    if back is not None:
        return (appears, observed.milestone(EXITS, None, back)), True
    if observed.action.job is None and f"slurm:{observed.action.cluster}" in observed.state.sources:
        return (appears,), appears.at is not None  # no job of it ran: nothing exits
    limit = _take_limit(run) + COMMIT_SAVES * (save_s(run) or COMMIT_AT_LEAST / 3)
    late = f"still there after {duration(limit)}: a trainer that hangs does not read the file; C cancels its job"
    exits = observed.milestone(EXITS, exited_at(observed), late if observed.is_past(limit) else None)
    no_save = None
    if exits.at is not None and observed.now - exits.at >= EXIT_LISTED:
        is_blind = has_no_checkpoints(observed)
        no_save = "its checkpoints are not seen" if is_blind else "it ended without a new checkpoint"
    saves = observed.milestone(SAVES, new_checkpoint(observed), no_save)
    return (appears, saves, exits), exits.at is not None and (saves.at is not None or saves.missed is not None)


def undo(observed: Observation) -> Progress:
    gone = observed.milestone(GONE, observed.now if is_gone(observed) else None)
    if gone.at is None and observed.is_past(60.0) and observed.was_read():
        gone = observed.milestone(GONE, None, "it is there again, or still")
    return (gone,), gone.at is not None or gone.missed is not None


def _take_limit(run: Run) -> Seconds:
    return max(TAKE_STEPS * (run.progress.cadence_s or 0.0), TAKE_AT_LEAST)


def signal(observed: Observation) -> Progress:
    if has_no_checkpoints(observed):
        missed = "no checkpoint directory of it can be seen"
        return (observed.milestone(COMMITTED, None, missed),), True
    saved, exited = committed(observed, COMMITTED, observed.since), exited_at(observed)
    if saved.at is None and exited is not None and observed.now - exited > EXIT_LISTED:
        return (observed.milestone(COMMITTED, None, "it ended without a new checkpoint"),), True
    return (saved,), saved.at is not None
