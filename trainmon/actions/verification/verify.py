"""Verifies the effect of an action: a switch consumed, a checkpoint committed, a job that waits again. Pure.

An exit status of 0 proves little: for a job that has ended, `scontrol requeue Incomplete` does nothing and prints
nothing, and a switch file may never be read. So every action is followed until its effect is observed.
"""

from __future__ import annotations

from msgspec.structs import replace

from trainmon.actions.verbs import VERB, function
from trainmon.actions.verification.effects import Observation, submitted_job
from trainmon.lib import Instant, Seconds, joined
from trainmon.model import Record, State

RESULT_TIMEOUT: Seconds = 180.0
"""An action without a result after this time has none: the program that ran it was ended."""

OBSERVED = "its effect is observed: it was done"


def verify_record(record: Record, state: State, now: Instant) -> Record:
    """Advance an open record by what is observed now."""
    if not record.is_open or record.status in ("failed", "refused"):
        return record
    observed = Observation(record, state, now)
    if record.status in ("asked", "unknown"):
        record = _resolve(observed)
        if record.status != "done":
            return record
        observed = Observation(record, state, now)
    spec = VERB[record.action.verb]
    marks, is_over = function(spec.verify)(observed)
    is_over = is_over or observed.is_past(spec.followed)
    if marks == record.marks and not is_over:
        return record
    return replace(record, marks=marks, settled_at=now if is_over else None)


def followed_directories(state: State) -> frozenset[str]:
    """The checkpoint directories in which an open action expects a new checkpoint. They are listed more often."""
    names = (one.action.run for one in state.actions.values() if one.is_open and VERB[one.action.verb].saves)
    runs = (state.runs.get(name) for name in names if name is not None)
    return frozenset(run.spec.checkpoints for run in runs if run is not None and run.spec.checkpoints is not None)


def _resolve(observed: Observation) -> Record:
    """Find out about an action whose result was not observed. It is never repeated."""
    record = observed.record
    begun = record.written_at or observed.action.requested_at
    if record.status == "asked" and begun >= observed.state.started_at and observed.now - begun < RESULT_TIMEOUT:
        return record  # it runs now
    spec = VERB[observed.action.verb]
    if spec.proof and function(spec.proof)(observed):
        outcome = joined(record.outcome, "; ", OBSERVED) if record.outcome else OBSERVED
        number = submitted_job(observed) if record.made is None else record.made
        return replace(record, status="done", outcome=outcome, done_at=record.done_at or begun, made=number)
    source, started_at = observed.state.sources.get(f"slurm:{observed.action.cluster}"), observed.state.started_at
    was_polled = source is not None and source.answered_at is not None and source.answered_at > started_at
    # One poll of the queue is enough: no later poll shows more.
    is_final = observed.now - begun >= RESULT_TIMEOUT and spec.is_in_queue and was_polled
    if not is_final and observed.now - max(begun, started_at) < RESULT_TIMEOUT:
        return record
    outcome = record.outcome or "it was interrupted: it is not known whether it was done, and it is not repeated"
    return replace(record, status="unknown", outcome=outcome, settled_at=observed.now)
