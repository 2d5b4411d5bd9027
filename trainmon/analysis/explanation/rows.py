"""The rows and sections of a page, and the last hour of the GPUs of a node. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from trainmon.lib import Instant, Seconds, counted
from trainmon.model import Series

# ---- the rows and sections of a page, and how they say numbers -------------------------------------------------------

Style = Literal["", "ok", "warn", "crit", "dim", "log"]
"""log: a line of a log, which is shown as it is."""


class PageRow(NamedTuple):
    """A label and a text. A row with an empty label continues the one before it."""

    label: str
    text: str
    style: Style = ""
    link: tuple[str, str] | None = None
    """`node` or `attempt`, and its name."""


class Section(NamedTuple):
    """A title and its rows."""

    title: str
    rows: tuple[PageRow, ...]


UNKNOWN = "not known"


def gpu_time(seconds: Seconds) -> str:
    """`26 GPU seconds`, `0.09 GPU hours`, `1,024.0 GPU hours`: of an attempt that cost something, never zero."""
    if seconds < 36.0:
        return counted(round(seconds), "GPU second")
    return f"{seconds / 3600:,.{1 if seconds >= 3600 else 2}f} GPU hours"


# ---- the last hour of the GPUs of an attempt's node ------------------------------------------------------------------

HOUR: Seconds = 3_600.0
MINUTE: Seconds = 60.0
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

    @property
    def is_empty(self) -> bool:
        return not any(self.metrics.values())


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
