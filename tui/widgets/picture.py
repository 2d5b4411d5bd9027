"""Lines of spans without a cursor: plots and charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from tui.style import Span
from tui.widgets.row import changed_columns
from tui.widgets.styles import STYLE_CSS, STYLES, SpanStyles


class Picture(Widget):
    """Lines without a cursor. Only changed cells are painted."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"lines--{name}" for name in STYLES}
    DEFAULT_CSS = f"Picture {{ height: 1fr; width: 1fr; {STYLE_CSS} }}"
    ALLOW_SELECT = False

    def __init__(self) -> None:
        super().__init__()
        self.picture: tuple[tuple[Span, ...], ...] = ()
        self._styles = SpanStyles(self)

    def set_lines(self, lines: Sequence[tuple[Span, ...]]) -> None:
        old, self.picture = self.picture, tuple(lines)
        if len(old) != len(self.picture):
            self.refresh()
            return
        for y, (before, after) in enumerate(zip(old, self.picture, strict=True)):
            if (changed := changed_columns(before, after)) is not None:
                self.refresh(Region(changed[0], y, changed[1] - changed[0], 1))

    def notify_style_update(self) -> None:
        self._styles.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        self._styles.is_outdated()
        spans = self.picture[y] if y < len(self.picture) else ()
        return self._styles.strip(spans).crop_extend(0, self.size.width, self._styles.base)
