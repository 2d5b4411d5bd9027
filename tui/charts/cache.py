"""The pane's copies of the engine's curves. Each read fetches only new points. Pure.

A copy has ascending x values, and smooths each point once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container
from itertools import accumulate, islice
from operator import le

from trainmon.model import Curve, Points

Read = Callable[[str, str, int, int], Curve]
"""Backend.curve."""


FAR = 1e15
"""The largest value that can be a step; a larger one is something else under that name."""

LAST_DATE = 4e9
"""The latest time (in 2096)."""


def is_ascending(xs: array[float], least: float, most: float) -> bool:
    """Whether all are in order and within the bounds; nan is not."""
    return not xs or (least <= xs[0] and xs[-1] <= most and all(map(le, xs, islice(xs, 1, None))))


class Copy:
    """One metric of one attempt, as of its last read."""

    def __init__(self) -> None:
        self.epoch = 0
        self.read = 0
        """Points read from the engine. The copy has fewer if some had no step."""
        self.version = 0
        """Changes when old points changed: nothing derived from them is valid. Otherwise the curve only grew."""
        self.steps, self.times, self.values = array("d"), array("d"), array("d")
        self._smoothed: dict[float, Smoothed] = {}

    def __len__(self) -> int:
        return len(self.steps)

    def take(self, curve: Curve) -> bool:
        """Add the points of a read. False if there were none."""
        if curve.epoch == self.epoch and not curve.steps:
            return False
        if curve.epoch != self.epoch or curve.start != self.read:
            self._forget(curve.epoch)
        self.read = curve.start + len(curve.steps)
        begin = max(0, len(self.steps) - 1)
        self.steps.extend(curve.steps)
        self.times.extend(curve.times)
        self.values.extend(curve.values)
        if not is_ascending(self.steps[begin:], -FAR, FAR):
            self._sort()
        if not is_ascending(self.times[begin:], 0.0, LAST_DATE):
            self._straighten()
        return True

    def _forget(self, epoch: int) -> None:
        self.epoch, self.read, self.version = epoch, 0, self.version + 1
        for column in (self.steps, self.times, self.values):
            del column[:]
        self._smoothed.clear()

    def _sort(self) -> None:
        """Sort by step: steps go back when a trainer resumes an older checkpoint within one W&B run."""
        steps = self.steps
        order = sorted((index for index in range(len(steps)) if -FAR <= steps[index] <= FAR), key=steps.__getitem__)
        for column in (self.steps, self.times, self.values):
            column[:] = array("d", [column[index] for index in order])
        self.version += 1
        self._smoothed.clear()

    def _straighten(self) -> None:
        """Make times ascend: after a clock was set back, time stands still until it catches up. Unknown: as before."""
        start = next((at for at in self.times if 0.0 <= at <= LAST_DATE), 0.0)
        self.times = array("d", accumulate(self.times, lambda a, b: b if a < b <= LAST_DATE else a, initial=start))
        del self.times[0]
        self.version += 1

    # ---- reading ----

    def xs(self, *, by_time: bool) -> array[float]:
        return self.times if by_time else self.steps

    def ys(self, weight: float) -> array[float]:
        """The values, smoothed if there is a weight."""
        if not weight:
            return self.values
        if weight not in self._smoothed:
            self._smoothed.clear()
            self._smoothed[weight] = Smoothed(weight)
        return self._smoothed[weight].follow(self.values)

    def between(self, low: float, high: float, *, by_time: bool) -> Points:
        """The points from one step or time to another."""
        xs = self.xs(by_time=by_time)
        part = slice(bisect_left(xs, low), bisect_right(xs, high))
        return Points(self.steps[part], self.times[part], self.values[part])

    def index_of(self, step: float) -> int:
        """The index of the last point at or before this step; without any, 0."""
        return max(0, bisect_right(self.steps, step) - 1)

    def step_at(self, at: float) -> float | None:
        """The first step at or after this time."""
        index = bisect_left(self.times, at)
        return self.steps[index] if index < len(self.steps) else None

    def time_at(self, step: float) -> float | None:
        """The time of the first step at or after this one."""
        index = bisect_left(self.steps, step)
        return self.times[index] if index < len(self.steps) else None


class Smoothed:
    """An exponential moving average that grows with its curve.

    As in TensorBoard, and in W&B as "Exponential moving average (EMA) smoothing" (docs.wandb.ai, "Smooth line plots"):
    last = weight · last + (1 - weight) · value, divided by 1 - weight^count, so that the start is not drawn to zero.
    Values that are not finite are shown unchanged, and are not averaged.
    """

    def __init__(self, weight: float) -> None:
        self.weight = weight
        self.values = array("d")
        self._last, self._left = 0.0, 1.0

    def follow(self, values: array[float]) -> array[float]:
        weight, fresh = self.weight, 1.0 - self.weight
        last, left, add = self._last, self._left, self.values.append
        for value in islice(values, len(self.values), None):
            if value - value == 0.0:  # finite; math.isfinite is a call, and 100,000 calls are 3 ms
                last = last * weight + fresh * value
                left *= weight
                add(last / (1.0 - left))
            else:
                add(value)
        self._last, self._left = last, left
        return self.values


class Copies:
    """The copies of a pane: only of the curves that it shows."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._copies: dict[tuple[str, str], Copy] = {}

    def update(self, path: str, key: str) -> Copy:
        """Read the new points of a metric of an attempt."""
        copy = self._copies.setdefault((path, key), Copy())
        copy.take(self._read(path, key, copy.epoch, copy.read))
        return copy

    def known(self, path: str, key: str) -> Copy:
        """The copy as of its last read."""
        return self._copies.get((path, key)) or NOTHING

    def keep(self, paths: Container[str], keys: Container[str]) -> None:
        """Forget all others: 100,000 points are 2.4 MB."""
        self._copies = {(p, k): copy for (p, k), copy in self._copies.items() if p in paths and k in keys}


NOTHING = Copy()
