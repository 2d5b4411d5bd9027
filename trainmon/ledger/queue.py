"""The queue of the ledger's thread: what is to be written, reads, transactions and tasks. Of each record, attempt,
result and GPU hour only the newest value waits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from trainmon.ledger.actions import ActionText
from trainmon.ledger.attempts import AttemptHour, RunEval
from trainmon.lib import Seconds, drop_oldest
from trainmon.model import Attempt, Record

RECORDS_AT_MOST = 1_000
EVALS_AT_MOST = 10_000
"""Of 20 runs, all that stay in memory."""
TEXTS_AT_MOST = 32
"""Of texts of 256 KiB: 8 MiB while a disk is away."""

Kind = Literal["written", "read", "transaction", "task"]
"""What is waited for: what `put` takes is written; a query; a transaction; work on the ledger's disk
beside its file."""


class Answer:
    """The result of queued work. `then` is called on the ledger's thread when the result is there."""

    def __init__(self, work: Callable[..., Any], then: Callable[[], None]) -> None:
        self.work = work
        self.done = threading.Event()
        self.found: Any = None
        self.error: str | None = None
        self.is_locked = False
        """Whether another program has locked the ledger."""
        self._then = then

    def give(self, found: object = None, error: str | None = None, *, is_locked: bool = False) -> None:
        self.found, self.error, self.is_locked = found, error, is_locked
        self.done.set()
        self._then()


@dataclass(slots=True)
class Work:
    """What the thread takes at once."""

    records: dict[str, Record] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    evals: dict[tuple[str, str], RunEval] = field(default_factory=dict)
    hours: dict[tuple[str, str], AttemptHour] = field(default_factory=dict)
    texts: deque[ActionText] = field(default_factory=lambda: deque(maxlen=TEXTS_AT_MOST))
    answers: list[tuple[Kind, Answer]] = field(default_factory=list)

    def of(self, *kinds: Kind) -> list[Answer]:
        """The results of these kinds that somebody waits for."""
        return [answer for kind, answer in self.answers if kind in kinds]

    @property
    def has_rows(self) -> bool:
        return bool(self.records or self.attempts or self.evals or self.hours or self.texts)

    @property
    def writes(self) -> bool:
        return self.has_rows or bool(self.of("transaction"))

    def drop_oldest(self) -> None:
        """Drop what is too much to wait."""
        waiting: tuple[tuple[dict[Any, Any], int], ...] = (
            (self.records, RECORDS_AT_MOST),
            (self.attempts, RECORDS_AT_MOST),
            (self.hours, RECORDS_AT_MOST),
            (self.evals, EVALS_AT_MOST),
        )
        for values, at_most in waiting:
            drop_oldest(values, at_most)


class WriteQueue:
    """Any thread adds work, the ledger's thread takes it. Its lock is never held during disk access."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._work = Work()
        self.is_stopping = False

    def put(self, item: Record | Attempt | ActionText | RunEval | AttemptHour, *, urgent: bool = False) -> Answer:
        """Write it: now if it is urgent, else as soon as the ledger works. If the queue is full, the oldest is dropped;
        of texts, a new one that is not urgent."""
        answer = Answer(lambda: None, lambda: None)
        with self._changed:
            work = self._work
            match item:
                case ActionText():
                    if urgent or len(work.texts) < TEXTS_AT_MOST:  # never in place of what somebody waits for
                        work.texts.append(item)
                case Attempt():
                    work.attempts[item.attempt_id] = item
                case RunEval():
                    work.evals[item.run, item.digest] = item
                case AttemptHour():
                    work.hours[item.attempt.attempt_id, item.hour.node] = item
                case Record():
                    work.records[item.action.id] = item
            work.drop_oldest()
            if urgent:
                work.answers.append(("written", answer))
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
            now = self._work
            now.records = {**work.records, **now.records}
            now.attempts = {**work.attempts, **now.attempts}
            now.evals = {**work.evals, **now.evals}
            now.hours = {**work.hours, **now.hours}
            now.texts = deque((*work.texts, *now.texts), maxlen=TEXTS_AT_MOST)
            now.drop_oldest()
