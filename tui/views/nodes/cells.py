"""The cells of the GPU grid: one a GPU, for each metric. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from trainmon.model import Gpu, Node
from tui.style import DEAD, DOT, NOT_APPLICABLE, UNKNOWN, Span, short, slowing, temperature
from tui.views.nodes.summary import missing


class Metric(NamedTuple):
    """A metric of the grid. Its cells are `width` wide; the last column is for a sign."""

    name: str
    title: str
    width: int
    cell: Callable[[Gpu], Span]


def _memory(gpu: Gpu) -> Span:
    used, total = gpu.memory_used_mib, gpu.memory_total_mib
    if used is None:
        return Span(UNKNOWN, "dim")
    return _full(used // 1024, bool(total and used >= 0.98 * total))


@lru_cache(4096)
def _full(gib: int, nearly: bool) -> Span:
    return Span(f"{gib}! " if nearly else f"{gib} ", "warn" if nearly else "")


@lru_cache(4096)
def _plain(value: int | None) -> Span:
    return Span(UNKNOWN + " ", "dim") if value is None else Span(f"{value} ", "dim" if value == 0 else "")


def _power(gpu: Gpu) -> Span:
    slowed = bool(gpu.throttle) and any("power" in reason for reason in slowing(gpu.throttle))
    if slowed and gpu.power_w is not None:
        return Span(f"{round(gpu.power_w)}!", "warn")
    return _plain(None if gpu.power_w is None else round(gpu.power_w))


def _errors(gpu: Gpu) -> Span:
    if gpu.remap_failed:
        return Span("map!", "crit")
    if gpu.ecc_uncorrected:
        return Span(f"e{short(gpu.ecc_uncorrected)}!", "crit")
    if gpu.last_xid is not None:
        return Span(f"x{gpu.last_xid}!", "warn")
    if gpu.remap_pending:
        return Span("map!", "warn")
    return Span(NOT_APPLICABLE + " " if gpu.ecc_uncorrected is None else "0 ", "dim")


NO_MIG = Span(NOT_APPLICABLE + " ", "dim")
"""A GPU that MIG has partitioned has no utilization."""

METRICS: tuple[Metric, ...] = (
    Metric("temperature", "temp °C", 4, temperature),
    Metric("memory", "memory GiB", 4, _memory),
    Metric("utilization", "util %", 4, lambda gpu: NO_MIG if gpu.mig else _plain(gpu.utilization_pct)),
    Metric("power", "power W", 5, _power),
    Metric("errors", "errors", 5, _errors),
)

LOST_CELL = Span(DEAD + " ", "crit")
ERROR_CELL = Span("E!", "crit")
UNKNOWN_CELL = Span(UNKNOWN + " ", "dim")
NO_CELL = Span(DOT + " ", "dim")


@lru_cache(8192)
def fit(text: str, style: str, width: int) -> Span:
    """A right-aligned cell. Equal cells are the same object, which makes comparing lines cheap."""
    return Span(text.rjust(width), style)


def gpu_cells(node: Node, metric: Metric, width: int, columns: int, style: str | None = None) -> tuple[Span, ...]:
    """`columns` cells: one a GPU, then lost GPUs, then a dot for each slot without a GPU."""
    read = metric.cell
    found = []
    for gpu in node.gpus[:columns]:
        state = gpu.state
        text, own = read(gpu) if state == "ok" else LOST_CELL if state == "lost" else ERROR_CELL
        found.append(fit(text, own if style is None else style, width))
    if len(found) == columns:
        return tuple(found)
    gone = min(missing(node), columns - len(found))
    lost, none = fit(*LOST_CELL, width), fit(*NO_CELL, width)
    return (*found, *(lost,) * gone, *(none,) * (columns - len(found) - gone))
