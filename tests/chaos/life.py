"""One life of a monitoring program: the real engine, alerting, delivery and channels, on faults from a file.

It ends as it was told to: killed (SIGKILL, by itself) at its n-th point, or when its time is over. A point is every
statement to the ledger, every word to the engine, and before and after each message.
"""

from __future__ import annotations

import os
import queue
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from trainmon.alerting.manager import AlertManager
from trainmon.alerting.notify.channels.apprise.sender import Apprise
from trainmon.alerting.notify.channels.ntfy import Ntfy
from trainmon.alerting.notify.channels.webhook import Webhook
from trainmon.alerting.notify.delivery.service import NotificationService
from trainmon.alerting.notify.message import Message, Sender, Sent
from trainmon.alerting.pipeline.routing import Routing
from trainmon.alerting.rules import Rule
from trainmon.engine.engine import Engine
from trainmon.ledger.ledger import Ledger
from trainmon.lib import Instant, Seconds, SystemClock
from trainmon.model import AlertChanges, Channel, Event, Finding, Route, State

LOOKS = 20.0
"""Times as many looks at the rules as in the product."""

TIMEOUT = 20.0
"""Longer than a life: a receiver that hangs keeps its channel for all of it, and what a slow one took is never sent
again because of that."""


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """How a life is."""

    directory: str
    faults: str
    diary: str
    """Gets a line for each message that is tried: its key, and those of its notices."""
    ntfy: str
    webhook: str
    mail: str | None = None
    fallback: str | None = None
    """A webhook that stands in for the others."""
    kill_at: int = 0
    """The point that it is killed at; 0: at none."""
    from_detection: bool = True
    """Whether points count from when something was found, and not from the start."""
    seconds: Seconds = 1.2
    """Killed at the latest then."""
    shift: Seconds = 0.0
    """How wrong the machine's clock is."""
    pages: int = 0
    """The ledger's disk has room for so many; 0: enough."""
    is_network: bool = False
    ends_well: bool = False
    """Ends in order when its time is over."""


