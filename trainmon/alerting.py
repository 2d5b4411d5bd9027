"""Each look at the State: what is wrong, what of it is told, and what must be written down before it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from trainmon.clock import Clock, Instant, Seconds, SystemClock
from trainmon.model import Event, State
from trainmon.model_alerts import AlertChanges
from trainmon.routing import HeartbeatSpec, Routing
from trainmon.rules.base import Rule


class Post(Protocol):
    """Where what is to be told goes: it writes it down first, then has it sent."""

    def hand_over(self, changes: AlertChanges) -> None:
        """Take it; never blocks."""


class Alerting:
    """Belongs to the engine's thread. Without a post nothing is told: alerts are judged and shown."""

    def __init__(
        self,
        rules: tuple[Rule, ...],
        routing: Routing,
        post: Post | None,
        *,
        heartbeat: HeartbeatSpec | None = None,
        clock: Clock | None = None,
        hurry: Callable[[str], None] | None = None,
    ) -> None:
        """`hurry` has a source looked at soon, by its name: one that something pending rests on."""
        self._rules = rules
        self._routing = routing
        self._post = post
        self._heartbeat = heartbeat
        self._clock = clock or SystemClock()
        self._hurry = hurry

    @property
    def due_in(self) -> Seconds | None:
        """In how many seconds something is to be told: the engine makes its next State by then."""
        return None

    def look(self, state: State, events: Sequence[Event], now: Instant) -> State:
        """The State with its alerts as they are now; what is to be told is handed over."""
        return state

    def renew(self, rules: tuple[Rule, ...], routing: Routing) -> None:
        """From the next look on these are gone by; from any thread."""
        self._rules, self._routing = rules, routing

    def goodbye(self, why: str) -> None:
        """Tell that nobody watches from now on; from any thread."""
