"""A pane: a framed list that draws a State.

`show` is called with every published State while the pane is visible, and once when it becomes visible. It calls
`draw(state, width)`, which uses pure functions of `tui.views`. If `draw` raises, this pane shows the error and its age;
the other panes are not affected.
"""

from __future__ import annotations

import logging
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widget import Widget

from trainmon.lib import Instant, Seconds, cell_width, shorten, shorten_sentence
from trainmon.model import Run, State
from tui.backend import NOT_YET
from tui.keys import bindings
from tui.style import SENTENCE, Row, Span, since
from tui.themes import Ascii
from tui.views.actions import Kind, Subject
from tui.views.alert_detail import Moment
from tui.views.alerts import alerts_about_subjects
from tui.views.table import Column, Value, completions, filtered, ordered, parse_filter, sort_text
from tui.widgets import Heading, KeyedLines, SpanLine

log = logging.getLogger(__name__)

FRAME = 3
"""Lines of a pane without rows: its title, its heads and its bottom."""

SHRINK_AFTER: Seconds = 10.0
"""How long a pane must have fewer rows before it gets less room."""


MANY, CALM = 50, 1.2
"""A list of more rows keeps its State for two updates of about a second, unless a person waits: that costs half."""

Entries = tuple[Sequence[Any], Any]


