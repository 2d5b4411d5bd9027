"""A reliability report as a sentence and sections of labelled rows, and as an object for JSON. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from trainmon.analysis.explanation.hours import Category, gpu_hours_text
from trainmon.analysis.explanation.page import UNKNOWN, PageRow, Section, Style
from trainmon.analysis.explanation.reliability import at_most
from trainmon.analysis.explanation.report import Advice, Range, Report, Totals
from trainmon.analysis.retries import FEW
from trainmon.lib import HOUR, ago, clean, counted, duration, natural_key, scrub

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
ASSUMED = PageRow(
    "",
    "assumed of all: failures come at random at the seen rate, and each loses half an interval; without queueing; the "
    "best interval is Young's, as Daly refined it",
    "dim",
)
GAIN = 0.001
"""A smaller gain of the ETTR is not worth a change."""


def share_text(found: Range | None) -> str:
    """`0.93`, or `0.85 to 0.93` if it is not known exactly."""
    if found is None:
        return UNKNOWN
    low, high = (f"{value:.3f}" for value in found)
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
        Section("Saves", (*(row for each in one.advice for row in _advice(each)), *([ASSUMED] if one.advice else []))),
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
    few = "" if sums.failures >= FEW else "too few to say; "
    mean = few if sums.mttf is None else f"{duration(sums.mttf)}; "
    low, high = sums.expected_failures
    least = duration(sums.ran / high)
    between = f"{least} to {duration(sums.ran / low)}" if low else f"at least {least}"
    what = "running time / ends by failure, exact Poisson interval; an end by a person, the time limit, preemption or"
    yield from (
        PageRow("goodput", share_text(sums.goodput)),
        PageRow("", "productive / all time since the first start of each run", "dim"),
        PageRow("ETTR", share_text(sums.ettr)),
        PageRow("", "productive / all time, with the first queue (Kokolis et al. 2025)", "dim"),
        PageRow("MTTF", f"{mean}95%: {between if sums.ran else UNKNOWN} ({seen})"),
        PageRow("", f"{what} a requeue is no failure", "dim"),
    )
    if sums.node_days:
        each = 1000 / sums.node_days
        rate = few if sums.mttf is None else f"{each * sums.failures:,.1f}; "
        yield PageRow("rate", f"{rate}95%: {each * low:,.1f} to {each * high:,.1f} failures per 1,000 node-days")
    if one.cost is not None:
        cost = f"{'at least ' if one.is_least else ''}{one.cost:,.2f}"
        yield PageRow("cost", f"{cost}, of which {one.wasted:,.2f} starting, lost, hung or saving")
        yield PageRow("", "GPU hours held, times gpu_hour_price of the cluster", "dim")


def _advice(one: Advice) -> Iterator[PageRow]:
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
        text += f" ({one.ettr(now):.3f} → {one.ettr(best):.3f}, expected)"
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
