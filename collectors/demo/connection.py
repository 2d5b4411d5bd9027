"""The demo's connection to a node: it connects, fails, retries, or waits for a login."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Literal

from collectors.demo.model.inventory import CLUSTER
from trainmon.lib import Instant, Seconds
from trainmon.model import Source

Outage = Literal["node", "reboot", "login"]
"""Why there is no connection: the name of a story."""

NOTICED_AFTER: Seconds = 6.0
"""A silent host is late for this long, then the connection fails."""
DIAL_TAKES: Seconds = 0.5
BACK_OFF = (1.0, 2.0, 4.0, 8.0)
PERIOD: Seconds = 2.0

ERRORS: dict[Outage, str] = {
    "node": "{} does not answer any more: no byte for 6 s",
    "reboot": "{} closed the connection: it is going down for a reboot",
    "login": "{} asks for a verification code to log in",
}
HINTS: dict[Outage, str] = {
    "node": "is the node up? r tries again now",
    "reboot": "it is redialled by itself",
    "login": "press L to log in",
}


class Connection:
    """The source of one node. `advance` yields its changes; `is_up`: its probe can be read now."""

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
        self._outage: Outage | None = None
        self._silent_since: Seconds | None = None
        self._resolved: Outage | None = None
        """An outage that a person ended by logging in, before its story ended."""

    def first(self) -> Source:
        return Source(name=self.name, kind="node", cluster=CLUSTER, period=PERIOD, phase="connecting")

    def advance(self, at: Seconds, now: Instant, outage: Outage | None) -> Iterator[Source]:
        """Apply the story's outage and the time: `at` is monotonic, `now` is the time of day."""
        if outage != self._resolved:
            self._resolved = None
        self._outage = None if outage == self._resolved else outage
        if self._phase == "up" and self._outage is not None:
            self.is_up = False
            if self._outage == "node":  # noticed late; a closed connection and a login are noticed at once
                self._silent_since = at if self._silent_since is None else self._silent_since
                if at - self._silent_since < NOTICED_AFTER:
                    return
            self._tries = 0
            yield self._failed(at, now, self._outage)
        elif self._phase == "up":
            self.is_up, self._silent_since = True, None
        elif (self._phase == "held" and self._outage is None) or (self._phase == "retrying" and at >= self._next):
            is_login = self._phase == "held"
            self._phase, self._next = "connecting", at + DIAL_TAKES
            # Until it answers, the reason for the failure still stands, unless the login was the reason.
            yield self._source("connecting") if is_login else self._source("connecting", self._error, self._hint)
        elif self._phase == "connecting" and at >= self._next:
            if self._outage is not None:
                yield self._failed(at, now, self._outage)
            else:
                self._phase, self.is_up, self._silent_since = "up", True, None
                yield self._source("up")

    def retry_now(self, at: Seconds) -> None:
        """Reconnect now, if it waits for its next retry."""
        if self._phase == "retrying":
            self._next = at

    def login(self) -> None:
        """A person has logged in."""
        if self._phase == "held":
            self._resolved = self._outage

    def _failed(self, at: Seconds, now: Instant, outage: Outage) -> Source:
        error, hint = self._error, self._hint = ERRORS[outage].format(self._node), HINTS[outage]
        if outage == "login":
            self._phase = "held"
            return self._source("held", error=error, hint=hint)
        wait = BACK_OFF[min(self._tries, len(BACK_OFF) - 1)] * self._random.uniform(0.8, 1.2)
        self._tries += 1
        self._phase, self._next = "retrying", at + wait
        return self._source("retrying", error=error, hint=hint, retry_at=now + wait)

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
