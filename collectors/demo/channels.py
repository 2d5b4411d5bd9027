"""The demo's channels: a simulated phone and a simulated mail server. They send nothing."""

from __future__ import annotations

import time

from trainmon.alerting.notify.base import Message, Retry, Sent
from trainmon.lib import Seconds
from trainmon.model import Channel, Route

TEXT = "accepted by the demo, not sent"
BUSY_EVERY = 4
"""Every fourth message finds the mail server busy, so that a retry is visible."""


class DemoChannel:
    """Accepts a message after a delay, like a remote server."""

    def __init__(self, name: str, kind: str, target: str, *, delay: Seconds, busy: bool = False) -> None:
        self.health = Channel(name=name, type=kind, target=target, note="a demo channel: it sends nothing")
        self._delay = delay
        self._busy = busy
        self._messages = 0

    def send(self, message: Message, timeout: Seconds) -> Sent:
        """Send nothing, after a delay.

        Raises:
            Retry: when the channel plays a busy server.
        """
        time.sleep(min(self._delay, timeout))
        self._messages += 1
        if self._busy and self._messages % BUSY_EVERY == 2:
            raise Retry("451 the demo's mail server is busy: try again later", 12.0)
        return Sent(TEXT)


def channels() -> tuple[DemoChannel, ...]:
    """New senders for one notification service."""
    return (
        DemoChannel("phone", "ntfy", "ntfy.example/***", delay=0.7),
        DemoChannel("mail", "apprise", "mailto://***", delay=1.8, busy=True),
    )


ROUTES = (
    Route(channel="phone", severity="warning", heartbeat=False),
    Route(channel="mail", severity="critical", heartbeat=False),
)
