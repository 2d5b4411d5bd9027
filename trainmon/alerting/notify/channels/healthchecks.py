"""Pings of healthchecks.io and its like: the channel `healthchecks`, and what the dead-man's switch speaks with."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from typing import Literal

from trainmon.alerting.notify.base import Broken, Message, Retry, Sent
from trainmon.alerting.notify.channels.http import Http, judge, text_of
from trainmon.alerting.notify.message import fit, fitted
from trainmon.lib import Clock, Seconds
from trainmon.model import Channel, Notice

BODY_BYTES = 10_000
"""What such a service keeps of a ping's text."""

UNKNOWN, TOO_MANY = "OK (not found)", "OK (rate limited)"
"""healthchecks.io says so with a status of 200, where the address has the number of a check and not its name."""
REFILL: Seconds = 60.0
"""It takes five pings a minute."""

Signal = Literal["", "start", "fail", "log"]
"""Nothing: all is well."""


class Ping:
    """One check's address. It is asked with what there is to say."""

    def __init__(self, name: str, url: str, clock: Clock | None = None) -> None:
        self._url = urllib.parse.urlsplit(url)
        self._http = Http(name, clock)

    def __call__(self, signal: Signal, text: str, timeout: Seconds) -> str:
        """Say it. Returns what came back; raises Retry or Broken."""
        body = fit(text, BODY_BYTES, "…")[0].encode()
        path = self._url.path.rstrip("/")
        url = self._url._replace(path=f"{path}/{signal}" if signal else path).geturl()
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        reply = self._http.ask("POST", url, body=body, headers=headers, timeout=timeout)
        words = text_of(reply.body)
        judge(reply, "" if reply.is_good else words)
        if words.startswith(UNKNOWN):
            raise Broken("it knows no such check; correct the address in the config")
        if words.startswith(TOO_MANY):
            raise Retry("it takes no more pings this minute", REFILL)
        return words


class Healthchecks:
    """A check that is down while a critical alert is open; of all else it keeps a log."""

    def __init__(
        self,
        health: Channel,
        *,
        ping: Callable[[Signal, str, Seconds], str],
        known: Callable[[], frozenset[str] | None] | None = None,
    ) -> None:
        """`known` are the critical alerts that were told here, by a program before this one as well, and are open; None
        while that cannot be said. Without it, what was told before the start is not known."""
        self._health = health
        self._known = known
        self._ping = ping
        self._open: set[str] = set()
        """The critical alerts that were told here and are not over."""

    @property
    def health(self) -> Channel:
        return self._health

    def send(self, message: Message, timeout: Seconds) -> Sent:
        known = frozenset(self._open) if self._known is None else self._known()
        is_open = set(self._open if known is None else known)
        for notice in message.notices:
            _follow(is_open, notice)
        signal = _signal(message, is_open, self._open)
        if signal == "" and known is None:
            signal = "log"  # something that was told before the start may be open
        body = fitted(message, BODY_BYTES - len(message.title.encode()) - 2, "…")[0]
        words = self._ping(signal, f"{message.title}\n\n{body}", timeout)
        self._open = is_open
        return Sent(words)

    def close(self) -> None:
        """Nothing is held between two messages."""


def _follow(is_open: set[str], notice: Notice) -> None:
    for alert in notice.alerts:
        if alert.severity == "critical" and alert.phase != "resolved" and not alert.event:
            is_open.add(alert.id)
        else:
            is_open.discard(alert.id)


def _signal(message: Message, is_open: set[str], was_open: set[str]) -> Signal:
    """Down with every word of a critical alert, up when the last one is over; of all else only a line is kept.

    A sign of life does not turn it up, but for what ended without a word because it was muted.
    """
    critical = any(alert.id in is_open for notice in message.notices for alert in notice.alerts)
    if critical and not all(notice.kind == "acknowledged" for notice in message.notices):
        return "fail"
    resolved = any(notice.kind == "resolve" for notice in message.notices)
    return "" if not is_open and (resolved or was_open) else "log"
