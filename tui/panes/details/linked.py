"""A pane of lines, some of which are links. Its cursor starts on the first link."""

from __future__ import annotations

from collections.abc import Iterable

from tui.panes.base import Pane
from tui.widgets import KeyedLines, Line, Linked, TextView, first_link, rows


class LinkedPane(Pane):
    """Facts, and links for Enter. Without `follow` the links are only text."""

    def __init__(self, *, id: str, follow: bool = True) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.lines = KeyedLines() if follow else TextView()
        self._begun = not follow

    def on_mount(self) -> None:
        self.heads.display = False

    def tell(self, lines: Iterable[Line | Linked]) -> None:
        """Show these; the cursor stays on the link where it was."""
        self.lines.set_rows(rows(lines))
        link = first_link(self.lines.rows)
        if link is not None and not self._begun:
            self._begun = self.lines.move_to(link)