class Pane(Vertical):
    """A numbered frame: a title line, a line of column heads, and the rows."""

    BINDINGS = bindings("marks")

    NUMBER: ClassVar[str] = ""
    NAME: ClassVar[str] = ""
    ORDER: ClassVar[str] = ""
    """The name of the order that its rows have by themselves."""
    FIELDS: ClassVar[tuple[Column[Any, Any], ...]] = ()
    """What its rows are filtered and sorted by."""
    COLUMNS: ClassVar[tuple[Column[Any, Any], ...]] = ()
    """The columns of its own. A person may choose any of its fields as a column."""
    KIND: ClassVar[Kind | None] = None
    """The kind of its rows, if actions apply to them. Such rows can be marked."""

    @dataclass
    class Selected(Message):
        """The cursor is on another key. The pane sends it: Textual stops messages that a parent's own draw caused."""

        pane: Pane
        key: str | None

    class Resized(Message):
        """It needs another height for its rows."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.lines = KeyedLines()
        self.heads = Heading()
        self.top = Edge()
        self.bottom = Edge()
        self.filter = ""
        self.chosen: dict[str, tuple[str, ...]] = {}
        """The columns that a person chose, by their fields, of each table (see `table_name`) of all panes."""
        self.sort = self.ORDER
        """The name of a field or ORDER; behind a `-`, in the other direction."""
        self.state = NOT_YET
        self.hint = ""
        """The panes that are hidden, at the end of its title where there is room."""
        self.in_sight = False
        self.needed = 0.0
        """The lines that show all its rows, with its frame. A filter changes nothing of it."""
        self._needed_at: Instant = 0.0
        self.wanted = 0
        """How many rows it needs, where it shows others too if it has room, or fewer; 0: those that it shows."""
        self.failed_at: Instant | None = None
        self._drawing = False
        self._foot = ("", "dim")

    def compose(self) -> ComposeResult:
        yield from (self.top, self.heads, self.lines, self.bottom)

    def on_mount(self) -> None:
        # the scroll bar appears after the rows are laid out, and takes a cell of each
        self.watch(self.lines, "show_vertical_scrollbar", self._draw_later, init=False)

    def _draw_later(self) -> None:
        self.call_after_refresh(self.again)

    # ---- what a pane defines ----

    TAKES_ALL: ClassVar[bool] = False
    """Whether it can use any height: a log, charts."""

    def draw(self, state: State, width: int) -> None:
        """Draw the State: `self.lines.set_rows`, `self.head`, `self.caption`. The pane shows an exception."""
        raise NotImplementedError

    @property
    def fields(self) -> tuple[Column[Any, Any], ...]:
        """What the rows that it shows now are filtered and sorted by."""
        return self.FIELDS

    @property
    def table_name(self) -> str:
        """The table that it shows now."""
        return self.NUMBER

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of the columns that a person chose; empty: the usual ones."""
        return self.chosen.get(self.table_name, ())

    @property
    def usual(self) -> tuple[str, ...]:
        """The fields of its own columns."""
        return tuple(column.name for column in self.COLUMNS if column.name)

    @property
    def orders(self) -> list[str]:
        """The names of the orders of its rows."""
        return [self.ORDER, *(field.name for field in self.fields)]

    def entries(self, state: State) -> Entries:
        """What its fields read: all entries, whatever the filter, and their context."""
        return (), None

    def table(self) -> Iterator[Sequence[Value]]:
        """What is exported: the names of the fields, and the values of each entry that the filter shows; of a pane
        without fields, the cells of its rows."""
        if not self.fields:
            yield from (re.split(r"\s{2,}", row.text.strip()) for row in self.lines.rows)
            return
        entries, context = self.entries(self.state)
        yield [field.name for field in self.fields]
        for entry in ordered(filtered(entries, self.filter, self.fields, context), self.sort, self.fields, context):
            found = ([*field.values(entry, context)] for field in self.fields)
            yield [one[0] if len(one) == 1 else several_text(one) for one in found]

    def footnote(self, state: State) -> tuple[str, str] | None:
        """The sentence about the selected row in the bottom of the frame, with its style; None leaves it as it is."""
        return None

    def copy_text(self) -> str | None:
        """What `y` copies: a name, a path, a line."""
        return self.selected

    @property
    def page(self) -> str | None:
        """The URL that `b` opens: the page of its W&B run."""
        return None

    def subject_of(self, key: str) -> Subject | None:
        """The subject of the row of this key; None if no action applies to it."""
        return None if self.KIND is None or key.startswith(SENTENCE) else (self.KIND, key)

    def subjects(self) -> tuple[Subject, ...]:
        """The subjects of actions: the marked rows, or else the row under the cursor."""
        keys = self.lines.marks() or ([] if self.selected is None else [self.selected])
        return tuple(subject for subject in map(self.subject_of, keys) if subject is not None)

    LISTS_ALERTS: ClassVar[bool] = False
    """Whether its rows are alerts. `a` then never means the worst alert of all."""

    def alerts(self) -> tuple[str, ...]:
        """The ids of the alerts that `a` and `m` apply to: those of the selected runs, jobs and nodes."""
        return alerts_about_subjects(self.state, self.subjects())

    def silence(self) -> str | None:
        """The id of the silence under the cursor, in the pane that lists silences."""
        return None

    def moment(self) -> Moment | None:
        """The time of the selected alert or spike, which `o` opens."""
        return None

    def is_markable(self, key: str) -> bool:
        """Whether `Space` may mark this row."""
        return self.subject_of(key) is not None

    def still_is(self, key: str, state: State) -> bool:
        """Whether the subject of a marked row still exists. A row that a filter hides keeps its mark."""
        kind, name = self.subject_of(key) or (None, "")
        if kind == "node":
            return name in state.nodes or name in state.scheduler_nodes or f"node:{name}" in state.sources
        return name in (state.runs if kind == "run" else state.jobs if kind == "job" else ())

    def action_toggle_mark(self) -> None:
        if self.selected is not None and self.is_markable(self.selected):
            self.lines.action_toggle_mark()
            self.again()
        else:
            self.say("nothing here can be marked")

    def say(self, text: str) -> None:
        """Say why a key did nothing."""
        self.app.notify(text, timeout=4, markup=False)

    def unmark(self) -> None:
        """Remove the marks after an action."""
        self.lines.keep_marks(lambda _: False)
        self.again()

    def focus_body(self) -> None:
        """Focus the list of this pane at once: the next key may already be queued."""
        self.screen.set_focus(self.lines)

    # ---- the frame ----

    @property
    def width(self) -> int:
        """The cells of a row; 0 before the first layout."""
        return self.lines.row_width

    @property
    def is_ascii(self) -> bool:
        """Whether the terminal shows only ASCII."""
        return any(isinstance(found, Ascii) for found in self.app.get_line_filters())

    def head(self, *spans: Span) -> None:
        """The line of column heads."""
        self.heads.set_spans(spans)

    def caption(self, left: str = "", *right: str) -> None:
        """The top of the frame: number and name, then `left`; `right` at its end, of which the last give way."""
        marked, hidden = len(self.lines.marked), len(self.lines.marked) - self.lines.marks_in_sight
        notes = (
            f"{marked} marked" + (f", {hidden} of them hidden" if hidden else "") if marked else "",
            f"/{self.filter}" if self.filter else "",
            self._hits(),
            *right,
            f"sort {sort_text(self.sort, self.fields)}" if self.fields else "",
        )
        shown, width = [note for note in notes if note], self.top.size.width
        if self.hint and cell_width(f"{self.NUMBER} {self.NAME} {left} ─ {self.hint} {'  '.join(shown)}") <= width - 8:
            left = f"{left} ─ {self.hint}".strip()
        while len(shown) > 1 and cell_width(f"{self.NUMBER} {self.NAME} {left} {'  '.join(shown)}") > width - 8:
            shown.pop()
        self.top.set_spans(title_spans(self.NUMBER, self.NAME, left, "  ".join(shown), width))

    def _hits(self) -> str:
        """`3 of 17`: how many entries match the filter."""
        if not self.filter or not self.fields:
            return ""
        entries, context = self.entries(self.state)
        return f"{len(filtered(entries, self.filter, self.fields, context))} of {len(entries)}"

    def foot(self, text: str = "", style: str = "dim") -> None:
        """The bottom of the frame: a sentence about the selected row, or nothing."""
        self._foot = (text, style)
        if not self._drawing:
            self.bottom.set_spans(foot_spans(text, style, self.bottom.size.width))

    def _draw_footnote(self) -> None:
        note = self.footnote(self.state)
        if self.fields and (problem := parse_filter(self.filter, self.fields).problem):
            note = f"filter not used: {problem}", "warn"
        if note is not None:
            self.foot(*note)

    def show_sentences(self, *sentences: tuple[str, str], caption: str = "") -> None:
        """Show sentences, each with its style, in place of the heads and the rows."""
        self.head()
        self.caption(caption)
        self.show_message(*sentences)

    def show_message(self, *sentences: tuple[str, str]) -> None:
        """Show sentences in place of the rows, each on as many lines as it needs."""
        width = max(16, self.width)
        texts = [(Span(line, style),) for text, style in sentences for line in textwrap.wrap(text, width) or [""]]
        self.lines.set_rows([Row(f"{SENTENCE}{n}", spans) for n, spans in enumerate(texts)])

    def show_rows(self, rows: Sequence[Row], noun: str, none: str = "") -> None:
        """Show the rows that match the filter, or that none does; without a filter, that there is none."""
        if rows:
            self.lines.set_rows(rows)
        else:
            self.show_message((f"No {noun} matches “{self.filter}”. Esc shows all." if self.filter else none, "dim"))

    def can_wait(self, state: State) -> bool:
        """Whether the next State is early enough to be drawn."""
        return self.in_sight and len(self.lines.rows) > MANY and 0 <= state.at - self.state.at < CALM

    def show(self, state: State) -> None:
        """Take a new State, and draw it if the pane is visible."""
        self.state = state
        if not self.in_sight or self.width <= 0:
            return
        self._drawing, self._foot = True, ("", "dim")
        self.lines.keep_marks(lambda key: self.still_is(key, state))
        try:
            self.draw(state, self.width)
            self._draw_footnote()
        except Exception as error:
            if self.failed_at is None:
                self.failed_at = state.at
                log.exception("pane %s failed", self.NAME)
            self.head()
            self.caption("", f"failed {since(self.failed_at, state.at)} ago")
            self.show_message(
                (
                    "This pane cannot be drawn. The program tries again at each update. The other panes still work.",
                    "warn",
                ),
                (f"{type(error).__name__}: {error}", "dim"),
            )
        else:
            self.failed_at = None
        finally:
            self._note_need(state.at)
            self._drawing = False
            self.foot(*self._foot)

    def _note_need(self, now: Instant) -> None:
        """More rows count at once, fewer only after a while: the panes must not move with each alert."""
        needed = inf if self.TAKES_ALL else (self.wanted or len(self.lines.rows)) + FRAME
        if not self.filter and (needed >= self.needed or not 0 <= now - self._needed_at < SHRINK_AFTER):
            if needed != self.needed:
                self.post_message(self.Resized())
            self.needed, self._needed_at = needed, now

    def again(self) -> None:
        """Draw the current State again, after a key changed the view."""
        if self.state is not NOT_YET:
            self.show(self.state)

    def set_filter(self, text: str) -> None:
        self.filter = text
        self.again()

    def clear_filter(self) -> bool:
        """Show everything; False: it is shown already."""
        had_filter = bool(self.filter)
        if had_filter:
            self.set_filter("")
        return had_filter

    def set_sort(self, sort: str) -> None:
        self.sort = sort
        self.again()

    def set_columns(self, columns: tuple[str, ...]) -> None:
        self.chosen[self.table_name] = columns
        self.again()

    def completions(self, typed: str) -> Sequence[str]:
        """What a filter may become."""
        entries, context = self.entries(self.state)
        return [*completions(typed, entries, self.fields, context)]

    @property
    def selected(self) -> str | None:
        """The key under the cursor; None while the pane shows sentences."""
        key = self.lines.cursor_key
        return None if key is None or key.startswith(SENTENCE) else key

    def on_keyed_lines_moved(self, event: KeyedLines.Moved) -> None:
        event.stop()
        self._draw_footnote()
        self.post_message(self.Selected(self, self.selected))

    def on_keyed_lines_chosen(self, event: KeyedLines.Chosen) -> None:
        if event.key.startswith(SENTENCE):
            event.stop()

    def on_show(self) -> None:
        self.in_sight = True
        self.again()

    def on_hide(self) -> None:
        self.in_sight = False

    def on_resize(self, event: events.Resize) -> None:
        self.in_sight = bool(event.size.width and event.size.height)
        self._draw_later()


