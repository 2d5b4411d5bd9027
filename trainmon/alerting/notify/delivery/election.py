"""Which program leads: this one does when no other does, or when the leader makes no progress.

A leader renews its lease when it has evaluated its rules, and checks that it still leads before each message. If this
program was stopped, it reads from the ledger what happened meanwhile before it goes on.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from typing import Literal, NamedTuple

from trainmon.alerting.notify.delivery.leader import LeaderState, Remembered
from trainmon.alerting.notify.delivery.leader_watch import LEASE, LeaderWatch
from trainmon.ledger.alerts import read_orders, read_recalled
from trainmon.ledger.database import LOCKED
from trainmon.ledger.lease import Holder, LeaderNote, Lock, claim, is_row, read_duty, sign_of
from trainmon.ledger.ledger import Ledger
from trainmon.ledger.outbox import read_overdue, take_over
from trainmon.ledger.queue import Answer
from trainmon.ledger.reader import read_all
from trainmon.lib import Clock, Instant, Seconds

log = logging.getLogger(__name__)

ASK_EVERY: Seconds = 2.0
"""How often a standby checks whether it can lead, and reads what the leader has written."""
CHECK_EVERY: Seconds = 10.0
"""How often the leader checks that it leads."""
ORDERS_EVERY: Seconds = 1.0
SEARCH_EVERY: Seconds = 60.0
"""How often the leader looks for notifications in the ledger that nobody sends: it takes a limited number at once."""

Role = Literal["asking", "us", "other"]

UNKNOWN = Holder(pid=0, host="")
"""A leader whose name was not read yet."""


class Query(NamedTuple):
    """Work that the ledger's thread was given."""

    answer: Answer
    since: Seconds


