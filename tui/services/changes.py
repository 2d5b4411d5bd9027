"""Follows what changed since the dashboard was last open, until the first complete State."""

from __future__ import annotations

from trainmon.analysis.last_seen import is_settled
from trainmon.lib import Instant, Seconds
from trainmon.model import LastSeen, State
from tui.views.changes import Change, changes_since, summary

NOTHING_FOR: Seconds = 60.0
"""How long the line stays that nothing changed."""


class Changes:
    """The changes. They are complete when every source has answered; what happens later is not among them."""

    def __init__(self, seen: LastSeen | None) -> None:
        self.seen = seen
        self.found: tuple[Change, ...] = ()
        self._complete_at: Instant | None = None
        self._is_read = False

    def update(self, state: State) -> None:
        """Take a new State."""
        if self.seen is not None and self._complete_at is None:
            self.found = changes_since(self.seen, state)
            self._complete_at = state.at if is_settled(state) else None

    def summary(self, now: Instant) -> str:
        """All changes in one line."""
        return "" if self.seen is None else summary(self.seen, self.found, now)[0]

    def line(self, state: State) -> tuple[str, str]:
        """The line and its style; empty before the changes are complete, and after a person has read it."""
        if self.seen is None or self._complete_at is None or self._is_read:
            return "", ""
        if not self.found and state.at - self._complete_at > NOTHING_FOR:
            return "", ""
        return summary(self.seen, self.found, self._complete_at)

    def read(self) -> None:
        """A person has read the line: it is not shown again."""
        self._is_read = True
