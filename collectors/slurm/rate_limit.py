"""How often a scheduler is asked: politely. Pure: time is an argument.

Slurm's manual asks programs not to call it in loops, sites forbid `watch squeue`, and a controller that is busy limits
its callers: whoever asks less gets an answer.
"""

from __future__ import annotations

from trainmon.lib import Seconds

FLOOR: Seconds = 15.0
"""Between two looks while something happens."""
HURRIED: Seconds = 60.0
"""How long something happens: after an action, or a job's change of state."""
REFRESH: Seconds = 5.0
"""Between two looks that a person asks for."""
IDLE: Seconds = 300.0
"""Between two looks while nobody has a job."""
LONGEST: Seconds = 600.0
SLOW: Seconds = 3.0
"""An answer that took longer comes from a controller that has enough to do."""
UNREACHED: Seconds = 2.0
"""Until it is looked again whether its host is connected, which asks nobody."""


class RateLimit:
    """When the next look is due."""

    def __init__(self, every: Seconds) -> None:
        self.interval = self._every = max(FLOOR, every)
        """The time between two looks as it is now."""
        self._due = self._began = self._hurried_until = float("-inf")
        self._factor = 1

    def due_in(self, now: Seconds) -> Seconds:
        return max(0.0, self._due - now)

    def begin(self, now: Seconds) -> None:
        """A look begins."""
        self._began = now

    def answered(self, now: Seconds, took: Seconds, *, has_jobs: bool) -> None:
        """It has succeeded; `took` is how long the controller needed."""
        self._factor = self._factor * 2 if took > SLOW else 1
        self._next(now, self._every if has_jobs else max(IDLE, self._every))

    def failed(self, now: Seconds) -> None:
        """It had no answer, or a bad one."""
        self._factor *= 2
        self._next(now, self._every)

    def absent(self, now: Seconds) -> None:
        """There is no scheduler."""
        self._factor, self.interval = 1, LONGEST
        self._due = now + LONGEST

    def unreached(self, now: Seconds) -> None:
        """Its host is not connected: nobody was asked."""
        self._due = now + UNREACHED

    def hurry(self, now: Seconds) -> None:
        """Something happens: a person has acted, or a job has changed."""
        self._hurried_until = now + HURRIED
        self._due = min(self._due, max(now, self._began + FLOOR))

    def refresh(self, now: Seconds) -> None:
        """A person wants to see it now."""
        self._due = min(self._due, max(now, self._began + REFRESH))

    def _next(self, now: Seconds, interval: Seconds) -> None:
        if now < self._hurried_until:
            interval = FLOOR
        self._factor = min(self._factor, int(LONGEST))
        self.interval = min(max(LONGEST, interval), interval * self._factor)
        self._due = now + self.interval
