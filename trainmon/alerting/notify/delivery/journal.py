"""Writes alerts, notices and the states of notifications to the ledger, one transaction at a time.

The ledger may hang, be full, locked or damaged. Everything is then kept here and written when it works again. New
notifications wait for it for a few seconds, and are then sent without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from sqlite3 import Connection
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.ledger.lease import LeaderNote
from trainmon.ledger.ledger import Answer, Ledger
from trainmon.ledger.outbox import Address, Transaction
from trainmon.lib import Clock, Seconds
from trainmon.model import AlertChanges, Notification

log = logging.getLogger(__name__)


class Writing(NamedTuple):
    """A transaction that is being written."""

    transaction: Transaction
    answer: Answer
    since: Seconds


class Journal:
    """Belongs to the thread of the notification service."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        wake: Callable[[], None],
        *,
        patience: Seconds,
        holder: str | None,
        is_leader: Callable[[], bool],
    ) -> None:
        """`patience`: how long a notification waits for the ledger, and when a failed transaction is retried. `holder`:
        the program that the lease row must name for anything to be written. `is_leader` is called within the
        transaction: a program that takes over writes after it."""
        self._ledger = ledger
        self._clock = clock
        self._wake = wake
        self._patience = patience
        self._holder = holder
        self._is_leader = is_leader
        self._next = Transaction()
        self._unwritten: dict[Address, tuple[Notification, Seconds]] = {}
        """Notifications that no channel has yet, and since when they wait to be written."""
        self._writing: Writing | None = None
        self._term = 0
        """How often this program has ceased or begun to lead. Nothing of an earlier term is written."""
        self._begun = 0
        """How many transactions were begun. One that failed is part of the next."""
        self._written = 0
        """The number of the last one that was written."""
        self._turned_at = clock.monotonic()
        self._retry_at: Seconds | None = None
        self.trouble: str | None = None
        """Why nothing can be written now."""
        self.trouble_since = self._turned_at
        self.held: str | None = None
        """Why nothing may be written now: the lease row is not ours yet."""
        self.is_lost = False
        """Whether another program took the lease: what is not written yet is not ours to write."""
        self.sent_unwritten = 0
        """Notifications since the trouble began."""

    def add_changes(self, changes: AlertChanges) -> None:
        self._next.add_changes(changes)
        for notice in changes.notices:
            self.owe(Notification(channel=one, notice=notice, made_at=changes.at) for one in notice.channels)

    def owe(self, owed: Iterable[Notification]) -> None:
        """New notifications."""
        mono = self._clock.monotonic()
        for one in owed:
            if self._next.owed.setdefault(one.address, one) is one:
                self._unwritten.setdefault(one.address, (one, mono))

    def mark(self, notifications: Iterable[Notification]) -> int:
        """Write the new states of notifications; return the number of the transaction."""
        self._next.mark(notifications)
        return self._begun + 1

    def write_note(self, note: LeaderNote) -> None:
        self._next.note = note

    def is_past(self, number: int) -> bool:
        """Whether this transaction is written, or nobody should wait for that."""
        return not self.is_lost and (number <= self._written or self.trouble is not None)

    def discard(self) -> None:
        """Another program leads: what waits is not ours to send, and what is being written not ours to write."""
        self._next, self._unwritten, self._writing, self.is_lost = Transaction(), {}, None, False
        self.held = None
        self._term += 1

    def works(self) -> None:
        """The ledger answers."""
        self._retry_at, self.trouble, self.sent_unwritten = None, None, 0

    @property
    def is_settled(self) -> bool:
        """Whether everything is written that can be, and every notification is with its channel."""
        return not self._unwritten and (self.trouble is not None or not (self._next or self._writing))

    def turn(self) -> list[Notification]:
        """Finish the transaction that is being written. Return each notification once: when it is written, or when
        that takes too long."""
        written = self._finish()
        mono = self._clock.monotonic()
        gap, self._turned_at = mono - self._turned_at, mono
        if gap > self._patience + 2.0:  # this program was stopped, so the ledger's thread could not answer either
            self._unwritten = {address: (owed, mono) for address, (owed, _) in self._unwritten.items()}
            if self._writing is not None:
                self._writing = self._writing._replace(since=mono)
        return written + self._late(mono)

    @property
    def due_in(self) -> Seconds | None:
        """Seconds until the next turn if nobody wakes the service before."""
        mono = self._clock.monotonic()
        times = [since + self._patience for _, since in self._unwritten.values()][:1]
        if self._writing and self.trouble is None:
            times.append(self._writing.since + self._patience)
        if self._next and not self._writing and self.held is None:
            times.append(mono if self._retry_at is None else self._retry_at)
        return max(0.0, min(times) - mono) if times else None

    def _finish(self) -> list[Notification]:
        writing = self._writing
        if writing is None or not writing.answer.done.is_set():
            return []
        self._writing = None
        if writing.answer.error is not None:
            writing.transaction.absorb(self._next)
            self._next = writing.transaction
            self._retry_at = self._clock.monotonic() + self._patience
            self._is_stuck(writing.answer.error)
            return []
        self.works()
        self._written, self.is_lost = self._begun, writing.answer.found is None
        created: frozenset[Address] = writing.answer.found or frozenset()
        waited = [self._unwritten.pop(address, None) for address in writing.transaction.owed]
        return [one[0] for one in waited if one is not None and one[0].address in created]

    def _late(self, mono: Seconds) -> list[Notification]:
        """What has waited for the ledger long enough; it is marked when the ledger works again."""
        waits = [since for _, since in self._unwritten.values()]
        waits += [self._writing.since] if self._writing is not None else []
        if self.held is not None:
            self._is_stuck(self.held)
        if self.trouble is None and waits and mono - min(waits) >= self._patience:
            self._is_stuck(f"the ledger {self._ledger.file} did not answer in {self._patience:g}s")
        if self.trouble is None:
            return []
        late = [replace(owed, is_unwritten=True) for owed, _ in self._unwritten.values()]
        self._unwritten.clear()
        self.sent_unwritten += len(late)
        return late

    def begin(self) -> None:
        """Begin to write what waits."""
        mono = self._clock.monotonic()
        if self._writing or not self._next or self.is_lost or self.held or (self._retry_at and mono < self._retry_at):
            return
        transaction, self._next = self._next, Transaction()
        self._begun += 1
        now, term = self._clock.now(), self._term

        def write(connection: Connection) -> frozenset[Address] | None:
            is_ours = self._term == term and self._is_leader()
            return transaction.write(connection, now, self._holder) if is_ours else None

        self._writing = Writing(transaction, self._ledger.transact(write, self._wake), mono)

    def _is_stuck(self, trouble: str) -> None:
        if self.trouble is None:
            log.warning("ledger stuck: %s", trouble)
            self.trouble_since = self._clock.monotonic()
        self.trouble = trouble
