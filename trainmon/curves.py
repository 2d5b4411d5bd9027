"""The curves of W&B runs: each metric of each attempt as columns of numbers, owned by the engine, read from a point on.

100,000 points are 2 MB as columns and 20 as rows of a dict; what is asked for is copied, and that is 24 bytes a point.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping

from trainmon.model_wandb import Curve, Points

POINTS_AT_MOST = 200_000
"""Of one curve: beyond it every second point of its older half goes, and its epoch changes."""

CURVES_AT_MOST = 400
"""Twenty runs of a group with twelve metrics fit; of more, those that grew longest ago go."""


class Column:
    """One growing curve."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.steps = array("d")
        self.times = array("d")
        self.values = array("d")

    def extend(self, points: Points) -> None:
        self.steps.extend(points.steps)
        self.times.extend(points.times)
        self.values.extend(points.values)

    def thin(self) -> None:
        """Drop every second point of the older half."""
        half = len(self.steps) // 2
        for column in (self.steps, self.times, self.values):
            column[:half] = column[:half:2]


class Curves:
    """All curves, by WandbRun.path and metric."""

    def __init__(self) -> None:
        self._columns: dict[tuple[str, str], Column] = {}
        self._epochs = 1

    def grow(self, path: str, points: Mapping[str, Points], *, fresh: bool) -> None:
        """Add what came; `fresh` begins anew."""
        for key, new in points.items():
            column = self._columns.pop((path, key), None)
            if column is None or fresh:
                column = Column(self._epoch())
            column.extend(new)
            if len(column.steps) > POINTS_AT_MOST:
                column.thin()
                column.epoch = self._epoch()
            self._columns[path, key] = column  # the last to have grown
        while len(self._columns) > CURVES_AT_MOST:
            del self._columns[next(iter(self._columns))]

    def read(self, path: str, key: str, epoch: int = 0, start: int = 0) -> Curve:
        """One curve from a point on; all of it where its epoch is another. Epoch 0 is that of no curve."""
        column = self._columns.get((path, key))
        if column is None:
            return Curve(epoch=0, start=0, steps=array("d"), times=array("d"), values=array("d"))
        begin = min(start, len(column.steps)) if epoch == column.epoch else 0
        return Curve(
            epoch=column.epoch,
            start=begin,
            steps=column.steps[begin:],
            times=column.times[begin:],
            values=column.values[begin:],
        )

    def _epoch(self) -> int:
        self._epochs += 1
        return self._epochs
