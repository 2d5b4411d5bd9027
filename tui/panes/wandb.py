"""`6 Charts`: the curves of the selected run, their latest values, and the state of their source."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace
from textual.app import ComposeResult
from textual.containers import Container

from trainmon.analysis.wandb import client_file
from trainmon.analysis.wandb.metric_names import role_of
from trainmon.lib import clean, counted, natural_key
from trainmon.model import Run, State, Wandb
from tui.backend import Backend
from tui.charts.axes import Limits
from tui.charts.chart import ChartGrid, Charts, View, chart_cells, layout, legend
from tui.charts.values import file_notes, head, notes, rows, setting_rows, source_spans, trouble, why_nothing
from tui.keys import KEYS, bindings
from tui.panes.base import FollowingPane
from tui.style import Row, Span, width_of
from tui.views.alert_detail import Moment, moment_of_curve
from tui.views.table import Column, Value, filtered
from tui.widgets import GUTTER, KeyedLines, Picture


class ChartsView(Picture, can_focus=True):
    """The charts themselves. Without a visible table they have the focus, and keys move the hidden cursor."""

    BINDINGS = bindings("list", "moves")

    def __init__(self, table: KeyedLines, turn: Callable[[float], None]) -> None:
        super().__init__()
        self.table = table
        for name in (f"action_{key.action.partition('(')[0]}" for key in KEYS if key.scope in ("list", "moves")):
            setattr(self, name, getattr(table, name))
        self.action_page = turn

    def on_click(self) -> None:
        (self if self.can_focus else self.table).focus()


NO_CHARTS, NO_MORE = "no charts are shown", "there is nothing more to show"

NAME: Column[str, None] = Column("metric", lambda key, _: (clean(key),))
ROW: Column[Row, None] = Column("setting", lambda row, _: (clean(row.key),))
"""What a filter looks at."""

SYSTEM = "system/"
"""How the names of the machine's metrics begin: they come last."""


