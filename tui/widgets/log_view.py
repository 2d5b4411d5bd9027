"""The log widget. It draws only the visible rows, however many lines are kept and however fast they come."""

from __future__ import annotations

from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from trainmon.lib import clean
from tui.keys import bindings
from tui.widgets.log_window import LogPosition, LogRow, Text, View, clamped, end_position, find, moved, row_marks, shown
from tui.widgets.spans import SpanStyles

WHEEL_ROWS = 3
LEADS = 2
"""How many times ← goes left of the step in a step line, to the prefix that its launcher wrote."""


class LogView(Widget, can_focus=True):
    """A view of a log: follows the end or stays in place, wraps or cuts lines, highlights search matches."""

    DEFAULT_CSS = "LogView { height: 1fr; width: 1fr; }"
    ALLOW_SELECT = False
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("log", "moves")]

    class Changed(Message):
        """Follow, wrap, the search or the position changed: the frame shows it."""

    def __init__(self) -> None:
        super().__init__()
        self.text = Text((), 0)
        self.partial: int | None = None
        """The number of the unfinished last line, drawn dim."""
        self.position = LogPosition(0)
        self.following = True
        self.wrapping = False
        self.left = 0
        self.needle = ""
        self.only = ""
        """If set, only lines with this text are shown."""
        self.hit: int | None = None
        self._rows: list[LogRow] = []
        self._drawn: list[tuple[str, bool, bool]] = []
        self._styles = SpanStyles(self)

    # ---- lines ----

    @property
    def view(self) -> View:
        left = 0 if self.wrapping else self.left
        return View(self.size.width, self.size.height, self.wrapping, left, whole=bool(self.needle))

    def set_lines(self, lines: tuple[str, ...], first: int, partial: str | None) -> None:
        """Set new lines of the same log. The view stays in place, or follows the end."""
        if self.only:
            lines, first = tuple(line for line in lines if self.only.lower() in line.lower()), 0
            partial = partial if partial and self.only.lower() in partial.lower() else None
        self.text = Text(lines if partial is None else (*lines, partial), first)
        self.partial = None if partial is None else self.text.end - 1
        self.redraw()

    def restart(self) -> None:
        """Start another log at its end."""
        self.text, self.position, self.following, self.left, self.hit = Text((), 0), LogPosition(0), True, 0, None

    def redraw(self) -> None:
        """Compute the visible rows, and repaint those that changed."""
        view = self.view
        if view.width <= 0 or view.height <= 0:
            return
        if self.following:
            self.position = end_position(self.text, view)
        elif self.position.line < self.text.first:
            self.position = LogPosition(self.text.first)
        self._rows = shown(self.text, self.position, view)
        drawn = [(clean(row.text), row.line == self.partial, row.line == self.hit) for row in self._rows]
        old, self._drawn = self._drawn, drawn
        for y in range(max(len(old), len(drawn))):
            if y >= len(old) or y >= len(drawn) or old[y] != drawn[y]:
                self.refresh(Region(0, y, view.width, 1))

    def render_line(self, y: int) -> Strip:
        self._styles.is_outdated()
        base = self._styles.base
        if y >= len(self._drawn):
            return Strip.blank(self.size.width, base)
        text, is_partial, is_hit = self._drawn[y]
        under = base + self._styles["dim"] if is_partial else base
        if is_hit and not self.needle:  # a line that was opened by its number
            under = base + self._styles["hit"]
        segments, at = [], 0
        row = self._rows[y]
        line = self.text[row.line] if self.text.first <= row.line < self.text.end else row.text
        for start, end, name in row_marks(row, line, self.view, self.needle):
            style = self._styles["hit" if is_hit and name == "match" else name]
            segments += [Segment(text[at:start], under), Segment(text[start:end], under + style)]
            at = end
        segments.append(Segment(text[at:], under))
        return Strip(segments).crop_extend(0, self.size.width, base)

    def notify_style_update(self) -> None:
        self._styles.clear()
        super().notify_style_update()

    def on_resize(self) -> None:
        self._drawn = []
        self.redraw()
        self.refresh()

    # ---- keys ----

    def _go(self, position: LogPosition, *, down: bool) -> None:
        self.position, at_end = clamped(self.text, position, self.view)
        self.following = at_end and down
        self.redraw()
        self.post_message(self.Changed())

    def scroll_rows(self, by: int) -> None:
        self._go(moved(self.text, self.position, by, self.view), down=by > 0)

    def action_cursor_down(self) -> None:
        self.scroll_rows(1)

    def action_cursor_up(self) -> None:
        self.scroll_rows(-1)

    def action_page_down(self) -> None:
        self.scroll_rows(max(1, self.size.height - 1))

    def action_page_up(self) -> None:
        self.scroll_rows(-max(1, self.size.height - 1))

    def action_first(self) -> None:
        self._go(LogPosition(self.text.first), down=False)

    def action_last(self) -> None:
        self._go(LogPosition(self.text.end), down=True)

    def action_follow(self) -> None:
        self.following = not self.following
        self.redraw()
        self.post_message(self.Changed())

    def action_wrap(self) -> None:
        self.wrapping = not self.wrapping
        self.left = 0
        self._go(LogPosition(self.text.end if self.following else self.position.line), down=self.following)

    def action_sideways(self, step: int) -> None:
        if self.wrapping:
            self.app.notify("long lines are wrapped; w cuts them", timeout=4, markup=False)
            return
        by = max(8, self.size.width // 2)
        self.left = max(-LEADS * by, self.left + step * by)
        self.redraw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.scroll_rows(WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.scroll_rows(-WHEEL_ROWS)

    # ---- search ----

    def search(self, needle: str) -> None:
        """Highlight this text and go to its last match. An empty text clears the search."""
        self.needle, self.hit = needle, None
        self._drawn = []
        self.refresh()
        if not needle or not self.goto_match(self.text.end - 1, -1):
            self.redraw()
            self.post_message(self.Changed())

    def show_line(self, number: int) -> None:
        """Show this line in the middle of the screen, marked."""
        self.hit = number
        self._drawn = []
        self._go(moved(self.text, LogPosition(number), -(self.size.height // 2), self.view), down=False)

    def goto_match(self, start: int, step: int) -> bool:
        """Show the next match in the middle of the screen. False: there is none."""
        number = find(self.text, self.needle, start, step) if self.text.lines else None
        if number is None:
            return False
        self.hit = number
        self._go(moved(self.text, LogPosition(number), -(self.size.height // 2), self.view), down=False)
        return True

    def action_next_match(self, step: int) -> None:
        """n goes up, because a log is read from its end; N goes down."""
        start = self.text.end - 1 if self.hit is None else self.hit - step
        if not self.needle:
            self.app.notify("no search is active; / searches", timeout=4, markup=False)
        elif not self.goto_match(start, -step):
            self.app.notify(f"no other match of “{self.needle}” that way", timeout=4, markup=False)
