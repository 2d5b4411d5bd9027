"""The rows and sections of a page. Pure."""

from __future__ import annotations

from typing import Literal, NamedTuple

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
