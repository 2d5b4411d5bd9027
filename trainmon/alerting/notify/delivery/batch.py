"""Batches of notifications, and the budget of a day.

All times are those of the monotonic clock.

ntfy.sh accepts 250 messages a day (docs.ntfy.sh/publish/#limitations), then refuses each for the rest of the day. All
times are those of the monotonic clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from trainmon.lib import Seconds, drop_oldest
from trainmon.model import SEVERITIES, Alert, NoticeKind, Notification, Severity

# ---- A notification in a send queue, and when it is overdue because its channel fails or hangs -----------------------

CRITICAL_OVERDUE: Seconds = 45.0
"""A critical notification is overdue this long after it was first due, if its channel fails or hangs. With the time to
store and send it, another channel delivers it within a minute."""
OVERDUE: Seconds = 240.0
"""The same for all others: another channel delivers them within five minutes."""
FIRST_TRY: Seconds = 10.0
"""A failing channel gets this long for a new notification before it is overdue. A try that takes longer hangs."""

NOT_PASSED_ON: tuple[NoticeKind, ...] = ("heartbeat", "test", "start", "goodbye")
"""Every channel gets these anyway, so no other channel stands in for it."""

REPORTS: frozenset[NoticeKind] = frozenset(
    {"fire", "worse", "resolve", "repeat", "escalate", "flapping", "event", "digest"}
)
Reported = tuple[str, str, Severity, bool]
"""(rule, subject, severity, whether the alert is over)"""


@dataclass(slots=True)
class QueuedNotification:
    """A notification in the send queue of its channel."""

    notification: Notification
    due: Seconds
    since: Seconds
    """When it was first due, by the ledger: no restart changes it."""
    held_until: Seconds = -math.inf
    """Until when the daily budget held it back. That is no failure of its channel."""
    failing_since: Seconds | None = None
    """When its first failed try began. If an earlier program tried it, when it was first due."""
    has_failed: bool = False
    """Whether this program has tried it and failed."""
    is_overdue: bool = False
    is_passed_on: bool = False
    """Whether it was also given to other channels."""
    is_given_up: bool = False
    is_alone: bool = False
    """Not sent together with others any more: the receiver refused the batch and accepted another of them alone."""

    @property
    def key(self) -> str:
        return self.notification.notice.key

    @property
    def is_waiting(self) -> bool:
        """Whether no channel has delivered it, and this one has not given it up."""
        return not (self.is_given_up or self.notification.delivered_by)

    @property
    def rank(self) -> tuple[int, Seconds]:
        """The most severe first; the summary of what another channel has delivered comes last."""
        one = self.notification
        return len(SEVERITIES) if one.delivered_by else SEVERITIES.index(one.notice.severity), self.since

    @property
    def is_critical(self) -> bool:
        return self.notification.notice.severity == "critical"

    @property
    def is_urgent(self) -> bool:
        """Whether it reports a critical alert, and not that one ended or what another channel has delivered."""
        is_new = self.notification.notice.kind not in ("resolve", "acknowledged", "cause")
        return self.is_critical and is_new and not self.notification.delivered_by

    @property
    def is_untouched(self) -> bool:
        """Whether no channel has tried it, and none is to stand in for this one."""
        one = self.notification
        return not (one.attempts or one.delivered_by or one.is_stand_in or self.is_passed_on or self.is_given_up)

    @property
    def is_report(self) -> bool:
        """Whether it reports that alerts fire or are resolved, and can be merged with others."""
        return self.notification.notice.kind in REPORTS

    def reported(self) -> dict[Reported, Alert]:
        """Its alerts, by what a later notification about the same would also report."""
        notice = self.notification.notice
        is_end = notice.kind == "resolve"
        return {(*one.key, one.severity, is_end): one for one in notice.alerts if self.is_report}

    @property
    def critical_subjects(self) -> frozenset[str]:
        return frozenset(alert.subject for alert in self.notification.notice.alerts if alert.severity == "critical")

    @property
    def alerts(self) -> frozenset[str]:
        return frozenset(alert.id for alert in self.notification.notice.alerts)


class MessageBatch(NamedTuple):
    """The notifications that are sent as one message."""

    queued: tuple[QueuedNotification, ...]
    is_brief: bool = False
    """Whether it is sent without plots: its channel has few messages left."""

    @property
    def notifications(self) -> tuple[Notification, ...]:
        return tuple(queued.notification for queued in self.queued)

    @property
    def is_summary(self) -> bool:
        """Whether another channel has delivered some of them while this one was down."""
        return any(queued.notification.delivered_by for queued in self.queued)


@dataclass(slots=True)
class Outage:
    """Since when a channel fails or hangs."""

    trying_since: Seconds | None = None
    failing_since: Seconds | None = None
    """When the first failed try after the last success began."""

    def is_on(self, mono: Seconds) -> bool:
        """Whether the channel fails, or hangs."""
        hung = mono - self.trying_since if self.trying_since is not None else 0.0
        return self.failing_since is not None or hung >= CRITICAL_OVERDUE

    def note_failure(self, batch: MessageBatch, mono: Seconds) -> None:
        began = mono if self.trying_since is None else self.trying_since
        self.trying_since = None
        self.failing_since = began if self.failing_since is None else self.failing_since
        for queued in batch.queued:
            queued.has_failed = True
            queued.failing_since = began if queued.failing_since is None else queued.failing_since

    def is_late(
        self, queued: QueuedNotification, mono: Seconds, retry_after_until: Seconds, failed_before: Seconds | None
    ) -> bool:
        """Whether other channels should deliver it. A receiver's Retry-After counts as failing until it ends.
        `failed_before`: since when an earlier program has failed on this channel."""
        known = [at for at in (queued.failing_since, self.failing_since, failed_before) if at is not None]
        hangs = self.trying_since is not None and mono - self.trying_since >= FIRST_TRY
        was_tried = queued.has_failed or mono - queued.since >= FIRST_TRY
        began = min(max(queued.since, queued.held_until), *known, math.inf)
        limit = CRITICAL_OVERDUE if queued.is_critical else OVERDUE
        return was_tried and (hangs or bool(known)) and max(mono, retry_after_until) - began >= limit


# ---- the daily budget of one channel ---------------------------------------------------------------------------------

DAY: Seconds = 86_400.0
NEAR = 0.7
"""From this share of the budget on, what is not urgent is sent as a summary now and then."""
RESERVED = 0.9
"""The last tenth is for critical alerts. So the fifth between the two must last for a day of summaries."""
NEWS_PAUSE: Seconds = 60.0
"""Near the limit, the pause between two messages with new critical subjects: a storm of them must not use it up."""
RESERVED_NEWS_PAUSE: Seconds = 300.0
"""The same in the last tenth."""
CRITICAL_PAUSE: Seconds = 300.0
"""Near the limit, the pause before critical alerts of subjects of which people know."""
SPENT_PAUSE: Seconds = 3_600.0
"""Beyond the budget, critical alerts are still sent, together and once an hour: at most 24 more a day."""
SUBJECTS_AT_MOST = 10_000


class Budget:
    """The messages of one channel in the last 24 hours."""

    def __init__(self, per_day: int = 0) -> None:
        """`per_day`: how many messages; 0 for any number."""
        self.per_day = per_day
        self._sent: deque[Seconds] = deque(maxlen=2 * per_day)
        self._news: Seconds | None = None
        """When a critical alert of a new subject was last sent."""
        self._subjects: dict[str, Seconds] = {}
        """When a critical alert of each subject was last sent."""

    def restore(self, times: Iterable[Seconds]) -> None:
        """Count messages that earlier programs sent."""
        self._sent = deque(sorted([*self._sent, *times]), maxlen=self._sent.maxlen)

    def take_over(self, other: Budget) -> None:
        """Count what another worker of the same channel sent."""
        self._news, self._subjects = other._news, other._subjects
        self.restore(other._sent)

    def used(self, mono: Seconds) -> int:
        """How many messages were sent in the last 24 hours."""
        while self._sent and mono - self._sent[0] >= DAY:
            self._sent.popleft()
        return len(self._sent)

    def is_near(self, mono: Seconds) -> bool:
        """Whether few messages are left, so that all that waits goes in one."""
        return self.per_day > 0 and self.used(mono) >= NEAR * self.per_day

    def free_at(self, queued: QueuedNotification, mono: Seconds) -> Seconds:
        """From when on the channel may send it; -inf if the budget does not hold it back."""
        if not self.is_near(mono):
            return -math.inf
        used, last = len(self._sent), self._sent[-1]
        summary_at = last + DAY / ((RESERVED - NEAR) * self.per_day)
        if not queued.is_urgent:
            over = used - int(RESERVED * self.per_day)
            return summary_at if over < 0 else max(summary_at, self._sent[over] + DAY)
        if used >= self.per_day:
            return last + SPENT_PAUSE
        is_reserve = used >= RESERVED * self.per_day
        if self.is_news(queued, mono):
            pause = RESERVED_NEWS_PAUSE if is_reserve else NEWS_PAUSE
            return -math.inf if self._news is None else self._news + pause
        return summary_at if is_reserve else last + CRITICAL_PAUSE

    def is_news(self, queued: QueuedNotification, mono: Seconds) -> bool:
        """Whether it has a critical alert of a subject of which nothing critical was sent in the last 24 hours."""
        return queued.is_urgent and any(mono - self._subjects.get(one, -DAY) >= DAY for one in queued.critical_subjects)

    def spend(self, batch: Iterable[QueuedNotification], messages: int, mono: Seconds) -> None:
        """Count a batch that was sent as so many messages."""
        if not self.per_day:
            return
        for queued in batch:
            if self.is_news(queued, mono):
                self._news = mono
            if queued.is_urgent:
                self._subjects |= dict.fromkeys(queued.critical_subjects, mono)
        drop_oldest(self._subjects, SUBJECTS_AT_MOST)
        self._sent.extend([mono] * messages)
