"""Records of actions, and States in which their effects are seen."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.trainmon.actions.cluster import (  # fmt: skip
    CHECKPOINTS,
    NOW,
    RUN,
    RUNNING,
    SAVE,
    WAITING,
    only,
    planned,
    source,
    state,
)
from trainmon.actions.verification import verify_record
from trainmon.lib import say
from trainmon.model import (
    Checkpoint,
    Job,
    Record,
    Run,
    State,
    Switch,
)

SAVE_ACTION = only(planned("save"))


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
    missed = {mark.name: mark.missed and say(mark.missed) for mark in record.marks}
    return missed | {mark.name: round(mark.at - NOW, 1) for mark in record.marks if mark.at is not None}


def with_switch(path: str, **fields: Any) -> Run:
    name = "save" if path == SAVE else "kill"
    return replace(RUN, **{name: Switch(path=path, **fields)})


def saved(run: Run, step: int, at: float, began: float, state: str = "committed") -> Run:
    new = Checkpoint(step=step, state=state, path="/fsx/x", layout="dcp", at=NOW + at, began_at=NOW + began)  # type: ignore[arg-type]
    known = run.checkpoints or CHECKPOINTS
    return replace(run, checkpoints=replace(known, list=(new, *known.list)))


THERE = with_switch(SAVE, exists=True, armed_at=NOW + 0.5, why=f"… ({SAVE_ACTION.id})")


REQUEUE = only(planned("requeue"))


AGAIN = replace(RUNNING, state="PENDING", reason="BeginTime", restarts=1, started_at=None, starts_at=NOW + 121)
