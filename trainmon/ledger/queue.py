"""What waits for the ledger's thread: the newest record of each action, texts, and questions. Never blocks a sender."""

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
    """What somebody waits for: that a record is written, or what a question found. `then` hears, on the ledger's
    thread, that it is there."""

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


class Batch(NamedTuple):
    """What the thread takes at once."""

    records: dict[str, Record]
    texts: tuple[KeptText, ...]
    waiting: tuple[Answer, ...]
    """For the records to be written."""
    questions: tuple[Answer, ...]
    deeds: tuple[Answer, ...] = ()
    """Each a transaction of its own."""
    errands: tuple[Answer, ...] = ()
    """What is done on the ledger's disk beside its file."""

    @property
    def writes(self) -> bool:
        return bool(self.records or self.texts or self.deeds)


class WriteQueue:
    """Between all threads and the ledger's; its lock is held for a moment only, never while a disk is waited for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._records: dict[str, Record] = {}
        self._texts: deque[KeptText] = deque(maxlen=TEXTS_AT_MOST)
        self._waiting: list[Answer] = []
        self._questions: list[Answer] = []
        self._deeds: list[Answer] = []
        self._errands: list[Answer] = []
        self._stopping = False
        self.dropped = 0
        """Records that had no room."""

    def put(self, record: Record, *, urgent: bool = False) -> Answer:
        """Have a record written: at once if it is urgent, else when the ledger works again."""
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
        """Have a text written at once; it waits as long as it must, unless newer ones need its room."""
        answer = Answer()
        with self._changed:
            self._texts.append(text)
            self._waiting.append(answer)
            self._changed.notify()
        return answer

    def ask(self, work: Callable[[sqlite3.Connection], Any], then: Callable[[], None] | None = None) -> Answer:
        return self._enter(self._questions, Answer(work, then))

    def do(self, work: Callable[[sqlite3.Connection], Any], then: Callable[[], None] | None = None) -> Answer:
        """Have a transaction made, once: whoever gives it sees to it when it fails."""
        return self._enter(self._deeds, Answer(work, then))

    def send(self, work: Callable[[], Any], then: Callable[[], None] | None = None) -> Answer:
        """Have something done where a disk that hangs stops nobody else."""
        return self._enter(self._errands, Answer(work, then))

    def _enter(self, waiting: list[Answer], answer: Answer) -> Answer:
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

    def take(self, pause: Seconds | None) -> Batch:
        """All there is, waiting for some. During a pause (after a failure) only what a person waits for ends it."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_work(pause is not None), pause)
            batch = Batch(
                self._records,
                tuple(self._texts),
                tuple(self._waiting),
                tuple(self._questions),
                tuple(self._deeds),
                tuple(self._errands),
            )
            self._records = {}
            for taken in (self._texts, self._waiting, self._questions, self._deeds, self._errands):
                taken.clear()
            return batch

    def _has_work(self, in_pause: bool) -> bool:
        if self._stopping or self._waiting or self._questions or self._deeds or self._errands:
            return True
        return not in_pause and bool(self._records or self._texts)

    def put_back(self, batch: Batch) -> None:
        """What could not be written waits again, where nothing newer came meanwhile."""
        with self._changed:
            self._records = {**batch.records, **self._records}
            room = TEXTS_AT_MOST - len(self._texts)
            self._texts.extendleft(reversed(batch.texts[max(0, len(batch.texts) - room) :]))
