"""A list of keyed rows: it repaints only changed cells, and its cursor stays with its key.

A table widget repaints itself for one changed cell (29 KiB/s over SSH; this list takes 0.2). Its cursor stays on a
position, so that a sort moves it to another job. Here a row is a value, and two rows are compared span by span.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from tui.keys import bindings
from tui.style import CURSOR, HEADING, MARKED, SENTENCE, Row, Span
from tui.widgets.spans import GUTTER, SpanStyles, changed_ranges


class Rows(Widget):
    """The keys that move through rows."""

    def move_by(self, rows: int) -> None:
        raise NotImplementedError

    def action_move(self, rows: int) -> None:
        self.move_by(rows)

    def action_page(self, pages: float) -> None:
        """One page, or half of one, down or up. A whole one keeps a row in sight."""
        height = self.scrollable_content_region.height
        rows = max(1, height // 2 if abs(pages) < 1 else height - 1)
        self.move_by(rows if pages > 0 else -rows)


class KeyedLines(ScrollView, Rows, can_focus=True, inherit_bindings=False):
    """Rows of spans with a cursor, marks, mouse and vi keys. The cursor belongs to a key, not to a position."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"lines--cursor"}
    DEFAULT_CSS = """
    KeyedLines {
        overflow-x: hidden;
        overflow-y: auto;
        scrollbar-size-vertical: 1;
        & > .lines--cursor { background: $foreground 7%; }
        &:focus > .lines--cursor { background: $primary 25%; }
        &:ansi > .lines--cursor { background: transparent; }
        &:ansi:focus > .lines--cursor { text-style: reverse; background: transparent; }
    }
    """
    ALLOW_SELECT = False
    BINDINGS = bindings("list", "moves")

    @dataclass
    class Moved(Message):
        """The cursor moved to another key: by a key press, the mouse, or because its row is gone."""

        key: str | None

    @dataclass
    class Chosen(Message):
        """Enter or a double click on a row."""

        lines: KeyedLines
        key: str

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self.rows: tuple[Row, ...] = ()
        self.cursor_key: str | None = None
        self.marked: frozenset[str] = frozenset()
        """The marked keys, with those whose rows are not shown: a filter removes no mark."""
        self._chosen_key: str | None = None
        """The row that a person chose. A filter may hide it."""
        self._placed_key: str | None = None
        """Where `set_rows` put the cursor."""
        self._positions: dict[str, int] = {}
        self._strips: dict[int, Strip] = {}
        self._styles = SpanStyles(self)

    # ---- rows ----------------------------------------------------------------------------------------------------

    @property
    def marks_in_sight(self) -> int:
        return len(self.marked & self._positions.keys())

    def marks(self) -> list[str]:
        """The marked keys in row order, then those that are not shown."""
        hidden = self.marked - self._positions.keys()
        return [*(row.key for row in self.rows if row.key in self.marked), *sorted(hidden)]

    @property
    def row_width(self) -> int:
        """The width of a row in cells."""
        return max(0, self.scrollable_content_region.width - GUTTER)

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Show these rows. Only changed cells are painted. The cursor stays on the row that a person chose, and on the
        first row if they chose none."""
        old, new = self.rows, tuple(rows)
        keys_changed = len(old) != len(new) or any(a.key != b.key for a, b in zip(old, new, strict=True))
        previous_key, previous_position = self.cursor_key, self._cursor_position()
        self.rows = new
        if keys_changed:
            self._positions = {row.key: position for position, row in enumerate(new)}
            if self.cursor_key != self._placed_key:
                self._chosen_key = self.cursor_key
            self.cursor_key = self._placed_key = self._cursor_among(old, previous_position)
        self._repaint_changed(old)
        if len(old) != len(new):
            self._set_length(len(new))
        if keys_changed:
            if self._cursor_position() != previous_position:
                self._repaint_line(previous_position)
                self._repaint_line(self._cursor_position())
                if self.has_focus:
                    self.show_cursor()
            if self.cursor_key != previous_key:
                self.post_message(self.Moved(self.cursor_key))

    def _set_length(self, length: int) -> None:
        """Scroll over this many rows. If only the bar differs, Textual is not to lay out the screen."""
        height = self.scrollable_content_region.height
        if 0 < height < min(length, self.virtual_size.height) and length >= self.scroll_offset.y + height:
            self.set_reactive(KeyedLines.virtual_size, Size(0, length))
            self.vertical_scrollbar.window_virtual_size = length
        else:
            self.virtual_size = Size(0, length)

    def _cursor_among(self, old: tuple[Row, ...], position: int | None) -> str | None:
        """The chosen key. While its row is not shown: the nearest remaining row, below first, then above."""
        if self._chosen_key in self._positions:
            return self._chosen_key
        if self._chosen_key is not None and position is not None:
            for row in (*old[position:], *reversed(old[:position])):
                if row.key in self._positions and not row.key.startswith(HEADING):
                    return row.key
        return next((row.key for row in self.rows if not row.key.startswith(HEADING)), None)

    def _repaint_changed(self, old: tuple[Row, ...]) -> None:
        top, height = self.scroll_offset.y, self.scrollable_content_region.height
        for position, row in enumerate(self.rows):
            before = old[position] if position < len(old) else Row("", ())
            if before is row:
                continue
            if (before.key in self.marked) != (row.key in self.marked):
                self._repaint_line(position)
            is_seen = top <= position < top + height
            if is_seen and before.spans == row.spans:
                continue
            self._strips.pop(position, None)
            if is_seen:
                for start, end in changed_ranges(before.spans, row.spans):
                    self.refresh(Region(GUTTER + start, position - top, end - start, 1))
        for position in range(len(self.rows), len(old)):
            self._strips.pop(position, None)

    # ---- the cursor ----------------------------------------------------------------------------------------------

    def _cursor_position(self) -> int | None:
        return None if self.cursor_key is None else self._positions.get(self.cursor_key)

    def move_to(self, key: str) -> bool:
        """Put the cursor on this key and make it visible. False: there is no such row, or it is a heading."""
        if key not in self._positions or key.startswith(HEADING):
            return False
        self._chosen_key = None if key.startswith(SENTENCE) else key
        if key != self.cursor_key:
            before = self._cursor_position()
            self.cursor_key = key
            self._repaint_line(before)
            self._repaint_line(self._cursor_position())
            self.post_message(self.Moved(key))
        self.show_cursor()
        return True

    @property
    def chosen_key(self) -> str | None:
        """The key under the cursor, if a person chose it."""
        return self.cursor_key if self._chosen_key is not None else None

    def choose_cursor(self) -> None:
        """A person uses the row under the cursor: it counts as chosen."""
        self._chosen_key = self.cursor_key

    def choose_first(self) -> None:
        """Go to the first row, and stay on whatever row becomes the first."""
        self.move_by(-len(self.rows))
        self._chosen_key, self._placed_key = None, self.cursor_key

    def move_by(self, lines: int) -> None:
        if self.rows:
            position = min(max((self._cursor_position() or 0) + lines, 0), len(self.rows) - 1)
            onward = range(position, len(self.rows)) if lines > 0 else range(position, -1, -1)
            back = reversed(range(position)) if lines > 0 else range(position, len(self.rows))
            any(self.move_to(self.rows[at].key) for at in (*onward, *back))

    def show_cursor(self) -> None:
        """Scroll to the cursor and the headings next to it: the cursor itself cannot go to a heading."""
        position, height = self._cursor_position(), self.scrollable_content_region.height
        if position is None or height <= 0:
            return
        first, last = self._beside(position, -1), self._beside(position, 1)
        if last - first >= height:
            first = last = position
        top = self.scroll_offset.y
        if first < top:
            self.scroll_to(y=first, animate=False)
        elif last >= top + height:
            self.scroll_to(y=last - height + 1, animate=False)

    def _beside(self, position: int, step: int) -> int:
        """The last of the consecutive headings from this position on."""
        while 0 <= position + step < len(self.rows) and self.rows[position + step].key.startswith(HEADING):
            position += step
        return position

    def _repaint_line(self, position: int | None) -> None:
        if position is not None:
            self._strips.pop(position, None)
            self.refresh_line(position)

    def action_first(self) -> None:
        self.move_by(-len(self.rows))

    def action_last(self) -> None:
        self.move_by(len(self.rows))

    def action_choose(self) -> None:
        if self.cursor_key is not None:
            self.choose_cursor()
            self.post_message(self.Chosen(self, self.cursor_key))

    def action_toggle_mark(self) -> None:
        self.toggle_mark()
        self.move_by(1)

    def toggle_mark(self) -> None:
        """Mark the row under the cursor, or unmark it."""
        if self.cursor_key is not None:
            self.marked ^= {self.cursor_key}
            self._repaint_line(self._cursor_position())

    def keep_marks(self, wanted: Callable[[str], bool]) -> None:
        """Remove the marks of keys that are not wanted."""
        gone = [key for key in self.marked if not wanted(key)]
        self.marked -= set(gone)
        for key in gone:
            self._repaint_line(self._positions.get(key))

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None:
            return
        position = offset.y + self.scroll_offset.y
        if position < len(self.rows):
            key = self.rows[position].key
            self.move_to(key)
            if event.chain == 2:
                self.post_message(self.Chosen(self, key))

    # ---- painting ------------------------------------------------------------------------------------------------

    def on_focus(self) -> None:
        self._repaint_line(self._cursor_position())
        self.show_cursor()

    def on_blur(self) -> None:
        self._repaint_line(self._cursor_position())

    def notify_style_update(self) -> None:
        self._styles.clear()
        self._strips.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        if self._styles.is_outdated():
            self._strips.clear()
        position = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        if position >= len(self.rows):
            return Strip.blank(width, self._styles.base)
        strip = self._strips.get(position)
        if strip is None or strip.cell_length != width:
            strip = self._strips[position] = self._paint(self.rows[position], width)
        return strip

    def _paint(self, row: Row, width: int) -> Strip:
        at_cursor = row.key == self.cursor_key and not row.key.startswith(SENTENCE)
        under = self.get_component_rich_style("lines--cursor") if at_cursor else self._styles.base
        mark = MARKED if row.key in self.marked else CURSOR if at_cursor else " "
        style = "bold" if mark != " " else ""
        strip = self._styles.strip((Span(mark, style), *row.spans), under)
        if strip.cell_length > width and strip.crop(width).text.strip():
            strip = Strip([*strip.crop(0, width - 1), Segment("…", under)])
        return strip.crop_extend(0, width, under)


class TextView(KeyedLines):
    """A scrollable text, such as the help."""

    def move_by(self, lines: int) -> None:
        self.scroll_to(y=self.scroll_offset.y + lines, animate=False)

    def _paint(self, row: Row, width: int) -> Strip:
        return self._styles.strip((Span(" " * GUTTER), *row.spans)).crop_extend(0, width, self._styles.base)
