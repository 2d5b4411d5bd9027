"""The charts of one run of ours: what its attempts logged, in the window that is looked at, on axes that stay. Pure.

It asks for what came since it last asked, and makes again what that changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tui.charts.axes import (
    ROOM_BEFORE,
    ROOM_LEFT,
    X_PARTS,
    Y_PARTS,
    Limits,
    Tick,
    clock_ticks,
    settled,
    settled_times,
    ticks,
)
from tui.charts.cache import NOTHING, Copies, Copy, Read
from tui.charts.downsample import Column, Columns, Frame
from tui.charts.grid import ChartCell, places
from tui.charts.render import Chart, CurveLine, Look, frame_of, picture, signs
from tui.charts.sparkline import side_by_side
from tui.charts.values import change, reading, title
from tui.charts.view import View, reach, window
from tui.style import Span

BEFORE = "abcdefgh"
"""The letters of earlier attempts; the last one's is a."""

ATTEMPTS_AT_MOST = 6
"""The current one and five before it."""

TICK_WIDTH, TICK_HEIGHT = 14, 3
STEP_AT_MOST = 10
"""Cells of a step under a chart: more than a value beside it may have."""

FRESH_AT_MOST = 250_000
"""Points that are read in one turn: 100,000 take about 25 ms until they are drawn, and a key waits meanwhile."""

LEAST = 1e-100
"""To a log axis, what is not above this is zero."""


