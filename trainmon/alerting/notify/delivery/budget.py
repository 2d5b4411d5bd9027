"""The daily budget of one channel: how many messages it may still send, and what waits when few are left. Pure.

ntfy.sh accepts 250 messages a day (docs.ntfy.sh/publish/#limitations), then refuses each for the rest of the day. All
times are those of the monotonic clock.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from trainmon.alerting.notify.delivery.batch import QueuedNotification
from trainmon.lib import Seconds

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
        while len(self._subjects) > SUBJECTS_AT_MOST:
            del self._subjects[next(iter(self._subjects))]
        self._sent.extend([mono] * messages)
