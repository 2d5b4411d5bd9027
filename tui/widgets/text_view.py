"""Text to read: the keys scroll, and there is no cursor."""

from __future__ import annotations

from textual.strip import Strip

from tui.style import Span
from tui.widgets.keyed_lines import KeyedLines
from tui.widgets.row import GUTTER, Row


class TextView(KeyedLines):
    """A scrollable text, such as the help."""

    def _move_by(self, lines: int) -> None:
        self.scroll_to(y=self.scroll_offset.y + lines, animate=False)

    def _paint(self, row: Row, width: int) -> Strip:
        base = self._styles.base
        return self._styles.strip((Span(" " * GUTTER), *row.spans)).crop_extend(0, width, base)
