"""The symbols of the screen, and their replacements on terminals that show only ASCII.

Panes always write the first form. `ascii_filter.Ascii` replaces it on the last step before the terminal, one cell
for one cell, so that columns stay where they are and no pane has to know.
"""

from __future__ import annotations

import locale
from collections.abc import Mapping
from functools import lru_cache

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

# ---- the symbols of the screen, and their replacements on terminals that show only ASCII -----------------------------

OK = "●"
WARN = "◆"
CRIT = "▲"
DEAD = "✗"
WAITING = "◌"
PAUSED = "◐"
DONE = "✓"
CURSOR = "›"
MARKED = "+"
MORE = "…"
DOT = "·"
UP = "↑"
DOWN = "↓"

TO_ASCII: dict[str, str] = {
    OK: "*", WARN: "w", CRIT: "!", DEAD: "X", WAITING: "o", PAUSED: "~", DONE: "v", CURSOR: ">", MORE: "~", DOT: ".",
    UP: "^", DOWN: "v", "→": ">", "←": "<", "↗": "/", "↘": "\\", "°": " ", "µ": "u", "×": "x", "–": "-", "—": "-",
    "≤": "<", "≥": ">", "“": '"', "”": '"', "‘": "'", "’": "'", "•": "*", "∞": "-", "■": "#", "□": ".", "▌": "#",
    "─": "-", "━": "-", "│": "|", "┃": "|", "╭": "+", "╮": "+", "╰": "+", "╯": "+", "┌": "+", "┐": "+", "└": "+",
    "┘": "+", "├": "+", "┤": "+", "┬": "+", "┴": "+", "┼": "+", "╴": "-", "╶": "-", "╵": "|", "╷": "|",
}  # fmt: skip
"""The ASCII form of every symbol and line that we draw."""

BLOCKS = "▁▂▃▄▅▆▇█▉▊▋▍▎▏▀▐▔▕"
_TABLE = str.maketrans(TO_ASCII | dict.fromkeys(BLOCKS, "#"))


@lru_cache(4096)
def ascii_text(text: str) -> str:
    """The text in ASCII, with the same width. A character without an ASCII form becomes `?`."""
    text = text.translate(_TABLE)
    if text.isascii():
        return text
    from rich.cells import cell_len

    return "".join(char if char.isascii() else "?" * cell_len(char) for char in text)


def wants_ascii(environ: Mapping[str, str], encoding: str | None = None) -> bool:
    """Whether to stay in ASCII: TRAINMON_ASCII=1 (0 refuses it), else a locale that is not UTF-8, or a bare console."""
    value = environ.get("TRAINMON_ASCII", "")
    if value:
        return value != "0"
    if environ.get("TERM") in {"dumb", "vt100", "vt220"}:
        return True
    encoding = encoding or locale.getencoding()
    return encoding.replace("-", "").lower() != "utf8"


# ---- what replaces our symbols on a terminal that shows only ASCII ---------------------------------------------------


class Ascii(LineFilter):
    """The last step before a terminal without Unicode. It applies to everything: logs, names and borders."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [s if s.text.isascii() else Segment(ascii_text(s.text), s.style, s.control) for s in segments]
