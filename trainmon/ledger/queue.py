"""The queue of the ledger's thread: records, attempts, texts, reads, transactions and tasks. Of each record and attempt
only the newest value waits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from trainmon.ledger.actions import ActionText
from trainmon.lib import Seconds
from trainmon.model import Attempt, Record

RECORDS_AT_MOST = 1_000
TEXTS_AT_MOST = 32
"""Of texts of 256 KiB: 8 MiB while a disk is away."""

Kind = Literal["written", "read", "transaction", "task"]
"""What is waited for: records, attempts and texts are written; a query; a transaction; work on the ledger's disk
beside its file."""


class Answer:
    """The result of queued work. `then` is called on the ledger's thread when the result is there."""

    def __init__(self, work: Callable[..., Any], then: Callable[[], None]) -> None:
        self.work = work
        self.done = threading.Event()
        self.found: Any = None
        self.error: str | None = None
        self._then = then

    def give(self, found: object = None, error: str | None = None) -> None:
        self.found, self.error = found, error
        self.done.set()
        self._then()


@dataclass(slots=True)
class Work:
    """What the thread takes at once."""

    records: dict[str, Record] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    texts: deque[ActionText] = field(default_factory=lambda: deque(maxlen=TEXTS_AT_MOST))
    answers: list[tuple[Kind, Answer]] = field(default_factory=list)

    def of(self, *kinds: Kind) -> list[Answer]:
        """The results of these kinds that somebody waits for."""
        return [answer for kind, answer in self.answers if kind in kinds]

    @property
    def writes(self) -> bool:
        return bool(self.records or self.attempts or self.texts or self.of("transaction"))


class WriteQueue:
    """Any thread adds work, the ledger's thread takes it. Its lock is never held during disk access."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._work = Work()
        self.is_stopping = False

    def put(self, item: Record | Attempt | ActionText, *, urgent: bool = False) -> Answer:
        """Write a record, an attempt or a text: now if it is urgent, else as soon as the ledger works. The oldest is
        dropped if the queue is full."""
        answer = Answer(lambda: None, lambda: None)
        with self._changed:
            records = self._work.records
            match item:
                case ActionText():
                    if urgent or len(self._work.texts) < TEXTS_AT_MOST:  # never in place of what somebody waits for
                        self._work.texts.append(item)
                case Attempt():
                    self._work.attempts[item.attempt_id] = item
                case Record():
                    records[item.action.id] = item
            for waiting in (records, self._work.attempts):
                if len(waiting) > RECORDS_AT_MOST:
                    del waiting[next(iter(waiting))]
            if urgent:
                self._work.answers.append(("written", answer))
            self._changed.notify()
        return answer

    def add(self, kind: Kind, work: Callable[..., Any], then: Callable[[], None] = lambda: None) -> Answer:
        """Do this work now."""
        answer = Answer(work, then)
        with self._changed:
            self._work.answers.append((kind, answer))
            self._changed.notify()
        return answer

    def stop(self) -> None:
        with self._changed:
            self.is_stopping = True
            self._changed.notify()

    def take(self, pause: Seconds | None) -> Work:
        """Wait for work and take all of it. A pause after a failure ends early for work that somebody waits for."""
        with self._changed:
            self._changed.wait_for(
                lambda: self.is_stopping or self._work.answers or (pause is None and self._work.writes), pause
            )
            work, self._work = self._work, Work()
            return work

    def put_back(self, work: Work) -> None:
        """Queue again what could not be written, unless newer work has replaced it."""
        with self._changed:
            self._work.records = {**work.records, **self._work.records}
            self._work.attempts = {**work.attempts, **self._work.attempts}
            self._work.texts = deque((*work.texts, *self._work.texts), maxlen=TEXTS_AT_MOST)
