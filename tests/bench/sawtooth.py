"""The disks of a training, through the real engine, the rules about disks and the alerts: what is told, and is it true?

Six disks of checkpoints that are written and deleted again, and one that others write to as well. Each begins with no
history at all. An alert while the disk is not full within two days is false, and there must be none in 24 hours; recall
is the share of the last 12 hours before it is full during which one fires.

Run: python -m tests.bench.sawtooth [HOURS]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from tests.bench.program import run_program
from tests.bench.table import show
from tests.trainmon.alerting.stories.story import BEGIN, FakeClock, Kept
from tests.trainmon.analysis.disks.sawtooths import HOUR, SERIES, TB, Look, Saved, Series, full_after, looks
from trainmon.alerting.manager import AlertManager
from trainmon.alerting.pipeline.routing import HeartbeatSpec, Routing
from trainmon.alerting.rules import DISKS
from trainmon.engine.engine import Engine
from trainmon.model import (
    Alert,
    AlertsRestored,
    CheckpointEntry,
    CheckpointListing,
    DiskSample,
    DiskSamples,
    Event,
    FileGroup,
    Leadership,
    LeadershipChanged,
    NodeReading,
    Route,
    RunsChanged,
    RunSpec,
    State,
    StoredAlerts,
)

HOURS = 110.0
PERIOD = 30.0
"""Seconds between two looks; every 10 s in truth."""

SHARED = Series("shared, others write 2 TB", total=40 * TB, keep=3, begins_with=20 * TB, others=2 * TB)


class Day:
    """One disk on a clock that only this advances."""

    def __init__(self, series: Series) -> None:
        self.series = series
        self.clock = FakeClock()
        self.kept = Kept()
        routing = Routing(routes=(Route(channel="phone", severity="info"),))
        spec = HeartbeatSpec(every=None, test_every=None, start=False)
        rules = tuple(rule() for rule in DISKS)
        self.engine = Engine(
            self.clock, alerting=AlertManager(rules, routing, self.kept, heartbeat=spec, clock=self.clock)
        )
        run = RunSpec(name="llm", cluster="prod", checkpoints="/fsx/ckpt")
        self._first: list[Event] = [
            LeadershipChanged(Leadership(holder="us")),
            AlertsRestored(StoredAlerts()),
            RunsChanged((run,)),
        ]

    def step(self, look: Look) -> State:
        now = self.clock.wall = BEGIN + look.at
        self.clock.steady = 50.0 + look.at
        events, self._first = self._first, []
        sample = DiskSample(
            path="/fsx", mount="/fsx", filesystem="lustre" if self.series.others else "xfs", read_only=False,
            total_bytes=int(self.series.total), free_bytes=int(look.free), total_inodes=10**9, free_inodes=9 * 10**8,
        )  # fmt: skip
        listing = CheckpointListing(1, now, "/fsx/ckpt", tuple(listed(look)))
        events += [NodeReading("login1", "prod", now, DiskSamples(1, now, (sample,)))]
        events += [NodeReading("login1", "prod", now, listing)]
        return self.engine.step(events, now)


def listed(look: Look) -> Iterator[CheckpointEntry]:
    """The directory as a probe lists it."""
    for one in (*look.kept, *(() if look.writing is None else (look.writing,))):
        yield entry(one, BEGIN + look.at if one is look.writing else BEGIN + one.at, is_whole=one is not look.writing)


def entry(one: Saved, at: float, *, is_whole: bool) -> CheckpointEntry:
    shards = FileGroup("__#_#.distcp", 8, int(one.bytes), at - 200, at, "__7_0.distcp")
    marker = (FileGroup(".metadata", 1, 1000, at, at, ".metadata"),) if is_whole else ()
    return CheckpointEntry(name=f"step-{one.number}", mtime=at, bytes=int(one.bytes), groups=(shards, *marker))


class Outcome(NamedTuple):
    """What became of one series."""

    full_at: float | None
    false: set[str]
    """What was told in vain."""
    recall: float | None
    first: float | None
    """Hours before it is full at which the first alert fired."""
    notices: int
    rules: list[str]


def go(series: Series, hours: float) -> Outcome:
    end = full_after(series, hours + 72)
    day, false, due = Day(series), set[str](), list[bool]()
    first = None
    for look in looks(series, hours, period=PERIOD):
        state = day.step(look)
        firing = [alert for alert in state.alerts.values() if alert.is_firing]
        left = float("inf") if end is None else end - look.at
        if left > 48 * HOUR:
            false |= {
                f"{alert.rule} at {look.at / HOUR:.1f} h: {alert.summary}" for alert in firing if is_new(alert, day)
            }
        elif firing and first is None:
            first = left / HOUR
        if left <= 12 * HOUR:
            due.append(bool(firing))
    fired = [notice for notice in day.kept.notices if notice.kind in ("fire", "worse", "flapping")]
    rules = sorted({alert.rule for notice in fired for alert in notice.alerts})
    return Outcome(end, false, sum(due) / len(due) if due else None, first, len(fired), rules)


def is_new(alert: Alert, day: Day) -> bool:
    return alert.fired_at is not None and day.clock.wall - alert.fired_at < PERIOD


def main() -> int:
    hours = float(sys.argv[1]) if len(sys.argv) > 1 else HOURS
    rows, wrong = [], []
    for series in (*SERIES, SHARED):
        began = time.monotonic()
        outcome = go(series, hours)
        wrong += [f"{series.name}: {words}" for words in sorted(outcome.false)]
        rows.append(
            (
                series.name,
                "never" if outcome.full_at is None else f"{outcome.full_at / HOUR:.1f} h",
                str(len(outcome.false)),
                "-" if outcome.recall is None else f"{outcome.recall:.0%}",
                "-" if outcome.first is None else f"{outcome.first:.1f} h before",
                str(outcome.notices),
                ", ".join(outcome.rules) or "-",
                f"{time.monotonic() - began:.0f} s",
            )
        )
    title = f"{hours:g} simulated hours each, from no history, a look every {PERIOD:g} s"
    show(title, ("disk", "full after", "false", "recall", "first alert", "told", "by", "took"), rows)
    print(*wrong, sep="\n")
    print(f"false alerts: {len(wrong)} (goal: 0)")
    return 1 if wrong else 0


if __name__ == "__main__":
    run_program(main)
