"""The demo's stories raise real alerts, by the real rules; without a story nothing is wrong."""

from __future__ import annotations

from pathlib import Path

from collectors.demo.collector import BUSY_EVERY, ROUTES, TEXT, Demo, channels
from collectors.demo.stories import Incident, Schedule
from trainmon.alerting.manager import AlertManager
from trainmon.alerting.notify.message import Message, Retry
from trainmon.alerting.pipeline.routing import Routing
from trainmon.alerting.rules import RULES
from trainmon.engine.engine import Engine
from trainmon.lib import Seconds
from trainmon.model import (
    Alert,
    AlertChanges,
    AlertsRestored,
    Event,
    Leadership,
    LeadershipChanged,
    Notice,
    StoredAlerts,
)

STARTED = 1_760_000_000.0


class Nothing(Schedule):
    """No story happens."""

    def incidents(self, elapsed: Seconds) -> tuple[Incident, ...]:
        return ()


class Day:
    """The demo under the real rules; its clock moves when it is stepped, and a look is taken every two seconds."""

    def __init__(self, directory: Path, schedule: Schedule) -> None:
        self.passed: Seconds = 0.0
        self.notices: list[Notice] = []
        self.fired: dict[str, Alert] = {}
        self._events: list[Event] = [LeadershipChanged(Leadership(holder="us")), AlertsRestored(StoredAlerts())]
        alerting = AlertManager(tuple(rule() for rule in RULES), Routing(routes=ROUTES), self, clock=self)
        self._engine = Engine(self, demo=True, alerting=alerting)
        self._demo = Demo(self._events.append, clock=self, directory=directory / "demo", schedule=schedule)

    def now(self) -> float:
        return STARTED + self.passed

    def monotonic(self) -> float:
        return 1_000.0 + self.passed

    def enqueue(self, changes: AlertChanges) -> None:
        self.notices += changes.notices

    def play(self, seconds: Seconds) -> Day:
        looked = -1.0
        try:
            while self.passed < seconds:
                wait = self._demo.step()
                if self.passed - looked >= 2.0:
                    looked = self.passed
                    events = self._events.copy()
                    self._events.clear()
                    state = self._engine.step(events, self.now())
                    self.fired |= {name: one for name, one in state.alerts.items() if one.is_firing}
                self.passed += wait
        finally:
            self._demo.stop()
        return self

    @property
    def rules(self) -> set[str]:
        return {one.rule for one in self.fired.values()}


def test_the_stories_of_the_first_minutes_are_reported(tmp_path: Path) -> None:
    day = Day(tmp_path, Schedule()).play(280.0)

    assert day.rules >= {"xid", "gpu-lost", "node-drained", "gpu-hot", "run-dead", "run-hung", "disk-full"}
    notified = {alert.rule for notice in day.notices for alert in notice.alerts}
    assert notified >= {"gpu-lost", "gpu-hot", "run-hung", "disk-full"}


def test_without_a_story_nothing_is_sent_for_five_minutes(tmp_path: Path) -> None:
    day = Day(tmp_path, Nothing()).play(300.0)

    assert (day.fired, day.notices) == ({}, [])


def message() -> Message:
    return Message(key="k", severity="critical", title="t", body="b", notices=(), at=STARTED)


def test_the_demos_channels_accept_messages_and_send_nothing() -> None:
    assert channels()[0].send(message(), 0.0).answer == TEXT


def test_its_mail_server_is_busy_now_and_then_and_takes_the_same_message_later() -> None:
    mail = channels()[1]
    came = []
    for _ in range(BUSY_EVERY):
        try:
            came.append(mail.send(message(), 0.0).answer)
        except Retry as busy:
            came.append(busy.message)
    assert came == [TEXT, "451 the demo's mail server is busy: try again later", TEXT, TEXT]


def test_every_route_has_its_channel() -> None:
    assert {route.channel for route in ROUTES} == {one.health.name for one in channels()}
