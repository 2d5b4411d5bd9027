"""How often a scheduler is polled. Pure: time is an argument.

Slurm's manual asks programs not to call it in loops, sites forbid `watch squeue`, and a busy controller limits its
callers. Fewer requests get more answers.
"""

from __future__ import annotations

from collectors.polling_thread import PollTimes
from trainmon.lib import Seconds

MIN_INTERVAL: Seconds = 15.0
"""Between two polls while jobs change."""
FREQUENT_FOR: Seconds = 60.0
"""How long polls are frequent after an action or a job's change of state."""
IDLE_INTERVAL: Seconds = 300.0
"""Between two polls while there are no jobs, and have been none for a while."""
IDLE_AFTER: Seconds = 3_600.0
"""Whose job has died submits another soon: its attempts are short, and each is to be seen."""
MAX_INTERVAL: Seconds = 600.0
SLOW_ANSWER: Seconds = 3.0
"""A controller that needs longer for an answer is busy."""
RETRY_UNREACHED: Seconds = 2.0
"""Until the host's connection is checked again, which sends no request."""


class RateLimit(PollTimes):
    """When the next poll is due."""

    def __init__(self, every: Seconds) -> None:
        super().__init__(max(MIN_INTERVAL, every))
        self._frequent_until = self._had_jobs_at = float("-inf")
        self._factor = 1

    def answered(self, now: Seconds, took: Seconds, *, has_jobs: bool) -> None:
        """The poll has succeeded; `took` is the time that the controller needed."""
        self._factor = self._factor * 2 if took > SLOW_ANSWER else 1
        self._had_jobs_at = now if has_jobs else self._had_jobs_at
        is_idle = now - self._had_jobs_at >= IDLE_AFTER
        self._next(now, max(IDLE_INTERVAL, self._every) if is_idle else self._every)

    def failed(self, now: Seconds) -> None:
        """The poll has failed."""
        self._factor *= 2
        self._next(now, self._every)

    def absent(self, now: Seconds) -> None:
        """There is no scheduler."""
        self._factor, self.interval = 1, MAX_INTERVAL
        self._due = now + MAX_INTERVAL

    def unreached(self, now: Seconds) -> None:
        """The host is not connected: no request was sent."""
        self._due = now + RETRY_UNREACHED

    def poll_often(self, now: Seconds) -> None:
        """An action was run, or a job has changed."""
        self._frequent_until = now + FREQUENT_FOR
        self._due = min(self._due, max(now, self._began + MIN_INTERVAL))

    def _next(self, now: Seconds, interval: Seconds) -> None:
        if now < self._frequent_until:
            interval = MIN_INTERVAL
        self._factor = min(self._factor, int(MAX_INTERVAL))
        self.interval = min(max(MAX_INTERVAL, interval), interval * self._factor)
        self._due = now + self.interval
