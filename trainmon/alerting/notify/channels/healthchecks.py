"""Pings of healthchecks.io and similar services, for the channel `healthchecks` and the dead-man's switch."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from typing import Literal

from trainmon.alerting.notify.base import Broken, Message, Retry, Sent
from trainmon.alerting.notify.channels.http import Http, judge, text_of
from trainmon.alerting.notify.message import fitted
from trainmon.lib import Clock, Seconds, shorten_lines
from trainmon.model import Channel

BODY_BYTES = 10_000
"""Such a service keeps no more of a ping's text."""

UNKNOWN, TOO_MANY = "OK (not found)", "OK (rate limited)"
"""healthchecks.io answers so with status 200 if the address has the UUID of a check and not its name."""

Signal = Literal["", "start", "fail", "log"]
"""Empty: everything is ok."""


class Ping:
    """Pings the address of one check."""

    def __init__(self, name: str, url: str, clock: Clock | None = None) -> None:
        self._url = urllib.parse.urlsplit(url)
        self._http = Http(name, clock)

    def __call__(self, signal: Signal, text: str, timeout: Seconds) -> str:
        """Send a signal and return the response.

        Raises: Retry, Broken.
        """
        path = self._url.path.rstrip("/")
        url = self._url._replace(path=f"{path}/{signal}" if signal else path).geturl()
        body, headers = shorten_lines(text, BODY_BYTES, "…")[0].encode(), {"Content-Type": "text/plain; charset=utf-8"}
        reply = self._http.request("POST", url, body=body, headers=headers, timeout=timeout)
        response = text_of(reply.body)
        judge(reply, "" if reply.is_good else response)
        if response.startswith(UNKNOWN):
            raise Broken("it knows no such check; correct the address in the config")
        if response.startswith(TOO_MANY):
            raise Retry("it accepts no more pings in this minute", 60.0)  # its limit is five a minute
        return response


class Healthchecks:
    """A check that is down while a critical alert is open. All other notices are log lines."""

    def __init__(
        self,
        health: Channel,
        *,
        ping: Callable[[Signal, str, Seconds], str],
        known: Callable[[], frozenset[str] | None] | None = None,
    ) -> None:
        """`known`: the open critical alerts that this channel has notified of, also by an earlier program; None while
        that is not known. Without it, only alerts since the start count."""
        self.health = health
        self._known = known
        self._ping = ping
        self._open: set[str] = set()
        """The open critical alerts that this channel has notified of."""

    def send(self, message: Message, timeout: Seconds) -> Sent:
        known = frozenset(self._open) if self._known is None else self._known()
        newest = {alert.id: alert for notice in message.notices for alert in notice.alerts}
        critical = {one.id for one in newest.values() if one.severity == "critical" and one.is_open and not one.event}
        is_open = (set(self._open if known is None else known) - newest.keys()) | critical
        signal: Signal = "log"
        if critical:
            signal = "log" if all(notice.kind in ("acknowledged", "cause") for notice in message.notices) else "fail"
        elif not is_open and known is not None:
            # A heartbeat does not turn it up, except for alerts that ended without a notice because they were muted.
            is_over = self._open or any(notice.kind == "resolve" for notice in message.notices)
            signal = "" if is_over else "log"
        body = fitted(message, BODY_BYTES - len(message.title.encode()) - 2, "…")[0]
        response = self._ping(signal, f"{message.title}\n\n{body}", timeout)
        self._open = is_open
        return Sent(response)
