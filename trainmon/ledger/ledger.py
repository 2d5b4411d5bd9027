"""The ledger: what was asked, done, told, and what became of it, in SQLite and a thread of its own.

A disk that hangs never stops anybody: records wait in memory, the newest of each action, and are written later.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, cast

from trainmon.ledger.actions import KeptText, harmless, prune_actions, read_actions, read_open, read_texts, write_all
from trainmon.ledger.alerts import prune_alerts
from trainmon.ledger.database import (
    NAME,
    LedgerStuck,
    drop_journal,
    identity,
    is_damage,
    journal_of,
    length,
    make_directory,
    open_to_read,
    open_to_write,
    words,
)
from trainmon.ledger.outbox import prune_outbox
from trainmon.ledger.queue import Answer, Batch, WriteQueue
from trainmon.ledger.reader import alert_history, alerts_now, duty_now, give_order, kept_texts, recorded
from trainmon.ledger.schema import NewerLedger
from trainmon.lib import Clock, Instant, Seconds, SystemClock
from trainmon.model import Record

__all__ = [
    "NAME", "KeptText", "Ledger", "LedgerStuck", "NewerLedger", "alert_history", "alerts_now", "duty_now", "give_order",
    "kept_texts", "recorded",
]  # fmt: skip

log = logging.getLogger(__name__)

PATIENCE: Seconds = 5.0
"""How long somebody waits for the ledger before going on without it."""

PAUSES: tuple[Seconds, ...] = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Between two tries of a ledger that does not work; the last again and again."""

DAY: Seconds = 86_400.0
KEEP: Seconds = 90 * DAY
PRUNE_EVERY: Seconds = 3_600.0
OPEN_AT_MOST = 1_000

Found = TypeVar("Found")


