"""Plain tables for a terminal or a file: columns as wide as they must be, no colour needed to read them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence

from trainmon.lib import cell_width, clean


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Lines of a table under its head; every cell is made safe to print. The last column is never padded."""
    safe = [list(head), *([clean(cell) for cell in row] for row in rows)]
    widths = [max(cell_width(row[column]) for row in safe) for column in range(len(head))]
    for row in safe:
        yield "  ".join(
            cell + " " * (width - cell_width(cell)) for cell, width in zip(row, widths, strict=True)
        ).rstrip()


def plain(text: str) -> str:
    """The text as this terminal can show it: in ASCII where it must be, as wide as before."""
    from tui.style import ascii_text, wants_ascii

    return ascii_text(text) if wants_ascii(os.environ, sys.stdout.encoding) else text
