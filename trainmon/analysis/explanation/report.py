"""Attempts of a period → the reliability report: GPU hours, goodput, ETTR, MTTF, cost, and what is missing. Pure.

The forms of the ETTR, and of the MTTF of a job, are those of Kokolis et al., arXiv 2410.21680 (HPCA 2025).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from trainmon.analysis.explanation.hours import (
    Category,
    Spent,
    account,
    began,
    gpu_hours_text,
    has_first_step,
    is_over,
)
from trainmon.analysis.explanation.page import UNKNOWN, PageRow, Section, Style
from trainmon.analysis.retries import ENDED_ON_PURPOSE, FEW
from trainmon.lib import (
    DAY,
    HOUR,
    Instant,
    Seconds,
    ago,
    at_text,
    by_key,
    clean,
    counted,
    duration,
    group_by,
    listed,
    natural_key,
    scrub,
)
from trainmon.model import Attempt, AttemptEnd

# ---- how often attempts fail and how sure that is, and how often to save: Poisson, Young and Daly --------------------

TAIL = 0.025
"""The probability that an interval of 95% misses on each side."""

EXACT_TO = 200
"""With more events, the interval by Wilson and Hilferty differs from the exact one by less than 0.001%."""

Z = 1.959964
"""The normal quantile of 97.5 %."""


def poisson_interval(events: int) -> tuple[float, float]:
    """The exact interval (Garwood) of the expected number of events, of which so many were seen."""
    if events > EXACT_TO:
        sides = ((events, -Z), (events + 1, Z))
        low, high = (n * (1 - 1 / (9 * n) + z / (3 * math.sqrt(n))) ** 3 for n, z in sides)
        return low, high
    return _mean_of(events - 1, 1 - TAIL) if events else 0.0, _mean_of(events, TAIL)


def at_most(events: int, mean: float) -> float:
    """The probability of at most so many events, where this many are expected."""
    if mean <= 0.0:
        return 1.0
    return math.fsum(math.exp(n * math.log(mean) - mean - math.lgamma(n + 1)) for n in range(events + 1))


def _mean_of(events: int, probability: float) -> float:
    """The mean with which at most so many events have that probability."""
    low, high = 0.0, events + 10 * math.sqrt(events + 1) + 10
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if at_most(events, middle) > probability else (low, middle)
    return high


def best_interval(mttf: Seconds, blocks: Seconds) -> Seconds:
    """The interval between two saves with which the least time is lost: Daly's higher order form of Young's."""
    if blocks >= 2 * mttf:
        return mttf
    part = math.sqrt(blocks / (2 * mttf))
    return math.sqrt(2 * blocks * mttf) * (1 + part / 3 + part * part / 9) - blocks


def expected_ettr(mttf: Seconds, blocks: Seconds, restart: Seconds, every: Seconds) -> float:
    """The expected ETTR with a save every so many seconds of training, without the time in the queue. Half an interval
    is lost with each failure. Valid while the interval is far below the MTTF."""
    return max(0.0, 1 - (restart + every / 2) / mttf) / (1 + blocks / every)


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
    firsts = [min(own, key=attrgetter("order")) for own in group_by(known, lambda one: one.run_id).values()]
    if late := [one.run_id for one in firsts if one.restart or one.resumed_from or (one.first_step or 0) > 1]:
        yield f"The first attempts of {listed(late)} in the ledger resumed: what ran before is not known."
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
        yield f"{gpu_hours_text(sums.hours['unknown'])} GPU hours may be productive or not: that is not known."
    if unpriced:
        yield f"No gpu_hour_price in [cluster] {listed(unpriced)}: the cost is not known."
    if spent and not any(one.attempt.saves for one in spent):
        yield "No save was seen to block the training: how often to save is not known."


# ---- a report as a sentence and sections of labelled rows, and as an object for JSON ---------------------------------

BAR = 20
"""The cells of a bar of 100%."""

CATEGORIES: dict[Category, tuple[str, str]] = {
    "queued": ("queued", "waiting; no GPU is held"), "starting": ("starting", "from the start to the first step"),
    "productive": ("productive", "steps that count, and evaluations"),
    "lost": ("lost steps", "trained again after the end"), "hung": ("hung", "no step for too long"),
    "saving": ("saving", "saves that block the training"), "down": ("down", "between attempts; no GPU is held"),
    "unknown": ("not known", "not watched, or steps not known"),
}  # fmt: skip
"""By category: its label, and what it is."""

GROUPS_AT_MOST = 30
ASSUMED = PageRow(
    "",
    "assumed of all: failures come at random at the seen rate, and each loses half an interval; without queueing; the "
    "best interval is Young's, as Daly refined it",
    "dim",
)
GAIN = 0.001
"""A smaller gain of the ETTR is not worth a change."""


def share_text(found: Range | None) -> str:
    """`93.0%`, or `85.0% to 93.0%` if it is not known exactly."""
    if found is None:
        return UNKNOWN
    low, high = (f"{value:.1%}" for value in found)
    return low if low == high else f"{low} to {high}"


def report_sentence(one: Report) -> str:
    sums = one.totals
    of = "All runs" if one.run is None else one.run
    if not sums.attempts:
        return f"{of}: the ledger has no attempt in this period."
    found = f"{counted(sums.attempts, 'attempt')} in {ago(round(one.until - one.since))}"
    return f"{of}: {found}, {gpu_hours_text(sums.held)} GPU hours held, goodput {share_text(sums.goodput)}."


def report_page(one: Report) -> tuple[Section, ...]:
    """All sections, in the order in which they answer questions."""
    found = (
        Section("GPU hours", tuple(_hours(one))),
        Section("Figures", tuple(_figures(one))),
        Section("Saves", (*(row for each in one.advice for row in _advised(each)), *([ASSUMED] if one.advice else []))),
        Section(f"By {one.group}", tuple(_groups(one))),
        Section("What is missing", tuple(PageRow("", text, "warn") for text in one.missing)),
    )
    return tuple(
        Section(title, tuple(row._replace(label=clean(row.label), text=scrub(clean(row.text))) for row in rows))
        for title, rows in found
        if rows
    )


def _hours(one: Report) -> Iterator[PageRow]:
    sums, total = one.totals, one.totals.total
    if not total:
        return
    for name, (label, what) in CATEGORIES.items():
        hours = sums.hours[name]
        bar = "█" * round(BAR * hours / total)
        style: Style = "ok" if name == "productive" else "dim" if not hours else "warn" if name == "unknown" else ""
        yield PageRow(label, f"{gpu_hours_text(hours):>8} {hours / total:>6.1%}  {bar or what}", style)
    held = f"{'at least ' if one.is_least else ''}{gpu_hours_text(sums.held)} held GPUs, as sacct counts"
    yield PageRow("total", f"{gpu_hours_text(total):>8}  of which {held}")


def _figures(one: Report) -> Iterator[PageRow]:
    sums = one.totals
    if not sums.attempts:
        return
    seen = f"{counted(sums.failures, 'failure')} in {duration(sums.ran)}"
    seen += f", and {counted(sums.unclear, 'end')} without a known cause" if sums.unclear else ""
    few = "95% interval:" if sums.failures >= FEW else "too few to say; 95% interval:"
    mean = few if sums.mttf is None else f"{duration(sums.mttf)}; 95% interval:"
    low, high = sums.expected_failures
    least = duration(sums.ran / high)
    between = f"{least} to {duration(sums.ran / low)}" if low else f"at least {least}"
    what = "running time / ends by failure, exact Poisson interval; an end by a person, the time limit, preemption or"
    yield from (
        PageRow("goodput", share_text(sums.goodput)),
        PageRow("", "productive / all time since the first start of each run", "dim"),
        PageRow("ETTR", share_text(sums.ettr)),
        PageRow("", "productive / all time and the wait before the first start (Kokolis et al. 2025)", "dim"),
        PageRow("MTTF", f"{mean} {between} ({seen})" if sums.ran else "not known: no running time was recorded"),
        PageRow("", f"{what} a requeue does not count", "dim"),
    )
    if sums.node_days:
        each = 1000 / sums.node_days
        rate = few if sums.mttf is None else f"{each * sums.failures:,.1f}; 95% interval:"
        yield PageRow("rate", f"{rate} {each * low:,.1f} to {each * high:,.1f} failures per 1,000 node-days")
    if one.cost is not None:
        cost = f"{'at least ' if one.is_least else ''}{one.cost:,.2f}"
        yield PageRow("cost", f"{cost}, of which {one.wasted:,.2f} starting, lost, hung or saving")
        yield PageRow("", "GPU hours held, times gpu_hour_price of the cluster", "dim")


def _advised(one: Advice) -> Iterator[PageRow]:
    """How often to save, with all that this assumes."""
    low, high = one.totals.expected_failures
    best, now = one.best(one.totals.failures), one.every
    gain = one.ettr(best) - one.ettr(now)
    if one.totals.mttf is None:
        why = "too few failures to say" if one.totals.failures < FEW else "not all causes are known"
        most = f" to {duration(one.best(low))}" if low else " or less often"
        text = f"{why}: every {duration(one.best(high))}{most} (now {duration(now)})"
    elif gain < GAIN:
        text = f"a checkpoint every {duration(now)} is as good as the best, every {duration(best)}"
    else:
        text = f"a checkpoint every {duration(best)} instead of {duration(now)}: {gain:+.1%} ETTR"
        text += f" ({one.ettr(now):.1%} → {one.ettr(best):.1%}, expected)"
    yield PageRow(one.run, text, "ok" if gain < GAIN and one.totals.mttf is not None else "")
    blocks = f"a save blocks for {duration(one.blocks)}, the mean of {counted(one.saves, 'save')}"
    yield PageRow("", f"assumed: {blocks}; a start takes {duration(one.restart)}", "dim")


def _groups(one: Report) -> Iterator[PageRow]:
    """A table; what is longest stands at its end. Nodes have what would be expected beside their failures."""
    if not one.groups:
        return
    is_node, sums = one.group == "node", one.totals
    rate = sums.failures / sums.node_days if sums.node_days else 0.0

    def line(*cells: str, key: str) -> str:
        return " ".join(f"{cell:>8}" for cell in cells) + f"  {key}"

    def place(key: str) -> tuple[float, Any]:
        own = one.groups[key]
        return -(own.failures if is_node else own.total if one.group != "week" else 0.0), natural_key(key)

    heads = ("EXPECTED",) if is_node else ("LOST", "HUNG", "DOWN")
    yield PageRow("", line("ATTEMPTS", "FAILED", *heads, "GPU-H", key=(one.group or "").upper()), "dim")
    for key in sorted(one.groups, key=place)[:GROUPS_AT_MOST]:
        own = one.groups[key]
        hours = [gpu_hours_text(own.hours[name]) for name in ("lost", "hung", "down")]
        middle = [f"{rate * own.node_days:.1f}"] if is_node else hours
        yield PageRow("", line(f"{own.attempts}", f"{own.failures}", *middle, gpu_hours_text(own.held), key=key))
    if len(one.groups) > GROUPS_AT_MOST:
        yield PageRow("", f"and {len(one.groups) - GROUPS_AT_MOST:,} more", "dim")
    most = max(own.failures for own in one.groups.values())
    if is_node and most:
        chance = 1 - math.prod(at_most(most - 1, rate * own.node_days) for own in one.groups.values())
        text = f"By chance alone, some node of {len(one.groups)} has {most} or more in {chance:.1%} of cases."
        yield PageRow(
            "", f"FAILED counts the failed attempts in which the node took part: that blames none. {text}", "dim"
        )


def report_object(one: Report) -> dict[str, Any]:
    """The object for --json: what is not known exactly is null, and has a range."""
    sums = one.totals
    low, high = sums.expected_failures
    return {
        "run": one.run,
        **_object(sums),
        "mttf_range_hours": [sums.ran / high / HOUR, sums.ran / low / HOUR if low else None] if sums.ran else None,
        "is_least": one.is_least,
        "cost": one.cost,
        "cost_not_productive": one.wasted,
        "checkpoints": [
            {
                "run": each.run, "every_s": each.every, "blocks_s": each.blocks,
                "start_s": each.restart, "best_s": each.best(each.totals.failures),
                "ettr": each.ettr(each.every), "best_ettr": each.ettr(each.best(each.totals.failures)),
                "is_sure": each.totals.mttf is not None,
            }
            for each in one.advice
        ],
        "by": [{one.group or "": key, **_object(each)} for key, each in one.groups.items()],
        "missing": list(one.missing),
    }  # fmt: skip


def _object(sums: Totals) -> dict[str, Any]:
    shares = {"goodput": sums.goodput, "ettr": sums.ettr}
    return {
        "gpu_hours": {name: sums.hours[name] if sums.attempts else None for name in CATEGORIES},
        "held_gpu_hours": sums.held,
        "attempts": sums.attempts,
        "failures": sums.failures,
        "ends_without_cause": sums.unclear,
        "running_hours": sums.ran / HOUR,
        "node_days": sums.node_days,
        "mttf_hours": None if sums.mttf is None else sums.mttf / HOUR,
        **{name: None if known is None or " to " in share_text(known) else known[0] for name, known in shares.items()},
        **{f"{name}_range": None if known is None else list(known) for name, known in shares.items()},
    }
