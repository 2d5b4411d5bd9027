"""A notification service for tests: a real ledger, channels that answer as scripted, and what the engine received."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.trainmon.alerting.notify.samples import alert, notice
from trainmon.alerting.notify.delivery.service import NotificationService
from trainmon.alerting.notify.message import Message, Sender, Sent
from trainmon.ledger.ledger import Ledger
from trainmon.lib import Instant, Seconds, SystemClock
from trainmon.model import AlertChanges, Channel, Delivered, Event, LeadershipChanged, Notice, Severity

NO_ROUTE = "no route to host"
PATIENT = 120.0
"""How long a test waits for what must come; a hang, if it does not."""
SLOW_LEDGER = 86_400.0
"""How long the service waits for the ledger: longer than the tests set the clock forward while it writes."""


def until(fact: Callable[[], object], what: str = "it") -> None:
    deadline = time.monotonic() + PATIENT
    pause = threading.Event()
    while not fact():
        assert time.monotonic() < deadline, f"{what} did not come true in {PATIENT:g}s"
        pause.wait(0.01)


class Shifted(SystemClock):
    """The machine's clocks, set forward or back by a test."""

    def __init__(self, by: Seconds = 0.0) -> None:
        self.by = by
        self.passed: Seconds = 0.0
        """By both clocks."""

    def passes(self) -> bool:
        """While a test waits, time passes quickly."""
        self.passed += 0.1
        return True

    def now(self) -> Instant:
        return super().now() + self.by + self.passed

    def monotonic(self) -> Seconds:
        return super().monotonic() + self.passed


class Phone:
    """A channel that takes everything, but for what its script says."""

    def __init__(self, name: str = "phone", severity: Severity = "info") -> None:
        self.health = Channel(name=name, type="phone", target="+49***", severity=severity)
        self.script: deque[Exception | threading.Event] = deque()
        """The next messages meet these, one each: an error, or they hang until the event is set."""
        self.always: Exception | None = None
        self.tried: list[Message] = []
        self.taken: list[Message] = []

    def send(self, message: Message, timeout: Seconds) -> Sent:
        self.tried.append(message)
        met = self.script.popleft() if self.script else self.always
        if isinstance(met, threading.Event):
            assert met.wait(PATIENT), "the test never let it go"
        elif met is not None:
            raise met
        self.taken.append(message)
        return Sent("taken")

    @property
    def keys(self) -> list[str]:
        """Of all notices that were told, in order."""
        return [result.key for message in self.taken for result in message.notices]


class Scene:
    """A notification service and what it told the engine."""

    def __init__(self, directory: Path, *phones: Sender, **options: Any) -> None:
        self.events: list[Event] = []
        self.troubles: list[str | None] = []
        parts = {name: options.pop(name) for name in ("factory", "is_network", "keep") if name in options}
        self.clock = options.pop("clock", None) or SystemClock()
        self.ledger = Ledger(directory, self.troubles.append, self.clock, **parts)
        self.service = NotificationService(
            self.ledger, phones, self.events.append, self.clock, **{"patience": SLOW_LEDGER, **options}
        )

    def start(self) -> None:
        self.ledger.start()
        self.service.start()

    def stop(self, flush: Seconds = 5.0) -> None:
        self.service.stop(flush)
        self.ledger.stop()

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def holder(self) -> str:
        duties = self.of(LeadershipChanged)
        return duties[-1].leadership.holder if duties else "nobody"

    @property
    def deliveries(self) -> list[tuple[str, str, str | None]]:
        return [(one.delivery.channel, one.delivery.state, one.delivery.answer) for one in self.of(Delivered)]

    def enqueue(self, *notices: Notice, **facts: Any) -> None:
        now = self.clock.now()
        alerts = tuple(one for result in notices for one in result.alerts)
        history = tuple((one.id, "fired", "it began") for one in alerts)
        self.service.enqueue(AlertChanges(at=now, alerts=alerts, notices=notices, history=history, **facts))

    def until_noted(self) -> None:
        """It is written down who has the duty."""
        until(lambda: self.rows("SELECT 1 FROM duty"), "the note of the duty")

    def until_marked(self) -> None:
        """Nothing is sent again by the next program."""
        query = "SELECT count(*) FROM outbox WHERE state IN ('waiting', 'leased')"
        until(lambda: self.rows(query) == [(0,)], "the marks of what was sent")

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """None in a new ledger that has no tables yet."""
        try:
            return plain(self.ledger.file, query)
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise
            return []


@contextmanager
def opened(directory: Path, *phones: Sender, **options: Any) -> Iterator[Scene]:
    """On duty when the test begins."""
    scene = Scene(directory, *phones, **options)
    scene.start()
    try:
        until(lambda: scene.holder == "us", "the duty")
        yield scene
    finally:
        scene.stop(0.0)


def plain(file: Path, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(file)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def fire(name: str = "a", *channels: str, at: Instant | None = None, **facts: Any) -> Notice:
    """That an alert began, for these channels."""
    at = time.time() if at is None else at
    one = alert(id=name, subject=f"run:{name}", since=at, found_at=at, fired_at=at)
    return notice(one, key=f"{name}-fire", channels=channels or ("phone",), at=at, **facts)
