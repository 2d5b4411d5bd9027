"""The charts of one run: the metrics of its attempts in the chosen window, on stable axes. Pure.

Each update reads only new points, and computes again only what they change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tui.charts.axes import (
    X_PARTS,
    X_SPARE,
    Y_PARTS,
    Y_SPARE,
    Limits,
    Tick,
    clock_ticks,
    settled,
    settled_times,
    ticks,
)
from tui.charts.cache import NOTHING, Copies, Copy, Read
from tui.charts.downsample import Column, Columns, Frame
from tui.charts.render import Chart, CurveLine, CurveRole, frame_of, picture, signs
from tui.charts.sparkline import side_by_side
from tui.charts.values import change, reading, title
from tui.charts.view import ChartCell, View, chart_cells, reach, window
from tui.style import Span

BEFORE = "abcdefgh"
"""The letters of earlier attempts, the latest first."""

ATTEMPTS_AT_MOST = 6
"""The current attempt and five earlier ones."""

TICK_WIDTH, TICK_HEIGHT = 14, 3
STEP_AT_MOST = 10
"""Cells of a step label on the x axis."""

FRESH_AT_MOST = 250_000
"""The most points read at once: 100,000 take about 25 ms until they are drawn, and a key press waits meanwhile."""

LEAST = 1e-100
"""A log axis shows values up to this as zero."""


class Marks(NamedTuple):
    """Events beside the curves: restarts, saves and a moment, each as (step, time)."""

    restarts: tuple[tuple[float, float], ...] = ()
    saves: tuple[tuple[float | None, float | None], ...] = ()
    moments: tuple[tuple[float | None, float | None], ...] = ()

    def along(self, *, by_time: bool) -> tuple[tuple[float, ...], ...]:
        """The places of the restarts, the saves and the moment on the x axis."""
        side = 1 if by_time else 0
        kinds = (self.restarts, self.saves, self.moments)
        return tuple(tuple(at for one in kind if (at := one[side]) is not None) for kind in kinds)


class Charts:
    """The curves of a run, their columns, and the limits of their axes."""

    def __init__(self, read: Read) -> None:
        self.copies = Copies(read)
        self.paths: tuple[str, ...] = ()
        """The W&B paths of the attempts, the current one first."""
        self.keys: tuple[str, ...] = ()
        self.saves: tuple[tuple[float | None, float | None], ...] = ()
        self.moment: float | None = None
        """The time for which the charts were opened."""
        self.is_behind = False
        """Whether there are more points than one update reads: update again soon."""
        self.x: Limits | None = None
        self._y: dict[tuple[str, bool], Limits] = {}
        self._columns: dict[tuple[str, str, float], Columns] = {}
        self._settled_for: tuple[object, ...] = ()

    # ---- curves ----

    def update(self, paths: Sequence[str], keys: Sequence[str], shown: Sequence[str]) -> None:
        """Read new points: all metrics of the current attempt; of earlier ones, the visible metrics and the first one,
        which gives their extent. Forget all other curves."""
        self.paths, self.keys = tuple(paths[:ATTEMPTS_AT_MOST]), tuple(keys)
        self.copies.keep(self.paths, self.keys)
        self._columns = {of: made for of, made in self._columns.items() if of[0] in self.paths and of[1] in self.keys}
        self.is_behind, left = False, FRESH_AT_MOST
        # First the curves that the limits of x come from, then those in sight.
        leads = [(path, key) for path in self.paths for key in self.keys[:1]]
        in_sight = [(path, key) for path in self.paths for key in shown]
        others = [(path, key) for path in self.paths[:1] for key in self.keys]
        for path, key in dict.fromkeys((*leads, *in_sight, *others)):
            if left <= 0:
                self.is_behind = True
                return
            before = len(self.copies.known(path, key))
            left -= abs(len(self.copies.update(path, key)) - before)

    def has_curves(self, path: str) -> bool:
        """Whether this attempt has any point."""
        return any(len(self.copies.known(path, key)) for key in self.keys)

    def current(self, key: str) -> Copy:
        """A metric of the current attempt."""
        return self.copies.known(self.paths[0], key) if self.paths else NOTHING

    @property
    def lead(self) -> Copy:
        """The curve that converts between steps and times: the longest of the current attempt."""
        return max((self.current(key) for key in self.keys), key=len, default=NOTHING)

    def _shown(self, view: View) -> tuple[str, ...]:
        return self.paths if view.compare else self.paths[:1]

    def extent(self, view: View) -> Limits | None:
        """The range of x of all charts together."""
        before = [self.copies.known(path, key) for path in self._shown(view)[1:] for key in self.keys[:1]]
        return reach([*(self.current(key) for key in self.keys), *before], by_time=view.by_time)

    def on_other_axis(self, view: View) -> View:
        """The view with the other x axis, showing the same window."""
        extent = self.extent(view)
        if extent is None or view.width is None:
            return view.other_axis(None)
        low, high = (self._crossed(view, at) for at in window(view, extent, self.lead))
        return view.other_axis(Limits(low, high) if low is not None and high is not None and low < high else None)

    def _crossed(self, view: View, at: float) -> float | None:
        """The step of a time, or the time of a step, in the newest attempt that covers it."""
        for path in self._shown(view):
            copy = self.copies.known(path, self.keys[0])
            xs = copy.xs(by_time=view.by_time)
            if xs and xs[0] <= at <= xs[-1]:
                return copy.step_at(at) if view.by_time else copy.time_at(at)
        return None

    def marks(self) -> Marks:
        """The marks of restarts, saves and the moment. Each attempt but the oldest began with a restart."""
        begun = [self._beginning(path) for path in self.paths[:-1]]
        moments = () if self.moment is None else ((self.lead.step_at(self.moment), self.moment),)
        return Marks(tuple(one for one in begun if one is not None), self.saves, moments)

    def _beginning(self, path: str) -> tuple[float, float] | None:
        keys = self.keys if path == self.paths[0] else self.keys[:1]
        copies = [copy for key in keys if (copy := self.copies.known(path, key)).steps]
        return (min(copy.steps[0] for copy in copies), min(copy.times[0] for copy in copies)) if copies else None

    # ---- drawing ----

    def settle(self, view: View) -> Limits | None:
        """The limits of x for this view; they stay while they fit."""
        extent = self.extent(view)
        settled_for = (view._replace(weight=0.0), self.paths)
        if settled_for != self._settled_for:
            self._settled_for, self.x = settled_for, None
            self._y.clear()
        if extent is not None:
            part = window(view, extent, self.lead)
            self.x = (
                settled_times(self.x, *part) if view.by_time else settled(self.x, *part, parts=X_PARTS, spare=X_SPARE)
            )
        return self.x

    def draw(self, view: View, keys: Sequence[str], width: int, height: int, *, plain: bool) -> list[tuple[Span, ...]]:
        """As many charts of these metrics as fit, the first on top."""
        x = self.settle(view)
        if x is None:
            return []
        lines: list[tuple[Span, ...]] = []
        left = iter(keys)
        for row in chart_cells(width, height, len(keys)):
            pictures = [self._picture(key, view, x, cell, plain=plain) for cell, key in zip(row, left, strict=False)]
            lines += side_by_side(pictures)
        return lines

    def _picture(self, key: str, view: View, x: Limits, cell: ChartCell, *, plain: bool) -> list[tuple[Span, ...]]:
        frame = frame_of(x, cell.width, plain=plain)
        curves = tuple(self._curves(key, view, frame))
        copy = self.current(key)
        y, log = self._limits(key, view, curves)
        note = "" if log == view.log or not curves else "no log axis: no value is above zero"
        if not curves and not self.is_behind:
            known = any(len(self.copies.known(path, key)) for path in self.paths)
            note = "nothing in this window" if known else "nothing was logged under this name"
        restarts, saves, moments = self.marks().along(by_time=view.by_time)
        chart = Chart(
            title=title(key, reading(copy), change(copy), note, cell.width), frame=frame, y=y, log=log, curves=curves,
            x_ticks=x_ticks(x, cell.width, by_time=view.by_time),
            y_ticks=ticks(y, max(2, cell.height // TICK_HEIGHT), log=log), restarts=restarts, saves=saves,
            moments=moments,
        )  # fmt: skip
        return picture(chart, cell.width, cell.height, plain=plain, labelled=cell.labelled)

    def _curves(self, key: str, view: View, frame: Frame) -> list[CurveLine]:
        """The curves of a metric: the oldest attempt first, the current one last."""
        current, *earlier = self._shown(view)
        wanted: list[tuple[str, CurveRole, float, str]] = [
            (path, "before", view.weight, letter) for path, letter in zip(earlier, BEFORE, strict=False)
        ][::-1]
        wanted += [(current, "raw", 0.0, "")] if view.weight else []
        lines = []
        for path, role, weight, letter in (*wanted, (current, "now", view.weight, "")):
            copy = self.copies.known(path, key)
            columns = self._columns.setdefault((path, key, weight), Columns())
            xs, ys = copy.xs(by_time=view.by_time), copy.ys(weight)
            made = columns.of(xs, ys, frame, (id(copy), copy.version), along=view.by_time)
            lines.append(CurveLine(made, role, letter))
        return [line for line in lines if any(line.columns)]

    def _limits(self, key: str, view: View, curves: Sequence[CurveLine]) -> tuple[Limits, bool]:
        """The limits of y, and whether the axis is logarithmic: without a value above zero it is not."""
        drawn = [column for curve in curves for column in curve.columns if column is not None and column.is_drawn]
        log = view.log and any(column.high > LEAST for column in drawn)
        if not drawn:
            return self._y.get((key, False), Limits(0.0, 1.0)), False
        high = max(column.high for column in drawn)
        low = min(lowest(column) for column in drawn if column.high > LEAST) if log else min(c.low for c in drawn)
        limits = settled(self._y.get((key, log)), low, high, parts=Y_PARTS, spare=Y_SPARE, log=log)
        self._y[key, log] = limits
        return limits, log


def lowest(column: Column) -> float:
    """The lowest known value of a column that a log axis can show."""
    return min(value for value in (column.low, column.last, column.high) if value > LEAST)


def x_ticks(x: Limits, width: int, *, by_time: bool) -> list[Tick]:
    most = max(2, width // TICK_WIDTH)
    return clock_ticks(x, most) if by_time else ticks(x, most, cells=STEP_AT_MOST)


def legend(view: View, names: Sequence[str], marks: Marks, *, plain: bool) -> list[str]:
    """The meaning of the visible symbols and letters. `names` are those of earlier attempts, the latest first; empty
    for an attempt without a curve."""
    sign = signs(plain=plain)
    letters = [f"{BEFORE[number]} {name}" for number, name in enumerate(names) if name] if view.compare else []
    return (
        letters
        + ([f"{sign.moment} this moment"] if marks.moments else [])
        + ([f"{sign.restart} restart"] if marks.restarts else [])
        + ([f"{sign.save} checkpoint"] if marks.saves else [])
    )
