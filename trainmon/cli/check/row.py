"""One line of what `check` tells."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Row(NamedTuple):
    """What was looked at, what was found, and for ✗ what to do."""

    mark: Literal["ok", "bad", "note"]
    subject: str
    what: str
    said: str
    mend: str = ""
