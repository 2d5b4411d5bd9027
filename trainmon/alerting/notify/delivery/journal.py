"""Writes alerts, notices and the states of notifications to the ledger, one transaction at a time.

The ledger may hang, be full, locked or damaged. Everything is then kept here and written when it works again. New
notifications wait for it for a few seconds, and are then sent without it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from sqlite3 import Connection
from typing import NamedTuple

from trainmon.ledger.database import Transaction
from trainmon.ledger.lease import LeaderNote
from trainmon.ledger.ledger import Ledger
from trainmon.ledger.outbox import Address, Mark, StandIn, with_reason
from trainmon.ledger.queue import Answer
from trainmon.lib import Clock, Seconds
from trainmon.model import AlertChanges, Notice, Notification

log = logging.getLogger(__name__)

SLICE: Seconds = 0.25


class Receipt(threading.Event):
    """Set when marks are written, or when nobody should wait for that."""

    is_ours = True
    """False: another program leads now, and sends what is in the ledger."""

    def may_send(self, patience: Seconds) -> bool:
        """Wait for it; whether the message may be sent. It waits in slices: while this program was stopped it could
        not receive the answer, so that time counts as one slice."""
        waited = 0.0
        while waited < patience and not self.wait(SLICE):
            waited += SLICE
        return self.is_ours


class Writing(NamedTuple):
    """A transaction that is being written."""

    transaction: Transaction
    answer: Answer
    receipts: tuple[Receipt, ...]
    since: Seconds


class Journal:
    """Gives each notification to `deliver` once: when it is written, or when that takes too long."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        deliver: Callable[[list[Notification]], None],
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
        self._deliver = deliver
        self._wake = wake
        self._patience = patience
        self._holder = holder
        self._is_leader = is_leader
        self._lock = threading.Lock()
        self._next = Transaction()
        self._receipts: list[Receipt] = []
        self._unwritten: dict[Address, tuple[Notice, Seconds]] = {}
        """Notifications that no channel has yet, and since when they wait to be written."""
        self._writing: Writing | None = None
        self._turned_at = clock.monotonic()
        self._retry_at: Seconds | None = None
        self.trouble: str | None = None
        """Why nothing can be written now."""
        self.is_lost = False
        """Whether another program took the lease: what is not written yet is not ours to write."""
        self.sent_unwritten = 0
        """Notifications since the trouble began."""

    # ---- from any thread --------------------------------------------------------------------------------------------

    def add_changes(self, changes: AlertChanges) -> None:
        with self._lock:
            mono = self._clock.monotonic()
            for notice in self._next.add_changes(changes):
                for channel in notice.channels:
                    self._unwritten.setdefault((notice.key, channel), (notice, mono))
        self._wake()

    def add_stand_ins(self, stand_ins: Iterable[StandIn]) -> None:
        """Notifications for stand-ins."""
        with self._lock:
            mono = self._clock.monotonic()
            for stand_in in stand_ins:
                if self._next.add_stand_in(stand_in):
                    notice = with_reason(stand_in.notice, stand_in.because)
                    self._unwritten.setdefault((stand_in.notice.key, stand_in.channel), (notice, mono))
        self._wake()

    def mark(self, marks: Iterable[Mark]) -> Receipt:
        """Write the new states of notifications."""
        receipt = Receipt()
        with self._lock:
            for mark in marks:
                self._next.add_mark(mark)
            if self.is_lost or self.trouble is not None:
                receipt.is_ours = not self.is_lost
                receipt.set()
            else:
                self._receipts.append(receipt)
        self._wake()
        return receipt

    def write_note(self, note: LeaderNote) -> None:
        with self._lock:
            self._next.note = note
        self._wake()

    def discard(self) -> None:
        """Another program leads: what waits is not ours to send."""
        with self._lock:
            self._next, self._unwritten, self.is_lost = Transaction(), {}, False
            self._void()

    def _void(self, *receipts: Receipt) -> None:
        """Send nothing that waits for a receipt."""
        for receipt in (*receipts, *self._receipts):
            receipt.is_ours = False
            receipt.set()
        self._receipts = []

    @property
    def is_settled(self) -> bool:
        """Whether everything is written that can be, and every notification is with its channel."""
        with self._lock:
            return not self._unwritten and (self.trouble is not None or not (self._next or self._writing))

    # ---- on the thread of the notification service ------------------------------------------------------------------

    def turn(self) -> None:
        """Finish the transaction that is being written, and begin the next."""
        self._finish()
        mono = self._clock.monotonic()
        with self._lock:
            gap, self._turned_at = mono - self._turned_at, mono
            if gap > self._patience + 2.0:  # this program was stopped, so the ledger's thread could not answer either
                self._unwritten = {address: (notice, mono) for address, (notice, _) in self._unwritten.items()}
                if self._writing is not None:
                    self._writing = self._writing._replace(since=mono)
        self._send_unwritten()
        self._begin()

    @property
    def due_in(self) -> Seconds | None:
        """Seconds until the next turn if nobody wakes the service before."""
        mono = self._clock.monotonic()
        with self._lock:
            times = [since + self._patience for _, since in self._unwritten.values()][:1]
            if self._writing and self.trouble is None:
                times.append(self._writing.since + self._patience)
            if self._retry_at is not None and self._next and not self._writing:
                times.append(self._retry_at)
        return max(0.0, min(times) - mono) if times else None

    def _finish(self) -> None:
        writing = self._writing
        if writing is None or not writing.answer.done.is_set():
            return
        notifications: list[Notification] = []
        with self._lock:
            self._writing = None
            if writing.answer.error is not None:
                writing.transaction.absorb(self._next)
                self._next = writing.transaction
                self._retry_at = self._clock.monotonic() + self._patience
                self._is_stuck(writing.answer.error)
            else:
                self._retry_at, self.trouble, self.sent_unwritten = None, None, 0
                self.is_lost = writing.answer.found is None
                created: frozenset[Address] = writing.answer.found or frozenset()
                for address in writing.transaction.addresses():
                    waiting = self._unwritten.pop(address, None)
                    if waiting is not None and address in created:
                        notifications.append(self._notification(waiting[0], address[1]))
                if self.is_lost:
                    self._void(*writing.receipts)
        for receipt in writing.receipts:
            receipt.set()
        self._deliver(notifications)

    def _send_unwritten(self) -> None:
        """Send from memory what has waited for the ledger long enough; it is marked when the ledger works again."""
        with self._lock:
            mono = self._clock.monotonic()
            waits = [since for _, since in self._unwritten.values()]
            waits += [self._writing.since] if self._writing is not None else []
            if self.trouble is None and waits and mono - min(waits) >= self._patience:
                self._is_stuck(f"the ledger {self._ledger.file} did not answer in {self._patience:g}s")
            if self.trouble is None or not self._unwritten:
                return
            why = "sent directly: ledger stuck"
            notifications = [
                self._notification(notice if notice.kind == "direct" else with_reason(notice, why), channel)
                for (_, channel), (notice, _) in self._unwritten.items()
            ]
            self._unwritten.clear()
            self.sent_unwritten += len(notifications)
        self._deliver(notifications)

    def _begin(self) -> None:
        with self._lock:
            mono = self._clock.monotonic()
            if self._writing or not self._next or self.is_lost or (self._retry_at and mono < self._retry_at):
                return
            transaction, self._next = self._next, Transaction()
            receipts, self._receipts = tuple(self._receipts), []
            now = self._clock.now()

            def write(connection: Connection) -> frozenset[Address] | None:
                return transaction.write(connection, now, self._holder) if self._is_leader() else None

            self._writing = Writing(transaction, self._ledger.transact(write, self._wake), receipts, mono)

    def _is_stuck(self, trouble: str) -> None:
        """Let nobody wait for it any more."""
        if self.trouble is None:
            log.warning("ledger stuck: %s", trouble)
        self.trouble = trouble
        for receipt in (*self._receipts, *(self._writing.receipts if self._writing else ())):
            receipt.set()
        self._receipts = []

    def _notification(self, notice: Notice, channel: str) -> Notification:
        return Notification(id=0, channel=channel, notice=notice, made_at=self._clock.now())
