"""The dead-man's switch: somebody elsewhere is told every minute that all is well here, and speaks up when it is not.

Only the whole loop earns a ping: what `unwell` looks at is the last look of the rules, the sources and the outbox, not
whether this thread runs. It never holds anything up: its own thread waits, and nobody waits for it.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.alerting.notify.base import Broken, Retry
from trainmon.alerting.notify.channels.healthchecks import Ping, Signal
from trainmon.alerting.notify.channels.http import host_of
from trainmon.lib import Clock, Instant, Seconds, SystemClock, clean
from trainmon.model import Channel

log = logging.getLogger(__name__)

EVERY: Seconds = 60.0
LOOK: Seconds = 5.0
"""How soon it is told that something is not well any more."""
NOT_SOONER: Seconds = 15.0
"""Such a service takes five pings a minute."""
TIMEOUT: Seconds = 10.0
TRIES = 3
PAUSE: Seconds = 2.0
WAITING = 32
FAREWELL: Seconds = 5.0
"""At the end, how long the last words may take."""
NAME = "dead-man's switch"


class Said(NamedTuple):
    """One ping that is to be sent."""

    signal: Signal
    text: str


class DeadMansSwitch:
    """Feeds one check of healthchecks.io or its like."""

    def __init__(
        self,
        url: str,
        unwell: Callable[[], str | None],
        clock: Clock | None = None,
        every: Seconds = EVERY,
        *,
        is_leader: Callable[[], bool] = lambda: True,
        look: Seconds = LOOK,
        timeout: Seconds = TIMEOUT,
        pause: Seconds = PAUSE,
    ) -> None:
        """`unwell` says why nobody may rely on us now, None while they may; it is asked on this thread. Who does not
        lead says nothing, and not that something is wrong: another program pings then."""
        self._unwell = unwell
        self._is_leader = is_leader
        self._clock = clock or SystemClock()
        self._every = every
        self._look = min(look, every)
        self._timeout = timeout
        self._pause = pause
        self._ping = Ping(NAME, url, self._clock)
        self._channel = Channel(name=NAME, type="healthchecks", target=host_of(url))
        self._waiting: deque[Said] = deque(maxlen=WAITING)
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._is_leaving = False
        self._told: str | None = None
        self._told_at: Seconds | None = None
        self._is_suspect = False
        """Whether something was wrong at the look before."""
        self._thread = threading.Thread(target=self._run, name="dead-man", daemon=True)

    @property
    def channel(self) -> Channel:
        """How its own way is doing."""
        return self._channel

    def start(self) -> None:
        """Say that a watch begins; the first ping follows when all is well."""
        self._say("start", f"trainmon-tui watches from now on: {clean(socket.gethostname())}, pid {os.getpid()}")
        self._thread.start()

    def fail(self, reason: str) -> None:
        """Say now that something is wrong; from any thread, and never waits."""
        self._say("fail", reason)

    def log(self, text: str) -> None:
        """Have a line kept there; from any thread, and never waits."""
        self._say("log", text)

    def farewell(self, text: str) -> None:
        """The same for the last line: while the parts are let go nothing is said to be well, and nothing to fail."""
        self._is_leaving = True
        self.log(text)

    def stop(self, within: Seconds = FAREWELL) -> None:
        """Say what still waits, for at most so long. It is not fed any more: that it speaks up then is its purpose."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(within)

    def _say(self, signal: Signal, text: str) -> None:
        self._waiting.append(Said(signal, text))
        self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait(self._look)
            self._wake.clear()
            while self._waiting:
                self._send(self._waiting.popleft())
            if self._stopping.is_set():
                return
            if not self._is_leaving and self._is_leader():
                self._feed()

    def _feed(self) -> None:
        """Ping, or say what is wrong, when it is time for it."""
        why = self._why()
        was_suspect, self._is_suspect = self._is_suspect, why is not None
        if why is not None and not was_suspect:
            return  # asked again at the next look: after a sleep this thread may wake before the one that looks
        now = self._clock.monotonic()
        age = None if self._told_at is None else now - self._told_at
        is_news = (why is None) != (self._told is None) and age is not None and age >= NOT_SOONER
        if age is not None and age < self._every and not is_news:
            return
        self._told, self._told_at = why, now
        self._send(Said("", "all is well") if why is None else Said("fail", why))

    def _why(self) -> str | None:
        try:
            return self._unwell()
        except Exception as error:  # whatever it is: who cannot say that he is well is not
            log.exception("the dead-man's switch is not fed")
            return f"it cannot be told whether all is well: {type(error).__name__}"

    def _send(self, said: Said) -> None:
        """Some tries, with a pause between them; the next ping comes soon anyway."""
        for number in range(TRIES):
            try:
                words = self._ping(said.signal, said.text, self._timeout)
            except Broken as error:
                self._note(error.message, "broken")
                return
            except Retry as error:
                self._note(error.message, "retrying")
                if number + 1 < TRIES and self._stopping.wait(self._pause * (number + 1)):
                    return
            else:
                self._note(words, None)
                return

    def _note(self, words: str, trouble: str | None) -> None:
        before, now = self._channel, self._clock.now()
        if trouble is None:
            self._channel = replace(before, state="ok", words=None, since=None, sent_at=now, sent=before.sent + 1)
            return
        if before.since is None:
            log.warning("the dead-man's switch cannot be fed: %s", words)
        since: Instant = before.since if before.since is not None else now
        self._channel = replace(before, state=trouble, words=words, since=since, failed=before.failed + 1)
