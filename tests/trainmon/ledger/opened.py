"""A ledger that is open, and its faults."""

from __future__ import annotations

import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainmon.ledger.ledger import Ledger

Troubles = queue.Queue[str | None]


class At:
    """A clock that a test sets."""

    def __init__(self, at: float = 2000.0) -> None:
        self.at = at

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


@contextmanager
def opened(directory: Path, **options: Any) -> Iterator[tuple[Ledger, Troubles]]:
    troubles: Troubles = queue.Queue()
    ledger = Ledger(directory, troubles.put, options.pop("clock", None) or At(), **options)
    ledger.start()
    try:
        yield ledger, troubles
    finally:
        ledger.stop()


def until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    pause = threading.Event()
    while not fact():
        assert time.monotonic() < deadline, "it did not come true in 120s"
        pause.wait(0.02)


def plain(file: Path, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(file)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


class Stuck(sqlite3.Connection):
    """A disk whose commits hang until a test lets them go."""

    hung = threading.Event()
    go = threading.Event()

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql == "COMMIT" and self.hung.is_set():
            assert self.go.wait(30)
        return super().execute(sql, *values)
