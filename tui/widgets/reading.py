"""Lines to read, not to choose from: the keys scroll, and there is no cursor."""

from __future__ import annotations

from textual.strip import Strip

from tui.style import Span
from tui.widgets.keyed_lines import GUTTER, KeyedLines, Row


class TextView(KeyedLines):
    """Help, details: what moves is the text."""

    def _move_by(self, lines: int) -> None:
        self.scroll_to(y=self.scroll_offset.y + lines, animate=False)

    def _paint(self, row: Row, width: int) -> Strip:
        base = self._palette.base
        return self._palette.strip((Span(" " * GUTTER), *row.spans)).crop_extend(0, width, base)
