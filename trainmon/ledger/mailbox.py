"""What waits for the ledger's thread: the newest record of each action, texts, and questions. Never blocks a sender."""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from trainmon.clock import Seconds
from trainmon.ledger.rows import KeptText
from trainmon.model_actions import Record

RECORDS_AT_MOST = 1_000
TEXTS_AT_MOST = 32
"""Of texts of 256 KiB: 8 MiB while a disk is away."""


class Answer:
    """What somebody waits for: that a record is written, or what a question found."""

    def __init__(self, work: Callable[[sqlite3.Connection], Any] | None = None) -> None:
        self.work = work
        self.done = threading.Event()
        self.found: Any = None
        self.error: str | None = None

    def give(self, found: object = None, error: str | None = None) -> None:
        self.found, self.error = found, error
        self.done.set()


class Batch(NamedTuple):
    """What the thread takes at once."""

    records: dict[str, Record]
    texts: tuple[KeptText, ...]
    waiting: tuple[Answer, ...]
    """For the records to be written."""
    questions: tuple[Answer, ...]

    @property
    def writes(self) -> bool:
        return bool(self.records or self.texts)


class Mailbox:
    """Between all threads and the ledger's; its lock is held for a moment only, never while a disk is waited for."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._records: dict[str, Record] = {}
        self._texts: deque[KeptText] = deque(maxlen=TEXTS_AT_MOST)
        self._waiting: list[Answer] = []
        self._questions: list[Answer] = []
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

    def ask(self, work: Callable[[sqlite3.Connection], Any]) -> Answer:
        answer = Answer(work)
        with self._changed:
            self._questions.append(answer)
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
            batch = Batch(self._records, tuple(self._texts), tuple(self._waiting), tuple(self._questions))
            self._records, self._waiting, self._questions = {}, [], []
            self._texts.clear()
            return batch

    def _has_work(self, in_pause: bool) -> bool:
        if self._stopping or self._waiting or self._questions:
            return True
        return not in_pause and bool(self._records or self._texts)

    def put_back(self, batch: Batch) -> None:
        """What could not be written waits again, where nothing newer came meanwhile."""
        with self._changed:
            self._records = {**batch.records, **self._records}
            room = TEXTS_AT_MOST - len(self._texts)
            self._texts.extendleft(reversed(batch.texts[max(0, len(batch.texts) - room) :]))
