"""One line of the output of `check`."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Row(NamedTuple):
    """What was checked, the result, and for ✗ how to fix it."""

    mark: Literal["ok", "bad", "note"]
    subject: str
    what: str
    text: str
    fix: str = ""
