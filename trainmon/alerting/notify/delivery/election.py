"""Who has the duty of telling people: this program takes it when no other has, or when that one makes no progress.

A leader renews its lease when it has evaluated its rules, and asks whether it still leads before each message. Of the
time in which this program itself stood still nothing is known: what the ledger says of it is read before it goes on.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

from trainmon.alerting.notify.delivery.leader_watch import LEASE, LeaderWatch
from trainmon.ledger.alerts import read_orders, read_recalled
from trainmon.ledger.database import LOCKED
from trainmon.ledger.lease import Holder, LeaderNote, Lock, claim, is_row, read_duty, sign_of
from trainmon.ledger.ledger import Ledger
from trainmon.ledger.outbox import read_overdue, take_over
from trainmon.ledger.queue import Answer
from trainmon.ledger.reader import AlertsNow, read_all
from trainmon.lib import Clock, Instant, Seconds
from trainmon.model import AlertRequest, Channel, Notification, Recalled

log = logging.getLogger(__name__)

ASK_EVERY: Seconds = 2.0
"""So often a program without the duty looks whether it is free, and what the other one says."""
CHECK_EVERY: Seconds = 10.0
"""So often the one that has it makes sure that it still has."""
ORDERS_EVERY: Seconds = 1.0
SEARCH_EVERY: Seconds = 60.0
"""So often it is looked whether something waits in the ledger that nobody sends: more than is taken out at once."""

Role = Literal["asking", "us", "other"]

UNKNOWN = Holder(pid=0, host="")
"""A leader whose name is not read yet."""


class Remembered(NamedTuple):
    """What the ledger knows as the duty is taken."""

    recalled: Recalled
    letters: tuple[Notification, ...]
    channels: tuple[Channel, ...]


class Crew(Protocol):
    """What a roster needs of the office. All on the office's thread."""

    def took(self, remembered: Remembered | None, words: str | None) -> None:
        """The duty is ours; None: the ledger could not say in time what was known."""

    def remember(self, remembered: Remembered) -> None:
        """It can say so now."""

    def took_over(self, silent: Seconds) -> None:
        """It was another's, that has made no progress for so long."""

    def pause(self) -> None:
        """We stood still: whether others led meanwhile is asked. Nothing new is told before `resume`."""

    def resume(self, remembered: Remembered | None) -> None:
        """We lead still; with what the ledger knows, if it could say."""

    def stand_by(self, holder: Holder, note: LeaderNote | None) -> None:
        """Another program has it."""

    def watch(self, now: AlertsNow) -> None:
        """What the other program says."""

    def found(self, letters: list[Notification]) -> None:
        """What has waited in the ledger for a while, whether or not a desk has it."""

    def ordered(self, orders: list[tuple[int, AlertRequest]]) -> None:
        """What people said through the ledger."""


class LockRequest(NamedTuple):
    """Something that the ledger's thread was asked."""

    answer: Answer
    since: Seconds


