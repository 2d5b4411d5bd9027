"""The queue of the ledger's thread: the newest record of each action, texts, reads, transactions and tasks."""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from trainmon.ledger.actions import KeptText
from trainmon.lib import Seconds
from trainmon.model import Record

RECORDS_AT_MOST = 1_000
TEXTS_AT_MOST = 32
"""Of texts of 256 KiB: 8 MiB while a disk is away."""


class Answer:
    """The result of queued work. `then` is called on the ledger's thread when the result is there."""

    def __init__(self, work: Callable[..., Any] | None = None, then: Callable[[], None] | None = None) -> None:
        self.work = work
        self.done = threading.Event()
        self.found: Any = None
        self.error: str | None = None
        self._then = then

    def give(self, found: object = None, error: str | None = None) -> None:
        self.found, self.error = found, error
        self.done.set()
        if self._then is not None:
            self._then()


class Work(NamedTuple):
    """What the thread takes at once."""

    records: dict[str, Record]
    texts: tuple[KeptText, ...]
    waiting: tuple[Answer, ...]
    """For the records to be written."""
    reads: tuple[Answer, ...]
    transactions: tuple[Answer, ...] = ()
    tasks: tuple[Answer, ...] = ()
    """What is done on the ledger's disk beside its file."""

    @property
    def writes(self) -> bool:
        return bool(self.records or self.texts or self.transactions)


class WriteQueue:
    """Any thread adds work, the ledger's thread takes it. Its lock is never held during disk access."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._records: dict[str, Record] = {}
        self._texts: deque[KeptText] = deque(maxlen=TEXTS_AT_MOST)
        self._waiting: list[Answer] = []
        self._reads: list[Answer] = []
        self._transactions: list[Answer] = []
        self._tasks: list[Answer] = []
        self._stopping = False
        self.dropped = 0
        """How many records were dropped because the queue was full."""

    def put(self, record: Record, *, urgent: bool = False) -> Answer:
        """Write a record: now if it is urgent, else as soon as the ledger works."""
        answer = Answer()
        with self._changed:
            self._records[record.action.id] = record
            while len(self._records) > RECORDS_AT_MOST:
                del self._records[next(iter(self._records))]
                self.dropped += 1
            if urgent:
                self._waiting.append(answer)
            self._changed.notify()
        return answer

    def put_text(self, text: KeptText) -> Answer:
        """Write a text now. It waits until the ledger works, unless newer texts need its room."""
        answer = Answer()
        with self._changed:
            self._texts.append(text)
            self._waiting.append(answer)
            self._changed.notify()
        return answer

    def read(self, work: Callable[[sqlite3.Connection], Any], then: Callable[[], None] | None = None) -> Answer:
        return self._add(self._reads, Answer(work, then))

    def transact(self, work: Callable[[sqlite3.Connection], Any], then: Callable[[], None] | None = None) -> Answer:
        """Run a transaction once; the caller handles its failure."""
        return self._add(self._transactions, Answer(work, then))

    def run(self, work: Callable[[], Any], then: Callable[[], None] | None = None) -> Answer:
        """Run something where a hung disk blocks nobody else."""
        return self._add(self._tasks, Answer(work, then))

    def _add(self, waiting: list[Answer], answer: Answer) -> Answer:
        with self._changed:
            waiting.append(answer)
            self._changed.notify()
        return answer

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()

    @property
    def is_stopping(self) -> bool:
        return self._stopping

    def take(self, pause: Seconds | None) -> Work:
        """Wait for work and take all of it. A pause after a failure ends early for work that somebody waits for."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_work(pause is not None), pause)
            work = Work(
                self._records,
                tuple(self._texts),
                tuple(self._waiting),
                tuple(self._reads),
                tuple(self._transactions),
                tuple(self._tasks),
            )
            self._records = {}
            for taken in (self._texts, self._waiting, self._reads, self._transactions, self._tasks):
                taken.clear()
            return work

    def _has_work(self, in_pause: bool) -> bool:
        if self._stopping or self._waiting or self._reads or self._transactions or self._tasks:
            return True
        return not in_pause and bool(self._records or self._texts)

    def put_back(self, work: Work) -> None:
        """Queue again what could not be written, unless newer work has replaced it."""
        with self._changed:
            self._records = {**work.records, **self._records}
            room = TEXTS_AT_MOST - len(self._texts)
            self._texts.extendleft(reversed(work.texts[max(0, len(work.texts) - room) :]))
