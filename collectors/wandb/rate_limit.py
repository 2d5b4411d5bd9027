"""How often W&B is asked: its limit of requests is counted per key, for a whole team. Pure: time is an argument."""

from __future__ import annotations

from trainmon.lib import Seconds

LONGEST: Seconds = 600.0
"""Between two rounds, however long it has failed or asked to be left alone."""
REFRESH: Seconds = 5.0
"""Between two rounds that a person asks for."""
REST: Seconds = 1.0
"""At least so long between two rounds, however long one takes; and between two errands."""


class RateLimit:
    """When the next round of questions is due. A round asks of every run of ours, one question at a time."""

    def __init__(self, every: Seconds) -> None:
        self.interval = self._every = every
        """The time between two rounds as it is now."""
        self._due = self._began = float("-inf")
        self._errand_due = float("-inf")
        self._failures = 0

    @property
    def is_well(self) -> bool:
        """Whether the last round was answered."""
        return not self._failures

    def due_in(self, now: Seconds) -> Seconds:
        return max(0.0, self._due - now)

    def errand_in(self, now: Seconds) -> Seconds:
        """What is asked once and can wait comes between the rounds, while all is well."""
        return max(0.0, self._errand_due - now)

    def begin(self, now: Seconds) -> None:
        """A round begins."""
        self._began = now

    def answered(self, now: Seconds) -> None:
        """It has succeeded."""
        self._failures = 0
        self.interval = self._every
        self._due = max(self._began + self.interval, now + min(REST, self._every))
        self.ran_errand(now)

    def failed(self, now: Seconds) -> None:
        """The server, or the way to it, has failed. How long it asks to be left alone the SDK keeps to itself."""
        self._failures += 1
        doubled = self._every * 2.0 ** min(self._failures, 12)
        self.interval = min(max(LONGEST, self._every), doubled)
        self._due = now + self.interval

    def ran_errand(self, now: Seconds) -> None:
        self._errand_due = now + min(REST, self._every)

    def refresh(self, now: Seconds) -> None:
        """A person wants to see it now."""
        self._due = min(self._due, max(now, self._began + REFRESH))
