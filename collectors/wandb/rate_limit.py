"""The polling rate of W&B, which limits requests per key, often for a whole team. Pure: time is an argument."""

from __future__ import annotations

from collectors.polling_thread import PollTimes
from trainmon.lib import Seconds

MAX_PAUSE: Seconds = 600.0
"""The longest pause between two rounds, after errors or rate limiting."""
OUTAGE_PAUSE: Seconds = 60.0
"""The longest pause while W&B is down or cannot be reached: it is polled again soon after it recovers. One request a
minute burdens nobody; a server that limits the rate is left alone for longer."""
MIN_PAUSE: Seconds = 1.0
"""The shortest pause between two rounds, however long one takes, and between two background requests."""


SOON: Seconds = 10.0
"""The pause while W&B has not yet shown whether a new run replaces the active one: its next heartbeat does."""


NEW_RUNS_SHARE = 0.25
"""Between two rounds, W&B is asked for new runs each quarter of the period: a second active run overwrites checkpoints,
and people should know of it within 30 s. One request covers all runs of a project."""


class WandbRateLimit(PollTimes):
    """When the next round is due. A round polls every run, one request at a time."""

    def __init__(self, every: Seconds) -> None:
        super().__init__(every)
        self._background_due = self._new_runs_due = float("-inf")
        self._failures = 0

    @property
    def is_healthy(self) -> bool:
        """Whether the last round succeeded."""
        return not self._failures

    def background_due_in(self, now: Seconds) -> Seconds:
        """Background requests come between the rounds, while there is no error."""
        return max(0.0, self._background_due - now)

    def new_runs_due_in(self, now: Seconds) -> Seconds:
        """The seconds until W&B is asked for new runs."""
        return max(0.0, self._new_runs_due - now)

    def new_runs_done(self, now: Seconds) -> None:
        self._new_runs_due = now + NEW_RUNS_SHARE * self._every

    def answered(self, now: Seconds) -> None:
        """The round has succeeded."""
        self._failures = 0
        self.interval = self._every
        self._due = max(self._began + self.interval, now + min(MIN_PAUSE, self._every))
        self.background_done(now)
        self.new_runs_done(self._began)

    def look_soon(self, now: Seconds) -> None:
        """The next answer decides something."""
        self._due = min(self._due, now + SOON)

    def failed(self, now: Seconds, *, is_outage: bool = False) -> None:
        """The round has failed. The SDK does not pass Retry-After on. `is_outage`: W&B is down or cannot be reached."""
        self._failures += 1
        doubled = self._every * 2.0 ** min(self._failures, 12)
        self.interval = min(max(OUTAGE_PAUSE if is_outage else MAX_PAUSE, self._every), doubled)
        self._due = now + self.interval

    def background_done(self, now: Seconds) -> None:
        self._background_due = now + min(MIN_PAUSE, self._every)
