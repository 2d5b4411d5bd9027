"""Reducers of action events: State.actions. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from trainmon.actions.verification import verify_record
from trainmon.engine.reducers.batch import EventBatch
from trainmon.lib import Instant, Seconds
from trainmon.model import ActionChanged

SHOWN: Seconds = 3_600.0
"""How long a completed action stays in the State. The ledger keeps it for longer."""

MOST = 500
"""The maximum number of actions in a State. The oldest completed ones are dropped first."""


def changed(batch: EventBatch, event: ActionChanged) -> None:
    """Store the new record of an action. A late event does not undo a later one."""
    record, known = event.record, batch.current("actions").get(event.record.action.id)
    is_known = known is not None and known.status != "asked" and record.status == "asked"
    if is_known or (known is not None and known.settled_at is not None and record.settled_at is None):
        return
    if known is not None and not record.marks:
        record = replace(record, marks=known.marks)
    batch.writable("actions")[record.action.id] = record


def advance(batch: EventBatch, now: Instant) -> None:
    """Verify the open actions against the current State, and drop those that ended long ago."""
    actions = batch.current("actions")
    if not actions:
        return
    state = batch.so_far(now)
    for name, record in actions.items():
        advanced = verify_record(record, state, now)
        if advanced is not record:
            batch.writable("actions")[name] = advanced
    actions = batch.current("actions")
    excess = len(actions) - MOST
    for index, name in enumerate([name for name, record in actions.items() if not record.is_open]):
        if index < excess or now - (actions[name].settled_at or now) > SHOWN:
            del batch.writable("actions")[name]
