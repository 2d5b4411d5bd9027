"""The demo's connection to one node: it comes up, breaks, is redialled, is held until a person logs in."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Literal

from collectors.demo.model.inventory import CLUSTER
from trainmon.lib import Instant, Seconds
from trainmon.model import Source

Cut = Literal["node", "reboot", "login"]
"""Why there is no connection, by the story's name."""

NOTICED_AFTER: Seconds = 6.0
"""A host that goes silent is first late, then given up."""
DIAL_TAKES: Seconds = 0.5
BACK_OFF = (1.0, 2.0, 4.0, 8.0)
PERIOD: Seconds = 2.0

ERRORS: dict[Cut, str] = {
    "node": "{} does not answer any more: no byte for 6 s",
    "reboot": "{} closed the connection: it is going down for a reboot",
    "login": "{} asks for a verification code to log in",
}
HINTS: dict[Cut, str] = {
    "node": "is the node up? r tries again now",
    "reboot": "it is redialled by itself",
    "login": "press L to log in",
}


class Link:
    """One node's source. `advance` says how it changed; `is_up` whether its probe is heard now."""

    def __init__(self, node: str, up_at: Seconds, random: Random) -> None:
        self.name = f"node:{node}"
        self.is_up = False
        self._node = node
        self._random = random
        self._phase: Literal["connecting", "up", "retrying", "held"] = "connecting"
        self._next = up_at
        self._tries = 0
        self._error: str | None = None
        self._hint: str | None = None
        self._cut: Cut | None = None
        self._silent_since: Seconds | None = None
        self._excused: Cut | None = None
        """A cut that a person has mended before its story ended."""

    def first(self) -> Source:
        return Source(name=self.name, kind="node", cluster=CLUSTER, period=PERIOD, phase="connecting")

    def advance(self, at: Seconds, now: Instant, cut: Cut | None) -> Iterator[Source]:
        """Take note of what the story says, and of time: `at` runs evenly, `now` is what a person reads."""
        if cut != self._excused:
            self._excused = None
        self._cut = None if cut == self._excused else cut
        if self._phase == "up" and self._cut is not None:
            yield from self._breaks(at, now, self._cut)
        elif self._phase == "up":
            self.is_up, self._silent_since = True, None
        elif (self._phase == "held" and self._cut is None) or (self._phase == "retrying" and at >= self._next):
            yield self._dial(at)
        elif self._phase == "connecting" and at >= self._next:
            yield self._answered(at, now)

    def hurry(self, at: Seconds) -> None:
        """Redial now, if it waits for its next try."""
        if self._phase == "retrying":
            self._next = at

    def login(self) -> None:
        """A person has logged in again."""
        if self._phase == "held":
            self._excused = self._cut

    def _breaks(self, at: Seconds, now: Instant, cut: Cut) -> Iterator[Source]:
        """A silent node is noticed late; a closed connection and a login at once."""
        self.is_up = False
        if cut == "node":
            self._silent_since = at if self._silent_since is None else self._silent_since
            if at - self._silent_since < NOTICED_AFTER:
                return
        self._tries = 0
        yield self._failed(at, now, cut)

    def _failed(self, at: Seconds, now: Instant, cut: Cut) -> Source:
        error, hint = self._error, self._hint = ERRORS[cut].format(self._node), HINTS[cut]
        if cut == "login":
            self._phase = "held"
            return self._source("held", error=error, hint=hint)
        wait = BACK_OFF[min(self._tries, len(BACK_OFF) - 1)] * self._random.uniform(0.8, 1.2)
        self._tries += 1
        self._phase, self._next = "retrying", at + wait
        return self._source("retrying", error=error, hint=hint, retry_at=now + wait)

    def _dial(self, at: Seconds) -> Source:
        """Until it answers, the reason why it is down still stands; a login that was done has mended its own."""
        is_mended = self._phase == "held"
        self._phase, self._next = "connecting", at + DIAL_TAKES
        return self._source("connecting") if is_mended else self._source("connecting", self._error, self._hint)

    def _answered(self, at: Seconds, now: Instant) -> Source:
        if self._cut is not None:
            return self._failed(at, now, self._cut)
        self._phase, self.is_up, self._silent_since = "up", True, None
        return self._source("up")

    def _source(
        self,
        phase: Literal["connecting", "up", "retrying", "held"],
        error: str | None = None,
        hint: str | None = None,
        retry_at: Instant | None = None,
    ) -> Source:
        return Source(
            name=self.name,
            kind="node",
            cluster=CLUSTER,
            health="ok" if phase == "up" else "down" if error else "late",
            period=PERIOD,
            phase=phase,
            retry_at=retry_at,
            error=error,
            hint=hint,
        )
