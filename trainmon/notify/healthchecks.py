"""Pings of healthchecks.io and its like: the channel `healthchecks`, and what the dead-man's switch speaks with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from trainmon.clock import Clock, Seconds
from trainmon.model_alerts import Channel, Notice
from trainmon.notify.base import Message, Sent
from trainmon.notify.http import Http, judge, text_of
from trainmon.notify.message import fit

BODY_BYTES = 10_000
"""What such a service keeps of a ping's text."""

Signal = Literal["", "start", "fail", "log"]
"""Nothing: all is well."""


class Ping:
    """One check's address. It is asked with what there is to say."""

    def __init__(self, name: str, url: str, clock: Clock | None = None) -> None:
        self._url = url.rstrip("/")
        self._http = Http(name, clock)

    def __call__(self, signal: Signal, text: str, timeout: Seconds) -> str:
        """Say it. Returns what came back; raises Retry or Broken."""
        body = fit(text, BODY_BYTES, "…")[0].encode()
        url = f"{self._url}/{signal}" if signal else self._url
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        reply = self._http.ask("POST", url, body=body, headers=headers, timeout=timeout)
        judge(reply, "" if reply.is_good else text_of(reply.body))
        return text_of(reply.body)


class Healthchecks:
    """A check that is down while a critical alert is open; of all else it keeps a log."""

    def __init__(self, health: Channel, *, ping: Callable[[Signal, str, Seconds], str]) -> None:
        self._health = health
        self._ping = ping
        self._open: set[str] = set()
        """The critical alerts that were told here and are not over."""

    @property
    def health(self) -> Channel:
        return self._health

    def send(self, message: Message, timeout: Seconds) -> Sent:
        is_open = set(self._open)
        for notice in message.notices:
            _follow(is_open, notice)
        words = self._ping(_signal(message, is_open, self._open), f"{message.title}\n\n{message.body}", timeout)
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

    A sign of life does not turn it up: after a restart it is not known here what was told before.
    """
    critical = any(alert.id in is_open for notice in message.notices for alert in notice.alerts)
    if critical and not all(notice.kind == "acknowledged" for notice in message.notices):
        return "fail"
    resolved = any(notice.kind == "resolve" for notice in message.notices)
    return "" if not is_open and (resolved or was_open) else "log"
