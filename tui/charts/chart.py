"""The charts of one run: the metrics of its attempts in the chosen window, on stable axes. Pure.

Each update reads only new points, and computes again only what they change.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Literal, NamedTuple

from trainmon.lib import Seconds
from tui.charts.axes import (
    LABEL_WIDTH,
    X_PARTS,
    X_SPARE,
    Y_PARTS,
    Y_SPARE,
    Limits,
    Tick,
    clock,
    clock_ticks,
    settled,
    settled_times,
    ticks,
)
from tui.charts.curves import NOTHING, Column, Columns, Copies, Copy, Frame, Read
from tui.charts.render import Chart, CurveLine, CurveRole, frame_of, picture, side_by_side, signs
from tui.charts.values import change, labels, number, title
from tui.style import Span

# ---- the view of charts ----------------------------------------------------------------------------------------------

Period = Literal["all", "day", "hour"]

SPANS: dict[Period, tuple[Seconds, str]] = {
    "all": (0.0, "all"), "day": (86_400.0, "last day"), "hour": (3_600.0, "last hour"),
}  # fmt: skip

WEIGHTS = (0.0, 0.6, 0.9, 0.99)
"""The levels of `s`; 0.6 is the default of TensorBoard."""

LEAST = 10.0
"""The narrowest window in steps or seconds."""


class View(NamedTuple):
    """The chosen options. All charts share them, so that one step is in the same column of all charts."""

    by_time: bool = False
    log: bool = False
    weight: float = 0.0
    span: Period = "all"
    compare: bool = True
    width: float | None = None
    """The width of the zoomed window in steps or seconds; None: see `span`."""
    end: float | None = None
    """The end of the window; None: it follows the end of the curves."""
    settled: bool = False
    """Whether the y axis fits the curves without their starts."""
    cursor: float | None = None
    """The step or time whose values the titles show; None: they show the latest."""

    def labels(self) -> tuple[str, ...]:
        """The options as short texts, the most important first."""
        part = SPANS[self.span][1] if self.width is None else "zoomed"
        held = ("held",) if self.end is not None else ()
        return (
            part, *held, "by time" if self.by_time else "by step", *(("log",) if self.log else ()),
            *(("without the start",) if self.settled else ()),
            *((f"smooth {self.weight:g}",) if self.weight else ()), *(() if self.compare else ("alone",)),
        )  # fmt: skip

    # ---- keys ----

    def other_y(self) -> View:
        """The next y axis: linear, logarithmic, or without the starts."""
        return self._replace(log=not self.log and not self.settled, settled=self.log)

    def pointed(self, by: int, shown: Limits, data: Limits) -> View:
        """With the cursor a hundredth of the window earlier or later; at first it is at the end of the curves."""
        at = data.high if self.cursor is None else self.cursor + by * (shown.high - shown.low) / 100
        return self._replace(cursor=min(max(at, shown.low), shown.high))

    def smoother(self) -> View:
        return self._replace(weight=WEIGHTS[(WEIGHTS.index(self.weight) + 1) % len(WEIGHTS)])

    def other_span(self) -> View:
        spans = list(SPANS)
        return self.whole()._replace(span=spans[(spans.index(self.span) + 1) % len(spans)])

    def whole(self) -> View:
        return self._replace(width=None, end=None)

    def closer(self, shown: Limits, data: Limits) -> View:
        """Half the window: around its middle, or at the end while it follows the end."""
        width = max((min(shown.high, data.high) - max(shown.low, data.low)) / 2, LEAST)
        return self._replace(width=width, end=None if self.end is None else self.end - width / 2)

    def farther(self, data: Limits) -> View:
        """Twice the window; all, if it is as wide as the curves."""
        if self.width is None:
            return self._replace(span="all")
        width = 2 * self.width
        if width >= data.high - data.low:
            return self.whole()._replace(span="all")
        end = None if self.end is None else self.end + self.width / 2
        return self._replace(width=width)._ending(end, data)

    def moved(self, by: int, shown: Limits, data: Limits) -> View:
        """The window a quarter earlier or later; at the end of the curves, it follows them again."""
        width = self.width if self.width is not None else shown.high - shown.low
        if width >= data.high - data.low:
            return self
        end = (data.high if self.end is None else self.end) + by * width / 4
        return self._replace(width=width)._ending(max(end, data.low + width), data)

    def _ending(self, end: float | None, data: Limits) -> View:
        return self._replace(end=None if end is None or end >= data.high else end)


def reach(copies: Sequence[Copy], *, by_time: bool) -> Limits | None:
    """The range from the first to the last point of these curves."""
    ends = [(xs[0], xs[-1]) for copy in copies if (xs := copy.xs(by_time=by_time))]
    return Limits(min(first for first, _ in ends), max(last for _, last in ends)) if ends else None


def window(view: View, data: Limits, lead: Copy) -> Limits:
    """The visible range of curves with this extent; `lead` converts between steps and times."""
    if view.width is not None:
        end = data.high if view.end is None else view.end
        return Limits(max(data.low, end - view.width), max(end, data.low + view.width))
    seconds, _ = SPANS[view.span]
    if not seconds or not lead.times:
        return data
    since = lead.times[-1] - seconds
    low = since if view.by_time else lead.crossed(since, by_time=True)
    return data if low is None else Limits(min(max(data.low, low), data.high), data.high)


# ---- how many charts fit into a pane, and their sizes ----------------------------------------------------------------

TABLE, LEAST_CHARTS = 34, 56
"""The width of a table beside the charts, and the least width of the charts then."""

TABLE_BELOW_FROM, TABLE_ROWS = 20, 5
"""The height from which a narrow pane shows the table below, and the lines of that table."""

CHART_WIDTH, CHART_HEIGHT, LOW_HEIGHT = 54, 8, 6
"""The preferred size of a chart; and the least height, if two do not fit otherwise."""

LABELLED_FROM = 11
"""From this height, each chart has x ticks; below, only those in the last row."""

GAP = 2


class ChartGrid(NamedTuple):
    """The position and size of the table, and the size of the charts' area."""

    table: Literal["beside", "below", "none"]
    table_size: int
    width: int
    height: int


