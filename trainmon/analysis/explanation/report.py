"""Attempts of a period → the reliability report: GPU hours, goodput, ETTR, MTTF, cost, and what is missing. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple

from trainmon.analysis.explanation.explain import at_text
from trainmon.analysis.explanation.hours import (
    CATEGORIES,
    Category,
    Spent,
    account,
    began,
    gpu_hours_text,
    has_first_step,
    is_over,
)
from trainmon.analysis.explanation.reliability import (
    best_interval,
    expected_ettr,
    poisson_interval,
)
from trainmon.analysis.retries import ENDED_ON_PURPOSE, FEW
from trainmon.lib import DAY, Instant, Seconds, by_key, counted, duration, group_by, listed
from trainmon.model import Attempt, AttemptEnd

# ---- the sums over some attempts -------------------------------------------------------------------------------------

Grouping = Literal["run", "cause", "node", "week"]

NO_FAILURE = {*ENDED_ON_PURPOSE, "preempted", "time-limit"}
"""Causes of ends that a person or the scheduler wanted."""

RUNS_AT_MOST = 5
"""Runs of which it is said how often to save."""

WASTED: tuple[Category, ...] = ("starting", "lost", "hung", "saving")

Range = tuple[float, float]


class Totals(NamedTuple):
    """The sums over some attempts. GPU hours are of those whose GPUs are known."""

    hours: Mapping[Category, float]
    """GPU hours."""
    held: float
    """GPU hours while the attempts ran: what accounting counts."""
    first_queue: float
    """GPU hours in the queue before the first start of each run."""
    attempts: int
    failures: int
    unclear: int
    """Ends whose cause is not known: each may be a failure."""
    ran: Seconds
    """The sum of how long the attempts ran."""
    node_days: float

    @property
    def total(self) -> float:
        return math.fsum(self.hours.values())

    def productive_of(self, total: float) -> Range | None:
        """The productive part: what is known of it, and what is possible."""
        sure = self.hours["productive"]
        return None if total <= 0.0 else (sure / total, min(1.0, (sure + self.hours["unknown"]) / total))

    @property
    def ettr(self) -> Range | None:
        return self.productive_of(self.total)

    @property
    def goodput(self) -> Range | None:
        return self.productive_of(self.total - self.first_queue)

    @property
    def expected_failures(self) -> Range:
        """The interval of the failures that such a time has, also counting the ends without a known cause."""
        return poisson_interval(self.failures)[0], poisson_interval(self.failures + self.unclear)[1]

    @property
    def mttf(self) -> Seconds | None:
        """The mean time to failure of a running attempt; None if the failures are few, or not all causes are known."""
        return self.ran / self.failures if self.failures >= FEW and not self.unclear else None


def totals(spent: Sequence[Spent], since: Instant, until: Instant) -> Totals:
    costs = [(one, one.gpu_hour, one.held) for one in spent]
    ended = (one.attempt for one in spent if one.attempt.end is not None)
    causes = [cause_name(one) for one in ended if since <= (one.ended_at or 0.0) <= until]
    unclear = causes.count("unknown")
    return Totals(
        hours={name: math.fsum(hour * one.seconds.get(name, 0.0) for one, hour, _ in costs) for name in CATEGORIES},
        held=math.fsum(hour * held for _, hour, held in costs),
        first_queue=math.fsum(hour * one.first_queue for one, hour, _ in costs),
        attempts=sum((one.attempt.ended_at or until) >= since for one in spent),
        failures=sum(cause not in NO_FAILURE for cause in causes) - unclear,
        unclear=unclear,
        ran=math.fsum(held for *_, held in costs),
        node_days=math.fsum(max(1, len(one.attempt.nodes)) * held for one, _, held in costs) / DAY,
    )


def cause_name(one: Attempt) -> str:
    """`unknown` if it ended without a known cause; `running` or `ending` if it has not ended."""
    return one.cause.cause if one.cause is not None else "unknown" if one.end is not None else one.stage


# ---- the report ------------------------------------------------------------------------------------------------------


class Advice(NamedTuple):
    """How often a run should save, and what that depends on."""

    run: str
    blocks: Seconds
    """How long a save blocks the training: the mean of `saves`."""
    saves: int
    restart: Seconds
    """From the start of an attempt to its first step."""
    every: Seconds
    """The present interval between two saves."""
    totals: Totals

    def best(self, failures: float) -> Seconds:
        """The best interval with so many failures in this time."""
        return best_interval(self.totals.ran / failures, self.blocks)

    def ettr(self, every: Seconds) -> float:
        return expected_ettr(self.totals.ran / self.totals.failures, self.blocks, self.restart, every)


class Report(NamedTuple):
    """What is reported of one run, or of all."""

    run: str | None
    since: Instant
    until: Instant
    totals: Totals
    is_least: bool
    """Whether more GPU hours may have been held than are counted."""
    cost: float | None
    """Of the GPU hours that were held; null if a price is missing."""
    wasted: float | None
    """The part of the cost that was certainly not productive."""
    advice: tuple[Advice, ...]
    missing: tuple[str, ...]
    group: Grouping | None = None
    groups: Mapping[str, Totals] = {}


def report(
    attempts: Collection[Attempt],
    since: Instant,
    until: Instant,
    prices: Mapping[str, float | None],
    *,
    run: str | None = None,
    group: Grouping | None = None,
) -> Report:
    """The report of a period. `attempts`: also those before it, which show what a run was then. `prices`: of an hour of
    a GPU, by cluster."""
    known = [*attempts] if run is None else [one for one in attempts if one.run_id == run]
    spent = [
        one
        for one in account(known, since, until)
        if any(one.seconds.values()) or since <= (one.attempt.ended_at or one.attempt.seen_at) <= until
    ]
    sums = totals(spent, since, until)
    unpriced = sorted({one.attempt.cluster for one in spent if prices.get(one.attempt.cluster) is None})
    costs = [(one, (prices.get(one.attempt.cluster) or 0.0) * one.gpu_hour) for one in spent]
    has_cost = sums.held > 0.0 and not unpriced
    keys_of = ((one, _keys(one.attempt, group)) for one in spent if group is not None)
    groups = by_key((key, one._replace(share=1 / len(keys))) for one, keys in keys_of for key in keys)
    begins = min((at for one in attempts if (at := began(one)) is not None), default=since)
    missing = [f"The ledger begins at {at_text(begins)}: what ran before is not counted."] if begins > since else []
    return Report(
        run=run,
        since=since,
        until=until,
        totals=sums,
        is_least=any(one.gap or one.attempt.gpus is None or began(one.attempt) is None for one in spent),
        cost=math.fsum(cost * one.held for one, cost in costs) if has_cost else None,
        wasted=math.fsum(cost * one.seconds.get(name, 0.0) for one, cost in costs for name in WASTED)
        if has_cost
        else None,
        advice=_advice(spent, since, until),
        missing=(*missing, *_missing(known, spent, sums, unpriced, until)),
        group=group,
        groups={key: totals(each, since, until) for key, each in groups.items()},
    )


def _keys(one: Attempt, group: Grouping | None) -> Sequence[str]:
    """The groups of an attempt. One on several nodes belongs to each of them, with its share of the GPU hours."""
    if group == "node":
        return one.nodes or ("unknown",)
    if group == "week":
        at = datetime.fromtimestamp(began(one) or one.seen_at, UTC)
        return (f"{at - timedelta(days=at.weekday()):%Y-%m-%d}",)
    return (one.run_id if group == "run" else cause_name(one),)


def _advice(spent: Sequence[Spent], since: Instant, until: Instant) -> tuple[Advice, ...]:
    """For the largest of the runs whose saves were seen to block them, and that have failed."""
    found: list[Advice] = []
    for name, own in group_by(spent, lambda one: one.attempt.run_id).items():
        saving = [one for one in own if one.attempt.saves]
        saved = math.fsum(one.attempt.saving_s for one in saving)
        blocked = math.fsum(one.seconds.get("saving", 0.0) for one in saving)
        trained = math.fsum(one.seconds.get(part, 0.0) for one in saving for part in ("productive", "lost"))
        whole = [one for one in own if has_first_step(one.attempt) and (began(one.attempt) or 0.0) >= since]
        if saved and blocked and trained and whole and (sums := totals(own, since, until)).failures:
            blocks = saved / (saves := sum(one.attempt.saves for one in saving))
            restart = math.fsum(one.seconds["starting"] for one in whole) / len(whole)
            found.append(Advice(name, blocks, saves, restart, trained / blocked * blocks, sums))
    return tuple(sorted(found, key=lambda one: -one.totals.held)[:RUNS_AT_MOST])


# ---- what is missing -------------------------------------------------------------------------------------------------


LACKING: Mapping[str, Callable[[Spent, AttemptEnd | None], object]] = {
    "no known start: that time is not counted": lambda one, _: began(one.attempt) is None,
    "no known GPU count: those GPU hours are not counted": lambda one, _: one.attempt.gpus is None,
    "no known step": lambda one, _: one.attempt.last_step is None and one.seconds.get("unknown"),
    "steps that were not watched all the time": lambda one, end: (
        one.seconds.get("unknown", 0.0) > one.gap
        and one.attempt.last_step is not None
        and (end is None or one.attempt.lost_share is not None)
    ),
    "lost steps that are not known": lambda one, end: (
        end is not None and one.attempt.last_step is not None and one.attempt.lost_share is None
    ),
    "an end that nothing reported: what was until the next attempt is not known": lambda _, end: (
        end is not None and end.source == "lost"
    ),
    "no end, and has not been seen lately: whether that still runs is not known": lambda one, end: (
        end is None and one.gap
    ),
    "no known cause: that may be a failure": lambda _, end: (
        end is not None and (end.cause is None or end.cause.cause == "unknown")
    ),
}
"""What attempts have or lack, after `has`; and whether one does."""


def _missing(
    known: Sequence[Attempt], spent: Sequence[Spent], sums: Totals, unpriced: Sequence[str], until: Instant
) -> Iterator[str]:
    """In sentences: what is not known. Times and steps that are not known are in the category of that name."""
    firsts = [min(own, key=lambda one: one.start) for own in group_by(known, lambda one: one.run_id).values()]
    if late := [one.run_id for one in firsts if one.restart or one.resumed_from or (one.first_step or 0) > 1]:
        yield f"What {listed(late)} did before the first attempt in the ledger, which resumed, is not known."
    of_runs = group_by((one.attempt for one in spent), lambda one: (one.cluster, one.run_id)).values()
    lasts = (max(own, key=lambda one: (one.is_open, one.ended_at or 0.0)) for own in of_runs)
    down = sorted((until - one.end.at, one.run_id) for one in lasts if one.end is not None and not is_over(one))
    if shown := [f"{run} for {duration(max(0.0, passed))}" for passed, run in down]:
        yield f"Not started again, and not counted as down: {listed(shown, 3)}."
    for what, lacks in LACKING.items():
        if found := [one.attempt for one in spent if lacks(one, one.attempt.end)]:
            runs = listed([*dict.fromkeys(one.run_id for one in found)], 3)
            yield f"{counted(len(found), 'attempt')} of {runs} {'has' if len(found) == 1 else 'have'} {what}."
    if sums.hours["unknown"]:
        yield f"Of {gpu_hours_text(sums.hours['unknown'])} GPU hours any part, or nothing, may be productive."
    if unpriced:
        yield f"No gpu_hour_price in [cluster] {listed(unpriced)}: the cost is not known."
    if spent and not any(one.attempt.saves for one in spent):
        yield "No save was seen to block the training: how often to save is not known."
