"""Which attempts the ledger must hold, and when it is told."""

from __future__ import annotations

from typing import Protocol

from trainmon.lib import Instant, Seconds
from trainmon.model import Attempt, State

WRITE_EVERY: Seconds = 30.0
"""Between two writes of an attempt that goes on. A program that is killed has lost at most this much."""


class AttemptJournal(Protocol):
    """The part of the ledger that keeps attempts."""

    def keep(self, record: Attempt) -> None:
        """Queue an attempt for writing. Never blocks."""


class AttemptRecorder:
    """Gives new, ended and grown attempts to the ledger. Of several programs with one ledger, the leader does; a
    program that nobody leads does as well."""

    def __init__(self, journal: AttemptJournal) -> None:
        self._journal = journal
        self._written: dict[str, tuple[Attempt, Instant]] = {}

    def record(self, state: State, now: Instant) -> None:
        """Queue what has changed."""
        if state.leadership.holder == "other":
            return
        for name, attempt in state.attempts.items():
            before, at = self._written.get(name, (None, 0.0))
            if attempt is before:
                continue
            is_news = before is None or attempt.end != before.end or attempt.first_step != before.first_step
            if is_news or not 0.0 <= now - at < WRITE_EVERY:
                self._written[name] = (attempt, now)
                self._journal.keep(attempt)
        if len(self._written) > 2 * len(state.attempts) + 100:
            self._written = {name: one for name, one in self._written.items() if name in state.attempts}
