"""The ledger: actions, attempts, alerts and notifications in SQLite, written by its own thread.

A hung disk never blocks a caller: what is to be written waits in a queue, of each record, attempt, result and GPU hour
only the newest value.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

from trainmon.analysis.explanation import GpuHour
from trainmon.ledger.actions import (
    ActionText,
    as_json,
    masked_end,
    read_evaluations,
    read_open,
    write_all,
)
from trainmon.ledger.alerts import prune_alerts, prune_outbox
from trainmon.ledger.attempts import (
    AttemptHour,
    RunEval,
    prune_attempts,
    read_recent,
    read_uses,
    write_attempts,
    write_evals,
    write_hours,
)
from trainmon.ledger.database import (
    BUSY,
    NAME,
    LedgerStuck,
    describe,
    drop_journal,
    find_aside,
    identity,
    is_damage,
    is_locked,
    journal_of,
    length,
    make_directory,
    open_to_read,
    open_to_write,
    refuse_damage,
    set_aside,
)
from trainmon.ledger.reader import (
    action_texts,
    alert_history,
    alerts_now,
    attempt_history,
    attempt_names,
    attempt_records,
    attempt_rows,
    node_history,
    recent_actions,
    recent_attempts,
    submit_request,
    totals,
)
from trainmon.ledger.schema import NewerLedger, digest_of, migrate
from trainmon.lib import DAY, Clock, Instant, Seconds, SystemClock, drop_oldest
from trainmon.lib.threads import Background
from trainmon.model import Attempt, AttemptsRestored, EvalResult, Record

__all__ = [
    "NAME",
    "ActionText",
    "Ledger",
    "LedgerStuck",
    "NewerLedger",
    "action_texts",
    "alert_history",
    "alerts_now",
    "attempt_history",
    "attempt_names",
    "attempt_records",
    "attempt_rows",
    "node_history",
    "recent_actions",
    "recent_attempts",
    "submit_request",
    "totals",
]  # fmt: skip

log = logging.getLogger(__name__)

# ---- the queue of the ledger's thread --------------------------------------------------------------------------------

RECORDS_AT_MOST = 1_000

Row = Record | Attempt | RunEval | AttemptHour | ActionText
"""What is written soon; of each, only the newest value."""
WAITING: Mapping[type, tuple[Callable[[Any], object], int]] = {
    Record: (attrgetter("action.id"), RECORDS_AT_MOST),
    Attempt: (attrgetter("attempt_id"), RECORDS_AT_MOST),
    AttemptHour: (attrgetter("attempt.attempt_id", "hour.node"), RECORDS_AT_MOST),
    RunEval: (attrgetter("run", "digest"), 10_000),  # of 20 runs, all that stay in memory
    ActionText: (attrgetter("action_id", "kind", "host", "path"), 32),  # of 256 KiB: 8 MiB while a disk is away
}
"""What identifies a row of each kind, and how many wait at most."""

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

    rows: dict[type, dict[object, Any]] = field(default_factory=lambda: defaultdict(dict))
    answers: list[tuple[Kind, Answer]] = field(default_factory=list)

    def of(self, *kinds: Kind) -> list[Answer]:
        """The results of these kinds that somebody waits for."""
        return [answer for kind, answer in self.answers if kind in kinds]

    @property
    def has_rows(self) -> bool:
        return any(self.rows.values())

    @property
    def writes(self) -> bool:
        return self.has_rows or bool(self.of("transaction"))


class WriteQueue:
    """Any thread adds work, the ledger's thread takes it. Its lock is never held during disk access."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._work = Work()

    def put(self, row: Row, *, urgent: bool = False) -> Answer:
        """Write it: now if it is urgent, else as soon as the ledger works. If the queue is full, the oldest is
        dropped."""
        answer = Answer(lambda: None, lambda: None)
        key_of, at_most = WAITING[type(row)]
        with self._changed:
            rows = self._work.rows[type(row)]
            rows[key_of(row)] = row
            drop_oldest(rows, at_most)
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

    def take(self, pause: Seconds | None) -> Work:
        """Wait for work and take all of it. A pause after a failure ends early for work that somebody waits for."""
        with self._changed:
            self._changed.wait_for(lambda: self._work.answers or (pause is None and self._work.writes), pause)
            work, self._work = self._work, Work()
            return work

    def put_back(self, work: Work) -> None:
        """Queue again what could not be written, unless newer work has replaced it."""
        with self._changed:
            for kind, rows in work.rows.items():
                self._work.rows[kind] = {**rows, **self._work.rows[kind]}
                drop_oldest(self._work.rows[kind], WAITING[kind][1])


