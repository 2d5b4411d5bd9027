"""The named styles of spans, and a widget's spans drawn in them."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from tui.style import Span

STYLES = ("dim", "ok", "warn", "crit", "bold", "accent", "head")
"""The names of styles. A span may combine several, separated by spaces; plain text has none."""

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
"""The last rule: without colour, the grey of red would be darker than that of green."""


class SpanStyles:
    """The styles of one widget by semantic name, over its own background."""

    def __init__(self, widget: Widget) -> None:
        self._widget = widget
        self._base = Style()
        self._known: dict[str, Style] = {}

    def is_outdated(self) -> bool:
        """Whether the theme or the background changed since the last call."""
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
        """Spans as a strip. Neighbours of one style become one segment: fewer escape sequences."""
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
