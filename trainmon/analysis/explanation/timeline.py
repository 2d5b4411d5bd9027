"""The timeline of an attempt: what the scheduler, the log, the alerts and people did, and its GPUs. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from trainmon.lib import HOUR, MINUTE, Instant, Seconds, clean, dated, say, scrub
from trainmon.model import Alert, Attempt, Record, Series

AFTERMATH: Seconds = 3_600.0
"""How long after its end an alert or an action still belongs to an attempt, if no other attempt begins."""

MOMENTS_AT_MOST = 50
"""Alerts and actions of one timeline."""

What = Literal[
    "queued", "started", "first-step", "checkpoint", "alert", "acknowledged", "resolved", "action", "ended",
    "next-attempt", "left-out",
]  # fmt: skip


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """One event of the timeline."""

    at: Instant
    what: What
    text: str
    by: str | None = None
    """Who did it, for an action or an acknowledgement."""


def period(attempt: Attempt, following: Attempt | None) -> tuple[Instant, Instant]:
    """The time to which alerts and actions of an attempt belong: from its submission to the start of the next one."""
    began = attempt.submitted_at or attempt.started_at or attempt.seen_at
    until = (attempt.ended_at or attempt.seen_at) + AFTERMATH
    began_next = None if following is None else following.started_at
    return began, until if began_next is None else max(attempt.ended_at or began, min(until, began_next))


def timeline(
    attempt: Attempt, following: Attempt | None, alerts: Iterable[Alert], actions: Iterable[Record]
) -> tuple[Moment, ...]:
    """The events in their order. Of many alerts and actions, those in the middle are only counted."""
    began, until = period(attempt, following)
    own = list(_own(attempt, following))
    around = [one for one in (*_alerts(alerts), *_actions(actions)) if began <= one.at <= until]
    around.sort(key=lambda one: one.at)
    half, kept = MOMENTS_AT_MOST // 2, around
    if len(around) > MOMENTS_AT_MOST:
        text = f"alerts and actions that are left out: {len(around) - 2 * half}"
        kept = [*around[:half], Moment(at=around[half].at, what="left-out", text=text), *around[-half:]]
    return tuple(sorted((*own, *kept), key=lambda one: one.at))


def _own(attempt: Attempt, following: Attempt | None) -> Iterator[Moment]:
    end, committed = attempt.told_end, attempt.last_committed_step
    if attempt.submitted_at is not None:
        yield Moment(at=attempt.submitted_at, what="queued", text="queued")
    if attempt.started_at is not None:
        on = f" on {len(attempt.nodes)} nodes" if len(attempt.nodes) > 1 else "".join(f" on {n}" for n in attempt.nodes)
        estimated = "; its log shows the time" if attempt.start_is_estimated else ""
        yield Moment(at=attempt.started_at, what="started", text=f"started{on}{estimated}")
    if attempt.first_step_at is not None and attempt.first_step is not None:
        resumed = "" if attempt.resumed_from is None else f", resumed from step {attempt.resumed_from:,}"
        late, at = "" if attempt.first_step_is_dated else " read:", attempt.first_step_at
        for bound, what in _after_first_step(attempt):
            if bound < at:  # the log was read late
                late, at = f" before {what}:", bound
        yield Moment(at=at, what="first-step", text=f"first step{late} {attempt.first_step:,}{resumed}")
    if attempt.last_committed_at is not None and committed is not None and attempt.has_committed:
        yield Moment(
            at=attempt.last_committed_at, what="checkpoint", text=f"last committed checkpoint, step {committed:,}"
        )
    if end is not None:
        yield Moment(at=end.at, what="ended", text=ending(attempt))
    if following is not None and following.started_at is not None:
        yield Moment(at=following.started_at, what="next-attempt", text="the next attempt started")


def _after_first_step(attempt: Attempt) -> Iterator[tuple[Instant, str]]:
    """What the first step certainly came before."""
    end, saved_at = attempt.told_end, attempt.last_committed_at
    if end is not None:
        yield end.at, "the end"
    is_own = attempt.has_committed and (attempt.last_committed_step or 0) >= (attempt.first_step or 0)
    if saved_at is not None and is_own:
        yield saved_at, "this checkpoint"


def ending(attempt: Attempt) -> str:
    """`ended: FAILED, exit code 1, last step 12,898`."""
    end = attempt.told_end
    assert end is not None
    last = "last known" if attempt.may_have_gone_on else "last"
    has_exited = end.exit_code or end.scheduler_state in (None, "COMPLETED")  # else Slurm prints 0
    facts = (
        "nothing reported it" if end.source == "lost" else None,
        end.scheduler_state,
        f"exit code {end.exit_code}" if has_exited and end.exit_code is not None else None,
        None if end.signal is None else f"signal {end.signal}",
        None if attempt.last_step is None else f"{last} step {attempt.last_step:,}",
    )
    known = ", ".join(fact for fact in facts if fact)
    return f"ended: {known}" if known else "ended"


def _alerts(alerts: Iterable[Alert]) -> Iterator[Moment]:
    for one in alerts:
        if one.fired_at is None:
            continue
        summary = dated(one.summary, one.found_at) if one.found_at - one.fired_at >= 1.0 else one.summary
        text = scrub(clean(f"{one.severity} {one.rule}: {summary}"))
        yield Moment(at=one.fired_at, what="alert", text=text)
        if one.acknowledged_at is not None:
            text, by = f"alert {one.rule} {one.subject} acknowledged", one.acknowledged_by
            yield Moment(at=one.acknowledged_at, what="acknowledged", text=text, by=by)
        if one.resolved_at is not None and not one.event:
            yield Moment(at=one.resolved_at, what="resolved", text=f"alert {one.rule} {one.subject} resolved")


def _actions(records: Iterable[Record]) -> Iterator[Moment]:
    for one in records:
        action = one.action
        outcome = f" ({say(one.outcome)})" if one.outcome and one.status != "done" else ""
        why = f", “{action.why}”" if action.why else ""
        by = f"{action.who}@{action.from_host}" if action.who else None
        text = scrub(clean(f"{action.title}: {one.status}{outcome}{why}"))
        yield Moment(at=one.written_at or action.requested_at, what="action", text=text, by=by)


def start_format(starts: Iterable[tuple[str, datetime]]) -> str:
    """How a list shows when its attempts began, by their names: to the minute, and to the second only if two of the
    same name began in the same minute."""
    minutes = [(name, at.replace(second=0, microsecond=0)) for name, at in starts]
    return "%m-%d %H:%M" if len({*minutes}) == len(minutes) else "%m-%d %H:%M:%S"


# ---- the last hour of the GPUs of an attempt's node ------------------------------------------------------------------


MINUTES = 60


GPU_METRICS = ("temperature", "utilization", "power", "memory")


WORST: Mapping[str, Callable[[Sequence[float]], float]] = {
    "temperature": max, "utilization": min, "power": min, "memory": max,
}  # fmt: skip
"""Which GPU of a node counts: the hottest, the idlest, the one with the least power, the one with the most memory."""


Read = Callable[[str, str, Seconds], Series]
"""The history of a subject (`node/3`) and a metric, in seconds before now."""


class GpuHour(msgspec.Struct, frozen=True, kw_only=True):
    """The last hour of the GPUs of one node before an attempt ended."""

    node: str
    ended_at: Instant
    metrics: Mapping[str, tuple[tuple[float | None, ...], ...]] = {}
    """By metric: for each GPU, 60 means per minute, the last one just before the end. Memory is in MiB, power in W."""


def gpu_hour(node: str, gpus: Sequence[int], ended_at: Instant, now: Instant, read: Read) -> GpuHour:
    """The hour before the end, from a history that goes back from now."""
    span = HOUR + now - ended_at
    found = {
        metric: tuple(_per_minute(read(f"{node}/{gpu}", metric, span), now - ended_at) for gpu in gpus)
        for metric in GPU_METRICS
    }
    return GpuHour(node=node, ended_at=ended_at, metrics={name: rows for name, rows in found.items() if any(rows)})


def _per_minute(series: Series, since_end: Seconds) -> tuple[float | None, ...]:
    """60 means; empty if nothing is known."""
    minutes: list[list[float]] = [[] for _ in range(MINUTES)]
    for offset, value in zip(series.offsets, series.values, strict=True):
        index = MINUTES + math.floor((offset + since_end) / MINUTE)
        if 0 <= index < MINUTES and not math.isnan(value):
            minutes[index].append(value)
    return tuple(round(sum(one) / len(one), 1) if one else None for one in minutes) if any(minutes) else ()


def worst(hour: GpuHour, metric: str) -> Series:
    """What the GPUs of the node show together, in seconds before the end."""
    rows = [row for row in hour.metrics.get(metric, ()) if row]
    columns = [[value for value in column if value is not None] for column in zip(*rows, strict=True)]
    known = [(MINUTE * (index - MINUTES + 0.5), WORST[metric](one)) for index, one in enumerate(columns) if one]
    return Series(tuple(at for at, _ in known), tuple(value for _, value in known))