class WandbPane(FollowingPane):
    """A frame around charts and a table. It follows the run that is selected."""

    NUMBER = "6"
    NAME = "Charts"
    TAKES_ALL = True
    BINDINGS = bindings("wandb")
    DEFAULT_CSS = """
    WandbPane {
        & > #wandb-body { height: 1fr; width: 1fr; layout: horizontal; }
        & > #wandb-body { border-left: solid $rule; border-right: solid $rule; }
        &:focus-within > #wandb-body { border-left: solid $primary; border-right: solid $primary; }
        & > #wandb-body.below { layout: vertical; }
        & ChartsView { width: 1fr; height: 1fr; }
        & #wandb-table { width: 1fr; height: 1fr; }
        & .beside #wandb-table { border-left: solid $rule; padding-left: 0; }
    }
    """

    def __init__(self, backend: Backend, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.backend = backend
        self.charts = Charts(backend.curve)
        self.view = View()
        self.lines = KeyedLines(id="wandb-table")
        self.body = ChartsView(self.lines, self._turn)
        self.box = Container(id="wandb-body")
        self.brief = False
        """Whether only loss and throughput are shown, above other panes, without a cursor."""
        self.alone = False
        """Whether only the chart of the value under the cursor is shown."""
        self.lists_settings = False
        """Whether the settings and latest values of its W&B run take the place of the charts."""
        self.marked: Callable[[], Sequence[str]] = list
        """Names the runs that are drawn beside it."""
        self._metrics: tuple[str, ...] = ()
        """The metrics that the filter shows."""
        self._beside: dict[str, str] = {}
        """The names of the runs that are drawn beside it, by the paths of their curves."""
        self._drawn: tuple[object, ...] = ()
        self._pictures: list[tuple[Span, ...]] = []
        self._shape = ChartGrid("none", 0, 0, 0)

    def compose(self) -> ComposeResult:
        yield self.top
        yield self.heads
        with self.box:
            yield self.body
            yield self.lines
        yield self.bottom

    # ---- the frame ----

    @property
    def width(self) -> int:
        return self.box.content_size.width

    def focus_body(self) -> None:
        self.screen.set_focus(self.lines if self.lines.display else self.body)

    def restart(self) -> None:
        self.view, self.alone, self.lists_settings = self.view.whole()._replace(cursor=None), False, False
        self.lines.set_rows(())  # else the cursor, and the charts with it, stay with a name that both runs have
        self.lines.choose_first()

    def copy_text(self) -> str | None:
        """The address of its page."""
        return self.page

    def table(self) -> Iterator[Sequence[Value]]:
        """The points of the metric under the cursor; nothing for a setting, or a value without a curve."""
        key = self.lines.cursor_key or ""
        curve = self.charts.current(key)
        if curve.steps:
            yield "step", "time", key
            yield from zip(curve.steps, curve.times, curve.values, strict=True)

    # ---- drawing ----

    def draw(self, state: State, width: int) -> None:
        run = state.runs.get(self.run or "")
        problem = trouble(state.sources.get(f"wandb:{self.run}"))
        wandb = None if run is None else client_file.shown(run, is_failing=problem is not None)
        if self.brief:
            wandb = wandb and replace(wandb, keys=loss_and_throughput(wandb.keys), names=())
        sentences = why_nothing(run, self.run, problem)
        self._metrics = () if wandb is None else tuple(filtered(all_metrics(wandb), self.filter, (NAME,), None))
        if not (self._metrics or sentences or self.lists_settings):
            sentences = [(f"No metric matches “{self.filter}”. Esc shows all.", "dim")]
        if run is None or wandb is None or sentences:
            self.show_sentences(*sentences, caption=clean(self.run or ""))
            return
        height = self.box.content_size.height
        shape = ChartGrid("none", 0, width, height) if self.brief else layout(width, height)
        is_beside = shape.table == "beside" and not self.lists_settings
        space = shape.width if is_beside else width - 1
        phase = source_spans(run, wandb, state.at, space, is_failing=problem is not None)
        gap = Span(" " * (space + 1 - width_of(phase)))
        self.head(*phase, *((gap, *head(table_width(shape))) if is_beside else ()))
        if self.lists_settings and wandb.current is not None:
            listed = filtered(list(setting_rows(wandb.current, width - GUTTER - 1)), self.filter, (ROW,), None)
            self._hide_charts()
            self.show_rows(listed, "setting")
            self._draw_frame(run, wandb)
            return
        self._arrange(shape)
        file = client_file.file_of(run, wandb)
        more = () if file is None else file_notes(run, file, run.wandb, state.at)
        over = notes(run.wandb or Wandb(), problem, state.at, shape.width - 2, more)[: shape.height // 3]
        self._shape = shape._replace(width=shape.width - GUTTER, height=shape.height - len(over))
        self._draw_charts(run, wandb, {} if self.brief else self._others(state))
        self.body.set_lines([(Span(" " * GUTTER), *line) for line in (*over, *self._pictures)])
        self._draw_frame(run, wandb)

    def show_message(self, *sentences: tuple[str, str]) -> None:
        """Sentences take the place of charts and table."""
        self._hide_charts()
        width = max(8, self.width - 3)
        super().show_message(*((line, style) for text, style in sentences for line in textwrap.wrap(text, width)))

    def _hide_charts(self) -> None:
        """Let the rows take all the space."""
        self._drawn = ()
        self._arrange(ChartGrid("below", 0, 0, 0))
        self.body.display = False

    def _arrange(self, shape: ChartGrid) -> None:
        """Put the table beside the charts, below them, or away."""
        if not self.body.display or (shape.table == "none") == self.lines.display:
            had_focus = self.has_focus_within
            self.body.display, self.lines.display = True, shape.table != "none"
            self.body.can_focus = shape.table == "none" and not self.brief  # Tab goes from pane to pane
            if had_focus:
                self.focus_body()
        self.box.set_class(shape.table == "below", "below")
        self.box.set_class(shape.table == "beside", "beside")
        self.lines.styles.width = shape.table_size if shape.table == "beside" else "1fr"
        self.lines.styles.height = shape.table_size if shape.table == "below" and shape.table_size else "1fr"

    def _others(self, state: State) -> dict[str, Wandb]:
        """The marked runs that have curves, by their names."""
        runs = [state.runs[name] for name in self.marked() if name in state.runs and name != self.run]
        found = {run.name: client_file.shown(run, is_failing=False) for run in runs}
        return {name: wandb for name, wandb in found.items() if wandb is not None and wandb.current is not None}

    def _draw_charts(self, run: Run, wandb: Wandb, others: Mapping[str, Wandb]) -> None:
        """Draw what is new: a State comes every second or two, a point once in a while."""
        paths, shape, saved, keys = attempts(wandb), self._shape, saves(run), self._metrics
        self._beside = {one.current.path: clean(name) for name, one in others.items() if one.current is not None}
        pages, page = self._pages()
        points = (wandb.points, *(one.points for one in others.values()))
        drawn = (
            run.name, paths, tuple(self._beside), keys, points, self.view, shape, self.is_ascii, saved, self.alone, page
        )  # fmt: skip
        if drawn != self._drawn:
            self.backend.show_curves((run.name, *others), pages[page])
            self.charts.names = wandb.names
            self.charts.update(paths, keys, pages[page], tuple(self._beside))
            self.charts.saves = saved
            self._pictures = self.charts.draw(self.view, pages[page], shape.width, shape.height, plain=self.is_ascii)
            self._drawn = () if self.charts.is_behind else drawn
            if self.charts.is_behind:
                self._draw_later()
        summary = wandb.current.summary if wandb.current is not None else {}
        if self.filter:
            summary = {key: value for key, value in summary.items() if filtered([key], self.filter, (NAME,), None)}
        self.lines.set_rows(rows([(key, self.charts.current(key)) for key in keys], summary, table_width(shape)))

    def _draw_frame(self, run: Run, wandb: Wandb) -> None:
        """The frame: whose charts, how they are shown, and what the signs mean."""
        name = "" if wandb.current is None else clean(wandb.current.name)
        hits = f"{len(self._metrics)} of {len(all_metrics(wandb))}" if self.filter else ""
        pages, page = self._pages()
        place = f"page {page + 1} of {len(pages)}" if len(pages) > 1 else ""
        labels = ("settings and latest values",) if self.lists_settings else (hits, *self.view.labels(), place)
        self.caption("  ".join(dict.fromkeys(filter(None, (clean(run.name), name)))), *labels)
        if self.lists_settings:
            return
        named = {one.path: clean(one.name) or one.id for one in wandb.runs} | self._beside
        names = [named.get(path, "") if self.charts.has_curves(path) else "" for path in self.charts.paths[1:]]
        signs = legend(self.view, names, self.charts.marks(by_time=self.view.by_time), plain=self.is_ascii)
        left = len(self._beside.keys() - {*self.charts.paths}) if self.view.compare else 0
        undrawn = (f"not drawn: {counted(left, 'marked run')}",) if left else ()
        self.foot("  ".join((*self.charts.cursor_place(self.view), *undrawn, *signs)))

    def moment(self) -> Moment | None:
        """The point of the metric under the cursor that stands out most among those that are shown."""
        key, shown = self.lines.cursor_key, self.charts.x
        if key is None or shown is None or self.run is None:
            return None
        return moment_of_curve(self.run, key, self.charts.current(key).between(*shown, by_time=self.view.by_time))

    # ---- which charts ----

    def clear_filter(self) -> bool:
        """Esc also ends the cursor in the charts."""
        ends_cursor = self.body.display and self.view.cursor is not None
        if ends_cursor:
            self._change_view(self.view._replace(cursor=None))
        return ends_cursor or super().clear_filter()

    def _pages(self) -> tuple[list[tuple[str, ...]], int]:
        """The metrics in sets that fit, and the number of the set that has the value under the cursor."""
        shape, keys = self._shape, self._metrics
        fit = 1 if self.alone else sum(map(len, chart_cells(shape.width, shape.height, len(keys)))) or 1
        pages = [keys[start : start + fit] for start in range(0, len(keys), fit)]
        return pages, next((number for number, page in enumerate(pages) if self.lines.cursor_key in page), 0)

    def action_next_charts(self) -> None:
        """Put the cursor on the first value of the next set; its charts come with it. Behind the last set are the
        settings and latest values."""
        pages, page = self._pages()
        if not pages:
            self.say(NO_CHARTS)
            return
        shown = -1 if self.lists_settings else page
        self.lists_settings = shown == len(pages) - 1
        self.again()
        if not self.lists_settings:
            self.lines.move_to(pages[shown + 1][0])
            self.again()

    def _turn(self, by: float) -> None:
        """Put the cursor on the first value of the next set, or of the one before."""
        pages, page = self._pages()
        self.lines.move_to(pages[min(max(0, page + (1 if by > 0 else -1)), len(pages) - 1)][0])
        self.again()

    def on_keyed_lines_moved(self, event: KeyedLines.Moved) -> None:
        event.stop()
        self.again()

    def on_keyed_lines_chosen(self, event: KeyedLines.Chosen) -> None:
        event.stop()
        self.action_alone()

    # ---- keys ----

    def _change_view(self, view: View) -> None:
        if not self.body.display:
            self.say(NO_CHARTS)
        elif view == self.view:
            self.say(NO_MORE)
        else:
            self.view = view
        self.again()

    def action_alone(self) -> None:
        """The chart of the value under the cursor alone; again: back."""
        if self.lists_settings:
            self.say(NO_CHARTS)
        self.alone = not (self.alone or self.lists_settings)
        self.again()

    def action_log(self) -> None:
        self._change_view(self.view.other_y())

    def action_inspect(self) -> None:
        """A cursor at the end of the curves, whose values the titles show; again: none."""
        if self.view.cursor is None:
            self._in_window(partial(self.view.pointed, 0))
        else:
            self._change_view(self.view._replace(cursor=None))

    def action_axis(self) -> None:
        self._change_view(self.charts.on_other_axis(self.view))

    def action_range(self) -> None:
        self._change_view(self.view.other_span())

    def action_smooth(self) -> None:
        self._change_view(self.view.smoother())

    def action_compare(self) -> None:
        if self.body.display and len(self.charts.paths) < 2:
            self.say("no earlier attempt has curves")
        self._change_view(self.view._replace(compare=not self.view.compare))

    def action_whole(self) -> None:
        self._change_view(self.view.whole()._replace(span="all"))

    def action_zoom_in(self) -> None:
        self._in_window(self.view.closer)

    def action_zoom_out(self) -> None:
        self._in_window(lambda shown, data: self.view.farther(data))

    def action_pan(self, by: int) -> None:
        self._in_window(partial(self.view.moved if self.view.cursor is None else self.view.pointed, by))

    def _in_window(self, change: Callable[[Limits, Limits], View]) -> None:
        data, shown = self.charts.extent(self.view), self.charts.x
        if data is not None and shown is not None:
            self._change_view(change(shown, data))
        else:
            self.say(NO_CHARTS)


def loss_and_throughput(keys: tuple[str, ...]) -> tuple[str, ...]:
    """The first metric, which is the loss, and the first one that names a throughput."""
    return (*keys[:1], *[key for key in keys[1:] if role_of(key) == "throughput"][:1])


def table_width(shape: ChartGrid) -> int:
    """Cells of a row of the table: the cursor, the line beside it and the scroll bar take theirs."""
    return (shape.table_size - 1 if shape.table == "beside" else shape.width) - GUTTER - 1


def all_metrics(wandb: Wandb) -> tuple[str, ...]:
    """All metrics with curves: those that are charted unasked, the others by name, those of the machine."""
    others = sorted(wandb.names, key=lambda name: (name.startswith(SYSTEM), natural_key(name.lower())))
    return tuple(dict.fromkeys((*wandb.keys, *others)))


def attempts(wandb: Wandb) -> tuple[str, ...]:
    """The current run, others that are active beside it, and those before it."""
    current = wandb.current
    if current is None:
        return ()
    place = wandb.runs.index(current)
    others = (*(run for run in wandb.runs[:place] if run.id in wandb.active), *wandb.runs[place + 1 :])
    return tuple(run.path for run in (current, *others))


def saves(run: Run) -> tuple[tuple[float | None, float | None], ...]:
    """Step and time of every whole checkpoint."""
    whole = () if run.checkpoints is None else (one for one in run.checkpoints.list if one.is_whole)
    return tuple((None if one.step is None else float(one.step), one.at) for one in whole)
