"""A pane: a framed list that draws a State, and that fails alone.

A pane draws with `draw(state, width)`, from pure `rows(state, now, width, …)` functions. `show` is called with every
State that is published while the pane can be seen, and once when it comes into sight; what `draw` raises is shown in
this pane, with its age, while the others go on.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message

from trainmon.clock import Instant
from trainmon.model import State
from tui.lines import KeyedLines, Row, Span

log = logging.getLogger(__name__)


class Pane(Vertical):
    """A numbered frame: a title line, a line of column heads, and the rows."""

    NUMBER: ClassVar[str] = ""
    NAME: ClassVar[str] = ""
    SORTS: ClassVar[tuple[str, ...]] = ()
    """What `s` offers; the first is how the pane starts."""

    class Changed(Message):
        """The pane's cursor, sort or filter changed: what depends on it should be drawn again."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.lines = KeyedLines()
        self.titles = Heading(classes="title")
        self.heads = Heading(classes="heads")
        self.filter = ""
        self.sort = self.SORTS[0] if self.SORTS else ""
        self.state: State | None = None
        self.in_sight = False
        self.failed_at: Instant | None = None

    def compose(self) -> ComposeResult:
        yield self.titles
        yield self.heads
        yield self.lines

    # ---- what a pane says of itself ----

    def draw(self, state: State, width: int) -> None:
        """Lay the state out: `self.lines.set_rows`, `self.head`, `self.caption`. May raise; then it fails alone."""
        raise NotImplementedError

    def copy_text(self) -> str | None:
        """What `y` copies: a name, a path, a line."""
        return self.lines.cursor_key

    # ---- what the frame does for it ----

    def head(self, *spans: Span) -> None:
        """The line of column heads."""
        self.heads.set(spans)

    def caption(self, left: str = "", right: str = "") -> None:
        """The title line: number and name come by themselves, `left` after them, `right` at its end."""
        notes = [f"/{self.filter}" if self.filter else "", right, f"sort {self.sort}" if len(self.SORTS) > 1 else ""]
        self.titles.set_title(self.NUMBER, self.NAME, left, "  ".join(note for note in notes if note))

    def show(self, state: State) -> None:
        """Take a new State; draw it if anybody can see it."""
        self.state = state
        if not self.in_sight or not self.lines.size.width:
            return
        try:
            self.draw(state, self.lines.size.width)
        except Exception as error:
            self._fail(error, state.at)
        else:
            self.failed_at = None

    def again(self) -> None:
        """Draw the State that is already here, after a key changed how."""
        if self.state is not None:
            self.show(self.state)

    def _fail(self, error: Exception, now: Instant) -> None:
        if self.failed_at is None:
            self.failed_at = now
            log.exception("pane %s failed", self.NAME)
        for_s = max(0, int(now - self.failed_at))
        self.head()
        self.caption(right=f"failed {for_s}s ago")
        self.lines.set_rows(
            [
                Row(
                    "failed",
                    (Span(" This pane cannot be drawn; the others go on. It is tried again by itself.", "warn"),),
                ),
                Row("failed-why", (Span(f" {type(error).__name__}: {error}"[: self.lines.size.width], "dim"),)),
            ]
        )

    def set_filter(self, text: str) -> None:
        self.filter = text
        self.again()
        self.post_message(self.Changed())

    def set_sort(self, sort: str) -> None:
        self.sort = sort
        self.again()
        self.post_message(self.Changed())

    def on_show(self) -> None:
        self.in_sight = True
        self.again()

    def on_hide(self) -> None:
        self.in_sight = False

    def on_resize(self, event: events.Resize) -> None:
        self.in_sight = bool(event.size.width and event.size.height)
        self.call_after_refresh(self.again)


class Heading(KeyedLines, can_focus=False):
    """One line that is drawn like the rows: only the cells that changed."""

    def set(self, spans: Sequence[Span]) -> None:
        self.set_rows([Row("", tuple(spans))])

    def set_title(self, number: str, name: str, left: str, right: str) -> None:
        """`╭─ 1 Runs ─ left ──────────── right ─╮`, cut to the width: left gives way first."""
        self.set(title_spans(number, name, left, right, self.size.width))


def title_spans(number: str, name: str, left: str, right: str, width: int) -> tuple[Span, ...]:
    """The top of a frame, exactly `width` cells."""
    room = max(0, width - 4)
    head = f" {number} {name} " if number else f" {name} "
    room -= cell_len(head)
    end = f" {right} " if right and cell_len(right) + 2 <= room else ""
    room -= cell_len(end)
    middle = f" {crop(left, room - 3)} " if left and room > 8 else ""
    rule = "─" * max(0, room - cell_len(middle))
    return (
        Span("╭─", "rule"),
        Span(head, "title"),
        Span(middle, "dim"),
        Span(rule, "rule"),
        Span(end, "dim"),
        Span("─╮", "rule"),
    )


def crop(text: str, width: int) -> str:
    """At most `width` cells; the end gives way, and says so."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(0, width - 1)).rstrip() + "…" if width > 0 else ""
