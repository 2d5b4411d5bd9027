"""The line of column names above a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tui.style import Span
from tui.widgets.row import GUTTER, changed_columns
from tui.widgets.styles import STYLE_CSS, STYLES, SpanStyles


class Heading(Widget):
    """One line above a list: its column names, with the list's left margin."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"lines--{name}" for name in STYLES}
    DEFAULT_CSS = f"Heading {{ height: 1; width: 1fr; {STYLE_CSS} }}"
    ALLOW_SELECT = False
    MARGIN: ClassVar[int] = GUTTER
    """Cells left of the spans."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self.spans: tuple[Span, ...] = ()
        self._styles = SpanStyles(self)

    def set_spans(self, spans: Sequence[Span]) -> None:
        """Show these spans. Nothing is painted when they are the same."""
        new = tuple(spans)
        columns = changed_columns(self.spans, new)
        self.spans = new
        if columns is not None:
            self.refresh(Region(self.MARGIN + columns[0], 0, columns[1] - columns[0], 1))

    def notify_style_update(self) -> None:
        self._styles.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        self._styles.is_outdated()
        spans = (Span(" " * self.MARGIN), *self.spans) if y == 0 else ()
        return self._styles.strip(spans).crop_extend(0, self.size.width, self._styles.base)