class Ledger:
    """One file in `directory`. `on_trouble` hears on the ledger's thread what is wrong, and None when nothing is;
    `recalled` hears once what was still open when last written, as soon as that can be read."""

    def __init__(
        self,
        directory: Path,
        on_trouble: Callable[[str | None], None],
        clock: Clock | None = None,
        *,
        recalled: Callable[[list[Record]], None] | None = None,
        keep: Seconds = KEEP,
        is_network: bool = False,
        patience: Seconds = PATIENCE,
        factory: type[sqlite3.Connection] = sqlite3.Connection,
    ) -> None:
        self.file = directory / NAME
        self._on_trouble = on_trouble
        self._clock = clock or SystemClock()
        self._recalled = recalled
        self._keep_for = keep
        self.is_network = is_network
        self._patience = patience
        self._factory = factory
        self._mail = WriteQueue()
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._journal: tuple[int, int] | None = None
        """Which file its write-ahead log was when something was last written."""
        self._bytes = 0
        """How long the file was when something was last written: it only grows."""
        self._damage: Exception | None = None
        """Of the file with that identity: nothing more is written into it."""
        self._trouble: str | None = None
        self._failures = 0
        self._pruned_at: Instant | None = None
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)

    # ---- from any thread --------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, at most a second."""
        self._mail.stop()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def write(self, record: Record) -> None:
        """Commit a record before returning. Raises LedgerStuck; it is then still written later, if that can be."""
        self._wait(self._mail.put(record, urgent=True))

    def keep(self, record: Record) -> None:
        """Have a record written soon; returns at once, whatever hangs."""
        self._mail.put(record)

    def write_text(self, action_id: str, kind: str, host: str, path: str, text: str) -> None:
        """Commit the end of a text, without its secrets, before returning. Raises LedgerStuck, as write() does."""
        now = self._clock.now()
        kept = KeptText(action_id=action_id, kind=kind, host=host, path=path, at=now, text=harmless(text))
        self._wait(self._mail.put_text(kept))

    def actions(self, since: Instant, limit: int = OPEN_AT_MOST) -> list[Record]:
        """The newest `limit` actions since then, the newest last. Raises LedgerStuck."""
        return self._ask(lambda connection: read_actions(connection, since, limit), [])

    def open_records(self) -> list[Record]:
        """Those that were still watched when last written. Raises LedgerStuck."""
        return self._ask(lambda connection: read_open(connection, OPEN_AT_MOST), [])

    def texts(self, action_id: str) -> list[KeptText]:
        """What was kept for an action. Raises LedgerStuck."""
        return self._ask(lambda connection: read_texts(connection, action_id), [])

    def transact(self, work: Callable[[sqlite3.Connection], object], then: Callable[[], None]) -> Answer:
        """Have a transaction made. Returns at once; `then` is called on the ledger's thread when the answer is there.
        It is tried once: whoever gives it sees to it when it fails."""
        return self._mail.do(work, then)

    def look_up(self, work: Callable[[sqlite3.Connection], object], then: Callable[[], None]) -> Answer:
        """Have something read; returns at once."""
        return self._mail.ask(work, then)

    def errand(self, work: Callable[[], object], then: Callable[[], None]) -> Answer:
        """Have something done beside the ledger's file, on its thread; returns at once."""
        return self._mail.send(work, then)

    def _ask(self, work: Callable[[sqlite3.Connection], Found], nothing: Found) -> Found:
        found = self._wait(self._mail.ask(work))
        return nothing if found is None else cast(Found, found)

    def _wait(self, answer: Answer) -> object:
        if not answer.done.wait(self._patience):
            raise LedgerStuck(f"the ledger {self.file} did not answer in {self._patience:g} s")
        if answer.error is not None:
            raise LedgerStuck(answer.error)
        return answer.found

    # ---- its own thread ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._attempt(Batch({}, (), (), ()))
        while not self._mail.is_stopping:
            pause = PAUSES[min(self._failures, len(PAUSES)) - 1] if self._failures else None
            batch = self._mail.take(pause)
            self._oblige(batch)
            if batch.writes or self._failures:
                self._attempt(batch)
        last = self._mail.take(0.0)
        self._oblige(last)
        if last.writes:
            self._attempt(last)
        if self._failures:
            log.warning("at the end %d records were not written", len(self._mail.take(0.0).records))
        self._close()

    def _oblige(self, batch: Batch) -> None:
        """What writes nothing into the file."""
        for errand in batch.errands:
            self._run_errand(errand)
        for question in batch.questions:
            self._look_up(question)

    def _attempt(self, batch: Batch) -> None:
        """Open the file if it must be, and write; on a failure all waits for the next try."""
        try:
            if batch.writes or identity(self.file) is not None:
                connection = self._open()
                self._recall(connection)
                self._commit(connection, batch)
                self._do(connection, batch.deeds)
                self._prune(connection)
                self._journal = identity(journal_of(self.file))
                self._bytes = length(self.file)
            else:
                make_directory(self.file)  # nothing is begun before there is something to write
        except Exception as error:  # whatever it is: this thread goes on, and what waits is tried again
            self._close()
            self._failures += 1
            self._damage = error if is_damage(error) else None
            self._mail.put_back(batch)
            told = words(error, self.file)
            self._tell(told)
            for answer in (*batch.waiting, *batch.deeds):
                if not answer.done.is_set():
                    answer.give(error=told)
        else:
            self._failures = 0
            self._tell(None)

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and identity(self.file) != self._identity:
            self._close()
            drop_journal(self.file, self._journal)
        if self._connection is not None and length(self.file) < self._bytes:
            self._close()  # cut short in place: SQLite would go on by its cache and its journal, and lose it all
        if self._damage is not None and identity(self.file) == self._identity:
            raise self._damage
        self._damage = None
        if self._connection is None:
            self._identity = identity(self.file)
            self._connection = open_to_write(self.file, is_network=self.is_network, factory=self._factory)
            self._identity = identity(self.file)
        return self._connection

    def _recall(self, connection: sqlite3.Connection) -> None:
        if self._recalled is not None:
            self._recalled(read_open(connection, OPEN_AT_MOST))
            self._recalled = None

    def _commit(self, connection: sqlite3.Connection, batch: Batch) -> None:
        if batch.records or batch.texts:
            connection.execute("BEGIN IMMEDIATE")
            write_all(connection, batch.records.values(), batch.texts)
            connection.execute("COMMIT")
        for answer in batch.waiting:
            answer.give()

    def _do(self, connection: sqlite3.Connection, deeds: tuple[Answer, ...]) -> None:
        for deed in deeds:
            assert deed.work is not None
            connection.execute("BEGIN IMMEDIATE")
            try:
                found = deed.work(connection)
            except (sqlite3.Error, OSError):
                raise
            except Exception as error:  # not the ledger's trouble: what was to be written is wrong
                connection.execute("ROLLBACK")
                log.exception("something could not be written down")
                deed.give(error=f"the ledger {self.file}: {type(error).__name__}: {error}")
                continue
            connection.execute("COMMIT")
            deed.give(found)

    def _prune(self, connection: sqlite3.Connection) -> None:
        now = self._clock.now()
        if self._pruned_at is None or abs(now - self._pruned_at) > PRUNE_EVERY:  # a clock may be set back
            self._pruned_at = now
            for prune in (prune_actions, prune_alerts, prune_outbox):
                prune(connection, now - self._keep_for)

    def _look_up(self, question: Answer) -> None:
        """Answer from the open file, else from one that can only be read: a full disk hides nothing."""
        assert question.work is not None
        own = None
        try:
            connection = self._connection
            if connection is None:
                connection = own = open_to_read(self.file)
            question.give(None if connection is None else question.work(connection))
        except Exception as error:  # one bad question does not end this thread
            question.give(error=words(error, self.file))
        finally:
            if own is not None:
                own.close()

    def _run_errand(self, errand: Answer) -> None:
        assert errand.work is not None
        try:
            errand.give(errand.work())
        except Exception as error:  # one bad errand does not end this thread
            errand.give(error=words(error, self.file))

    def _close(self) -> None:
        if self._connection is not None:
            try:
                self._connection.close()
            except sqlite3.Error as error:
                log.warning("%s", words(error, self.file))
            self._connection = None

    def _tell(self, trouble: str | None) -> None:
        if trouble != self._trouble:
            self._trouble = trouble
            if trouble:
                log.warning("%s", trouble)
            self._on_trouble(trouble)
