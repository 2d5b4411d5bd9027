"""A calm day: 24 simulated hours of the demo without its troubles, through the real engine and all rules.

What is true of the demo's world is told and is no false alert: runs finish and begin anew. Anything
else is false, and there must be none.

Run: python -m tests.bench.calm [HOURS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from collectors.demo.collector import Demo
from collectors.demo.stories import Incident, Schedule
from tests.bench.program import run_program
from tests.trainmon.alerting.stories.story import FakeClock, Kept
from trainmon.alerting.manager import AlertManager
from trainmon.alerting.pipeline.routing import HeartbeatSpec, Routing
from trainmon.alerting.rules import RULES
from trainmon.engine.engine import Engine
from trainmon.lib import Seconds
from trainmon.model import (
    Alert,
    AlertsRestored,
    Event,
    Leadership,
    LeadershipChanged,
    Notice,
    Route,
    State,
    StoredAlerts,
)

HOURS = 24.0
TICK = 2.0
"""A sample's period: each look has seen new numbers."""


TRUE = frozenset({"finished", "restarted"})


class Nothing(Schedule):
    """No story happens: runs train, save, end and begin anew, and that is all."""

    def incidents(self, elapsed: Seconds) -> tuple[Incident, ...]:
        return ()


class CalmDay:
    """The demo, the engine and the alerts on one clock that only this advances."""

    def __init__(self, directory: Path) -> None:
        self.clock = FakeClock()
        self.kept = Kept()
        self._events: list[Event] = [LeadershipChanged(Leadership(holder="us")), AlertsRestored(StoredAlerts())]
        routing = Routing(routes=(Route(channel="phone", severity="info"),))
        spec = HeartbeatSpec(test_every=None, start=False)
        rules = tuple(rule() for rule in RULES)
        alerting = AlertManager(rules, routing, self.kept, heartbeat=spec, clock=self.clock)
        self.engine = Engine(self.clock, demo=True, alerting=alerting)
        self._demo = Demo(self._events.append, clock=self.clock, directory=directory / "demo", schedule=Nothing())
        self.seen: dict[str, Alert] = {}
        """Every alert that fired, by its id."""

    def step(self) -> State:
        self.clock.wall += TICK
        self.clock.steady += TICK
        self._demo.step()
        events, self._events[:] = list(self._events), []
        state = self.engine.step(events, self.clock.wall)
        self.seen |= {alert.id: alert for alert in state.alerts.values() if alert.fired_at is not None}
        return state

    def notices(self) -> list[Notice]:
        """What was told besides the signs of life."""
        return [notice for notice in self.kept.notices if notice.kind != "heartbeat"]

    def close(self) -> None:
        self._demo.stop()


def main() -> int:
    hours = float(sys.argv[1]) if len(sys.argv) > 1 else HOURS
    with tempfile.TemporaryDirectory() as directory:
        day = CalmDay(Path(directory))
        begin = time.monotonic()
        for step in range(int(hours * 3600 / TICK)):
            state = day.step()
            if step % 1800 == 1799:
                simulated, took = (step + 1) * TICK / 3600, time.monotonic() - begin
                print(f"{simulated:5.1f} h simulated in {took:5.0f} s, {len(day.notices())} told", flush=True)
        day.close()
    false = [alert for alert in day.seen.values() if alert.rule not in TRUE]
    for alert in false:
        print(f"  FALSE: {alert.rule} {alert.subject} ({alert.severity}): {alert.summary}")
    kinds = Counter(notice.kind for notice in day.kept.notices)
    true = Counter(alert.rule for alert in day.seen.values() if alert.rule in TRUE)
    print(f"{hours:g} h: {len(state.runs)} runs, {len(state.nodes)} nodes; notices: {dict(kinds)}; true: {dict(true)}")
    print(f"false alerts: {len(false)}")
    return 1 if false else 0


if __name__ == "__main__":
    run_program(main)
