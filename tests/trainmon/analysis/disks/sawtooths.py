"""The disks of a training: checkpoints that are written and deleted again, with and without something that grows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from trainmon.lib import Seconds

HOUR = 3_600.0
TB = 10**12
MINUTE = 60.0
SAVE, DELETION = 240.0, 180.0
"""How long a save and a deletion take."""


class Series(NamedTuple):
    """A disk of some size, a rhythm of saves, and who deletes them when."""

    name: str
    total: float
    checkpoint: float = 1.0 * TB
    every: Seconds = 0.5 * HOUR
    keep: int | None = None
    """How many are kept after each save; null: nothing is deleted by number."""
    prune_every: int | None = None
    """After so many saves all but the last are deleted."""
    leak_an_hour: float = 0.0
    pruner_dies_at: Seconds | None = None
    others: float = 0.0
    """How much other users write and delete again, at most."""
    begins_with: float = 0.0


SERIES = (
    Series("keep-last-3", total=10 * TB, keep=3, begins_with=4 * TB),
    Series("prune every 12", total=20 * TB, prune_every=12, begins_with=4 * TB),
    Series("keep-3 + 40 GB/h leak", total=8 * TB, keep=3, begins_with=1 * TB, leak_an_hour=0.04 * TB),
    Series("prune-12 + leak", total=20 * TB, prune_every=12, begins_with=4 * TB, leak_an_hour=0.04 * TB),
    Series("no retention", total=90 * TB, begins_with=4 * TB, every=1.0 * HOUR),
    Series("pruner dies", total=150 * TB, prune_every=12, begins_with=4 * TB, pruner_dies_at=30 * HOUR),
)
"""The six of the design's table."""


class Saved(NamedTuple):
    """A checkpoint: its number, when it was committed (of one that is not: begun), and its bytes."""

    number: int
    at: Seconds
    bytes: float


class Look(NamedTuple):
    """One look at the disk, by statvfs, and at the directory of its checkpoints."""

    at: Seconds
    free: float
    kept: tuple[Saved, ...]
    """The checkpoints that are there, the oldest first."""
    writing: Saved | None
    """The one that is being written, as far as it is."""


def looks(series: Series, hours: float, *, period: Seconds = MINUTE, seed: int = 1) -> Iterator[Look]:
    """The disk over time. It stops where it is full."""
    random = Random(f"{series.name} {seed}")
    kept: list[Saved] = []
    leaving: list[tuple[Seconds, float]] = []
    at, next_at, count, ebb = 0.0, series.every, 0, 0.0
    while at <= hours * HOUR:
        if at >= next_at + SAVE:
            next_at, count = next_at + series.every, count + 1
            kept.append(Saved(count, at, series.checkpoint * random.uniform(0.99, 1.01)))
            leaving += [(at, one.bytes) for one in _deleted(series, kept, count, at)]
        leaving = [(since, size) for since, size in leaving if at - since < DELETION]
        remains = sum(size * (1 - (at - since) / DELETION) for since, size in leaving)
        ebb = min(1.0, max(0.0, ebb + random.uniform(-0.02, 0.02)))
        written = series.checkpoint * min(1.0, max(0.0, (at - next_at) / SAVE))
        used = series.begins_with + sum(one.bytes for one in kept) + written + remains
        used += series.leak_an_hour * at / HOUR + ebb * series.others
        used += random.uniform(0, 1e9)  # logs, and what is deleted at once
        writing = Saved(count + 1, next_at, written) if at > next_at else None
        yield Look(at, max(0.0, series.total - used), tuple(kept), writing)
        if used >= series.total:
            return
        at += period


def _deleted(series: Series, kept: list[Saved], count: int, at: Seconds) -> list[Saved]:
    if series.pruner_dies_at is not None and at >= series.pruner_dies_at:
        return []
    if series.keep is not None and len(kept) > series.keep:
        return [kept.pop(0)]
    if series.prune_every is not None and count % series.prune_every == 0:
        gone = kept[:-1]
        del kept[:-1]
        return gone
    return []


def full_after(series: Series, hours: float, seed: int = 1) -> Seconds | None:
    """When it is full, in truth; null if it is not within the hours."""
    (last,) = deque(looks(series, hours, seed=seed), maxlen=1)
    return last.at if last.free <= 0 else None


class Scores(NamedTuple):
    """How often an alarm "full in less than 24 h" was right and wrong."""

    recall: float | None
    """Of the looks at which it is full within 12 h."""
    false: float | None
    """Of those at which it is not full within 48 h."""


def score(series: Series, alarm: Callable[[Look], bool], hours: float, since: Seconds, seed: int = 1) -> Scores:
    """Go through a series with an alarm that sees one look after the other; those before `since` are not counted."""
    end = full_after(series, hours + 72, seed)
    due, calm = [], []
    for look in looks(series, hours, seed=seed):
        says = alarm(look)
        if look.at < since:
            continue
        left = float("inf") if end is None else end - look.at
        if left <= 12 * HOUR:
            due.append(says)
        elif left > 48 * HOUR:
            calm.append(says)
    return Scores(sum(due) / len(due) if due else None, sum(calm) / len(calm) if calm else None)
