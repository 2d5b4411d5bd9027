"""Which rows of a log are visible, and the widget that draws only these: the cost does not depend on the kept lines.

A position is (line number, row within that line), so that it stays valid while new lines come and old ones go. Line i
of a log has the number first + i.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from textual import events
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip

from trainmon.analysis.log_formats import cells, stripped
from trainmon.lib import clean
from trainmon.model import StepNumbers
from tui.keys import bindings, cap
from tui.style import Span
from tui.widgets.keyed_lines import Rows
from tui.widgets.spans import SpanStyles

# ---- which rows of a log are visible ---------------------------------------------------------------------------------

TIME_OF_DAY = re.compile(r"\d\d:\d\d:\d\d")
CUT = re.compile(r"(?:\d\d:\d\d:\d\d )?…")
"""The begin of a row whose prefix is cut (see `window`)."""


class LogPosition(NamedTuple):
    """The first row on the screen."""

    line: int
    part: int = 0


class LogRow(NamedTuple):
    """One visible row: its line number, its part of that line, and the text."""

    line: int
    part: int
    text: str


@dataclass(frozen=True, slots=True)
class Text:
    """A log's lines and the number of the first of them."""

    lines: Sequence[str]
    first: int
    numbers: Sequence[StepNumbers | None] = ()
    """What each line says of the training, up to the last line."""

    @property
    def end(self) -> int:
        return self.first + len(self.lines)

    def __getitem__(self, number: int) -> str:
        return self.lines[number - self.first]

    def said_in(self, number: int) -> StepNumbers | None:
        """What a line says of the training."""
        at = number - self.end
        return self.numbers[at] if -len(self.numbers) <= at < 0 else None


class View(NamedTuple):
    """The size and mode of the view."""

    width: int
    height: int
    wrap: bool = False
    left: int = 0
    """Cells scrolled to the right, where lines are cut."""
    whole: bool = False
    """Whether a cut step line shows the prefix that its launcher wrote."""


def parts(text: str, width: int) -> list[str]:
    """A line cut into pieces of at most `width` cells; an empty line is one empty piece."""
    return chop_cells(text, max(2, width)) or [text]


def rows_of(text: str, view: View) -> int:
    """How many rows a line takes."""
    return len(parts(text, view.width)) if view.wrap else 1


def cut(text: str, left: int, width: int) -> str:
    """The cells from `left` to `left + width` of a line; half a wide character becomes a space."""
    if text.isascii():
        return text[left : left + width]
    return next(iter(chop_cells(Segment(text).split_cells(left)[1].text, max(1, width))), "")


def lead(text: str, said: StepNumbers | None) -> int:
    """Width of a step line's prefix: writer and time. 0 for every other line."""
    if said is None or not text.isascii():
        return 0
    before, found, _ = text.partition(stripped(text))
    return len(before) if found and before.strip() else 0


class StepPlace(NamedTuple):
    """Where a step line has what a person looks for, in characters."""

    start: int
    """Of the line without the prefix that its launcher wrote."""
    step_end: int
    loss_start: int
    """Of the loss with its name."""
    loss_end: int


@lru_cache(maxsize=1024)
def place_of(text: str, said: StepNumbers | None) -> StepPlace | None:
    """Where the step and the loss are that were read in a line; None where it does not have both."""
    if said is None or said.step is None or said.loss is None or not text.isascii():
        return None
    read = {name: value for name, value in said._asdict().items() if value is not None}
    found = {cell.field: cell for cell in cells(text, read)}
    step, loss = found.get("target_step") or found.get("step"), found.get("loss")
    if step is None or loss is None or step.end > loss.start:
        return None
    named = max(text.rfind(sign, step.end, loss.start) + len(sign) for sign in ("  ", "| ", ", ", "; "))
    start = len(text.partition(stripped(text))[0])
    return StepPlace(start, step.end, named if named > step.end else step.end, loss.end)


def window(text: str, view: View, said: StepNumbers | None = None) -> str:
    """The visible piece of a cut line. A step line that is too long keeps its time of day, its step and its loss."""
    if view.whole or len(text) <= view.width:
        return cut(text, max(0, view.left), view.width)
    place, at = place_of(text, said), lead(text, said)
    if place is None or view.left:
        begins = max(0, at + view.left)
        return f"…{cut(text, begins, view.width - 1)}" if at and begins else cut(text, begins, view.width)
    time = TIME_OF_DAY.search(text, 0, place.start)
    before = f"{time[0]} …" if time else "…" if text[: place.start].strip() else ""
    is_loss_in_sight = len(before) + place.loss_end - place.start <= view.width
    middle = place.start if is_loss_in_sight else place.loss_start
    between = "" if is_loss_in_sight else f"{text[place.start : place.step_end]} … "
    return f"{before}{between}{text[middle:]}"[: view.width]


