"""A day of flapping, simulated: CPU and memory of the last hour, and how many messages a channel sends.

Sixty subjects on twenty nodes fire and resolve, the fastest every few seconds. The engine, the pipeline of the alerts,
the ledger (without waiting for the disk), the send queue with its daily budget and the renderer are the real ones. The
clock is not.

Run: python -m tests.bench.flapping
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.trainmon.alerting.stories.story import BEGIN, FakeClock, rule
from trainmon.alerting.manager import AlertManager
from trainmon.alerting.notify.delivery.batch import MessageBatch
from trainmon.alerting.notify.delivery.budget import Budget
from trainmon.alerting.notify.delivery.queue import SendQueue
from trainmon.alerting.notify.message import render
from trainmon.alerting.pipeline import Routing
from trainmon.engine.engine import Engine
from trainmon.ledger.alerts import HistoryLine, add_history, prune_alerts, write_changes
from trainmon.ledger.database import open_to_write
from trainmon.ledger.outbox import Mark, prune_outbox, write_marks, write_notices
from trainmon.lib import Seconds
from trainmon.model import (
    AlertChanges,
    AlertsRestored,
    Delivered,
    Delivery,
    Event,
    Finding,
    Leadership,
    LeadershipChanged,
    Notification,
    Route,
    StoredAlerts,
)

HOURS = 24
NODES = 20
PER_DAY = 200
"""The default budget of ntfy."""
REACH = 1.05
"""The last hour costs at most so much more than the second one: the first has no history yet."""


class Hour(NamedTuple):
    """What one simulated hour cost."""

    cpu: Seconds
    rss_mib: float
    messages: int
    alerts: int
    fired: int
    """How many episodes began."""


class Day:
    """One program that watches subjects which flap, on a clock of its own."""

    def __init__(self, directory: Path, *, tick: Seconds = 1.0) -> None:
        self._tick, self._file = tick, directory / "ledger.db"
        self._clock = FakeClock()
        self._findings: dict[tuple[str, str], Finding] = {}
        self._periods = {finding: 4.0 * tick + 7.0 * number for number, finding in enumerate(_subjects())}
        rules = (
            rule("infiniband-flapping", keep_firing_for=0.0, findings=self._findings),
            rule("gpu-hot", keep_firing_for=10.0, findings=self._findings),
            rule("node-unreachable", keep_firing_for=0.0, may_flap=False, findings=self._findings),
        )
        self._connection = open_to_write(self._file, is_network=False)
        self._connection.execute("PRAGMA synchronous = OFF")
        self._queue = SendQueue(Random(1), Budget(PER_DAY))
        alerting = AlertManager(rules, Routing(routes=(Route(channel="phone"),)), self, clock=self._clock)
        self._engine = Engine(self._clock, alerting=alerting)
        self._events: list[Event] = [LeadershipChanged(Leadership(holder="us")), AlertsRestored(StoredAlerts())]
        self.sent: list[Seconds] = []
        self.resolved: list[Seconds] = []
        self._fired = 0

    def close(self) -> None:
        self._connection.close()

    def hour(self) -> Hour:
        """Let an hour pass."""
        began, sent, fired = time.process_time(), len(self.sent), self._fired
        until = self._clock.steady + 3_600.0
        while self._clock.steady < until:
            self._clock.wall += self._tick
            self._clock.steady += self._tick
            self._flap()
            events, self._events = self._events, []
            self._engine.step(events, self._clock.wall)
            self._send()
        for prune in (prune_alerts, prune_outbox):
            prune(self._connection, self._clock.wall - 90 * 86_400.0)
        gc.collect()
        cpu = time.process_time() - began
        return Hour(cpu, _rss_mib(), len(self.sent) - sent, len(self._engine.state.alerts), self._fired - fired)

    def enqueue(self, changes: AlertChanges) -> None:
        """Implements Outbox: write to the ledger, then queue."""
        self._fired += sum(what == "fired" for _, what, _ in changes.history)
        self._connection.execute("BEGIN")
        write_changes(self._connection, changes)
        add_history(self._connection, (HistoryLine(changes.at, *entry) for entry in changes.history))
        write_notices(self._connection, changes.notices, (), changes.at)
        self._connection.execute("COMMIT")
        for notice in changes.notices:
            self._queue.add(
                Notification(id=0, channel="phone", notice=notice, made_at=changes.at), self._clock.monotonic()
            )

    def _flap(self) -> None:
        for (name, subject, severity), period in self._periods.items():
            key = (name, subject)
            if self._clock.steady % period < period / 2:
                node = subject.partition(":")[2].partition("/")[0].partition(" ")[0]
                self._findings.setdefault(
                    key,
                    Finding(rule=name, subject=subject, severity=severity, summary=f"{subject} is ill", node=node,
                            cluster="prod", evidence=(f"since {self._clock.wall:.0f}",)),  # type: ignore[arg-type]
                )  # fmt: skip
            else:
                self._findings.pop(key, None)

    def _send(self) -> None:
        now, mono = self._clock.now(), self._clock.monotonic()
        batch = self._queue.pick(mono)
        if not isinstance(batch, MessageBatch):
            return
        self._queue.lease(batch)
        message = render([one.notice for one in batch.notifications], now)
        self._queue.sent(batch)
        self._queue.budget.spend(batch.queued, 1, mono)
        self.sent.append(now - BEGIN)
        if message.title.startswith("RESOLVED"):
            self.resolved.append(now - BEGIN)
        self._connection.execute("BEGIN")
        write_marks(
            self._connection, (Mark(one.notice.key, "phone", "sent", now, 1, now, now) for one in batch.notifications)
        )
        self._connection.execute("COMMIT")
        for one in batch.notifications:
            delivery = Delivery(channel="phone", kind=one.notice.kind, state="sent", at=now)
            self._events.append(Delivered(tuple(alert.id for alert in one.notice.alerts), delivery))


def _subjects() -> Iterable[tuple[str, str, str]]:
    for number in range(NODES):
        yield "infiniband-flapping", f"node:gpu-{number:03} mlx5_0/1", "warning"
        yield "gpu-hot", f"gpu:gpu-{number:03}/3", "warning"
        yield "node-unreachable", f"node:gpu-{number:03}", "critical"


def _rss_mib() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> int:
    print("hour   CPU s  RSS MiB  messages  alerts in the State  episodes")
    hours: list[Hour] = []
    with tempfile.TemporaryDirectory() as folder:
        day = Day(Path(folder))
        for number in range(1, HOURS + 1):
            hours.append(hour := day.hour())
            print(
                f"{number:4}  {hour.cpu:6.1f}  {hour.rss_mib:7.1f}  {hour.messages:8}  {hour.alerts:19}  {hour.fired:8}"
            )
        day.close()
    second, last = hours[1], hours[-1]
    messages = sum(hour.messages for hour in hours)
    cpu, rss = last.cpu / second.cpu, last.rss_mib / second.rss_mib
    print(f"the last hour against the second: CPU {100 * cpu:.1f} %, RSS {100 * rss:.1f} % (reach {100 * REACH:.0f} %)")
    print(f"{messages} messages (reach {PER_DAY}), {len(day.resolved)} of them only of alerts that resolved")
    return 0 if cpu <= REACH and rss <= REACH and messages <= PER_DAY + 24 else 1


if __name__ == "__main__":
    sys.exit(main())
