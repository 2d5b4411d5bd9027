"""Pings of healthchecks.io, or of a similar service: a channel, and a dead-man's switch.

`unwell` checks the last evaluation of the rules, the sources and the outbox, so a ping means that the whole loop works
and not only this thread. Nothing waits for this thread.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import urllib.parse
from collections import deque
from collections.abc import Callable
from typing import Literal

from trainmon.alerting.notify.channels.http import Http, judge, text_of
from trainmon.alerting.notify.message import Broken, Message, Retry, Sent, fitted
from trainmon.lib import Clock, Seconds, SystemClock, clean, shorten_lines
from trainmon.model import Channel

# ---- the channel -----------------------------------------------------------------------------------------------------

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


# ---- the dead-man's switch -------------------------------------------------------------------------------------------

log = logging.getLogger(__name__)

EVERY: Seconds = 60.0
CHECK_EVERY: Seconds = 5.0
"""How soon it reports that something is not well any more."""
NOT_SOONER: Seconds = 15.0
"""Such a service accepts five pings a minute."""
TIMEOUT: Seconds = 10.0
TRIES = 3
PAUSE: Seconds = 2.0
FAREWELL: Seconds = 5.0
"""How long the last ping may take."""
NAME = "dead-man's switch"


class DeadMansSwitch:
    """Pings one check of healthchecks.io or a similar service."""

    def __init__(
        self,
        url: str,
        unwell: Callable[[], str | None],
        clock: Clock | None = None,
        every: Seconds = EVERY,
        *,
        is_leader: Callable[[], bool] = lambda: True,
        check_every: Seconds = CHECK_EVERY,
        timeout: Seconds = TIMEOUT,
        pause: Seconds = PAUSE,
    ) -> None:
        """`unwell` returns why nobody may rely on this program now, None while they may; this thread calls it. A
        program that does not lead sends nothing: the leader pings."""
        self._unwell = unwell
        self._is_leader = is_leader
        self._clock = clock or SystemClock()
        self._every = every
        self._check_every = min(check_every, every)
        self._timeout = timeout
        self._pause = pause
        self._ping = Ping(NAME, url, self._clock)
        self._is_failing = False
        self._waiting: deque[tuple[Signal, str]] = deque(maxlen=32)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._is_leaving = False
        self._reported: str | None = None
        self._reported_at: Seconds | None = None
        self._is_suspect = False
        """Whether something was wrong at the last check."""
        self._thread = threading.Thread(target=self._run, name="dead-man", daemon=True)

    def start(self) -> None:
        """Send that the watch begins; the first ping follows when everything is ok."""
        self.submit("start", f"trainmon-tui has started to watch: {clean(socket.gethostname())}, pid {os.getpid()}")
        self._thread.start()

    def submit(self, signal: Signal, text: str) -> None:
        """Send a signal soon; from any thread, and never waits."""
        self._waiting.append((signal, text))
        self._wake.set()

    def farewell(self, text: str) -> None:
        """Send the last log line. During the shutdown no check is reported, good or bad."""
        self._is_leaving = True
        self.submit("log", text)

    def stop(self, within: Seconds = FAREWELL) -> None:
        """Send what waits, for at most this long. The pings end, so the service alerts: that is its purpose."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(within)

    def _run(self) -> None:
        while True:
            self._wake.wait(self._check_every)
            self._wake.clear()
            while self._waiting:
                self._send(*self._waiting.popleft())
            if self._stopping.is_set():
                return
            if not self._is_leaving and self._is_leader():
                self._feed()

    def _feed(self) -> None:
        """Ping, or report what is wrong, when it is time for it."""
        try:
            why = self._unwell()
        except Exception as error:  # a program that cannot check its health is not well
            log.exception("the dead-man's switch is not pinged")
            why = f"the check of whether everything is ok failed: {type(error).__name__}"
        was_suspect, self._is_suspect = self._is_suspect, why is not None
        if why is not None and not was_suspect:
            return  # checked again: after a sleep this thread may wake before the engine
        now = self._clock.monotonic()
        if self._reported_at is not None:
            age, has_changed = now - self._reported_at, (why is None) != (self._reported is None)
            if age < self._every and not (has_changed and age >= NOT_SOONER):
                return
        self._reported, self._reported_at = why, now
        self._send("" if why is None else "fail", why or "everything is ok")

    def _send(self, signal: Signal, text: str) -> None:
        """Try some times, with a pause in between; the next ping comes soon anyway."""
        for number in range(TRIES):
            try:
                self._ping(signal, text, self._timeout)
            except (Broken, Retry) as error:
                if not self._is_failing:
                    log.warning("the dead-man's switch cannot be pinged: %s", error.message)
                self._is_failing = True
                is_last = isinstance(error, Broken) or number + 1 == TRIES
                if is_last or self._stopping.wait(self._pause * (number + 1)):
                    return
            else:
                self._is_failing = False
                return
