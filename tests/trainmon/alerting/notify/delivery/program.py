"""A program that delivers notifications, for tests that kill it; its arguments: DIRECTORY FILE.

What it tells goes into FILE, a line a notice; it says `us` or `other` on standard output whenever its duty changes. It
evaluates ten times a second, each line of its input is an alert, and `hang` ends the evaluating, but no thread besides.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from pathlib import Path

from tests.trainmon.alerting.notify.delivery.scene import fire
from trainmon.alerting.notify.delivery.service import NotificationService
from trainmon.alerting.notify.message import Message, Sent
from trainmon.ledger.ledger import Ledger
from trainmon.lib import Seconds
from trainmon.model import AlertChanges, Channel, Event, LeadershipChanged, State


class Lines:
    """A channel that is a file."""

    health = Channel(name="phone", type="lines")

    def __init__(self, file: Path) -> None:
        self._file = file

    def send(self, message: Message, timeout: Seconds) -> Sent:
        with self._file.open("a") as stream:
            stream.writelines(f"{names.key}\n" for names in message.notices)
        return Sent()


PERIOD: Seconds = 0.1


def lines() -> queue.SimpleQueue[str | None]:
    """What it is told; None at the end."""
    names: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin:
            names.put(line.strip())
        names.put(None)

    threading.Thread(target=read, daemon=True).start()
    return names


def main(directory: Path, file: Path, is_network: bool, lease: Seconds, patience: Seconds) -> None:
    ledger = Ledger(directory, lambda _: None, is_network=is_network)

    def submit(event: Event) -> None:
        if isinstance(event, LeadershipChanged):
            print(event.leadership.holder, event.leadership.where, event.leadership.problem or "", sep="|", flush=True)

    service = NotificationService(ledger, (Lines(file),), submit, patience=patience, program="alerts-only", lease=lease)
    ledger.start()
    service.start()
    orders = lines()
    while True:
        now = time.time()
        service.tick(State(at=now, started_at=now, evaluated_at=now))
        try:
            line = orders.get(timeout=PERIOD)
        except queue.Empty:
            continue
        if line is None:
            break
        if line == "hang":
            threading.Event().wait()
        names = fire(line)
        service.enqueue(AlertChanges(at=now, alerts=names.alerts, notices=(names,)))
    service.stop()
    ledger.stop()


if __name__ == "__main__":
    disk, lease, patience = sys.argv[3:]
    main(Path(sys.argv[1]), Path(sys.argv[2]), disk == "network", float(lease), float(patience))
