"""A list of keyed lines: only the cells that changed are painted again, and the cursor stays with its key.

A table widget repaints all of itself for one changed cell (29 KiB/s over SSH where this takes 0.2), and its cursor
stays on a position, so that a sort moves it to another job. Here a row is a value; two rows are compared span by span.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from tui.keys import bindings
from tui.style import CURSOR, MARKED, Span

STYLES = ("dim", "ok", "warn", "crit", "bold", "accent", "head")
"""What a span's style may name; several joined by a space add up. Plain text has none."""

STYLE_CSS = """
    & > .lines--dim { text-style: dim; }
    & > .lines--ok { color: $text-success; }
    & > .lines--warn { color: $text-warning; }
    & > .lines--crit { color: $text-error; text-style: bold; }
    & > .lines--bold { text-style: bold; }
    & > .lines--accent { color: $text-accent; }
    & > .lines--head { color: $foreground; text-style: dim; }
    &:nocolor > .lines--ok, &:nocolor > .lines--warn, &:nocolor > .lines--crit, &:nocolor > .lines--accent {
        color: $foreground;
    }
"""
"""The last rule: as a grey, red is darker than what is well."""


SENTENCE = "\0"
"""Keys of rows that are about nothing begin so: no name can. They show no cursor."""

HEADING = "\1"
"""Keys of rows that stand over others begin so. They never hold the cursor: no key would mean anything there."""


class Row(NamedTuple):
    """One screen line. The key says what it is about, whatever its place."""

    key: str
    spans: tuple[Span, ...]

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)


def width_of(spans: Iterable[Span]) -> int:
    """Terminal cells that spans take: a wide character takes two."""
    return sum(cell_len(span.text) for span in spans)


def changed_columns(old: Sequence[Span], new: Sequence[Span]) -> tuple[int, int] | None:
    """The cells [from, to) that differ between two lines, or None when they look the same.

    One stretch a line, not one a span: the compositor writes a line from its left edge to the end of each stretch.
    """
    if old == new:
        return None
    same = 0
    for before, after in zip(old, new, strict=False):
        if before != after:
            break
        same += 1
    start = width_of(old[:same])
    old_end, new_end = width_of(old), width_of(new)
    if old_end != new_end:
        return start, max(old_end, new_end)
    tail = 0
    for before, after in zip(reversed(old[same:]), reversed(new[same:]), strict=False):
        if before != after:
            break
        tail += cell_len(after.text)
    return start, new_end - tail


class Palette:
    """The styles of one widget by semantic name, over its own background."""

    def __init__(self, widget: Widget) -> None:
        self._widget = widget
        self._base = Style()
        self._known: dict[str, Style] = {}

    def is_outdated(self) -> bool:
        """Whether the theme, or a background underneath, changed since the last use."""
        base = self._widget.rich_style
        if base == self._base:
            return False
        self._base = base
        self.clear()
        return True

    def clear(self) -> None:
        self._known.clear()

    def __getitem__(self, name: str) -> Style:
        style = self._known.get(name)
        if style is None:
            style = Style()
            for word in name.split():
                style += self._widget.get_component_rich_style(f"lines--{word}", partial=True)
            self._known[name] = style
        return style

    def strip(self, spans: Iterable[Span], under: Style | None = None) -> Strip:
        """Spans as a strip; neighbours of one style become one segment, which saves escape sequences."""
        base = self._base if under is None else under
        segments: list[Segment] = []
        text, last, width = "", base, 0
        for span in spans:
            style = base + self[span.style] if span.style else base
            if style != last and text:
                segments.append(Segment(text, last))
                text = ""
            last = style
            text += span.text
            width += cell_len(span.text)
        if text:
            segments.append(Segment(text, last))
        return Strip(segments, width)

    @property
    def base(self) -> Style:
        return self._base


