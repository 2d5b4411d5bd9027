"""Lines of spans: which cells of them changed, their named styles, and headings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, takewhile
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tui.style import Span, width_of

# ---- which cells of a line changed -----------------------------------------------------------------------------------

GUTTER = 1
"""Cells left of every row for the symbol of the cursor or of a mark: the cursor is visible without colour."""


NEAR = 8
"""Cells that cost no more than the escape sequences of another range."""


def changed_ranges(old: Sequence[Span], new: Sequence[Span]) -> list[tuple[int, int]]:
    """The cells [from, to) that differ between two lines. One range if the lines have other columns."""
    if old == new:
        return []
    widths = [cell_len(span.text) for span in new]
    if widths != [cell_len(span.text) for span in old]:
        return [_changed_range(old, new)]
    found: list[tuple[int, int]] = []
    at = 0
    for before, after, width in zip(old, new, widths, strict=True):
        if before != after and found and at - found[-1][1] <= NEAR:
            found[-1] = (found[-1][0], at + width)
        elif before != after:
            found.append((at, at + width))
        at += width
    return found


def _changed_range(old: Sequence[Span], new: Sequence[Span]) -> tuple[int, int]:
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))
    start = width_of(old[:same])
    old_end, new_end = width_of(old), width_of(new)
    if old_end != new_end:
        return start, max(old_end, new_end)
    pairs = zip(reversed(old[same:]), reversed(new[same:]), strict=False)
    return start, new_end - width_of(after for _, after in takewhile(lambda pair: pair[0] == pair[1], pairs))


# ---- lines of spans without a cursor, and the named styles of all spans ----------------------------------------------

STYLES: dict[str, tuple[str, str]] = {
    "dim": ("", "dim"),
    "faint": ("", "dim"),
    "ok": ("text-success", ""),
    "warn": ("text-warning", ""),
    "crit": ("text-error", "bold"),
    "bold": ("", "bold"),
    "accent": ("text-accent", ""),
    "head": ("foreground", "dim"),
    "match": ("", "reverse"),
    "hit": ("text-accent", "reverse bold"),
    **{f"load{level}": (f"load-{level}", "") for level in range(5)},
    **{f"curve{number}": (f"curve-{number}", "") for number in range(6)},
}
"""The names of styles: the variable of the theme that is the color, and the rest. A span may combine several,
separated by spaces; plain text has none. These are no component classes: Textual computes those anew for each widget,
which took 40% of the time in which a screen opens. What differs with the focus is a component class: `lines--rule`."""

GREYED = (
    "ok",
    "warn",
    "crit",
    "accent",
    *(f"load{level}" for level in range(5)),
    *(f"curve{number}" for number in range(6)),
)
"""Without colour, the grey of red would be darker than that of green."""


class SpanStyles:
    """The styles of one widget by semantic name, over its own background."""

    def __init__(self, widget: Widget) -> None:
        self._widget = widget
        self.base = Style()
        self._known: dict[str, Style] = {}
        self._theme = ""
        self._seen = -1
        """How often the styles behind it had changed when `base` was determined."""

    def is_outdated(self) -> bool:
        """Whether a style behind it, as of the theme or the background, changed since the last call."""
        seen = sum(node.styles._cache_key for node in self._widget.ancestors_with_self)  # only grows
        if seen == self._seen:
            return False
        self.base, self._seen = self._widget.rich_style, seen  # which takes a tenth of a frame
        self.clear()
        return True

    def clear(self) -> None:
        """Forget the styles, and draw the widget again if the theme changed."""
        self._known.clear()
        if self._theme != self._widget.app.theme:
            self._theme = self._widget.app.theme
            self._widget.refresh()

    def __getitem__(self, name: str) -> Style:
        if name not in self._known:
            self._known[name] = sum(map(self._style, name.split()), Style())
        return self._known[name]

    def _style(self, name: str) -> Style:
        if name not in STYLES:
            return self._widget.get_component_rich_style(f"lines--{name}", partial=True)
        color, rest = STYLES[name]
        if name == "faint":
            return Style(dim=self._widget.app.no_color or None)
        if not color:
            return Style.parse(rest)
        app = self._widget.app
        color = "foreground" if app.no_color and name in GREYED else color
        return Style(color=Color.parse(app.theme_variables[color]).rich_color) + Style.parse(rest)

    def strip(self, spans: Iterable[Span], under: Style | None = None) -> Strip:
        """Spans as a strip. Neighbours of one style become one segment: fewer escape sequences."""
        base = self.base if under is None else under
        pieces = groupby((span for span in spans if span.text), lambda span: self[span.style])
        return Strip([Segment("".join(span.text for span in group), base + style) for style, group in pieces])


class SpanLines(Widget):
    """Lines without a cursor. Only changed cells are painted."""

    DEFAULT_CSS = "SpanLines { width: 1fr; }"
    ALLOW_SELECT = False

    MARGIN: ClassVar[int] = 0
    """Empty cells left of each line."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self.lines: tuple[tuple[Span, ...], ...] = ()
        self._styles = SpanStyles(self)

    def set_lines(self, lines: Sequence[tuple[Span, ...]]) -> None:
        old, self.lines = self.lines, tuple(lines)
        if len(old) != len(self.lines):
            self.refresh()
            return
        for y, (before, after) in enumerate(zip(old, self.lines, strict=True)):
            for start, end in changed_ranges(before, after):
                self.refresh(Region(self.MARGIN + start, y, end - start, 1))

    def notify_style_update(self) -> None:
        self._styles.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        self._styles.is_outdated()
        spans = (Span(" " * self.MARGIN), *self.lines[y]) if y < len(self.lines) else ()
        return self._styles.strip(spans).crop_extend(0, self.size.width, self._styles.base)


class Picture(SpanLines):
    """A plot or charts: as many lines as fit."""

    DEFAULT_CSS = "Picture { height: 1fr; }"


class SpanLine(SpanLines):
    """One line."""

    DEFAULT_CSS = "SpanLine { height: 1; }"

    def set_spans(self, spans: Sequence[Span]) -> None:
        """Show these spans. Nothing is painted when they are the same."""
        self.set_lines([tuple(spans)])


class Heading(SpanLine):
    """One line above a list: its column names, with the list's left margin."""

    MARGIN = GUTTER
