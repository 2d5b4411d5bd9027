"""The symbols of the screen, and their replacements on terminals that show only ASCII.

Panes always write the first form. `ascii_filter.Ascii` replaces it on the last step before the terminal, one cell
for one cell, so that columns stay where they are and no pane has to know.
"""

from __future__ import annotations

import locale
from collections.abc import Mapping
from functools import lru_cache

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
