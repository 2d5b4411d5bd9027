"""Steps that a restart computes again: whether they give what the attempt before gave. Pure.

The same checkpoint, data, config and code give the same losses, or nearly: additions on a GPU have no fixed order, and
what that changes grows slowly. Such differences are small beside those from one step to the next, which come from the
data. Values that agree and then suddenly do not are another thing. Those that differ from the first step on prove
nothing: the order of the data, random numbers or averages may have begun anew.
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
"""Common steps with which something can be said, and those before and after a sudden change."""

SHARE = 0.3
"""Of the usual change from one step to the next: a larger difference does not come from the order of additions. With
other data, four of five are larger."""

SUDDEN = 10.0
"""How many times as large as before the differences are after a sudden change; an odd one, than what may be noise."""

STEADY = 3.0
"""How many times as large as before that the differences may be before a sudden change: noise that grows is none."""

ROUNDED, SINGLE = 2.0, 1e-6
"""Units of the last printed digit, and the part of a value in single precision, below which a difference proves
nothing. Values are exact if the first is not much more than the second."""

STARTED: Seconds = 60.0
"""The first step of an attempt may be dated this much before its start: the clocks of two machines differ."""

ROLES = ("loss", "grad_norm", "learning_rate")
"""The metrics that are compared."""

Pair = tuple[float, float, float]
"""A step, what it gave before, and what it gives now."""
Read = Callable[[str, str], Curve]


def excesses(pairs: Sequence[Pair]) -> Mapping[float, float]:
    """By step: the difference, as a multiple of what may be noise. Exact values that were equal before have none."""
    values = [abs(value) for _, *both in pairs for value in both if math.isfinite(value)] or [0.0]
    least = SINGLE * max(values)
    floor = max(ROUNDED * 10.0 ** min(int(Decimal(repr(value)).as_tuple().exponent) for value in values), least)
    changes = [abs(a[1] - b[1]) for a, b in pairwise(pairs) if math.isfinite(a[1] - b[1])]
    gaps = {
        step: 0.0 if repr(was) == repr(now) else abs(was - now) if math.isfinite(was - now) else math.inf
        for step, was, now in pairs
    }
    agreed, first = next(((at, gap) for at, gap in enumerate(gaps.values()) if gap), (0, 0.0))
    is_exact = agreed >= ENOUGH and first > SUDDEN * floor and floor < SUDDEN * least
    limit = floor if is_exact else max(floor, SHARE * median(changes or [0.0]))
    return {step: gap / limit for step, gap in gaps.items()}


def judge(steps: int, reached: int, series: Iterable[Sequence[Pair]]) -> Recomputed:
    """What some metrics of so many steps show."""
    found: dict[float, float] = {}
    for pairs in series:
        found |= {step: max(excess, found.get(step, 0.0)) for step, excess in excesses(pairs).items()}
    if len(found) < ENOUGH:
        return Recomputed(steps, "unknown", "too few to say", reached)
    score, best, at = 0.0, 0.0, 0
    numbers = sorted(found)
    values = [found[step] for step in numbers]
    for index in reversed(range(len(values))):
        score += 0.5 if values[index] > 1.0 else -0.5
        best, at = max((best, at), (score, index))
    if best >= ENOUGH / 2:
        if at < ENOUGH:
            text = "differ from the first ones on: other data, random numbers, averages, config or code"
            return Recomputed(steps, "other", text, reached)
        earlier, just_before = max(values[: at // 2]), max(values[at // 2 : at])
        if just_before <= STEADY * earlier and median(values[at : at + ENOUGH]) > SUDDEN * just_before:
            text = f"differ from step {numbers[at]:,.0f} on: other data, config or code, or a corrupt value"
            return Recomputed(steps, "differs", text, reached)
        return Recomputed(steps, "noise", "differ more and more, as noise grows", reached)
    odd = [f"{step:,.0f}" for step, value in zip(numbers[1:], values[1:], strict=True) if value > SUDDEN]
    named = f", but for step {', '.join(odd[:3])}" if odd else ""
    is_equal = sum(map(bool, values)) == len(odd)
    text = "equal" if is_equal else "different within the usual noise"
    return Recomputed(steps, "equal" if is_equal else "noise", text + named, reached)


def common(now: Curve, was: Curve, last: int) -> list[Pair]:
    """The steps that both have, up to the last one of the earlier curve. Where steps begin again in each epoch, those
    above it are of an earlier one."""
    old = dict(zip(was.steps, was.values, strict=True)) if now.steps and now.steps[0] <= last else {}
    return [(at, old[at], new) for at, new in zip(now.steps, now.values, strict=True) if at <= last and at in old]


def compare(run: Run, attempt: Attempt, read: Read) -> Recomputed | None:
    """What the steps show that the newest attempt of a run has computed again; None if that is nothing new. The newest
    earlier start that has them counts: in a crash loop, the one before may have ended too soon. The log has every step;
    other sources may leave some out."""
    known, log = attempt.recomputed or Recomputed(0), run.log_metrics
    shown = client_file.shown(run, is_failing=False)
    for wandb, starts in ((client_file.of_file(log), () if log is None else log.runs), (shown, ())):
        now = None if wandb is None else wandb.current
        if wandb is None or now is None or (now.created_at or 0.0) < attempt.start - STARTED:
            continue
        earlier = (one for one in (wandb.before, *starts) if one is not None and one.path != now.path)
        was = next((one for one in earlier if (one.step or 0) >= (attempt.first_step or 0) + ENOUGH - 1), None)
        last = 0 if was is None else was.step or 0
        if was is None or known.until > last:
            continue  # none is computed again, or all were compared
        roles = {key: metric_names.role_of(key) for key in wandb.keys}
        series = {key: common(read(now.path, key), read(was.path, key), last) for key in roles if roles[key] in ROLES}
        steps = max(map(len, series.values()), default=0)
        if steps > known.steps or (steps and (now.step or 0) > last):
            rates = chain.from_iterable(series[key] for key in series if roles[key] == "learning_rate")
            other = next((step for step, before, after in rates if not math.isclose(before, after, rel_tol=0.01)), None)
            if other is None:
                return judge(steps, now.step or 0, [series[key] for key in series if roles[key] != "learning_rate"])
            text = f"trained with another learning rate from step {other:,.0f} on"
            return Recomputed(steps, "other", text, now.step or 0)
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
