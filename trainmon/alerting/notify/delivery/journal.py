"""What the office has written down, a page at a time: all of a look and what became of letters in one transaction.

The ledger may hang, be full, locked or damaged. What waits for it is kept here and written when it works again; notices
wait for it for a few seconds only, and are then sent all the same.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from sqlite3 import Connection
from typing import NamedTuple

from trainmon.alerting.notify.delivery.batch import Batch
from trainmon.alerting.notify.delivery.worker import Ticket
from trainmon.ledger.lease import LeaderNote
from trainmon.ledger.ledger import Ledger
from trainmon.ledger.outbox import Address, Extra, Mark, told_for
from trainmon.ledger.queue import Answer
from trainmon.ledger.transaction import write_page
from trainmon.lib import Clock, Seconds
from trainmon.model import AlertChanges, Notice, Notification

log = logging.getLogger(__name__)

USUAL_GAP: Seconds = 2.0
"""Between two turns of an office."""

DIRECTLY = "told directly: ledger stuck"


class Writing(NamedTuple):
    """A page that is being written."""

    draft: Batch
    answer: Answer
    tickets: tuple[Ticket, ...]
    since: Seconds


class Journal:
    """`deliver` hears of each letter once: when it is written down, or when that takes too long."""

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
        """`patience`: how long a notice waits for the ledger, and how soon one that failed is tried again. `holder`:
        whose row of the duty must be there for anything to be written. `is_leader` is asked within the transaction:
        whoever takes over writes after it."""
        self._ledger = ledger
        self._clock = clock
        self._deliver = deliver
        self._wake = wake
        self._patience = patience
        self._holder = holder
        self._is_leader = is_leader
        self._lock = threading.Lock()
        self._draft = Batch()
        self._tickets: list[Ticket] = []
        self._expected: dict[Address, tuple[Notice, Seconds]] = {}
        """Letters that nobody has been given yet, and since when they wait to be written down."""
        self._writing: Writing | None = None
        self._turned_at = clock.monotonic()
        self._next_try: Seconds | None = None
        self.trouble: str | None = None
        """Why nothing can be written now."""
        self.is_lost = False
        """Whether another program took the duty: what was not written is not ours to write."""
        self.told_directly = 0
        """Letters since the trouble began."""

    # ---- from any thread --------------------------------------------------------------------------------------------

    def enter(self, changes: AlertChanges) -> None:
        with self._lock:
            mono = self._clock.monotonic()
            for notice in self._draft.enter(changes):
                for channel in notice.channels:
                    self._expected.setdefault((notice.key, channel), (notice, mono))
        self._wake()

    def add(self, extras: Iterable[Extra]) -> None:
        """Letters besides those that notices name."""
        with self._lock:
            mono = self._clock.monotonic()
            for extra in extras:
                if self._draft.add(extra):
                    told = told_for(extra.notice, extra.because)
                    self._expected.setdefault((extra.notice.key, extra.channel), (told, mono))
        self._wake()

    def mark(self, marks: Iterable[Mark]) -> Ticket:
        """Write down what became of letters; the ticket is set when that is done, or cannot be waited for."""
        done = Ticket()
        with self._lock:
            for mark in marks:
                self._draft.mark(mark)
            if self.is_lost:
                _void((done,))
            elif self.trouble is None:
                self._tickets.append(done)
            else:
                done.set()
        self._wake()
        return done

    def note(self, duty: LeaderNote) -> None:
        with self._lock:
            self._draft.note(duty)
        self._wake()

    def forget(self) -> None:
        """The duty is another's: what waits is not ours to tell."""
        with self._lock:
            self._draft, self._expected, self.is_lost = Batch(), {}, False
            _void(self._tickets)
            self._tickets = []

    @property
    def is_settled(self) -> bool:
        """Whether all is written down that can be, and all is with its channel."""
        with self._lock:
            return not self._expected and (self.trouble is not None or not (self._draft or self._writing))

    # ---- the office's thread ----------------------------------------------------------------------------------------

    def turn(self) -> None:
        """Look after the page that is being written, and begin the next."""
        self._settle()
        self._mind_a_stop()
        self._tell_directly()
        self._begin()

    def _mind_a_stop(self) -> None:
        """This program itself may have been stopped for a while, and the ledger's thread with it: that is no time in
        which the ledger could have answered."""
        mono = self._clock.monotonic()
        with self._lock:
            gap = mono - self._turned_at
            self._turned_at = mono
            if gap > self._patience + USUAL_GAP:
                self._expected = {address: (notice, mono) for address, (notice, _) in self._expected.items()}
                if self._writing is not None:
                    self._writing = self._writing._replace(since=mono)

    @property
    def due_in(self) -> Seconds | None:
        """In how many seconds there is something to do though nobody wakes us."""
        mono = self._clock.monotonic()
        with self._lock:
            times = [since + self._patience for _, since in self._expected.values()][:1]
            times += [self._writing.since + self._patience] if self._writing and self.trouble is None else []
            times += [self._next_try] if self._next_try is not None and self._draft and not self._writing else []
        return max(0.0, min(times) - mono) if times else None

    def _begin(self) -> None:
        with self._lock:
            mono = self._clock.monotonic()
            if self._writing or not self._draft or self.is_lost or (self._next_try and mono < self._next_try):
                return
            draft, self._draft = self._draft, Batch()
            tickets, self._tickets = tuple(self._tickets), []
            page, now = draft.page(), self._clock.now()

            def write(work: Connection) -> frozenset[Address] | None:
                return write_page(work, page, now, self._holder) if self._is_leader() else None

            answer = self._ledger.transact(write, self._wake)
            self._writing = Writing(draft, answer, tickets, mono)

    def _settle(self) -> None:
        writing = self._writing
        if writing is None or not writing.answer.done.is_set():
            return
        with self._lock:
            self._writing = None
            if writing.answer.error is not None:
                writing.draft.absorb(self._draft)
                self._draft = writing.draft
                self._next_try = self._clock.monotonic() + self._patience
                letters: list[Notification] = []
                self._is_stuck(writing.answer.error)
            else:
                self._next_try, self.trouble, self.told_directly = None, None, 0
                self.is_lost = writing.answer.found is None
                letters = self._written(writing.draft, writing.answer.found or frozenset())
                if self.is_lost:
                    _void((*writing.tickets, *self._tickets))
                    self._tickets = []
        for ticket in writing.tickets:
            ticket.set()
        self._deliver(letters)

    def _written(self, draft: Batch, made: frozenset[Address]) -> list[Notification]:
        """The letters of a page, those that the ledger did not have before."""
        letters = []
        for address in draft.addresses():
            expected = self._expected.pop(address, None)
            if expected is not None and address in made:
                letters.append(self._letter(expected[0], address[1]))
        return letters

    def _tell_directly(self) -> None:
        """What has waited for the ledger long enough is sent from memory, and marked when the ledger works again."""
        with self._lock:
            mono = self._clock.monotonic()
            waits = [since for _, since in self._expected.values()]
            waits += [self._writing.since] if self._writing is not None else []
            if self.trouble is None and waits and mono - min(waits) >= self._patience:
                self._is_stuck(f"the ledger {self._ledger.file} did not answer in {self._patience:g} s")
            if self.trouble is None or not self._expected:
                return
            letters = [
                self._letter(notice if notice.kind == "direct" else told_for(notice, DIRECTLY), channel)
                for (_, channel), (notice, _) in self._expected.items()
            ]
            self._expected.clear()
            self.told_directly += len(letters)
        self._deliver(letters)

    def _is_stuck(self, words: str) -> None:
        """Nobody waits for it any more."""
        if self.trouble is None:
            log.warning("ledger stuck: %s", words)
        self.trouble = words
        for ticket in (*self._tickets, *(self._writing.tickets if self._writing else ())):
            ticket.set()
        self._tickets = []

    def _letter(self, notice: Notice, channel: str) -> Notification:
        return Notification(id=0, channel=channel, notice=notice, made_at=self._clock.now())


def _void(tickets: Iterable[Ticket]) -> None:
    """Nothing is sent on these."""
    for ticket in tickets:
        ticket.is_ours = False
        ticket.set()
