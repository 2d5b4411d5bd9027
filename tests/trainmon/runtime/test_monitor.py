"""The ledger of one start tells the engine what was open, and what is wrong."""

from __future__ import annotations

import queue
from pathlib import Path

from tests.trainmon.ledger.records import actions, record
from trainmon.config import LedgerSettings, Settings
from trainmon.model import ActionChanged, AttemptsRestored, Event, LedgerTrouble
from trainmon.runtime.monitor import ledger_of


def test_what_was_open_is_submitted_and_what_is_old_goes(tmp_path: Path) -> None:
    environ = {"XDG_STATE_HOME": str(tmp_path)}
    events: queue.Queue[Event] = queue.Queue()
    first = ledger_of(Settings(ledger=LedgerSettings(keep=1e12)), events.put, environ)
    first.start()
    first.write(record())
    first.stop()
    assert {events.get_nowait() for _ in range(events.qsize())} == {AttemptsRestored(())}, "there was nothing"
    second = ledger_of(Settings(), events.put, environ)
    second.start()
    assert events.get(timeout=120) == ActionChanged(record())
    assert actions(second, 0.0) == []
    second.stop()


def test_trouble_is_an_event(tmp_path: Path) -> None:
    (tmp_path / "trainmon-tui").touch()
    events: queue.Queue[Event] = queue.Queue()
    ledger = ledger_of(Settings(), events.put, {"XDG_STATE_HOME": str(tmp_path)})
    ledger.start()
    assert events.get(timeout=120) == LedgerTrouble(f"the ledger {tmp_path}/trainmon-tui: file exists")
    ledger.stop()