class ChartCell(NamedTuple):
    """The size of one chart, and whether it has x ticks."""

    width: int
    height: int
    labelled: bool


def layout(width: int, height: int) -> ChartGrid:
    """The layout of charts and table in a pane of this size."""
    if width >= LEAST_CHARTS + TABLE + 1:
        table = min(TABLE + (width - LEAST_CHARTS - TABLE) // 4, 46)
        return ChartGrid("beside", table, width - table, height)
    if height >= TABLE_BELOW_FROM:
        return ChartGrid("below", TABLE_ROWS, width, height - TABLE_ROWS)
    return ChartGrid("none", 0, width, height)


def chart_cells(width: int, height: int, count: int) -> list[list[ChartCell]]:
    """Rows of at most `count` charts. With several columns, the first chart takes a whole row."""
    if count <= 0 or height < 3 or width <= LABEL_WIDTH + 4:
        return []
    rows = max(1, height // CHART_HEIGHT, 2 if height >= 2 * LOW_HEIGHT else 1)
    across = max(1, (width + GAP) // (CHART_WIDTH + GAP))
    numbers = [min(across, count)]
    if rows > 1:
        rows = min(rows, 1 + -(-(count - 1) // across))
        numbers = [1, *(min(across, count - 1 - across * row) for row in range(rows - 1))]
    wide = [widths(width, numbers[0])] + [widths(width, max(numbers[1:], default=1))] * (len(numbers) - 1)
    return [
        [ChartCell(cells, tall, row == len(numbers) - 1 or tall >= LABELLED_FROM) for cells in wide[row][:number]]
        for row, (tall, number) in enumerate(zip(shares(height, len(numbers)), numbers, strict=True))
    ]


def shares(height: int, rows: int) -> list[int]:
    """The height of each row: the first is half as high again, and gets the rest."""
    each = max(int(height / (rows + 0.5)), min(LOW_HEIGHT, height // rows))
    return [height - each * (rows - 1), *[each] * (rows - 1)]


def widths(width: int, columns: int) -> list[int]:
    each = (width - GAP * (columns - 1)) // columns
    return [each] * (columns - 1) + [width - (each + GAP) * (columns - 1)]


# ---- the charts of one run -------------------------------------------------------------------------------------------

BEFORE = "abcdefgh"
"""The letters of earlier attempts, the latest first."""

ATTEMPTS_AT_MOST = 6
"""The current attempt and five earlier ones; so many colours of curves every theme has."""

TICK_WIDTH, TICK_HEIGHT = 14, 3
BESIDE_NAME = 14
"""Cells of a title that are left for the value."""
STEP_AT_MOST = 10
"""Cells of a step label on the x axis."""

FRESH_AT_MOST = 250_000
"""The most points read at once: 100,000 take about 25 ms until they are drawn, and a key press waits meanwhile."""

START = 0.1
"""The share of a curve that is its start: a loss falls, a learning rate warms up."""

LEAST_LOG = 1e-100
"""A log axis shows values up to this as zero."""


class Marks(NamedTuple):
    """The places of events on the x axis."""

    restarts: tuple[float, ...] = ()
    saves: tuple[float, ...] = ()
    moments: tuple[float, ...] = ()


class Charts:
    """The curves of a run, their columns, and the limits of their axes."""

    def __init__(self, read: Read) -> None:
        self.copies = Copies(read)
        self.paths: tuple[str, ...] = ()
        """The W&B paths of the attempts, the current one first, and of other runs."""
        self.own = 0
        """How many of them are attempts."""
        self.colours: dict[str, int] = {}
        """By path. It stays while a path is shown, whatever comes or goes beside it."""
        self.keys: tuple[str, ...] = ()
        self.names: Container[str] = ()
        """The metrics that were logged, also those that were not read."""
        self.saves: tuple[tuple[float | None, float | None], ...] = ()
        self.moment: float | None = None
        """The time for which the charts were opened."""
        self.is_behind = False
        """Whether there are more points than one update reads: update again soon."""
        self.x: Limits | None = None
        self._y: dict[tuple[str, bool], Limits] = {}
        self._settled_for: tuple[object, ...] = ()

    # ---- curves ----

    def update(
        self, paths: Sequence[str], keys: Sequence[str], shown: Sequence[str], others: Sequence[str] = ()
    ) -> None:
        """Read new points: all metrics of the current attempt; of earlier ones and of other runs, the visible metrics
        and the first one, which gives their extent. Forget all other curves."""
        own = paths[: max(1, ATTEMPTS_AT_MOST - len(others))]
        self.paths, self.own, self.keys = (*own, *others)[:ATTEMPTS_AT_MOST], len(own), tuple(keys)
        for path in (*reversed(own), *others):  # the oldest attempt first: the next one changes no colour
            used = [self.colours[one] for one in self.paths if one in self.colours]
            self.colours.setdefault(path, min(range(ATTEMPTS_AT_MOST), key=used.count))
        self.copies.keep(self.paths, self.keys)
        self.is_behind, left = False, FRESH_AT_MOST
        # First the curves that the limits of x come from, then those in sight.
        leads = [(path, key) for path in self.paths for key in self.keys[:1]]
        in_sight = [(path, key) for path in self.paths for key in shown]
        rest = [(path, key) for path in self.paths[:1] for key in self.keys]
        for path, key in dict.fromkeys((*leads, *in_sight, *rest)):
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
        other = view.whole()._replace(by_time=not view.by_time)
        if view.cursor is not None:
            other = other._replace(cursor=self._crossed(view, view.cursor))
        extent = self.extent(view)
        part = () if extent is None or view.width is None else window(view, extent, self.lead)
        ends = [end for at in part if (end := self._crossed(view, at)) is not None]
        if len(ends) < 2 or ends[0] >= ends[1]:
            return other
        return other._replace(width=ends[1] - ends[0], end=None if view.end is None else ends[1])

    def _crossed(self, view: View, at: float) -> float | None:
        """The step of a time, or the time of a step, in the newest attempt that covers it."""
        for path in self._shown(view):
            copy = self.copies.known(path, self.keys[0])
            xs = copy.xs(by_time=view.by_time)
            if xs and xs[0] <= at <= xs[-1]:
                return copy.crossed(at, by_time=view.by_time)
        return None

    def marks(self, *, by_time: bool) -> Marks:
        """The marks of restarts, saves and the moment. Each attempt but the oldest began with a restart."""
        own = [[self.current(key) for key in self.keys]]
        own += [[self.copies.known(path, self.keys[0])] for path in self.paths[1 : self.own]]
        limits = [reach(copies, by_time=by_time) for copies in own[: self.own - 1]]
        saved = [save[by_time] for save in self.saves]
        moment = self.moment if by_time or self.moment is None else self.lead.crossed(self.moment, by_time=True)
        return Marks(
            tuple(one.low for one in limits if one is not None), tuple(at for at in saved if at is not None),
            () if moment is None else (moment,),
        )  # fmt: skip

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
            names = [labels(keys, max(8, cell.width - BESIDE_NAME)) for cell in row]
            pictures = [
                self._picture(key, name[key].rstrip(), view, x, cell, plain=plain)
                for cell, name, key in zip(row, names, left, strict=False)
            ]
            lines += side_by_side(pictures)
        return lines

    def _picture(
        self, key: str, name: str, view: View, x: Limits, cell: ChartCell, *, plain: bool
    ) -> list[tuple[Span, ...]]:
        frame = frame_of(x, cell.width, plain=plain)
        curves = tuple(self._curves(key, view, frame))
        copy = self.current(key)
        y, log = self._limits(key, view, curves)
        note = "" if log == view.log or not curves else "no log axis: no value is above zero"
        if not curves and not self.is_behind:
            known = any(len(self.copies.known(path, key)) for path in self.paths)
            unknown = "not read yet" if key in self.names else "nothing was logged under this name"
            note = "nothing in this window" if known else unknown
        restarts, saves, moments = self.marks(by_time=view.by_time)
        last = copy.values[-1] if len(copy) else None
        values, style = self._under_cursor(key, view, curves), f"curve{self.colours.get(self.paths[0], 0)}"
        chart = Chart(
            title=title(name, last, change(copy), note, cell.width, values, style), frame=frame, y=y, log=log,
            curves=curves, cursor=view.cursor, is_cut=view.settled,
            x_ticks=x_ticks(x, cell.width, by_time=view.by_time),
            y_ticks=ticks(y, max(2, cell.height // TICK_HEIGHT), log=log), restarts=restarts, saves=saves,
            moments=moments,
        )  # fmt: skip
        return picture(chart, cell.width, cell.height, plain=plain, labelled=cell.labelled)

    def cursor_place(self, view: View) -> tuple[str, ...]:
        """The step and the time of the cursor, as far as they are known; empty without one."""
        if view.cursor is None:
            return ()
        other = self._crossed(view, view.cursor)
        step, at = (other, view.cursor) if view.by_time else (view.cursor, other)
        return (("" if step is None else f"step {int(step):,}"), ("" if not at else clock(at, 1.0)))

    def _under_cursor(self, key: str, view: View, curves: Sequence[CurveLine]) -> list[Span]:
        """The values of the curves there, each with its letter, the current one first; none of those that ended, and
        none of a run that has not come so far."""
        if view.cursor is None or not curves:
            return []
        found = []
        own = reach([self.current(one) for one in self.keys], by_time=view.by_time)
        for path, letter in zip(self._shown(view), ("", *BEFORE), strict=False):
            copy = self.copies.known(path, key)
            value = copy.value_at(view.cursor, view.weight, by_time=view.by_time)
            if not letter or (value is not None and view.cursor <= copy.xs(by_time=view.by_time)[-1]):
                is_reached = bool(letter) or (own is not None and view.cursor <= own.high)
                text = number(value) if value is not None and is_reached else "-"
                found.append(Span(f"{letter} {text}".strip(), f"curve{self.colours[path]}"))
        return found

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
            xs, ys = copy.xs(by_time=view.by_time), copy.ys(weight)
            made = copy.columns.setdefault(weight, Columns()).of(xs, ys, frame, copy.version, along=view.by_time)
            start = xs[0] + START * (xs[-1] - xs[0]) if xs else 0.0
            settled = 0 if start <= frame.low else frame.column_of(start)
            lines.append(CurveLine(made, role, letter, self.colours.get(path, 0), settled))
        return [line for line in lines if any(line.columns)]

    def _limits(self, key: str, view: View, curves: Sequence[CurveLine]) -> tuple[Limits, bool]:
        """The limits of y, and whether the axis is logarithmic: without a value above zero it is not."""
        fitted = [column for curve in curves for column in curve.columns[curve.settled if view.settled else 0 :]]
        drawn = [column for column in fitted if column is not None and column.is_drawn]
        log = view.log and any(column.high > LEAST_LOG for column in drawn)
        if not drawn:
            return self._y.get((key, False), Limits(0.0, 1.0)), False
        high = max(column.high for column in drawn)
        low = min(lowest(column) for column in drawn if column.high > LEAST_LOG) if log else min(c.low for c in drawn)
        limits = settled(self._y.get((key, log)), low, high, parts=Y_PARTS, spare=Y_SPARE, log=log)
        self._y[key, log] = limits
        return limits, log


def lowest(column: Column) -> float:
    """The lowest known value of a column that a log axis can show."""
    return min(value for value in (column.low, column.last, column.high) if value > LEAST_LOG)


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