def several_text(values: Iterable[Value]) -> str:
    """The values of one cell of an exported table: the one that it is sorted by comes first."""
    return " ".join("?" if one is None else one if isinstance(one, str) else f"{round(one, 2):.15g}" for one in values)


class TablesPane(Pane):
    """A pane with several tables, of which it shows one at a time."""

    VIEWS: ClassVar[Mapping[str, tuple[Column[Any, Any], ...]]]
    """The fields of each; the first one is shown at first."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.view = next(iter(self.VIEWS))
        self._left: dict[str, str | None] = {}
        """The last selected row of each."""
        self._entered: str | None = None
        """The row that was selected when this table was entered."""

    @property
    def table_name(self) -> str:
        return self.NUMBER if self.fields is self.FIELDS else f"{self.NUMBER} {self.view}"

    @property
    def fields(self) -> tuple[Column[Any, Any], ...]:
        return self.VIEWS[self.view]

    def action_next_view(self, view: str | None = None) -> None:
        """Show a table, or else the next one. The cursor goes back to the last row there, unless a person has just
        selected a job that this table shows as well."""
        views, selected = [*self.VIEWS], self.selected or ""
        keeps_job = selected != self._entered and (self.subject_of(selected) or ("",))[0] == "job"
        self._left[self.view] = self.lines.chosen_key
        self.view = view or views[(views.index(self.view) + 1) % len(views)]
        self.again()
        last = self._left.get(self.view) or ""
        if not (keeps_job and self.lines.move_to(selected)) and not self.lines.move_to(last):
            self.lines.choose_first()
        self._entered = self.selected


class BodyPane(Pane):
    """A pane with something else than rows. Sentences take its place until `draw` shows it again."""

    body: Widget

    def compose(self) -> ComposeResult:
        yield from (self.top, self.heads, self.body, self.lines, self.bottom)

    @property
    def width(self) -> int:
        return max(self.body.size.width, self.lines.row_width)

    def on_mount(self) -> None:
        self.heads.display = self.lines.display = False

    def show_message(self, *sentences: tuple[str, str]) -> None:
        self.body.display, self.lines.display = False, True
        super().show_message(*sentences)


class FollowingPane(Pane):
    """A pane about a run that is selected elsewhere."""

    run: str | None = None
    """Its name."""

    @property
    def followed(self) -> Run | None:
        """The run; None if none is selected, or if it is no longer watched."""
        return self.state.runs.get(self.run or "")

    def follow_run(self, name: str | None) -> None:
        """Show this run from now on."""
        if name != self.run:
            self.run = name
            self.restart()
            self.again()

    def restart(self) -> None:
        """Forget what belongs to the run before."""

    def subjects(self) -> tuple[Subject, ...]:
        return () if self.run is None else (("run", self.run),)

    @property
    def page(self) -> str | None:
        """The URL of the page of its current W&B run."""
        wandb = None if self.followed is None else self.followed.wandb
        return None if wandb is None or wandb.current is None else wandb.current.url


class Edge(SpanLine):
    """The top or the bottom of a frame, with text."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"lines--rule", "lines--title"}
    DEFAULT_CSS = """
    Edge > .lines--rule { color: $rule; }
    Edge > .lines--title { text-style: bold; }
    """


def title_spans(number: str, name: str, left: str, right: str, width: int) -> tuple[Span, ...]:
    """The top of a frame, exactly `width` cells. The text at its right end is cut last."""
    head = f" {number} {name} " if number else f" {name} "
    space = max(0, width - 4 - cell_width(head))
    end = f" {right} " if right and cell_width(right) + 2 <= space else ""
    space -= cell_width(end)
    middle = f"{shorten(left, space - 3)} " if left and space > 8 else ""
    rule = "─" * max(0, space - cell_width(middle))
    return (
        Span("╭─", "rule"), Span(head, "title"), Span(middle), Span(rule, "rule"), Span(end, "dim"), Span("─╮", "rule"),
    )  # fmt: skip


def foot_spans(text: str, style: str, width: int) -> tuple[Span, ...]:
    """The bottom of a frame, exactly `width` cells."""
    title = f" {shorten_sentence(text, width - 6)} " if text and width > 12 else ""
    return (Span("╰─", "rule"), Span(title, style), Span("─" * max(0, width - 4 - cell_width(title)) + "─╯", "rule"))
