"""The rows and sections of a page, and how they say numbers. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

from trainmon.lib import Seconds, counted

Style = Literal["", "ok", "warn", "crit", "dim", "log"]
"""log: a line of a log, which is shown as it is."""


class PageRow(NamedTuple):
    """A label and a text. A row with an empty label continues the one before it."""

    label: str
    text: str
    style: Style = ""
    link: tuple[str, str] | None = None
    """`node` or `attempt`, and its name."""


class Section(NamedTuple):
    """A title and its rows."""

    title: str
    rows: tuple[PageRow, ...]


UNKNOWN = "not known"


def gpu_time(seconds: Seconds) -> str:
    """`26 GPU seconds`, `0.09 GPU hours`, `1,024.0 GPU hours`: of an attempt that cost something, never zero."""
    if seconds < 36.0:
        return counted(round(seconds), "GPU second")
    return f"{seconds / 3600:,.{1 if seconds >= 3600 else 2}f} GPU hours"
