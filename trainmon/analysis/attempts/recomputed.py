"""Steps that a restart computes again: whether they give what the attempt before gave. Pure.

The same checkpoint, data, config and code give the same losses, or nearly: additions on a GPU have no fixed order. The
differences are then small beside those from step to step, which come from the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import chain, pairwise
from statistics import median

from msgspec.structs import replace

from trainmon.analysis.runs import last_attempts
from trainmon.analysis.wandb import client_file, metric_names
from trainmon.lib import Seconds
from trainmon.model import Attempt, Curve, CurvesGrew, Event, NodeReading, Recomputed, Run, State, WandbRows

ENOUGH = 5
"""Common steps with which something can be said."""

SHARE = 0.3
"""Of the usual change from one step to the next: a larger difference does not come from the order of additions. With
other data, four of five are larger."""

ODD = 10.0
"""A difference of so many times that much is odd, even if it is the only one."""

ROUNDED, SINGLE = 2.0, 1e-6
"""Units of the last printed digit, and the part of a value in single precision, below which a difference proves
nothing."""

STARTED: Seconds = 60.0
"""The first step of an attempt may be dated this much before its start: the clocks of two machines differ."""

Pair = tuple[float, float, float]
"""A step, what it gave before, and what it gives now."""
Read = Callable[[str, str], Curve]


def excesses(pairs: Sequence[Pair]) -> Mapping[float, float]:
    """By step: the difference, as a multiple of what may be noise. Values that were equal for a while and suddenly are
    no longer have no noise."""
    values = [value for _, *both in pairs for value in both if math.isfinite(value)] or [0.0]
    floor = max(
        ROUNDED * 10.0 ** min(int(Decimal(repr(value)).as_tuple().exponent) for value in values),
        SINGLE * max(map(abs, values)),
    )
    changes = [abs(a[1] - b[1]) for a, b in pairwise(pairs) if math.isfinite(a[1] - b[1])]
    gaps = {
        step: 0.0 if repr(was) == repr(now) else abs(was - now) if math.isfinite(was - now) else math.inf
        for step, was, now in pairs
    }
    agreed, first = next(((at, gap) for at, gap in enumerate(gaps.values()) if gap), (0, 0.0))
    is_sudden = agreed >= ENOUGH and first > ODD * floor
    limit = floor if is_sudden else max(floor, SHARE * median(changes or [0.0]))
    return {step: gap / limit for step, gap in gaps.items()}


def judge(steps: int, reached: int, series: Iterable[Sequence[Pair]]) -> Recomputed:
    """What some metrics of so many steps show."""
    by_metric = [excesses(pairs) for pairs in series]
    found = {step: max(one.get(step, 0.0) for one in by_metric) for step in sorted({*chain(*by_metric)})}
    if len(found) < ENOUGH:
        return Recomputed(steps, "unknown", "too few to say", reached)
    score, best, start = 0.0, 0.0, 0.0
    for step in reversed(found):
        score += 0.5 if found[step] > 1.0 else -0.5
        best, start = max((best, start), (score, step), key=lambda one: one[0])
    agreed = [excess for step, excess in found.items() if step < start]
    if best >= ENOUGH / 2:
        start = start if len(agreed) >= ENOUGH or not any(agreed) else min(found)
        text = f"differ from step {start:,.0f} on: other data, config or code, or a corrupt value"
        return Recomputed(steps, "differs", text, reached)
    odd = [f"{step:,.0f}" for step, excess in found.items() if excess > ODD]
    named = f", but for an odd value at step {', '.join(odd[:3])}" if odd else ""
    is_equal = sum(map(bool, found.values())) == len(odd)
    text = "equal" if is_equal else "different within the usual noise"
    return Recomputed(steps, "equal" if is_equal else "noise", text + named, reached)


def compare(run: Run, attempt: Attempt, read: Read) -> Recomputed | None:
    """What the steps show that the newest attempt of a run has computed again; None if that is nothing new. Its log has
    every step; other sources may leave some out."""
    known = attempt.recomputed or Recomputed(0)
    for wandb in (client_file.of_file(run.log_metrics), client_file.shown(run, is_failing=False)):
        now, was = (None, None) if wandb is None else (wandb.current, wandb.before)
        if wandb is None or now is None or was is None or (now.created_at or 0.0) < attempt.start - STARTED:
            continue
        last = was.step or 0
        if (attempt.first_step or 0) > last or known.until > last:
            continue  # none is computed again, or all were compared
        keys = [key for key in wandb.keys if metric_names.role_of(key) in ("loss", "grad_norm")]
        before = [dict(zip(curve.steps, curve.values, strict=True)) for curve in (read(was.path, key) for key in keys)]
        curves = [zip(one.steps, one.values, strict=True) for one in (read(now.path, key) for key in keys)]
        series = [
            [(at, old[at], new) for at, new in curve if at in old] for old, curve in zip(before, curves, strict=True)
        ]
        steps = max(map(len, series), default=0)
        if steps > known.steps or (steps and (now.step or 0) > last):
            return judge(steps, now.step or 0, series)
    return None


def with_recomputed(state: State, events: Sequence[Event], read: Read) -> State:
    """The State with what the curves that have grown show of attempts."""
    changed = {}
    names = {event.run for event in events if isinstance(event, CurvesGrew)}
    readings = (event.reading for event in events if isinstance(event, NodeReading))
    names |= {reading.id for reading in readings if isinstance(reading, WandbRows)}
    for one in last_attempts(state.attempts.values()).values() if names else ():
        found = compare(state.runs[one.run_id], one, read) if one.run_id in names & {*state.runs} else None
        if found is not None:
            changed[one.attempt_id] = replace(one, recomputed=found)
    return replace(state, attempts={**state.attempts, **changed}) if changed else state
