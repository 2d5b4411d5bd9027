"""How long before a log's last line an earlier one was written, by the times that both show. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise

from trainmon.lib import Seconds

STAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d")

BACKWARDS: Seconds = 60.0
"""A log whose times go back by more than this mixes time zones, and its times cannot be compared."""


def before_the_end(lines: Sequence[str], place: int) -> Seconds:
    """How much older the line at `place` is than the last; 0 where their times do not say. A watchdog that writes into
    the log of a run that hangs makes its file look new, and not its last step."""
    stamps = [(index, at) for index, line in enumerate(lines) if (at := _stamp(line)) is not None]
    own = next((at for index, at in stamps if index == place), None)
    if own is None or any(earlier - later > BACKWARDS for (_, earlier), (_, later) in pairwise(stamps)):
        return 0.0
    return max(0.0, stamps[-1][1] - own)


def _stamp(line: str) -> float | None:
    found = STAMP.search(line[:200])
    try:
        return None if found is None else datetime.fromisoformat(found[0] + "+00:00").timestamp()
    except ValueError:
        return None