# ---- the ledger ------------------------------------------------------------------------------------------------------

PATIENCE: Seconds = 5.0
"""How long a caller waits for the ledger before it goes on without it."""

PAUSES: tuple[Seconds, ...] = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Between two tries after a failure; the last one repeats."""

KEEP: Seconds = 90 * DAY
PRUNE_EVERY: Seconds = 3_600.0
CHECK_EVERY: Seconds = 300.0
"""How often the file is checked for damage while it is open."""
RECALLED: Seconds = 3_600.0
"""How long an action may explain what is seen of its run: as long as it stays in the State."""
RECALLED_AT_MOST = 1_000

EVALUATIONS_AT_MOST = 1_000
EVALUATIONS_WITHIN: Seconds = 1.0
"""A plan waits for them after all its other reads, which take longer."""
ATTEMPTS_OF: Seconds = 7 * DAY
ATTEMPTS_AT_MOST = 500
"""The attempts that a program reads when it starts: open ones, and those that ended lately."""


class Ledger(Background):
    """One file in `directory`. Its thread calls `on_trouble` with its error, or None when it works. As soon as it
    can read them, it calls `on_actions` with the open and the recent records, and later with what other programs have
    done; and `on_attempts` once with the recent attempts: with none while there is no file."""

    def __init__(
        self,
        directory: Path,
        on_trouble: Callable[[str | None], None],
        clock: Clock | None = None,
        *,
        on_actions: Callable[[list[Record]], None] | None = None,
        on_attempts: Callable[[AttemptsRestored], None] | None = None,
        keep: Seconds = KEEP,
        is_network: bool = False,
        patience: Seconds = PATIENCE,
        factory: type[sqlite3.Connection] = sqlite3.Connection,
    ) -> None:
        self.file = directory / NAME
        self._on_trouble = on_trouble
        self._clock = clock or SystemClock()
        self._on_actions = on_actions
        self._actions: dict[str, tuple[str, Instant | None]] = {}
        """By id: the status of the actions that this program knows, and when they were settled."""
        self._version: int | None = None
        """SQLite's number of the file's content; it changes when another program writes."""
        self._on_attempts = on_attempts
        self._keep_for = keep
        self.is_network = is_network
        self._patience = patience
        self._factory = factory
        self._queue = WriteQueue()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._journal: tuple[int, int] | None = None
        """The identity of its write-ahead log at the last write."""
        self._bytes = 0
        """The length of the file at the last write: it only grows."""
        self._damage: Exception | None = None
        """The damage of the file with that identity: nothing more is written to it."""
        self.set_aside: Path | None = None
        """The damaged file that a new one has replaced last. Who reports it sets it to None."""
        self.is_replaced = False
        """Whether another file has replaced the one that was open, or its rows were cut off: it lacks what was written.
        Who writes everything again sets it to False."""
        self._trouble: str | None = None
        self._failures = 0
        self._pruned_at: Instant | None = None
        self._checked_at: Instant = 0.0
        super().__init__("ledger")

    # ---- from any thread --------------------------------------------------------------------------------------------

    def _interrupt(self) -> None:
        """Write what waits, for at most a second."""
        self._queue.add("task", lambda: None)

    def write(self, record: Record) -> None:
        """Commit a record before returning.

        Raises: LedgerStuck: when that takes too long; the record is still written later if possible.
        """
        self._wait(self._queue.put(record, urgent=True))

    def keep(self, record: Record | Attempt) -> None:
        """Write a record or an attempt soon; never blocks."""
        self._queue.put(record)

    def keep_gpu_hour(self, attempt: Attempt, hour: GpuHour) -> None:
        """Write the last hour of the GPUs of an attempt's node soon; never blocks."""
        self._queue.put(AttemptHour(attempt, hour))

    def keep_evals(self, run: str, results: Sequence[EvalResult], cluster: str | None = None) -> None:
        """Write results of the evaluators of a run soon; never blocks. The same result is written once."""
        for one in results:
            self._queue.put(RunEval(run, digest_of(as_json(one)), one, cluster))

    def write_text(self, action_id: str, kind: str, host: str, path: str, text: str) -> None:
        """Commit the end of a text, with its secrets masked, before returning.

        Raises: LedgerStuck: as `write` does.
        """
        now = self._clock.now()
        kept = ActionText(action_id=action_id, kind=kind, host=host, path=path, at=now, text=masked_end(text))
        self._wait(self._queue.put(kept, urgent=True))

    def evaluations(self, runs: Sequence[str]) -> Callable[[], Mapping[str, Record]]:
        """Begin to read the newest starts of evaluators of these runs, by action id. What is returned waits for them.

        Raises: LedgerStuck: from what is returned, after 1 s.
        """
        answer = self.read(lambda connection: read_evaluations(connection, runs, EVALUATIONS_AT_MOST), lambda: None)

        def wait() -> Mapping[str, Record]:
            self._wait(answer, EVALUATIONS_WITHIN)
            return {one.action.id: one for one in answer.found or ()}

        return wait

    def transact(self, work: Callable[[sqlite3.Connection], object], then: Callable[[], None]) -> Answer:
        """Run a transaction once; never blocks. The ledger's thread calls `then` when the answer is there. The caller
        handles a failure."""
        return self._queue.add("transaction", work, then)

    def read(self, work: Callable[[sqlite3.Connection], object], then: Callable[[], None]) -> Answer:
        """Read something; never blocks."""
        return self._queue.add("read", work, then)

    def run(self, work: Callable[[], object], then: Callable[[], None]) -> Answer:
        """Run something beside the ledger's file on its thread; never blocks."""
        return self._queue.add("task", work, then)

    def _wait(self, answer: Answer, patience: Seconds | None = None) -> None:
        patience = self._patience if patience is None else patience
        if not answer.done.wait(patience):
            raise LedgerStuck(f"the ledger {self.file} did not answer in {patience:g}s")
        if answer.error is not None:
            raise LedgerStuck(answer.error)

    # ---- its own thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._attempt(Work())
        is_last = False
        while not is_last:
            is_last = self._stopping.is_set()
            pause = PAUSES[min(self._failures, len(PAUSES)) - 1] if self._failures else None
            work = self._queue.take(0.0 if is_last else pause)
            self._read_and_run(work)
            if work.writes or (self._failures and not is_last):
                self._attempt(work)
        if self._failures:
            log.warning("%d records could not be written before the end", len(self._queue.take(0.0).rows[Record]))
        self._close()

    def _read_and_run(self, work: Work) -> None:
        """Do what writes nothing to the file."""
        for task in work.of("task"):
            try:
                task.give(task.work())
            except Exception as error:  # one bad task does not end this thread
                task.give(error=describe(error, self.file))
        for read in work.of("read"):
            own = None
            try:  # in the open file, else in one that can only be read: a full disk hides nothing
                connection = self._connection or (own := open_to_read(self.file))
                read.give(None if connection is None else read.work(connection))
            except Exception as error:  # one bad read does not end this thread
                read.give(error=describe(error, self.file))
            finally:
                if own is not None:
                    own.close()

    def _recall(self, connection: sqlite3.Connection) -> None:
        """Tell of the actions of other programs: all at the start, then those that are done or settled meanwhile. What
        begins, its own program follows."""
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if self._on_actions is None or version == self._version:
            return
        found = read_open(connection, RECALLED_AT_MOST, self._clock.now() - RECALLED)
        found = [one for one in found if self._version is None or one.status != "asked"]
        if new := [one for one in found if self._actions.get(one.action.id) != (one.status, one.settled_at)]:
            self._on_actions(new)
        self._version = version
        self._actions = {one.action.id: (one.status, one.settled_at) for one in found}

    def _attempt(self, work: Work) -> None:
        """Open the file if necessary, and write; after a failure everything waits for the next try."""
        try:
            if work.writes or identity(self.file) is not None:
                connection = self._open()
                self._recall(connection)
                if self._on_attempts is not None:
                    now = self._clock.now()
                    recent = read_recent(connection, now - ATTEMPTS_OF, ATTEMPTS_AT_MOST)
                    self._on_attempts(AttemptsRestored(tuple(recent), tuple(read_uses(connection, now))))
                    self._on_attempts = None
                self._write(connection, work)
                now = self._clock.now()
                if self._pruned_at is None or abs(now - self._pruned_at) > PRUNE_EVERY:  # a clock may be set back
                    self._pruned_at = now
                    for prune in (prune_alerts, prune_outbox, prune_attempts):
                        connection.execute("BEGIN IMMEDIATE")
                        prune(connection, now - self._keep_for)
                        connection.execute("COMMIT")
                self._journal = identity(journal_of(self.file))
                self._bytes = length(self.file)
            else:
                make_directory(self.file)  # the file is created only when there is something to write
                if self._on_attempts is not None:
                    self._on_attempts(AttemptsRestored(()))
        except Exception as error:  # whatever it is: this thread goes on, and what waits is tried again
            self._close()
            is_new_damage = is_damage(error) and self._damage is None
            self._damage = error if is_damage(error) else None
            if is_new_damage:
                self._attempt(work)  # in a new file
                return
            self._failures += 1
            self._queue.put_back(work)
            trouble = describe(error, self.file)
            self._report(trouble)
            for answer in work.of("written", "transaction"):
                if not answer.done.is_set():
                    answer.give(error=trouble, is_locked=is_locked(error))
        else:
            self._failures = 0
            self._report(None)

    def _write(self, connection: sqlite3.Connection, work: Work) -> None:
        if work.has_rows:
            now = self._clock.now()
            connection.execute("BEGIN IMMEDIATE")
            write_all(connection, work.rows[Record].values(), work.rows[ActionText].values())
            write_attempts(connection, work.rows[Attempt].values(), now)
            write_evals(connection, work.rows[RunEval].values(), now)
            write_hours(connection, work.rows[AttemptHour].values(), now)
            connection.execute("COMMIT")
            self._actions |= {one.action.id: (one.status, one.settled_at) for one in work.rows[Record].values()}
        for answer in work.of("written"):
            answer.give()
        for transaction in [one for one in work.of("transaction") if not one.done.is_set()]:
            connection.execute("BEGIN IMMEDIATE")
            try:
                found = transaction.work(connection)
            except (sqlite3.Error, OSError):
                raise
            except Exception as error:  # the ledger works: what was to be written is wrong
                connection.execute("ROLLBACK")
                log.exception("a transaction failed")
                transaction.give(error=f"the ledger {self.file}: {type(error).__name__}: {error}")
                continue
            connection.execute("COMMIT")
            transaction.give(found)

    def _open(self) -> sqlite3.Connection:
        found, now = identity(self.file), self._clock.now()
        if self._damage is not None and found is not None and found == self._identity:
            if not set_aside(self.file, found):
                raise self._damage
            found = identity(self.file)
        self._damage = None
        if found != self._identity:
            self._close()
            drop_journal(self.file, self._journal)
            self.set_aside = find_aside(self.file, self._identity) or self.set_aside
            self.is_replaced |= self._identity is not None
        elif length(self.file) < self._bytes:
            self._close()  # cut short in place: SQLite would go on by its cache and its journal, and lose it all
            self.is_replaced = True
        if self._connection is None:
            self._identity, self._bytes, self._version = found, 0, None
            self._connection = open_to_write(self.file, is_network=self.is_network, factory=self._factory)
            self._identity, self._checked_at = identity(self.file), now
        migrate(self._connection, str(self.file))  # a newer program may have done that meanwhile: it reads other rows
        if abs(now - self._checked_at) > CHECK_EVERY:
            with closing(sqlite3.connect(self.file, timeout=BUSY)) as fresh:
                refuse_damage(fresh, self.file)
            self._checked_at = now
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            try:
                self._connection.close()
            except sqlite3.Error as error:
                log.warning("%s", describe(error, self.file))
            self._connection = None

    def _report(self, trouble: str | None) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            if trouble:
                log.warning("%s", trouble)
            self._on_trouble(trouble)