class Election:
    """Belongs to the thread of the notification service."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        leader: LeaderState,
        wake: Callable[[], None],
        *,
        patience: Seconds,
        lease: Seconds = LEASE,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._leader = leader
        self._wake = wake
        self._patience = patience
        self._lease = lease
        self._by_row = is_row(is_network=ledger.is_network)
        self._watch = LeaderWatch()
        self._silent: Seconds = 0.0
        """How long the leader that we take over from has made no progress; 0: there was none."""
        self._stale: object = None
        """The sign that its lease row shows then, until the row is ours."""
        self._renewed: object = None
        """The State whose evaluation last renewed the lease."""
        self._turned_at = clock.monotonic()
        self._is_paused = False
        self._lock = Lock(ledger.file.parent, leader.holder)
        self._queries: dict[str, Query] = {}
        self._next: dict[str, Seconds] = {}
        self._has_remembered = False
        self.orders_until = 0
        self.role: Role = "asking"

    @property
    def due_in(self) -> Seconds:
        """Seconds until the next turn if nobody wakes the service before."""
        mono = self._clock.monotonic()
        times = [query.since + self._patience for query in self._queries.values()] if self.role == "asking" else []
        times += [self._next.get(name, mono) for name in self._wanted() if name not in self._queries]
        return max(0.0, min(times, default=mono + ASK_EVERY) - mono)

    def _wanted(self) -> tuple[str, ...]:
        if self.role == "other":
            return ("claim", "watch")
        if self.role == "us":
            return ("claim", "orders", "search") if self._has_remembered else ("claim", "orders", "recall")
        return ("claim",)

    @property
    def is_leader(self) -> bool:
        """Whether this program may send now. From any thread; never blocks."""
        return self.role != "other" and not self._lock.is_superseded

    def turn(self) -> None:
        """Handle the answers that came, and begin the queries that are due."""
        self._check_for_a_stop()
        for name, query in list(self._queries.items()):
            if query.answer.done.is_set() and self._queries.get(name) is query:
                del self._queries[name]
                self._handle(name, query.answer)
        self._check_the_lock()
        mono = self._clock.monotonic()
        for name in self._wanted():
            if name not in self._queries and mono >= self._next.get(name, mono):
                self._start(name)
        if self.role == "asking" and any(mono - query.since >= self._patience for query in self._queries.values()):
            if self._lock.reach() is None or self._lock.is_ours:
                self._take(None, "the ledger does not answer: whether another program tells people is not known")
            else:
                self._stand_by(UNKNOWN)

    def _check_for_a_stop(self) -> None:
        """Another program may have led, and ended, while this one was stopped."""
        mono = self._clock.monotonic()
        gap, self._turned_at = mono - self._turned_at, mono
        if gap > self._lease / 2 and self.role == "us":
            log.warning("this program was stopped for %.0f s: it checks whether another one took over", gap)
            self.start_over()
            self._is_paused = True
            self._leader.pause()

    def _check_the_lock(self) -> None:
        """Renew it, or take it over; nothing here waits for a disk."""
        if self._by_row:
            return
        if self.role == "other":
            reach = self._lock.reach()
            silent = self._watch.look(reach, self._clock.monotonic())
            if (reach is None or silent >= self._lease) and self._lock.take_over(reach or 0):
                self._next["claim"] = self._turned_at  # the lock is to be signed
                self._lead(silent if reach is not None else 0.0)
            return
        evaluated = self._leader.state
        if not self._lock.renew(has_progressed=evaluated is not self._renewed):
            self._stand_by(UNKNOWN)
        self._renewed = evaluated

    def start_over(self) -> None:
        """Another program may have taken the lease: find out who leads, as at the start."""
        if self.role == "us":
            self.role, self._has_remembered = "asking", False
            self._queries, self._next = {}, {}

    def release(self) -> None:
        """Stop leading. Only the ledger's thread opens the lock; any thread may close it."""
        self._lock.release()

    # ---- queries

    def _start(self, name: str) -> None:
        every = {"orders": ORDERS_EVERY, "recall": self._patience, "search": SEARCH_EVERY}
        is_sure = self.role == "us" and self._stale is None
        pause = CHECK_EVERY if name == "claim" and is_sure else every.get(name, ASK_EVERY)
        mono = self._clock.monotonic()
        self._next[name] = mono + pause
        self._queries[name] = Query(self._begin(name), mono)

    def _begin(self, name: str) -> Answer:
        now, note, until = self._clock.now(), self._leader.note(), self.orders_until
        match name:
            case "claim" if self._by_row:
                stale = self._stale
                return self._ledger.transact(lambda work: claim(work, note, stale), self._wake)
            case "claim":
                return self._ledger.run(self._lock.take, self._wake)
            case "recall":
                return self._ledger.transact(lambda work: _remember(work, now), self._wake)
            case "search":
                return self._ledger.read(lambda work: read_overdue(work, now, SEARCH_EVERY), self._wake)
            case "orders":
                return self._ledger.read(lambda work: read_orders(work, until), self._wake)
            case _:
                return self._ledger.read(lambda work: read_all(work, now), self._wake)

    def _handle(self, name: str, answer: Answer) -> None:
        match name:
            case "claim":
                self._claimed(answer)
            case "recall" if answer.error is None and self.role != "other":
                self._remembered(answer.found)
            case "recall" if self.role == "asking":
                self._take(None, answer.error)
            case "orders" if answer.found:
                self.orders_until = max(number for number, _ in answer.found)
                self._leader.request(answer.found)
            case "search" if answer.found:
                self._leader.deliver_strays(answer.found)
            case "watch" if answer.found is not None and self.role == "other":
                self._leader.watch(answer.found)

    def _claimed(self, answer: Answer) -> None:
        found = answer.found
        if isinstance(found, LeaderNote):
            if self.role != "other":
                self._stand_by(found.holder)
            self._judge(sign_of(found))
        elif isinstance(found, Holder):
            if self.role != "other" and not self._lock.is_ours:
                self._stand_by(found)
        elif answer.error is not None:
            log.warning("cannot find out whether another program leads: %s", answer.error)
            if self.role == "other" and self._by_row and LOCKED in answer.error:
                self._judge(self._watch.sign)  # stopped within a transaction: nobody can take its row before it ends
            if self.role == "asking" or self._stale is not None:
                self._take(None, answer.error)
        else:
            self._stale = None
            if self.role != "us":
                self._lead(self._silent)

    def _judge(self, sign: object) -> None:
        """Take over the lease row of a leader that has shown the same sign for too long."""
        silent = self._watch.look(sign, self._clock.monotonic())
        if silent >= self._lease:
            self._silent, self._stale = silent, sign

    def _stand_by(self, holder: Holder) -> None:
        self.role, self._has_remembered, self._is_paused = "other", False, False
        self._watch, self._silent, self._stale = LeaderWatch(), 0.0, None
        self._queries, self._next = {}, {}
        self._leader.stand_by(holder)

    def _lead(self, silent: Seconds) -> None:
        """We lead, as soon as the ledger has said what it knows."""
        self.role, self._silent = "asking", silent
        if "recall" not in self._queries:
            self._start("recall")

    def _remembered(self, remembered: Remembered) -> None:
        self._has_remembered = True
        self.orders_until = max(self.orders_until, remembered.recalled.orders_until)
        if self.role == "asking":
            self._take(remembered, None)
        else:
            self._leader.remember(remembered)

    def _take(self, remembered: Remembered | None, reason: str | None) -> None:
        """Lead, even if the ledger does not answer: two programs that notify are better than none."""
        self.role = "us"
        self._has_remembered = remembered is not None
        mono = self._clock.monotonic()
        self._next = {"recall": mono + self._patience, "search": mono + SEARCH_EVERY}
        if self._is_paused:
            self._is_paused = False
            self._leader.resume(remembered)
            return
        self._leader.lead(remembered, reason)
        if self._silent:
            self._leader.notify_takeover(self._silent)
            self._silent = 0.0


def _remember(connection: sqlite3.Connection, now: Instant) -> Remembered:
    notifications = tuple(take_over(connection, now))
    note = read_duty(connection)
    return Remembered(read_recalled(connection, now), notifications, note.channels if note is not None else ())
