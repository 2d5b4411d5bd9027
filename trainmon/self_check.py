"""Whether this program itself does its work: what the dead-man's switch is fed by. Pure."""

from __future__ import annotations

from trainmon.clock import Instant
from trainmon.model import State


def unwell(state: State, now: Instant) -> str | None:
    """Why the dead-man's switch must not be fed, in a sentence; None when the whole loop is healthy."""
    return None
