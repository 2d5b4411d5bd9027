"""A pane: a framed list that draws a State, and that fails alone.

A pane draws with `draw(state, width)`, from pure `rows(state, now, width, …)` functions. `show` is called with every
State that is published while the pane can be seen, and once when it comes into sight; what `draw` raises is shown in
this pane, with its age, while the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from trainmon.lib import Instant, cell_width, shorten
from trainmon.model import State
from tui.keys import bindings
from tui.style import Span
from tui.views import Kind, Subject
from tui.views.alerts import about_subjects
from tui.widgets import SENTENCE, STYLE_CSS, STYLES, Heading, KeyedLines, Row, SpanStyles, changed_columns

log = logging.getLogger(__name__)


class Pane(Vertical):
    """A numbered frame: a title line, a line of column heads, and the rows."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings("marks")]

    NUMBER: ClassVar[str] = ""
    NAME: ClassVar[str] = ""
    SORTS: ClassVar[tuple[str, ...]] = ()
    """What `s` offers; the first is how the pane starts."""
    KIND: ClassVar[Kind | None] = None
    """What its rows are about, where something can be done to them: they can then be marked."""

    class Selected(Message):
        """The cursor is on another key. Sent by the pane itself: Textual stops what a parent's own draw has set off."""

        def __init__(self, pane: Pane, key: str | None) -> None:
            super().__init__()
            self.pane = pane
            self.key = key

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.lines = KeyedLines()
        self.heads = Heading()
        self.top = Edge()
        self.bottom = Edge()
        self.filter = ""
        self.sort = self.SORTS[0] if self.SORTS else ""
        self.state: State | None = None
        self.in_sight = False
        self.failed_at: Instant | None = None
        self._drawing = False
        self._foot = ("", "dim")

    def compose(self) -> ComposeResult:
        yield self.top
        yield self.heads
        yield self.lines
        yield self.bottom

    def on_mount(self) -> None:
        self.watch(self.lines, "show_vertical_scrollbar", self._fit_scroll_bar, init=False)

    def _fit_scroll_bar(self) -> None:
        """It takes a cell of every row, and comes only when they are laid out."""
        self.call_after_refresh(self.again)

    # ---- what a pane says of itself ----

    def draw(self, state: State, width: int) -> None:
        """Lay the state out: `self.lines.set_rows`, `self.head`, `self.caption`. May raise; then it fails alone."""
        raise NotImplementedError

    def footnote(self, state: State) -> tuple[str, str] | None:
        """The sentence about the selected row in the bottom of the frame, with its style; None leaves it as it is."""
        return None

    def copy_text(self) -> str | None:
        """What `y` copies: a name, a path, a line."""
        return self.selected

    @property
    def page(self) -> str | None:
        """The address that `b` opens: of the W&B run that it is about."""
        return None

    def subject_of(self, key: str) -> Subject | None:
        """What the row of this key is about; None where nothing can be done to it."""
        return None if self.KIND is None or key.startswith(SENTENCE) else (self.KIND, key)

    def subjects(self) -> tuple[Subject, ...]:
        """What a key that acts means now: the marked rows, else the row under the cursor."""
        keys = self.lines.marks() or ([] if self.selected is None else [self.selected])
        return tuple(subject for subject in map(self.subject_of, keys) if subject is not None)

    LISTS_ALERTS: ClassVar[bool] = False
    """Whether its rows are alerts: `a` then means these, and never the worst of all."""

    def alerts(self) -> tuple[str, ...]:
        """The ids of the alerts that a key means now: here, of the runs, jobs and nodes that are meant."""
        if self.state is None:
            return ()
        return about_subjects(self.state, self.subjects())

    def silence(self) -> str | None:
        """The id of the silence under the cursor, in the pane that has some."""
        return None

    def is_markable(self, key: str) -> bool:
        """Whether `Space` may mark this row."""
        return self.subject_of(key) is not None

    def still_is(self, key: str, state: State) -> bool:
        """Whether what a marked row is about is still there."""
        return is_known(self.subject_of(key), state)

    def action_toggle_mark(self) -> None:
        if self.selected is not None and self.is_markable(self.selected):
            self.lines.action_toggle_mark()
            self.again()

    def unmark(self) -> None:
        """Take the marks away, once they were acted on."""
        self.lines.clear_marks()
        self.again()

    def focus_body(self) -> None:
        """Give the focus to what moves in this pane, at once: the next key may already wait."""
        self.screen.set_focus(self.lines)

    # ---- what the frame does for it ----

    @property
    def width(self) -> int:
        """Cells that a row may take; 0 before the first layout."""
        return self.lines.row_width

    def head(self, *spans: Span) -> None:
        """The line of column heads."""
        self.heads.set_spans(spans)

    def caption(self, left: str = "", right: str = "") -> None:
        """The top of the frame: number and name come by themselves, `left` after them, `right` at its end."""
        order = f"sort {self.sort}" if len(self.SORTS) > 1 else ""
        notes = [self._marks_words(), f"/{self.filter}" if self.filter else "", right, order]
        notes = [note for note in notes if note]
        width = self.top.size.width
        while len(notes) > 1 and cell_width(f"{self.NUMBER} {self.NAME} {left} {'  '.join(notes)}") > width - 8:
            notes.pop()
        self.top.set_spans(title_spans(self.NUMBER, self.NAME, left, "  ".join(notes), width))

    def _marks_words(self) -> str:
        """`3 marked`; those that the filter hides are acted on as well, and must be said."""
        hidden = len(self.lines.marked) - self.lines.marks_in_sight
        also = f", {hidden} of them hidden" if hidden else ""
        return f"{len(self.lines.marked)} marked{also}" if self.lines.marked else ""

    def foot(self, text: str = "", style: str = "dim") -> None:
        """The bottom of the frame: a sentence about the selected row, or nothing."""
        self._foot = (text, style)
        if not self._drawing:
            self.bottom.set_spans(foot_spans(text, style, self.bottom.size.width))

    def _draw_footnote(self) -> None:
        note = None if self.state is None else self.footnote(self.state)
        if note is not None:
            self.foot(*note)

    def say(self, *sentences: tuple[str, str]) -> None:
        """Show sentences, each with its style, in place of the rows."""
        self.lines.set_rows(
            [
                Row(f"{SENTENCE}{n}", (Span(shorten(text, self.width), style),))
                for n, (text, style) in enumerate(sentences)
            ]
        )

    def show(self, state: State) -> None:
        """Take a new State; draw it if anybody can see it."""
        self.state = state
        if not self.in_sight or self.width <= 0:
            return
        self._drawing, self._foot = True, ("", "dim")
        self.lines.keep_marks(lambda key: self.still_is(key, state))
        try:
            self.draw(state, self.width)
            self._draw_footnote()
        except Exception as error:
            self._fail(error, state.at)
        else:
            self.failed_at = None
        finally:
            self._drawing = False
            self.foot(*self._foot)

    def again(self) -> None:
        """Draw the State that is already here, after a key changed how."""
        if self.state is not None:
            self.show(self.state)

    def _fail(self, error: Exception, now: Instant) -> None:
        if self.failed_at is None:
            self.failed_at = now
            log.exception("pane %s failed", self.NAME)
        self.head()
        self.caption(right=f"failed {max(0, int(now - self.failed_at))}s ago")
        self.say(
            ("This pane cannot be drawn. It is retried automatically; the other panes still work.", "warn"),
            (f"{type(error).__name__}: {error}", "dim"),
        )

    def set_filter(self, text: str) -> None:
        self.filter = text
        self.again()

    def set_sort(self, sort: str) -> None:
        self.sort = sort
        self.again()

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
        self.call_after_refresh(self.again)


