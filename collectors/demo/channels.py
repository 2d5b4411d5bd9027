"""The demo's channels: a phone and a mail server that take messages and tell nobody."""

from __future__ import annotations

import threading

from trainmon.alerting.notify.base import Message, Retry, Sent
from trainmon.lib import Seconds
from trainmon.model import Channel, Route

WORDS = "taken by the demo; nobody is told"
BUSY_EVERY = 4
"""Each fourth message finds the mail server busy, once: what is tried again is to be seen, too."""


class DemoChannel:
    """Takes a message after a moment, as a server far away does."""

    def __init__(self, name: str, kind: str, target: str, *, takes: Seconds, busy: bool = False) -> None:
        self.health = Channel(name=name, type=kind, target=target, note="a demo: it sends nothing")
        self._takes = takes
        self._busy = busy
        self._closed = threading.Event()
        self._messages = 0

    def send(self, message: Message, timeout: Seconds) -> Sent:
        self._closed.wait(min(self._takes, timeout))
        self._messages += 1
        if self._busy and self._messages % BUSY_EVERY == 2:
            raise Retry("451 the demo's mail server is busy: come again", 12.0)
        return Sent(WORDS)

    def close(self) -> None:
        self._closed.set()


def channels() -> tuple[DemoChannel, ...]:
    """The senders, new ones: each belongs to one office."""
    return (
        DemoChannel("phone", "ntfy", "ntfy.example/***", takes=0.7),
        DemoChannel("mail", "apprise", "mailto://***", takes=1.8, busy=True),
    )


ROUTES = (
    Route(channel="phone", severity="warning", heartbeat=False),
    Route(channel="mail", severity="critical", heartbeat=False),
)
