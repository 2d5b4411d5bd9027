"""What becomes of actions → State.actions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainmon.clock import Instant
from trainmon.model import ActionChanged

if TYPE_CHECKING:
    from trainmon.fold import Folding


def fold(folding: Folding, event: ActionChanged) -> None:
    """Take in what an action has become."""
    folding.writable("actions")[event.record.action.id] = event.record


def advance(folding: Folding, now: Instant) -> None:
    """Follow the open ones by what is seen now."""