class Marks(NamedTuple):
    """Steps and times of what happened beside the curves."""

    restarts: tuple[tuple[float, float], ...] = ()
    saves: tuple[tuple[float | None, float | None], ...] = ()

    def along(self, *, by_time: bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
        side = 1 if by_time else 0
        saves = (save[side] for save in self.saves)
        return tuple(one[side] for one in self.restarts), tuple(float(at) for at in saves if at is not None)


class Charts:
    """Copies of curves, their columns, and the limits of their axes."""

    def __init__(self, read: Read) -> None:
        self.copies = Copies(read)
        self.paths: tuple[str, ...] = ()
        """The attempts, the current one first."""
        self.keys: tuple[str, ...] = ()
        self.saves: tuple[tuple[float | None, float | None], ...] = ()
        self.is_behind = False
        """Whether there is more to read than one turn should take: look again soon."""
        self.x: Limits | None = None
        self._y: dict[tuple[str, bool], Limits] = {}
        self._columns: dict[tuple[str, str, float], Columns] = {}
        self._settled_for: tuple[object, ...] = ()

    # ---- what there is ----

    def look(self, paths: Sequence[str], keys: Sequence[str], shown: Sequence[str]) -> None:
        """Read what came: of the current attempt all, of those before it what is shown, and the first metric, which
        tells how far they reach. All others are forgotten."""
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
            left -= abs(len(self.copies.look(path, key)) - before)

    def has_curves(self, path: str) -> bool:
        """Whether there is a point of this attempt."""
        return any(len(self.copies.known(path, key)) for key in self.keys)

    def now(self, key: str) -> Copy:
        """A metric of the current attempt."""
        return self.copies.known(self.paths[0], key) if self.paths else NOTHING

    @property
    def lead(self) -> Copy:
        """The curve that steps are turned into times by: the longest of the current attempt."""
        return max((self.now(key) for key in self.keys), key=len, default=NOTHING)

    def _shown(self, view: View) -> tuple[str, ...]:
        return self.paths if view.compare else self.paths[:1]

    def data(self, view: View) -> Limits | None:
        """How far the curves reach, all charts together."""
        before = [self.copies.known(path, key) for path in self._shown(view)[1:] for key in self.keys[:1]]
        copies = [*(self.now(key) for key in self.keys), *before]
        return reach(copies, by_time=view.by_time)

    def on_other_axis(self, view: View) -> View:
        """What is seen by step is seen by time as well, and the other way round."""
        data = self.data(view)
        if data is None or not view.is_zoomed:
            return view.other_axis(None)
        part = window(view, data, self.lead)
        low, high = (self._crossed(view, at) for at in part)
        return view.other_axis(Limits(low, high) if low is not None and high is not None and low < high else None)

    def _crossed(self, view: View, at: float) -> float | None:
        """The step of a time, or the time of a step: of the newest attempt that was there then."""
        for path in self._shown(view):
            copy = self.copies.known(path, self.keys[0])
            xs = copy.xs(by_time=view.by_time)
            if xs and xs[0] <= at <= xs[-1]:
                return copy.step_at(at) if view.by_time else copy.time_at(at)
        return None

    def marks(self) -> Marks:
        """Each attempt but the oldest began with a restart."""
        begun = [self._beginning(path) for path in self.paths[:-1]]
        return Marks(tuple(one for one in begun if one is not None), self.saves)

    def _beginning(self, path: str) -> tuple[float, float] | None:
        keys = self.keys if path == self.paths[0] else self.keys[:1]
        copies = [copy for key in keys if (copy := self.copies.known(path, key)).steps]
        return (min(copy.steps[0] for copy in copies), min(copy.times[0] for copy in copies)) if copies else None

    # ---- drawing ----

    def settle(self, view: View) -> Limits | None:
        """The limits of x for this view: the present ones while they do."""
        data = self.data(view)
        asked = (view._replace(weight=0.0), self.paths)
        if asked != self._settled_for:
            self._settled_for, self.x = asked, None
            self._y.clear()
        if data is not None:
            part = window(view, data, self.lead)
            self.x = (
                settled_times(self.x, *part)
                if view.by_time
                else settled(self.x, *part, parts=X_PARTS, room=ROOM_BEFORE)
            )
        return self.x

    def draw(self, view: View, keys: Sequence[str], width: int, height: int, *, plain: bool) -> list[tuple[Span, ...]]:
        """As many charts of these metrics as fit, the first on top."""
        x = self.settle(view)
        if x is None:
            return []
        lines: list[tuple[Span, ...]] = []
        left = iter(keys)
        for row in places(width, height, len(keys)):
            pictures = [self._picture(key, view, x, place, plain=plain) for place, key in zip(row, left, strict=False)]
            lines += side_by_side(pictures)
        return lines

    def _picture(self, key: str, view: View, x: Limits, place: ChartCell, *, plain: bool) -> list[tuple[Span, ...]]:
        frame = frame_of(x, place.width, plain=plain)
        curves = tuple(self._curves(key, view, frame))
        copy = self.now(key)
        y, log = self._limits(key, view, curves)
        note = "" if log == view.log or not curves else "no log axis: no value is above zero"
        if not curves and not self.is_behind:
            known = any(len(self.copies.known(path, key)) for path in self.paths)
            note = "nothing in this window" if known else "nothing was logged under this name"
        restarts, saves = self.marks().along(by_time=view.by_time)
        chart = Chart(
            title=title(key, reading(copy), change(copy), note, place.width), frame=frame, y=y, log=log, curves=curves,
            x_ticks=x_ticks(x, place.width, by_time=view.by_time),
            y_ticks=ticks(y, max(2, place.height // TICK_HEIGHT), log=log), restarts=restarts, saves=saves,
        )  # fmt: skip
        return picture(chart, place.width, place.height, plain=plain, labelled=place.labelled)

    def _curves(self, key: str, view: View, frame: Frame) -> list[CurveLine]:
        """The oldest attempt first, the present values last."""
        current, *earlier = self._shown(view)
        wanted: list[tuple[str, Look, float, str]] = [
            (path, "before", view.weight, letter) for path, letter in zip(earlier, BEFORE, strict=False)
        ][::-1]
        wanted += [(current, "raw", 0.0, "")] if view.weight else []
        lines = []
        for path, look, weight, letter in (*wanted, (current, "now", view.weight, "")):
            copy = self.copies.known(path, key)
            columns = self._columns.setdefault((path, key, weight), Columns())
            xs, ys = copy.xs(by_time=view.by_time), copy.ys(weight)
            made = columns.of(xs, ys, frame, (id(copy), copy.version), along=view.by_time)
            lines.append(CurveLine(made, look, letter))
        return [line for line in lines if any(line.columns)]

    def _limits(self, key: str, view: View, curves: Sequence[CurveLine]) -> tuple[Limits, bool]:
        """The limits of y, and whether they are those of a log axis: without one value above zero there is none."""
        drawn = [column for curve in curves for column in curve.columns if column is not None and column.is_drawn]
        log = view.log and any(column.high > LEAST for column in drawn)
        if not drawn:
            return self._y.get((key, False), Limits(0.0, 1.0)), False
        high = max(column.high for column in drawn)
        low = min(lowest(column) for column in drawn if column.high > LEAST) if log else min(c.low for c in drawn)
        limits = settled(self._y.get((key, log)), low, high, parts=Y_PARTS, room=ROOM_LEFT, log=log)
        self._y[key, log] = limits
        return limits, log


def lowest(column: Column) -> float:
    """The lowest value of a column that a log axis can show, as far as the column knows."""
    return min(value for value in (column.low, column.last, column.high) if value > LEAST)


def x_ticks(x: Limits, width: int, *, by_time: bool) -> list[Tick]:
    most = max(2, width // TICK_WIDTH)
    return clock_ticks(x, most) if by_time else ticks(x, most, cells=STEP_AT_MOST)


def legend(view: View, names: Sequence[str], marks: Marks, *, plain: bool) -> list[str]:
    """What the signs and letters mean, of those that are there; `names` of the attempts before, the last first, and
    empty where no curve of it is."""
    sign = signs(plain=plain)
    words = [f"{BEFORE[number]} {name}" for number, name in enumerate(names) if name] if view.compare else []
    return (
        words
        + ([f"{sign.restart} restart"] if marks.restarts else [])
        + ([f"{sign.save} checkpoint"] if marks.saves else [])
    )
