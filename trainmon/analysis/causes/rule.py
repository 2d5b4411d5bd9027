"""One row of the table of causes. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

from trainmon.model import CauseName
from trainmon.model.attempts import Family, Retry

Role = Literal["root", "generic", "cascade", "result"]
"""`root`: an error that starts a failure. `generic`: an exception behind which a better cause may stand.
`cascade`: what follows when another rank has failed. `result`: not an error."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What a cause means, the signs of it in a log, and what to do.

    A sign is a regular expression for one line, without regard to case. It names what a message says, not which program
    wrote it. Of several rows whose signs are in one line, the first one counts.
    """

    cause: CauseName
    family: Family
    retry: Retry
    role: Role
    meaning: str
    advice: str
    source: str
    stated: tuple[str, ...] = ()
    """Signs by which the scheduler, the kernel or the driver states the reason."""
    signs: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    """They count only if the log has no sign of any cause."""