def shown(text: Text, position: LogPosition, view: View) -> list[LogRow]:
    """The rows from a position on, at most one screen."""
    rows: list[LogRow] = []
    for number in range(max(position.line, text.first), text.end):
        line = text[number]
        pieces = parts(line, view.width) if view.wrap else [window(line, view, text.said_in(number))]
        start = position.part if number == position.line else 0
        rows.extend(LogRow(number, part, pieces[part]) for part in range(start, len(pieces)))
        if len(rows) >= view.height:
            break
    return rows[: view.height]


def end_position(text: Text, view: View) -> LogPosition:
    """The position that puts the last row of the log at the bottom of the screen."""
    return moved(text, LogPosition(text.end), -view.height, view)


def moved(text: Text, position: LogPosition, by: int, view: View) -> LogPosition:
    """The position `by` rows further down (or up), kept inside the log."""
    line, part = (position.line, position.part) if position.line >= text.first else (text.first, 0)
    if by < 0:
        part += by
        while part < 0 and line > text.first:
            line -= 1
            part += rows_of(text[line], view)
        return LogPosition(line, max(0, part))
    part += by
    while line < text.end:
        rows = rows_of(text[line], view)
        if part < rows:
            return LogPosition(line, part)
        part -= rows
        line += 1
    return LogPosition(max(text.first, text.end - 1))


def clamped(text: Text, position: LogPosition, view: View) -> tuple[LogPosition, bool]:
    """The position, at most the end, and whether the end is visible (then the view follows)."""
    end = end_position(text, view)
    return (end, True) if position >= end else (LogPosition(max(position.line, text.first), position.part), False)


def find(text: Text, needle: str, start: int, step: int) -> int | None:
    """The number of the next line with this text, from `start` in the direction of `step`, wrapping around."""
    count = len(text.lines)
    numbers = (text.first + (start - text.first + step * turn) % count for turn in range(count))
    return next((number for number in numbers if needle.lower() in text[number].lower()), None) if needle else None


_ERROR = re.compile(
    r"\b(?:error|exception|traceback|fatal|critical|oom|out of memory|segmentation fault|nan|inf|xid|killed|failed)\b",
    re.IGNORECASE,
)
_WARN = re.compile(
    r"\b(?:warn|warning|deprecated|watchdog|timeout|timed out|retry(?:ing)?|skipp(?:ed|ing))\b", re.IGNORECASE
)


def marks(text: str, needle: str, said: StepNumbers | None = None) -> list[tuple[int, int, str]]:
    """Pieces of a row to highlight, as (start, end, style): search matches, or else errors and warnings, or else the
    step and the loss."""
    if needle:
        found = [(m.start(), m.end(), "match") for m in re.finditer(re.escape(needle), text, re.IGNORECASE)]
        if found:
            return found
    pieces = [(m.start(), m.end(), "crit") for m in _ERROR.finditer(text)]
    pieces += [(m.start(), m.end(), "warn") for m in _WARN.finditer(text)]
    at = begins.end() if (begins := CUT.match(text)) else 0
    if (place := place_of(text[at:].replace("… ", "| "), said)) is not None:
        stands_out = (place.start, place.step_end), (place.loss_start, place.loss_end)
        pieces += [(at + start, at + end, "accent") for start, end in stands_out]
    pieces.sort(key=lambda piece: (piece[2] == "accent", piece))
    kept: list[tuple[int, int, str]] = []
    for piece in pieces:
        if all(piece[0] >= end or piece[1] <= start for start, end, _ in kept):
            kept.append(piece)
    return sorted(kept)


def row_marks(row: LogRow, line: str, view: View, needle: str, said: StepNumbers | None) -> list[tuple[int, int, str]]:
    """The marks of a visible row. A part of a wrapped line has those of its line, also what goes on in the next row."""
    if not view.wrap or not line.isascii() or not line.isprintable():
        return marks(clean(row.text), needle, said)
    width = max(2, view.width)
    found = ((start - row.part * width, end - row.part * width, name) for start, end, name in marks(line, needle, said))
    return [(max(0, start), min(width, end), name) for start, end, name in found if start < width and end > 0]


# ---- the log widget --------------------------------------------------------------------------------------------------

WHEEL_ROWS = 3
LEADS = 2
"""How many times ← goes left of the step in a step line, to the prefix that its launcher wrote."""


