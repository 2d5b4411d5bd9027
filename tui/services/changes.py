"""Follows what changed since the dashboard was last used: open, or touched by a key or the mouse."""

from __future__ import annotations

from trainmon.analysis.last_seen import is_settled, seen
from trainmon.lib import Instant, Seconds
from trainmon.model import LastSeen, State
from tui.views.changes import Change, changes_since, late_runs, summary, with_late_runs

NOTHING_FOR: Seconds = 60.0
"""How long the line stays that nothing changed."""

AWAY: Seconds = 1_800.0
"""After this time without a key, what changed meanwhile is told at the next one."""

NOTED_EVERY: Seconds = 60.0
"""How often a person at the keys is noted."""


class Changes:
    """The changes. They are complete when every source has answered; what happens later is not among them."""

    def __init__(self, seen: LastSeen | None) -> None:
        self.seen = seen
        self.found: tuple[Change, ...] = ()
        self._complete_at: Instant | None = None
        self._is_read = False
        self._late: frozenset[str] = frozenset()
        """The runs that were seen before and have not come yet."""
        self._used: LastSeen | None = None
        """What was shown when a person last pressed a key."""

    def update(self, state: State) -> None:
        """Take a new State."""
        if self.seen is None:
            return
        if self._complete_at is None:
            self.found, self._late = changes_since(self.seen, state), late_runs(self.seen, state)
            self._complete_at = state.at if is_settled(state) else None
        if self._late:
            self.found, self._late = with_late_runs(self.found, self._late, self.seen, state)

    def used(self, state: State) -> None:
        """A person pressed a key or the mouse. After a long time without one, the changes are those since then."""
        used = self._used
        if used is not None and state.at - used.at > AWAY:
            self.seen, self._complete_at, self._is_read = used, None, False
            self.update(state)
        if used is None or state.at - used.at > NOTED_EVERY:
            self._used = seen(state, used)

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