class Election:
    """It belongs to the office's thread."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        crew: Crew,
        wake: Callable[[], None],
        *,
        note: Callable[[], LeaderNote],
        looked: Callable[[], object],
        patience: Seconds,
        lease: Seconds = LEASE,
    ) -> None:
        """`looked`: the State of which the rules were last evaluated."""
        self._ledger = ledger
        self._clock = clock
        self._crew = crew
        self._wake = wake
        self._note = note
        self._looked = looked
        self._patience = patience
        self._lease = lease
        self._by_row = is_row(is_network=ledger.is_network)
        self._vigil = LeaderWatch()
        self._silent: Seconds = 0.0
        """For how long the leader that we take over from has made no progress; 0: there was none."""
        self._stale: object = None
        """The sign that its row shows then, until the row is ours."""
        self._renewed: object = None
        """What was looked at when the lease was last renewed."""
        self._turned_at = clock.monotonic()
        self._is_paused = False
        self._lock = Lock(ledger.file.parent, note().holder)
        self._asked: dict[str, LockRequest] = {}
        self._next: dict[str, Seconds] = {}
        self._has_remembered = False
        self.orders_until = 0
        self.role: Role = "asking"

    @property
    def due_in(self) -> Seconds:
        """In how many seconds there is something to do though nobody wakes us."""
        mono = self._clock.monotonic()
        times = [asked.since + self._patience for asked in self._asked.values()] if self.role == "asking" else []
        times += [self._next.get(name, mono) for name in self._wanted() if name not in self._asked]
        return max(0.0, min(times, default=mono + ASK_EVERY) - mono)

    def _wanted(self) -> tuple[str, ...]:
        if self.role == "other":
            return ("claim", "watch")
        if self.role == "us":
            return ("claim", "orders", "search") if self._has_remembered else ("claim", "orders", "recall")
        return ("claim",)

    @property
    def is_leader(self) -> bool:
        """Whether what is sent now is ours to send. From any thread; waits for nothing."""
        return self.role != "other" and not self._lock.is_superseded

    def turn(self) -> None:
        """See to what was answered, and ask what is due."""
        self._mind_a_stop()
        self._settle()
        self._mind_the_lock()
        mono = self._clock.monotonic()
        for name in self._wanted():
            if name not in self._asked and mono >= self._next.get(name, mono):
                self._ask(name)
        if self.role == "asking" and any(mono - asked.since >= self._patience for asked in self._asked.values()):
            if self._lock.reach() is None or self._lock.is_ours:
                self._take(None, "the ledger does not answer: whether another program tells people is not known")
            else:
                self._stand_by(UNKNOWN)

    def _mind_a_stop(self) -> None:
        """Another program may have led, and ended, while this one was stopped."""
        mono = self._clock.monotonic()
        gap, self._turned_at = mono - self._turned_at, mono
        if gap > self._lease / 2 and self.role == "us":
            log.warning("this program stood still for %.0f s: it asks whether another one took over", gap)
            self.ask_again()
            self._is_paused = True
            self._crew.pause()

    def _mind_the_lock(self) -> None:
        """Nothing of it waits for a disk."""
        if self._by_row:
            return
        if self.role == "other":
            reach = self._lock.reach()
            silent = self._vigil.look(reach, self._clock.monotonic())
            if (reach is None or silent >= self._lease) and self._lock.take_over(reach or 0):
                self._next["claim"] = self._turned_at  # the lock is to be signed
                self._lead(silent if reach is not None else 0.0)
            return
        looked = self._looked()
        if not self._lock.renew(has_progressed=looked is not self._renewed):
            self._stand_by(UNKNOWN)
        self._renewed = looked

    def ask_again(self) -> None:
        """A page could not be written because another program has taken the duty: all is as at the start."""
        if self.role == "us":
            self.role, self._has_remembered = "asking", False
            self._asked, self._next = {}, {}

    def release(self) -> None:
        """Let the duty go. The lock is the ledger's thread's to open, and anybody's to close."""
        self._lock.release()

    # ---- questions

    def _ask(self, name: str) -> None:
        every = {"orders": ORDERS_EVERY, "recall": self._patience, "search": SEARCH_EVERY}
        is_sure = self.role == "us" and self._stale is None
        pause = CHECK_EVERY if name == "claim" and is_sure else every.get(name, ASK_EVERY)
        mono = self._clock.monotonic()
        self._next[name] = mono + pause
        self._asked[name] = LockRequest(self._begin(name), mono)

    def _begin(self, name: str) -> Answer:
        now, note, until = self._clock.now(), self._note(), self.orders_until
        match name:
            case "claim" if self._by_row:
                stale = self._stale
                return self._ledger.transact(lambda work: claim(work, note, stale), self._wake)
            case "claim":
                return self._ledger.errand(self._lock.take, self._wake)
            case "recall":
                return self._ledger.transact(lambda work: _remember(work, now), self._wake)
            case "search":
                return self._ledger.look_up(lambda work: read_overdue(work, now, SEARCH_EVERY), self._wake)
            case "orders":
                return self._ledger.look_up(lambda work: read_orders(work, until), self._wake)
            case _:
                return self._ledger.look_up(lambda work: read_all(work, now), self._wake)

    def _settle(self) -> None:
        for name, asked in list(self._asked.items()):
            if asked.answer.done.is_set() and self._asked.get(name) is asked:
                del self._asked[name]
                self._settle_one(name, asked.answer)

    def _settle_one(self, name: str, answer: Answer) -> None:
        match name:
            case "claim":
                self._claimed(answer)
            case "recall" if answer.error is None and self.role != "other":
                self._remembered(answer.found)
            case "recall" if self.role == "asking":
                self._take(None, answer.error)
            case "orders" if answer.found:
                self.orders_until = max(number for number, _ in answer.found)
                self._crew.ordered(answer.found)
            case "search" if answer.found:
                self._crew.found(answer.found)
            case "watch" if answer.found is not None and self.role == "other":
                self._crew.watch(answer.found)

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
            log.warning("whether another program tells people cannot be known: %s", answer.error)
            if self.role == "other" and self._by_row and LOCKED in answer.error:
                self._judge(self._vigil.sign)  # stopped within a transaction: nobody can take its row before it ends
            if self.role == "asking" or self._stale is not None:
                self._take(None, answer.error)
        else:
            self._stale = None
            if self.role != "us":
                self._lead(self._silent)

    def _judge(self, sign: object) -> None:
        """Its row is taken, if it still shows this sign, when it has done so for too long."""
        silent = self._vigil.look(sign, self._clock.monotonic())
        if silent >= self._lease:
            self._silent, self._stale = silent, sign

    def _stand_by(self, holder: Holder) -> None:
        self.role, self._has_remembered, self._is_paused = "other", False, False
        self._vigil, self._silent, self._stale = LeaderWatch(), 0.0, None
        self._asked, self._next = {}, {}
        self._crew.stand_by(holder, None)

    def _lead(self, silent: Seconds) -> None:
        """The duty is ours; what the ledger knows is asked first."""
        self.role, self._silent = "asking", silent
        if "recall" not in self._asked:
            self._ask("recall")

    def _remembered(self, remembered: Remembered) -> None:
        self._has_remembered = True
        self.orders_until = max(self.orders_until, remembered.recalled.orders_until)
        if self.role == "asking":
            self._take(remembered, None)
        else:
            self._crew.remember(remembered)

    def _take(self, remembered: Remembered | None, words: str | None) -> None:
        """Rather two programs that tell than none: what cannot be asked is not waited for."""
        self.role = "us"
        self._has_remembered = remembered is not None
        mono = self._clock.monotonic()
        self._next = {"recall": mono + self._patience, "search": mono + SEARCH_EVERY}
        if self._is_paused:
            self._is_paused = False
            self._crew.resume(remembered)
            return
        self._crew.took(remembered, words)
        if self._silent:
            self._crew.took_over(self._silent)
            self._silent = 0.0


def _remember(connection: sqlite3.Connection, now: Instant) -> Remembered:
    letters = tuple(take_over(connection, now))
    note = read_duty(connection)
    return Remembered(read_recalled(connection, now), letters, note.channels if note is not None else ())