class LogView(Rows, can_focus=True):
    """A view of a log: follows the end or stays in place, wraps or cuts lines, highlights search matches."""

    DEFAULT_CSS = "LogView { height: 1fr; width: 1fr; }"
    ALLOW_SELECT = False
    BINDINGS = bindings("log", "moves")

    class Changed(Message):
        """Follow, wrap, the search or the position changed: the frame shows it."""

    @dataclass
    class Edge(Message):
        """A person goes on where the lines end, or to the first or the last line of all."""

        where: Literal["first", "up", "down", "last"]

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
        self.next_hit: Callable[[int], bool] = lambda step: False
        """Goes to the next match in the whole file, down or up; false if only these lines are searched."""
        self._read_from: int | None = None
        """The first line in sight when the search began; None if the view followed the end."""
        self._rows: list[LogRow] = []
        self._drawn: list[tuple[str, bool, bool]] = []
        self._styles = SpanStyles(self)

    # ---- lines ----

    @property
    def view(self) -> View:
        left = 0 if self.wrapping else self.left
        return View(self.size.width, self.size.height, self.wrapping, left, whole=bool(self.needle))

    def set_lines(
        self, lines: tuple[str, ...], first: int, partial: str | None, numbers: Sequence[StepNumbers | None] = ()
    ) -> None:
        """Set new lines of the same log, with the numbers of each, also of the unfinished one. The view stays in place,
        or follows the end."""
        text = Text(lines if partial is None else (*lines, partial), first, numbers)
        if self.only:
            kept = [at for at in range(text.first, text.end) if self.only.lower() in text[at].lower()]
            partial = partial if text.end - 1 in kept else None
            text = Text(tuple(text[at] for at in kept), 0, [text.said_in(at) for at in kept])
        self.text = text
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
        spans, at = list[Span](), 0
        row = self._rows[y]
        line = self.text[row.line] if self.text.first <= row.line < self.text.end else row.text
        for start, end, name in row_marks(row, line, self.view, self.needle, self.text.said_in(row.line)):
            spans += [Span(text[at:start]), Span(text[start:end], "hit" if is_hit and name == "match" else name)]
            at = end
        return self._styles.strip((*spans, Span(text[at:])), under).crop_extend(0, self.size.width, base)

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

    def move_by(self, rows: int) -> None:
        self._go(moved(self.text, self.position, rows, self.view), down=rows > 0)
        if self.following or (rows < 0 and self.position.line - self.text.first < self.size.height):
            self.post_message(self.Edge("up" if rows < 0 else "down"))

    def action_first(self) -> None:
        self._go(LogPosition(self.text.first), down=False)
        self.post_message(self.Edge("first"))

    def action_last(self) -> None:
        self._go(LogPosition(self.text.end), down=True)
        self.post_message(self.Edge("last"))

    def action_follow(self) -> None:
        self.following = not self.following
        self.redraw()
        self.post_message(self.Edge("last") if self.following else self.Changed())

    def action_wrap(self) -> None:
        self.wrapping = not self.wrapping
        self.left = 0
        self._go(LogPosition(self.text.end if self.following else self.position.line), down=self.following)

    def action_sideways(self, step: int) -> None:
        if self.wrapping:
            self.app.notify(f"long lines are wrapped; {cap('log.wrap')} cuts them", timeout=4, markup=False)
            return
        by = max(8, self.size.width // 2)
        self.left = max(-LEADS * by, self.left + step * by)
        self.redraw()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.move_by(WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.move_by(-WHEEL_ROWS)

    # ---- search ----

    @property
    def hit_line(self) -> str | None:
        """The line of the hit, if there is one that is still here."""
        return None if self.hit is None or not self.text.first <= self.hit < self.text.end else self.text[self.hit]

    def search(self, needle: str) -> None:
        """Highlight this text and go to its last match, or to the next one from where a person reads. An empty text
        clears the search."""
        if not self.needle:
            self._read_from = None if self.following else self.position.line
        self.needle, self.hit, self.left = needle, None, 0
        self._drawn = []
        self.refresh()
        start, step = (self.text.end - 1, -1) if self._read_from is None else (self._read_from, 1)
        if not needle or not self.goto_match(start, step):
            self.redraw()
            self.post_message(self.Changed())

    def goto_match(self, start: int, step: int) -> bool:
        """Show the next match in the middle of the screen. False: there is none."""
        number = find(self.text, self.needle, start, step) if self.text.lines else None
        if number is None:
            return False
        self.show_line(number)
        return True

    def show_line(self, number: int) -> None:
        """Show this line in the middle of the screen, marked."""
        self.hit = number
        before, found, _ = self.text[number].lower().partition(self.needle.lower() or "\0")
        is_out_of_sight = found and cell_len(before + found) > self.size.width
        self.left = cell_len(before) - self.size.width // 2 if is_out_of_sight else 0
        self._go(moved(self.text, LogPosition(number), -(self.size.height // 2), self.view), down=False)

    def action_next_match(self, step: int) -> None:
        """n goes down, N goes up."""
        start = self.text.end - 1 if self.hit is None else self.hit + step
        if not self.needle:
            self.app.notify(f"no search is active; {cap('log.find')} searches", timeout=4, markup=False)
        elif not self.next_hit(step) and not self.goto_match(start, step):
            self.app.notify(f"no other match of “{self.needle}” that way", timeout=4, markup=False)