def is_known(subject: Subject | None, state: State) -> bool:
    """Whether there still is such a thing: a mark goes with what it is on, and not with the row that a filter hides."""
    if subject is None:
        return False
    kind, key = subject
    if kind == "run":
        return key in state.runs
    if kind == "job":
        return key in state.jobs
    return key in state.nodes or key in state.scheduler_nodes or f"node:{key}" in state.sources


class Edge(Widget):
    """The top or the bottom of a frame, with words in it: only the cells that changed are painted."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"lines--{name}" for name in (*STYLES, "rule", "title")}
    DEFAULT_CSS = f"""
    Edge {{
        height: 1; width: 1fr; {STYLE_CSS}
        & > .lines--rule {{ color: $rule; }}
        & > .lines--title {{ text-style: bold; }}
    }}
    """
    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self.spans: tuple[Span, ...] = ()
        self._styles = SpanStyles(self)

    def set_spans(self, spans: Sequence[Span]) -> None:
        new = tuple(spans)
        columns = changed_columns(self.spans, new)
        self.spans = new
        if columns is not None:
            self.refresh(Region(columns[0], 0, columns[1] - columns[0], 1))

    def notify_style_update(self) -> None:
        self._styles.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        self._styles.is_outdated()
        return self._styles.strip(self.spans).crop_extend(0, self.size.width, self._styles.base)


def title_spans(number: str, name: str, left: str, right: str, width: int) -> tuple[Span, ...]:
    """The top of a frame, exactly `width` cells: the right end gives way last."""
    head = f" {number} {name} " if number else f" {name} "
    room = max(0, width - 4 - cell_width(head))
    end = f" {right} " if right and cell_width(right) + 2 <= room else ""
    room -= cell_width(end)
    middle = f"{shorten(left, room - 3)} " if left and room > 8 else ""
    rule = "─" * max(0, room - cell_width(middle))
    return (
        Span("╭─", "rule"), Span(head, "title"), Span(middle), Span(rule, "rule"), Span(end, "dim"), Span("─╮", "rule"),
    )  # fmt: skip


def foot_spans(text: str, style: str, width: int) -> tuple[Span, ...]:
    """The bottom of a frame, exactly `width` cells."""
    words = f" {shorten(text, width - 6)} " if text and width > 12 else ""
    return (Span("╰─", "rule"), Span(words, style), Span("─" * max(0, width - 4 - cell_width(words)) + "─╯", "rule"))
