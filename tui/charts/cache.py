"""The pane's own copies of the engine's curves: each read is what came since the one before. Pure.

A copy is what a chart needs of a curve: its x ascending, its smoothed values made once a point.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container
from itertools import accumulate, islice
from operator import le

from trainmon.model import Curve

Read = Callable[[str, str, int, int], Curve]
"""Backend.curve."""


FAR = 1e15
"""No step is beyond this: what is, somebody logged under its name."""

LAST_DATE = 4e9
"""In 2096; nor is a time beyond this."""


def is_ascending(xs: array[float], least: float, most: float) -> bool:
    """Whether they are in order, between the two; nan is not."""
    return not xs or (least <= xs[0] and xs[-1] <= most and all(map(le, xs, islice(xs, 1, None))))


class Copy:
    """One metric of one attempt, as it was last read."""

    def __init__(self) -> None:
        self.epoch = 0
        self.read = 0
        """Points read of the engine's; it holds fewer where some had no step."""
        self.version = 0
        """Another one: what was made of its points is worth nothing any more. It only grows otherwise."""
        self.steps, self.times, self.values = array("d"), array("d"), array("d")
        self._smoothed: dict[float, Smoothed] = {}

    def __len__(self) -> int:
        return len(self.steps)

    def take(self, curve: Curve) -> bool:
        """Add what a read brought. False when that was nothing."""
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
        """A trainer's own step goes back when it takes up an older checkpoint within one run of W&B."""
        steps = self.steps
        order = sorted((place for place in range(len(steps)) if -FAR <= steps[place] <= FAR), key=steps.__getitem__)
        for column in (self.steps, self.times, self.values):
            column[:] = array("d", [column[place] for place in order])
        self.version += 1
        self._smoothed.clear()

    def _straighten(self) -> None:
        """A clock that was set back stands still until it is past where it was; an unknown time is the one before."""
        start = next((at for at in self.times if 0.0 <= at <= LAST_DATE), 0.0)
        self.times = array("d", accumulate(self.times, lambda a, b: b if a < b <= LAST_DATE else a, initial=start))
        del self.times[0]
        self.version += 1

    # ---- what a chart asks of it ----

    def xs(self, *, by_time: bool) -> array[float]:
        return self.times if by_time else self.steps

    def ys(self, weight: float) -> array[float]:
        """The values; with a weight, smoothed."""
        if not weight:
            return self.values
        if weight not in self._smoothed:
            self._smoothed.clear()
            self._smoothed[weight] = Smoothed(weight)
        return self._smoothed[weight].follow(self.values)

    def place_of(self, step: float) -> int:
        """The point of this step, or the last one before it; where there is none, the first."""
        return max(0, bisect_right(self.steps, step) - 1)

    def step_at(self, at: float) -> float | None:
        """The first step at this time or after it."""
        place = bisect_left(self.times, at)
        return self.steps[place] if place < len(self.steps) else None

    def time_at(self, step: float) -> float | None:
        """The time of this step, or of the first after it."""
        place = bisect_left(self.steps, step)
        return self.times[place] if place < len(self.steps) else None


class Smoothed:
    """An exponential moving average that grows with its curve.

    As TensorBoard has it, and W&B as "Exponential moving average (EMA) smoothing" (docs.wandb.ai, "Smooth line plots"):
    last = weight · last + (1 - weight) · value, divided by 1 - weight^count, so that the start is not drawn to zero.
    What is not finite shows as it is, and does not enter the average.
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
    """The copies that a pane holds: of what it shows, and of nothing else."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._copies: dict[tuple[str, str], Copy] = {}

    def look(self, path: str, key: str) -> Copy:
        """The copy of a metric of an attempt as it is now."""
        copy = self._copies.setdefault((path, key), Copy())
        copy.take(self._read(path, key, copy.epoch, copy.read))
        return copy

    def known(self, path: str, key: str) -> Copy:
        """The copy as it was last read."""
        return self._copies.get((path, key)) or NOTHING

    def keep(self, paths: Container[str], keys: Container[str]) -> None:
        """Forget all others: 100,000 points are 2.4 MB."""
        self._copies = {(p, k): copy for (p, k), copy in self._copies.items() if p in paths and k in keys}


NOTHING = Copy()