class Heading(Widget):
    """One line above a list: the names of its columns. It keeps the list's left margin."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"lines--{name}" for name in STYLES}
    DEFAULT_CSS = f"Heading {{ height: 1; width: 1fr; {STYLE_CSS} }}"
    ALLOW_SELECT = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self.spans: tuple[Span, ...] = ()
        self._palette = Palette(self)

    def set_spans(self, spans: Sequence[Span]) -> None:
        """Show these; nothing is painted when they are the same."""
        new = tuple(spans)
        columns = changed_columns(self.spans, new)
        self.spans = new
        if columns is not None:
            self.refresh(Region(GUTTER + columns[0], 0, columns[1] - columns[0], 1))

    def notify_style_update(self) -> None:
        self._palette.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        self._palette.is_outdated()
        spans = (Span(" " * GUTTER), *self.spans) if y == 0 else ()
        return self._palette.strip(spans).crop_extend(0, self.size.width, self._palette.base)


GUTTER = 1
"""Cells left of every row, for the sign of the cursor or of a mark: the cursor shows without any colour."""


class KeyedLines(ScrollView, can_focus=True):
    """Rows of spans with a cursor that belongs to a key, marks, mouse and vi keys."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"lines--{name}" for name in STYLES} | {"lines--cursor"}
    DEFAULT_CSS = f"""
    KeyedLines {{
        overflow-x: hidden;
        overflow-y: auto;
        scrollbar-size-vertical: 1;
        {STYLE_CSS}
        & > .lines--cursor {{ background: $foreground 7%; }}
        &:focus > .lines--cursor {{ background: $primary 45%; }}
        &:ansi > .lines--cursor {{ background: transparent; }}
        &:ansi:focus > .lines--cursor {{ text-style: reverse; background: transparent; }}
    }}
    """
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("list", "moves")]

    class Moved(Message):
        """The cursor is on another key: by a key, the mouse, or because its row went away."""

        def __init__(self, lines: KeyedLines, key: str | None) -> None:
            super().__init__()
            self.lines = lines
            self.key = key

        @property
        def control(self) -> KeyedLines:
            return self.lines

    class Chosen(Message):
        """Enter or a double click on a row."""

        def __init__(self, lines: KeyedLines, key: str) -> None:
            super().__init__()
            self.lines = lines
            self.key = key

        @property
        def control(self) -> KeyedLines:
            return self.lines

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self._rows: tuple[Row, ...] = ()
        self._places: dict[str, int] = {}
        self._cursor: str | None = None
        self._marked: frozenset[str] = frozenset()
        self._strips: dict[int, Strip] = {}
        self._palette = Palette(self)

    # ---- what it shows -------------------------------------------------------------------------------------------

    @property
    def rows(self) -> tuple[Row, ...]:
        return self._rows

    @property
    def cursor_key(self) -> str | None:
        return self._cursor

    @property
    def marked(self) -> frozenset[str]:
        """The marked keys, those too whose row is not shown now: a filter takes no mark away."""
        return self._marked

    @property
    def marks_in_sight(self) -> int:
        return len(self._marked & self._places.keys())

    def marks(self) -> list[str]:
        """The marked keys in the order of their rows, then those that are not shown."""
        hidden = self._marked - self._places.keys()
        return [*(row.key for row in self._rows if row.key in self._marked), *sorted(hidden)]

    @property
    def row_width(self) -> int:
        """Cells that a row may take now."""
        return max(0, self.scrollable_content_region.width - GUTTER)

    def set_rows(self, rows: Sequence[Row]) -> None:
        """Show these rows: what did not change is not painted; the cursor stays with its key."""
        old, new = self._rows, tuple(rows)
        keys_changed = len(old) != len(new) or any(a.key != b.key for a, b in zip(old, new, strict=True))
        previous = self._cursor, self._place()
        self._rows = new
        if keys_changed:
            self._places = {row.key: place for place, row in enumerate(new)}
            self._cursor = self._surviving(old, previous[1])
        self._repaint_changed(old)
        if len(old) != len(new):
            self.virtual_size = Size(0, len(new))
        if keys_changed:
            self._follow_cursor(*previous)

    def _surviving(self, old: tuple[Row, ...], place: int | None) -> str | None:
        """The cursor's key, or when it is gone its nearest neighbour that is still there: below first, then above."""
        if self._cursor in self._places:
            return self._cursor
        if not self._rows:
            return None
        if place is not None:
            for row in (*old[place + 1 :], *reversed(old[:place])):
                if row.key in self._places and not row.key.startswith(HEADING):
                    return row.key
        return next((row.key for row in self._rows if not row.key.startswith(HEADING)), None)

    def _repaint_changed(self, old: tuple[Row, ...]) -> None:
        top, height = self.scroll_offset.y, self.scrollable_content_region.height
        for place, row in enumerate(self._rows):
            before = old[place] if place < len(old) else Row("", ())
            if before is row:
                continue
            if (before.key in self._marked) != (row.key in self._marked):
                self._repaint_line(place)
            if before.spans == row.spans:
                continue
            self._strips.pop(place, None)
            if top <= place < top + height and (columns := changed_columns(before.spans, row.spans)):
                self.refresh(Region(GUTTER + columns[0], place - top, columns[1] - columns[0], 1))
        for place in range(len(self._rows), len(old)):
            self._strips.pop(place, None)

    def _follow_cursor(self, key: str | None, place: int | None) -> None:
        """The rows moved: paint the cursor's old and new line, keep it in sight, tell who asks."""
        now = self._place()
        if now != place:
            self._repaint_line(place)
            self._repaint_line(now)
            if self.has_focus:
                self._show_cursor()
        if self._cursor != key:
            self.post_message(self.Moved(self, self._cursor))

    # ---- the cursor ----------------------------------------------------------------------------------------------

    def _place(self) -> int | None:
        return None if self._cursor is None else self._places.get(self._cursor)

    def move_to(self, key: str) -> bool:
        """Put the cursor on this key and into sight. False when there is no such row, or it is a heading."""
        if key not in self._places or key.startswith(HEADING):
            return False
        if key != self._cursor:
            before = self._place()
            self._cursor = key
            self._repaint_line(before)
            self._repaint_line(self._place())
            self.post_message(self.Moved(self, key))
        self._show_cursor()
        return True

    def _move_by(self, lines: int) -> None:
        if self._rows:
            place = min(max((self._place() or 0) + lines, 0), len(self._rows) - 1)
            onward = range(place, len(self._rows)) if lines > 0 else range(place, -1, -1)
            back = reversed(range(place)) if lines > 0 else range(place, len(self._rows))
            any(self.move_to(self._rows[at].key) for at in (*onward, *back))

    def _show_cursor(self) -> None:
        """The cursor in sight, and the headings beside it: the cursor itself cannot go there."""
        place, height = self._place(), self.scrollable_content_region.height
        if place is None or height <= 0:
            return
        first, last = self._beside(place, -1), self._beside(place, 1)
        if last - first >= height:
            first = last = place
        top = self.scroll_offset.y
        if first < top:
            self.scroll_to(y=first, animate=False)
        elif last >= top + height:
            self.scroll_to(y=last - height + 1, animate=False)

    def _beside(self, place: int, step: int) -> int:
        """The furthest of the headings that follow one another from this place."""
        while 0 <= place + step < len(self._rows) and self._rows[place + step].key.startswith(HEADING):
            place += step
        return place

    def _repaint_line(self, place: int | None) -> None:
        if place is not None:
            self._strips.pop(place, None)
            self.refresh_line(place)

    def action_cursor_down(self) -> None:
        self._move_by(1)

    def action_cursor_up(self) -> None:
        self._move_by(-1)

    def action_first(self) -> None:
        self._move_by(-len(self._rows))

    def action_last(self) -> None:
        self._move_by(len(self._rows))

    def action_page_down(self) -> None:
        self._move_by(max(1, self.scrollable_content_region.height - 1))

    def action_page_up(self) -> None:
        self._move_by(-max(1, self.scrollable_content_region.height - 1))

    def action_choose(self) -> None:
        if self._cursor is not None:
            self.post_message(self.Chosen(self, self._cursor))

    def action_toggle_mark(self) -> None:
        self.toggle_mark()
        self._move_by(1)

    def toggle_mark(self) -> None:
        """Mark the row under the cursor, or take its mark away."""
        if self._cursor is not None:
            self._marked ^= {self._cursor}
            self._repaint_line(self._place())

    def clear_marks(self) -> None:
        """Take all marks away."""
        self.keep_marks(lambda _: False)

    def keep_marks(self, wanted: Callable[[str], bool]) -> None:
        """Take the marks away from keys that are not wanted."""
        gone = [key for key in self._marked if not wanted(key)]
        self._marked -= set(gone)
        for key in gone:
            self._repaint_line(self._places.get(key))

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset(self)
        if offset is None:
            return
        place = offset.y + self.scroll_offset.y
        if place < len(self._rows):
            key = self._rows[place].key
            self.move_to(key)
            if event.chain == 2:
                self.post_message(self.Chosen(self, key))

    # ---- painting ------------------------------------------------------------------------------------------------

    def on_focus(self) -> None:
        self._repaint_line(self._place())
        self._show_cursor()

    def on_blur(self) -> None:
        self._repaint_line(self._place())

    def notify_style_update(self) -> None:
        self._palette.clear()
        self._strips.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        if self._palette.is_outdated():
            self._strips.clear()
        place = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        if place >= len(self._rows):
            return Strip.blank(width, self._palette.base)
        strip = self._strips.get(place)
        if strip is None or strip.cell_length != width:
            strip = self._strips[place] = self._paint(self._rows[place], width)
        return strip

    def _paint(self, row: Row, width: int) -> Strip:
        at_cursor = row.key == self._cursor and not row.key.startswith(SENTENCE)
        under = self.get_component_rich_style("lines--cursor") if at_cursor else self._palette.base
        mark = MARKED if row.key in self._marked else CURSOR if at_cursor else " "
        style = "bold" if mark != " " else ""
        return self._palette.strip((Span(mark, style), *row.spans), under).crop_extend(0, width, under)
