"""The past of GPUs and disks: the answer of a range query becomes columns for plots and forecasts. Pure."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from operator import itemgetter

from collectors.prometheus import readings
from collectors.prometheus.query import Exporter, Series
from trainmon.lib import Instant

Key = tuple[int, str]
"""A GPU and a field."""

Row = Callable[[Instant], int]
"""The row of a time of the server."""


def columns(
    exporter: Exporter, answers: Mapping[str, Sequence[Series]], names: Mapping[str, str], row: Row, length: int
) -> Mapping[Key, array[float]]:
    """By GPU and field: a value for each step, or nan. `answers`: by label of the node, the series. A GPU that has only
    MIG instances is one GPU: its memory is the sum of theirs, its temperature and power are those of each of them, and
    its utilization is not known."""
    found: dict[tuple[int, str, str], array[float]] = {}
    placed = (readings.with_indexes(exporter, label, series, names) for label, series in answers.items())
    for index, field, scale, one in chain.from_iterable(placed):
        instance = one.metric.get(exporter.instance_label, "")
        if instance and field == "utilization_pct":
            continue
        column = found.setdefault((index, field, instance), array("d", [math.nan]) * length)
        for at, text in one.values:
            number, value = row(at), readings.number(text)
            if 0 <= number < length and value is not None:
                column[number] = value * scale
    parts = groupby(sorted(found), key=itemgetter(0, 1))
    return {(index, field): _whole(field, {key[2]: found[key] for key in keys}) for (index, field), keys in parts}


Mounted = tuple[str, str]
"""A node, and a mount point there."""


def disk_columns(
    exporter: Exporter, label: str, series: Sequence[Series], names: Mapping[str, str], row: Row, length: int
) -> Mapping[Mounted, Mapping[str, array[float]]]:
    """By node and mount point: of each field, a value for each step, or nan. As in a sample, more than the size is
    none: it is a negative count."""
    found: dict[Mounted, dict[str, array[float]]] = {}
    for node, field, one in readings.of_filesystems(exporter, label, series, names):
        fields = found.setdefault((node, one.metric.get("mountpoint", "")), {})
        column = fields.setdefault(field, array("d", [math.nan]) * length)
        for at, text in one.values:
            number, value = row(at), readings.number_of(text)
            if 0 <= number < length and value is not None:
                column[number] = value
    for fields in found.values():
        if {"free_bytes", "total_bytes"} <= fields.keys():
            pairs = zip(fields["free_bytes"], fields["total_bytes"], strict=True)
            fields["free_bytes"] = array("d", (0.0 if free > total else free for free, total in pairs))
    return found


def _whole(field: str, parts: Mapping[str, array[float]]) -> array[float]:
    """The column of a GPU. `parts`: by MIG instance; empty for the GPU itself, whose values come first."""
    if parts.keys() == {""}:
        return parts[""]
    return array("d", (_value(field, values) for values in _rows(parts)))


def _rows(parts: Mapping[str, array[float]]) -> Iterator[tuple[float, list[float]]]:
    own = parts.get("", [math.nan] * len(next(iter(parts.values()))))
    instances = zip(*(column for name, column in parts.items() if name), strict=True)
    for value, shares in zip(own, instances, strict=True):
        yield value, [share for share in shares if not math.isnan(share)]


def _value(field: str, values: tuple[float, list[float]]) -> float:
    own, shares = values
    if not shares or not math.isnan(own):
        return own
    return sum(shares) if field in readings.MEMORY else shares[-1]
