"""Alerting in the engine: in its place, in its thread, and no danger to it."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from trainmon.alerting.manager import AlertManager
from trainmon.alerting.pipeline.routing import Routing
from trainmon.alerting.rules import Rule
from trainmon.engine.engine import Engine
from trainmon.lib import SystemClock
from trainmon.model import (
    AlertChanges,
    AlertsRestored,
    DisksChanged,
    Event,
    Finding,
    Leadership,
    LeadershipChanged,
    Route,
    State,
    StoredAlerts,
)


class Full(Rule, frozen=True, kw_only=True):
    """Found as soon as a disk has a usable share: an event that a test can send."""

    name = "full"
    family = "disks"
    origin = "the test"

    def check(self, state: State, now: float) -> Iterator[Finding]:
        if state.usable:
            yield Finding(rule="full", subject="disk:n1:/", severity="critical", summary="full")


class RecordingDelivery:
    """Implements Post: remembers what was handed over, and wakes the test when something is told."""

    def __init__(self) -> None:
        self.changes: list[AlertChanges] = []
        self.has_told = threading.Event()

    def enqueue(self, changes: AlertChanges) -> None:
        self.changes.append(changes)
        if changes.notices:
            self.has_told.set()


class Falling(AlertManager):
    """Falls over at each look."""

    def evaluate(self, state: State, events: Sequence[Event], now: float) -> State:
        raise ValueError("boom")


def test_what_is_found_is_handed_over_by_the_engines_thread_without_another_event() -> None:
    post, clock = RecordingDelivery(), SystemClock()
    alerting = AlertManager((Full(),), Routing(routes=(Route(channel="phone"),)), post, clock=clock)
    engine = Engine(clock, alerting=alerting)
    engine.start()
    try:
        for event in (
            LeadershipChanged(Leadership(holder="us")),
            AlertsRestored(StoredAlerts()),
            DisksChanged({"/": 0.8}),
        ):
            engine.submit(event)
        assert post.has_told.wait(30)
    finally:
        engine.stop()
    notice = next(notice for changes in post.changes for notice in changes.notices)
    assert (notice.kind, notice.channels, notice.alerts[0].summary) == ("fire", ("phone",), "full")


def test_the_leader_reports_when_the_next_message_is_due_and_a_standby_never() -> None:
    alerting = AlertManager(
        (Full(),), Routing(routes=(Route(channel="phone"),), group_wait=0.5), RecordingDelivery(), clock=SystemClock()
    )
    state = State(usable={"/": 0.8})
    state = alerting.evaluate(
        state, [LeadershipChanged(Leadership(holder="us")), AlertsRestored(StoredAlerts())], 1000.0
    )
    assert alerting.due_in == 0.5
    state = alerting.evaluate(state, [LeadershipChanged(Leadership(holder="other"))], 1000.2)
    assert alerting.due_in is None


def test_alerts_that_cannot_be_judged_stop_no_dashboard() -> None:
    engine = Engine(SystemClock(), alerting=Falling((), Routing(), None))
    state = engine.step([DisksChanged({"/": 0.8})], 1000.0)
    assert state.usable == {"/": 0.8}
    assert state.evaluated_at is None


def test_without_a_post_alerts_are_judged_and_shown() -> None:
    engine = Engine(SystemClock(), alerting=AlertManager((Full(),), Routing(routes=(Route(channel="phone"),)), None))
    state = engine.step([DisksChanged({"/": 0.8})], 1000.0)
    assert [alert.phase for alert in state.alerts.values()] == ["firing"]
    assert state.evaluated_at == 1000.0
