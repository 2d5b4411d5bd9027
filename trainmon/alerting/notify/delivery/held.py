"""A message that waits for its channel, and when it is overdue, because the channel fails or hangs. Pure.

Times here are those of the monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from trainmon.lib import Seconds
from trainmon.model import SEVERITIES, NoticeKind, Notification

CRITICAL_OVERDUE: Seconds = 45.0
"""A critical message is overdue when its channel has failed, or hung, for so long, counted from the beginning of the
first try: with the time to write it down and to send it, another channel delivers it within a minute."""
OVERDUE: Seconds = 240.0
"""Any other message; another channel delivers it within five minutes."""
FIRST_TRY: Seconds = 10.0
"""A channel that is known to fail is tried for so long with a new message before that is overdue."""

NOT_PASSED_ON: tuple[NoticeKind, ...] = ("heartbeat", "test", "start", "goodbye")
"""Every channel has its own of these."""


@dataclass(slots=True)
class QueuedNotification:
    """A letter that waits."""

    letter: Notification
    due: Seconds
    since: Seconds
    """When it began to wait; before this program's start for one that was found in the ledger."""
    added: Seconds
    failing_since: Seconds | None = None
    """When the first try began that failed; of what an earlier program has tried, when it began to wait."""
    has_failed: bool = False
    """Whether this program has tried it in vain."""
    is_overdue: bool = False
    is_passed_on: bool = False
    """Whether other channels were given it to deliver."""
    is_given_up: bool = False
    is_alone: bool = False
    """Not told with others any more: the receiver refused them together, and took another one alone."""

    @property
    def rank(self) -> tuple[int, Seconds]:
        """The worst first, and last the summary of what another channel has delivered."""
        severity = len(SEVERITIES) if self.letter.told_by else SEVERITIES.index(self.letter.notice.severity)
        return severity, self.since

    @property
    def is_critical(self) -> bool:
        return self.letter.notice.severity == "critical"

    @property
    def alerts(self) -> frozenset[str]:
        return frozenset(alert.id for alert in self.letter.notice.alerts)


class MessageBatch(NamedTuple):
    """What is told in one message."""

    held: tuple[QueuedNotification, ...]

    @property
    def letters(self) -> tuple[Notification, ...]:
        return tuple(held.letter for held in self.held)

    @property
    def is_summary(self) -> bool:
        """Whether another channel has delivered some of it while this one was down."""
        return any(held.letter.told_by for held in self.held)


@dataclass(slots=True)
class Outage:
    """How long a channel has failed."""

    trying_since: Seconds | None = None
    failing_since: Seconds | None = None
    """When the first try since the last success began that failed."""

    def is_on(self, mono: Seconds) -> bool:
        """Whether the channel fails, or hangs."""
        hung = mono - self.trying_since if self.trying_since is not None else 0.0
        return self.failing_since is not None or hung >= CRITICAL_OVERDUE

    def note_failure(self, pack: MessageBatch, mono: Seconds) -> None:
        began = mono if self.trying_since is None else self.trying_since
        self.trying_since = None
        self.failing_since = began if self.failing_since is None else self.failing_since
        for held in pack.held:
            held.has_failed = True
            held.failing_since = began if held.failing_since is None else held.failing_since

    def is_late(self, held: QueuedNotification, mono: Seconds, asked_until: Seconds) -> bool:
        """Whether others should deliver it. A receiver that asks to be left alone until then is not waited for."""
        known = [at for at in (held.failing_since, self.failing_since, self.trying_since) if at is not None]
        was_tried = held.has_failed or mono - held.added >= FIRST_TRY
        limit = CRITICAL_OVERDUE if held.is_critical else OVERDUE
        return was_tried and max(mono, asked_until) - min(known, default=mono) >= limit
