"""What replaces our symbols on a terminal that shows only ASCII."""

from __future__ import annotations

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from tui.style.symbols import ascii_text


class Ascii(LineFilter):
    """The last step before a terminal without Unicode. It applies to everything: logs, names and borders."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [s if s.text.isascii() else Segment(ascii_text(s.text), s.style, s.control) for s in segments]
