"""A reliability report as a sentence and sections of labelled rows, and as an object for JSON. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from trainmon.analysis.explanation.hours import Category, gpu_hours_text
from trainmon.analysis.explanation.page import UNKNOWN, PageRow, Section, Style
from trainmon.analysis.explanation.reliability import FEW, at_most
from trainmon.analysis.explanation.report import Advice, Range, Report, Totals
from trainmon.lib import HOUR, Seconds, clean, counted, duration, natural_key, scrub

BAR = 20
"""The cells of a bar of 100%."""

CATEGORIES: dict[Category, tuple[str, str]] = {
    "queued": ("queued", "waiting; no GPU is held"), "starting": ("starting", "until the first step"),
    "productive": ("productive", "steps that count, and evaluations"),
    "lost": ("lost steps", "trained again after the end"), "hung": ("hung", "no step, although it should"),
    "saving": ("saving", "saves that block the training"), "down": ("down", "between attempts; no GPU is held"),
    "unknown": ("not known", "not watched, or steps not known"),
}  # fmt: skip
"""By category: its label, and what it is."""

GROUPS_AT_MOST = 30
GAIN = 0.001
"""A smaller gain of the ETTR is not worth a change."""


def share_text(found: Range | None) -> str:
    """`0.93`, or `0.85 to 0.93` if it is not known exactly."""
    if found is None:
        return UNKNOWN
    low, high = (f"{value:.3f}" for value in found)
    return low if low == high else f"{low} to {high}"


def time_range(seconds: Seconds, failures: Range) -> str:
    """The interval of the time per failure: `3h50m to 20h`, `at least 3h50m`."""
    low, high = seconds / failures[1], seconds / failures[0] if failures[0] else math.inf
    return f"{duration(low)} to {duration(high)}" if math.isfinite(high) else f"at least {duration(low)}"


def report_sentence(one: Report) -> str:
    sums = one.totals
    of = "All runs" if one.run is None else one.run
    if not sums.attempts:
        return f"{of}: the ledger has no attempt in this period."
    found = f"{counted(sums.attempts, 'attempt')} in {duration(one.until - one.since)}"
    return f"{of}: {found}, {gpu_hours_text(sums.held)} GPU hours held, goodput {share_text(sums.goodput)}."


def report_page(one: Report) -> tuple[Section, ...]:
    """All sections, in the order in which they answer questions."""
    found = (
        Section("GPU hours", tuple(_hours(one.totals))),
        Section("Figures", tuple(_figures(one))),
        Section("Saves", tuple(row for each in one.advice for row in _advice(each))),
        Section(f"By {one.group}", tuple(_groups(one))),
        Section("What is missing", tuple(PageRow("", text, "warn") for text in one.missing)),
    )
    return tuple(
        Section(title, tuple(row._replace(text=scrub(clean(row.text))) for row in rows))
        for title, rows in found
        if rows
    )


def _hours(sums: Totals) -> Iterator[PageRow]:
    total = sums.total
    if not total:
        return
    for name, (label, what) in CATEGORIES.items():
        hours = sums.hours[name]
        bar = "█" * round(BAR * hours / total)
        style: Style = "ok" if name == "productive" else "dim" if not hours else "warn" if name == "unknown" else ""
        yield PageRow(label, f"{gpu_hours_text(hours):>8} {hours / total:>6.1%}  {bar or what}", style)
    yield PageRow(
        "total", f"{gpu_hours_text(total):>8}  of which {gpu_hours_text(sums.held)} held GPUs, as sacct counts"
    )


def _figures(one: Report) -> Iterator[PageRow]:
    sums = one.totals
    if not sums.attempts:
        return
    yield PageRow("goodput", share_text(sums.goodput))
    yield PageRow("", "productive / all time since the first start of each run", "dim")
    yield PageRow("ETTR", share_text(sums.ettr))
    yield PageRow("", "productive / all time, with the first queue (Kokolis et al. 2025)", "dim")
    seen = f"{counted(sums.failures, 'failure')} in {duration(sums.ran)}"
    seen += f", and {counted(sums.unclear, 'end')} without a known cause" if sums.unclear else ""
    few = "" if sums.failures >= FEW else "too few to say; "
    mean = f"{duration(sums.mttf)}; " if sums.mttf is not None else few
    between = time_range(sums.ran, sums.expected_failures) if sums.ran else UNKNOWN
    yield PageRow("MTTF", f"{mean}95%: {between} ({seen})")
    what = "running time / ends by failure, exact Poisson interval; an end by a person, the time limit, preemption or"
    yield PageRow("", f"{what} a requeue is no failure", "dim")
    if sums.node_days:
        low, high = (f"{1000 * value / sums.node_days:,.1f}" for value in sums.expected_failures)
        rate = f"{1000 * sums.failures / sums.node_days:,.1f}; " if sums.mttf is not None else few
        yield PageRow("rate", f"{rate}95%: {low} to {high} failures per 1,000 node-days")
    if one.cost is not None and one.wasted is not None:
        yield PageRow("cost", f"{one.cost:,.2f}, of which {one.wasted:,.2f} starting, lost, hung or saving")
        yield PageRow("", "GPU hours held, times gpu_hour_price of the cluster", "dim")


def _advice(one: Advice) -> Iterator[PageRow]:
    """How often to save, with all that this assumes."""
    sums, saving = one.totals, one.saving
    low, high = sums.expected_failures
    best, now = one.best(sums.failures), saving.every
    gain = one.ettr(best) - one.ettr(now)
    if sums.mttf is None:
        why = "too few failures to say" if sums.failures < FEW else "not all causes are known"
        most = f" to {duration(one.best(low))}" if low else " or less often"
        yield PageRow(one.run, f"{why}: every {duration(one.best(high))}{most} (now {duration(now)})")
    elif gain < GAIN:
        yield PageRow(
            one.run, f"a checkpoint every {duration(now)} is as good as the best, every {duration(best)}", "ok"
        )
    else:
        text = f"a checkpoint every {duration(best)} instead of {duration(now)}: {gain:+.1%} ETTR"
        yield PageRow(one.run, f"{text} ({one.ettr(now):.3f} → {one.ettr(best):.3f}, expected)")
    blocks = f"a save blocks for {duration(saving.blocks)} (mean of {counted(one.saves, 'save')})"
    text = f"assumed: {blocks}, a start takes {duration(saving.restart)}, failures come at random at the seen rate and"
    yield PageRow("", f"{text} lose half an interval; without queueing; Young's optimum as Daly refined it", "dim")


def _groups(one: Report) -> Iterator[PageRow]:
    """A table; what is longest stands at its end. Nodes have what would be expected beside their failures."""
    if one.group is None or not one.groups:
        return
    is_node = one.group == "node"
    head = f"{'EXPECTED':>9}" if is_node else f"{'LOST':>8} {'HUNG':>8} {'DOWN':>8}"
    yield PageRow("", f"{'ATTEMPTS':>8} {'FAILED':>6} {head} {'GPU-H':>8}  {one.group.upper()}", "dim")
    order = sorted(one.groups, key=natural_key)
    if one.group != "week":
        order.sort(key=lambda key: -(one.groups[key].failures if is_node else one.groups[key].total))
    rate = one.totals.failures / one.totals.node_days if one.totals.node_days else 0.0
    for key in order[:GROUPS_AT_MOST]:
        sums = one.groups[key]
        middle = f"{rate * sums.node_days:>9.1f}"
        if not is_node:
            middle = " ".join(f"{gpu_hours_text(sums.hours[name]):>8}" for name in ("lost", "hung", "down"))
        yield PageRow("", f"{sums.attempts:>8} {sums.failures:>6} {middle} {gpu_hours_text(sums.held):>8}  {key}")
    if len(order) > GROUPS_AT_MOST:
        yield PageRow("", f"and {len(order) - GROUPS_AT_MOST:,} more", "dim")
    if is_node:
        most = max(sums.failures for sums in one.groups.values())
        chance = 1 - math.prod(at_most(most - 1, rate * sums.node_days) for sums in one.groups.values())
        text = "FAILED counts the failed attempts in which the node took part: that blames none."
        if most:
            text += f" By chance alone, some node of {len(one.groups)} has {most} or more in {chance:.1%} of cases."
        yield PageRow("", text, "dim")


def report_object(one: Report) -> dict[str, Any]:
    """The object for --json: what is not known exactly is null, and has a range."""
    sums = one.totals
    low, high = sums.expected_failures
    hours = (sums.ran / high / HOUR, sums.ran / low / HOUR if low else None) if sums.ran else None
    return {
        "run": one.run,
        **_object(sums),
        "mttf_range_hours": None if hours is None else list(hours),
        "cost": one.cost,
        "cost_not_productive": one.wasted,
        "checkpoints": [
            {
                "run": each.run, "every_s": each.saving.every, "blocks_s": each.saving.blocks,
                "start_s": each.saving.restart, "best_s": each.best(each.totals.failures),
                "ettr": each.ettr(each.saving.every), "best_ettr": each.ettr(each.best(each.totals.failures)),
                "is_sure": each.totals.mttf is not None,
            }
            for each in one.advice
        ],
        "by": [{one.group or "": key, **_object(each)} for key, each in one.groups.items()],
        "missing": list(one.missing),
    }  # fmt: skip


def _object(sums: Totals) -> dict[str, Any]:
    found: dict[str, Any] = {"gpu_hours": {name: sums.hours[name] if sums.attempts else None for name in CATEGORIES}}
    found |= {"held_gpu_hours": sums.held, "attempts": sums.attempts, "failures": sums.failures}
    found |= {"ends_without_cause": sums.unclear, "running_hours": sums.ran / HOUR, "node_days": sums.node_days}
    found["mttf_hours"] = None if sums.mttf is None else sums.mttf / HOUR
    for name, known in (("goodput", sums.goodput), ("ettr", sums.ettr)):
        is_exact = known is not None and share_text((known[0], known[0])) == share_text(known)
        found[name] = known[0] if known is not None and is_exact else None
        found[f"{name}_range"] = None if known is None else list(known)
    return found
