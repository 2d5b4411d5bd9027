"""The States of the engine for the screens, and what has changed since the dashboard was last used."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

from trainmon.analysis.last_seen import is_settled, seen
from trainmon.lib import Instant, Seconds
from trainmon.model import LastSeen, State
from tui.views.alerts import urgent
from tui.views.news import Change, changes_since, late_runs, summary, with_late_runs

# ---- passes States from another thread to the app --------------------------------------------------------------------

PAINT_EVERY: Seconds = 1.0
"""Often enough for a reader, and seldom enough for a slow SSH connection."""


class StateFeed:
    """Holds the latest State; `post` is called once until it is collected."""

    def __init__(self, post: Callable[[], object]) -> None:
        self._post = post
        self._lock = threading.Lock()
        self._latest: State | None = None

    def put(self, state: State) -> None:
        """From any thread. Never blocks, and never raises for an app that is gone."""
        with self._lock:
            is_first, self._latest = self._latest is None, state
        if is_first:
            self._post()

    def collect(self) -> State | None:
        """The latest State, once."""
        with self._lock:
            latest, self._latest = self._latest, None
        return latest


PROMPT, WARM_UP = 0.25, 10.0
"""The same for so many seconds after the start, when a person waits for the first data."""


def wait_before_paint(
    painted_at: Seconds | None, key_at: Seconds, now: Seconds, begun_at: Seconds = -math.inf
) -> Seconds:
    """Seconds to wait until the next paint: none after a key press, else what is left of the second."""
    every = PROMPT if now - begun_at < WARM_UP else PAINT_EVERY
    return 0.0 if painted_at is None or key_at > painted_at else max(0.0, painted_at + every - now)


LARGE, CALM = 128, 1.2
"""Above this number of nodes, a State this soon after the painted one waits for the next: a paint costs more, and each
node sends its numbers every 2 s anyway."""


def can_skip(state: State, painted: State) -> bool:
    """Whether the next State is early enough to be painted. That a new alert needs a person is painted at once."""
    if len(state.nodes) <= LARGE or not 0 <= state.at - painted.at < CALM:
        return False
    before, now = (urgent(one.alerts.values(), one.at) for one in (painted, state))
    return {(one.id, one.severity) for one in now} <= {(one.id, one.severity) for one in before}


# ---- follows what changed since the dashboard was last used ----------------------------------------------------------

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

    def current(self, state: State) -> tuple[Change, ...]:
        """The changes until now, for the list: the line may be older."""
        if self.seen is None:
            return ()
        return with_late_runs(changes_since(self.seen, state), late_runs(self.seen, state), self.seen, state)[0]

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
