"""The cells of the GPU grid: one a GPU, for each metric. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from trainmon.model import Gpu, Node
from tui.style import DEAD, DOT, NOT_APPLICABLE, UNKNOWN, Span, heat, short, slowing
from tui.views.nodes.summary import missing_gpus
from tui.views.table import value, warned


class Metric(NamedTuple):
    """A metric of the grid. Its cells are `width` wide; the last column is for a sign."""

    name: str
    title: str
    width: int
    cell: Callable[[Gpu], Span]


def memory(gpu: Gpu) -> Span:
    """Used memory in GiB, with a sign from 98 % on."""
    used, total = gpu.memory_used_mib, gpu.memory_total_mib
    if used is None:
        return Span(UNKNOWN, "dim")
    return number(used // 1024, "warn" if total and used >= 0.98 * total else "")


@lru_cache(4096)
def number(number: int | None, style: str = "") -> Span:
    """A number, with a sign if it has a style. Equal numbers are the same object."""
    return value(UNKNOWN + " ") if number is None else warned(str(number), style)


@lru_cache(4096)
def dim_zero(number: int | None) -> Span:
    """A number; zero is dim."""
    return value(UNKNOWN + " ") if number is None else Span(f"{number} ", "" if number else "dim")


def power(gpu: Gpu) -> Span:
    """Power in watts, with a sign while it limits the clock."""
    if gpu.power_w is None:
        return dim_zero(None)
    is_slowed = bool(gpu.throttle) and any("power" in reason for reason in slowing(gpu.throttle))
    return Span(f"{round(gpu.power_w)}!", "warn") if is_slowed else dim_zero(round(gpu.power_w))


def errors(gpu: Gpu) -> Span:
    """The worst error: a failed row remap, uncorrected ECC errors, an Xid, a pending row remap."""
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
    Metric("temperature", "temp °C", 4, lambda gpu: number(gpu.temperature_c, heat(gpu))),
    Metric("memory", "memory GiB", 4, memory),
    Metric("utilization", "util %", 4, lambda gpu: NO_MIG if gpu.mig else dim_zero(gpu.utilization_pct)),
    Metric("power", "power W", 5, power),
    Metric("errors", "errors", 5, errors),
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
    found = []
    for gpu in node.gpus[:columns]:
        text, own = metric.cell(gpu) if gpu.state == "ok" else LOST_CELL if gpu.state == "lost" else ERROR_CELL
        found.append(fit(text, own if style is None else style, width))
    lost = min(missing_gpus(node), columns - len(found))
    rest = (fit(*LOST_CELL, width),) * lost + (fit(*NO_CELL, width),) * (columns - len(found) - lost)
    return (*found, *rest)