class Points:
    """Counts, and kills."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._lock = threading.Lock()
        self._is_armed = not spec.from_detection
        self.count = 0

    def arm(self) -> None:
        self._is_armed = True

    def pass_by(self, name: str) -> None:
        with self._lock:
            if self._is_armed:
                self.count += 1
                if self.count == self._spec.kill_at:
                    die(name)


def die(name: str) -> None:
    os.write(1, f"killed {name}\n".encode())
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


class Clock(SystemClock):
    def __init__(self, shift: Seconds, pace: float = 1.0) -> None:
        self._shift, self._pace = shift, pace

    def now(self) -> Instant:
        return super().now() + self._shift

    def monotonic(self) -> Seconds:
        return super().monotonic() * self._pace


class Connection(sqlite3.Connection):
    """Each statement is a point before it and one after it."""

    points: ClassVar[Points]
    pages: ClassVar[int] = 0

    def __init__(self, *values: Any, **options: Any) -> None:
        super().__init__(*values, **options)
        if self.pages:
            super().execute(f"PRAGMA max_page_count = {self.pages}")

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        with self._between_points(sql):
            return super().execute(sql, *values)

    def executemany(self, sql: str, *values: Any) -> sqlite3.Cursor:
        with self._between_points(sql):
            return super().executemany(sql, *values)

    @contextmanager
    def _between_points(self, sql: str) -> Iterator[None]:
        name = " ".join(sql.split()[: 4 if sql.startswith("INSERT OR") else 3 if sql.startswith("INSERT") else 2])
        self.points.pass_by(f"before {name}")
        yield
        self.points.pass_by(f"after {name}")


class Pointed:
    """A channel with a point before and after each message, which the diary is told of."""

    def __init__(self, sender: Sender, points: Points, diary: Path) -> None:
        self.health = sender.health
        self._sender = sender
        self._points = points
        self._diary = diary

    def send(self, message: Message, timeout: Seconds) -> Sent:
        with self._diary.open("a") as stream:
            stream.write(" ".join([message.key, *(notice.key for notice in message.notices)]) + "\n")
        self._points.pass_by(f"before sending by {self.health.name}")
        sent = self._sender.send(message, timeout)
        self._points.pass_by(f"after sending by {self.health.name}")
        return sent


class Faulty(Rule, frozen=True, kw_only=True):
    """Finds what the file of faults says."""

    file: str
    mailed: bool

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for name in Path(self.file).read_text().split():
            if name.startswith("m") == self.mailed:
                yield Finding(
                    rule=self.name,
                    subject=f"run:{name}",
                    severity="critical" if int(name[1:]) % 2 else "warning",
                    summary=f"{name} has a fault",
                    run=name,
                )


def rule(name: str, *, file: str, mailed: bool) -> Rule:
    names = {"name": name, "family": "runs", "__module__": __name__}
    made = msgspec.defstruct(name, [], bases=(Faulty,), namespace=names, frozen=True, kw_only=True)
    found: Rule = made(for_=0.0, keep_firing_for=0.0, file=file, mailed=mailed)
    return found


class Post:
    """What is found is a point, and from there points may count."""

    def __init__(self, service: NotificationService, points: Points) -> None:
        self._service = service
        self._points = points

    def enqueue(self, changes: AlertChanges) -> None:
        if changes.notices:
            self._points.arm()
        self._points.pass_by("before handing over")
        self._service.enqueue(changes)
        self._points.pass_by("after handing over")


def senders(spec: Spec, points: Points) -> list[Sender]:
    made: list[Sender] = [
        Ntfy(Channel(name="ntfy", type="ntfy", severity="info"), server=spec.ntfy, topic="ops", pictures=False),
        Webhook(Channel(name="webhook", type="webhook", severity="info"), url=spec.webhook, headers={}),
    ]
    if spec.mail is not None:
        made.append(Apprise(Channel(name="mail", type="apprise", severity="info"), url=spec.mail, pictures=False))
    if spec.fallback is not None:
        made.append(Webhook(Channel(name="fallback", type="webhook"), url=spec.fallback, headers={}))
    return [Pointed(sender, points, Path(spec.diary)) for sender in made]


def live(spec: Spec) -> None:
    """Until it is killed, or its time is over."""
    points, events = Points(spec), queue.SimpleQueue[Event]()
    Connection.points, Connection.pages = points, spec.pages
    clock = Clock(spec.shift)

    def submit(event: Event) -> None:
        points.pass_by(f"a {type(event).__name__}")
        events.put(event)

    routes = (
        Route(channel="ntfy", severity="info"),
        Route(channel="webhook", severity="info"),
        *([Route(channel="mail", severity="info", rules=("mailed",))] if spec.mail is not None else []),
        *([Route(channel="fallback", fallback=True)] if spec.fallback is not None else []),
    )
    ledger = Ledger(Path(spec.directory), lambda _: None, clock, factory=Connection, is_network=spec.is_network)
    service = NotificationService(
        ledger, senders(spec, points), submit, clock, routes=routes, timeout=TIMEOUT, program="chaos"
    )
    rules = tuple(rule(name, file=spec.faults, mailed=name == "mailed") for name in ("plain", "mailed"))
    post = Post(service, points)
    alerting = AlertManager(rules, Routing(routes=routes, group_wait=0.0), post, clock=Clock(spec.shift, LOOKS))
    engine = Engine(clock, ledger=ledger, alerting=alerting)
    ledger.start()
    service.start()
    over = time.monotonic() + spec.seconds
    while time.monotonic() < over:
        batch = []
        while not events.empty():
            batch.append(events.get())
        service.tick(engine.step(batch, clock.now()))
        time.sleep(0.02)
    if not spec.ends_well:
        die("when its time was over")
    service.stop()
    ledger.stop()
    os.write(1, f"ended {points.count}\n".encode())
