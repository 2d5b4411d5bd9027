"""Which program leads: this one does when no other does, or when the leader makes no progress.

A leader renews its lease when it has evaluated its rules, and checks that it still leads before each message. If this
program was stopped, it reads from the ledger what happened meanwhile before it goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

from trainmon.alerting.notify.delivery.leader import LeaderState
from trainmon.ledger.alerts import read_requests
from trainmon.ledger.database import LOCKED
from trainmon.ledger.lease import Holder, LeaderNote, LeaderNow, LeaseLock, claim_row, is_row, sign_of
from trainmon.ledger.ledger import Ledger
from trainmon.ledger.outbox import read_overdue
from trainmon.ledger.queue import Answer
from trainmon.ledger.reader import AlertsNow, read_all, remember
from trainmon.lib import Clock, Seconds

log = logging.getLogger(__name__)

LEASE: Seconds = 40.0
"""A leader renews its lease each second. A busy machine, or a disk that hangs, delays it by seconds; with 2 s until the
standby checks, and some for the ledger, people are notified again within a minute."""
GAP: Seconds = 10.0
"""At most this much counts between two checks: this program may have been stopped itself."""
CLAIM_EVERY: Seconds = 2.0
"""How often a standby checks whether it can lead, and reads what the leader has written."""
CHECK_EVERY: Seconds = 10.0
"""How often the leader checks that it leads."""
REQUESTS_EVERY: Seconds = 1.0
SEARCH_EVERY: Seconds = 60.0
"""How often the leader looks for notifications in the ledger that nobody sends: it takes a limited number at once."""

UNKNOWN = Holder(pid=0, host="")
"""A leader whose name was not read yet."""


class LeaderWatch:
    """Whether the leader makes progress, by our own monotonic clock."""

    def __init__(self) -> None:
        self.sign: object = None
        self._checked_at: Seconds | None = None
        self._silent: Seconds = 0.0

    def check(self, sign: object, mono: Seconds) -> Seconds:
        """For how long the leader has shown the same sign."""
        is_same = self._checked_at is not None and sign == self.sign
        self._silent = self._silent + min(mono - (self._checked_at or 0.0), GAP) if is_same else 0.0
        self.sign, self._checked_at = sign, mono
        return self._silent


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
        self._other = UNKNOWN
        """The leader while this program stands by."""
        self._watch = LeaderWatch()
        self._silent: Seconds = 0.0
        """How long the leader that we take over from has made no progress; 0: there was none."""
        self._stale: object = None
        """The sign that its lease row shows then, until the row is ours."""
        self._renewed: object = None
        """The State whose evaluation last renewed the lease."""
        self._turned_at = clock.monotonic()
        self._is_paused = False
        self._lock = LeaseLock(ledger.file.parent, leader.holder)
        self._queries: dict[str, tuple[Answer, Seconds]] = {}
        """What the ledger's thread was given, and when."""
        self._next: dict[str, Seconds] = {}
        self._has_remembered = False
        self._requests_until = 0
        self.role: Literal["candidate", "leader", "standby"] = "candidate"

    @property
    def due_in(self) -> Seconds:
        """Seconds until the next turn if nobody wakes the service before."""
        mono = self._clock.monotonic()
        times = [since + self._patience for _, since in self._queries.values()] if self.role == "candidate" else []
        times += [self._next.get(name, mono) for name in self._wanted() if name not in self._queries]
        return max(0.0, min(times, default=mono + CLAIM_EVERY) - mono)

    def _wanted(self) -> tuple[str, ...]:
        if self.role == "leader":
            return ("claim", "requests", "search" if self._has_remembered else "remember")
        return ("claim", "watch") if self.role == "standby" else ("claim",)

    @property
    def is_leader(self) -> bool:
        """Whether this program may send now. From any thread; never blocks."""
        return self.role != "standby" and not self._lock.is_superseded

    def turn(self) -> None:
        """Handle the answers that came, and begin the queries that are due."""
        mono = self._clock.monotonic()
        gap, self._turned_at = mono - self._turned_at, mono
        if gap > self._lease / 2 and self.role == "leader":  # another program may have led and ended meanwhile
            log.warning("this program was stopped for %.0fs: it checks whether another one took over", gap)
            self.start_over()
            self._is_paused = True
            self._leader.pause()
        for name, query in list(self._queries.items()):
            if query[0].done.is_set() and self._queries.get(name) is query:
                del self._queries[name]
                self._handle(name, query[0])
        if not self._by_row:
            self._check_the_lock()
        mono = self._clock.monotonic()
        for name in self._wanted():
            if name not in self._queries and mono >= self._next.get(name, mono):
                self._start(name)
        if self.role == "candidate" and any(mono - since >= self._patience for _, since in self._queries.values()):
            if self._lock.reach() is None or self._lock.is_ours:
                self._take(None, "the ledger does not answer: whether another program notifies is not known")
            else:
                self._stand_by(UNKNOWN)

    def _check_the_lock(self) -> None:
        """Renew it, or take it over; nothing here waits for a disk."""
        if self.role == "standby":
            reach = self._lock.reach()
            silent = self._watch.check(reach, self._clock.monotonic())
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
        if self.role == "leader":
            self.role, self._has_remembered = "candidate", False
            self._queries, self._next = {}, {}

    def release(self) -> None:
        """Stop leading. Only the ledger's thread opens the lock; any thread may close it."""
        self._lock.release()

    # ---- queries

    def _start(self, name: str) -> None:
        every = {"requests": REQUESTS_EVERY, "remember": self._patience, "search": SEARCH_EVERY}
        if self.role == "leader" and self._stale is None:
            every["claim"] = CHECK_EVERY
        now, until, stale = self._clock.now(), self._requests_until, self._stale
        match name:
            case "claim" if self._by_row:
                note = self._leader.note()
                answer = self._ledger.transact(lambda work: claim_row(work, note, stale), self._wake)
            case "claim":
                answer = self._ledger.run(self._lock.take, self._wake)
            case "remember":
                answer = self._ledger.transact(lambda work: remember(work, now), self._wake)
            case "search":
                answer = self._ledger.read(lambda work: read_overdue(work, now, SEARCH_EVERY), self._wake)
            case "requests":
                answer = self._ledger.read(lambda work: read_requests(work, until), self._wake)
            case _:
                answer = self._ledger.read(lambda work: read_all(work, now), self._wake)
        mono = self._clock.monotonic()
        self._next[name] = mono + every.get(name, CLAIM_EVERY)
        self._queries[name] = (answer, mono)

    def _handle(self, name: str, answer: Answer) -> None:
        match name:
            case "claim":
                self._claimed(answer)
            case "remember" if answer.error is None and self.role != "standby":
                self._has_remembered = True
                self._requests_until = max(self._requests_until, answer.found.stored.requests_until)
                if self.role == "candidate":
                    self._take(answer.found, None)
                else:
                    self._leader.remember(answer.found)
            case "remember" if self.role == "candidate":
                self._take(None, answer.error)
            case "requests" if answer.found:
                self._requests_until = max(number for number, _ in answer.found)
                self._leader.request(answer.found)
            case "search" if answer.found:
                self._leader.deliver(answer.found)
            case "watch" if answer.found is not None and self.role == "standby":
                self._leader.watch(answer.found)
                self._replace(answer.found.leader)

    def _claimed(self, answer: Answer) -> None:
        found = answer.found
        if isinstance(found, LeaderNote):
            if self.role != "standby":
                self._stand_by(found.holder)
            self._other = found.holder
            self._judge(sign_of(found))
        elif isinstance(found, Holder):
            if self.role != "standby" and not self._lock.is_ours:
                self._stand_by(found)
            self._other = found
        elif answer.error is not None:
            log.warning("cannot find out whether another program leads: %s", answer.error)
            if self.role == "standby" and self._by_row and LOCKED in answer.error:
                self._judge(self._watch.sign)  # stopped within a transaction: nobody can take its row before it ends
            if self.role == "candidate" or self._stale is not None:
                self._take(None, answer.error)
        else:
            self._stale = None
            if self.role != "leader":
                self._lead(self._silent)

    def _replace(self, leader: LeaderNow | None) -> None:
        """Take over from a leader without a channel, such as a dashboard without a config, if this program has one."""
        if (
            leader is None
            or leader.note.channels
            or leader.note.holder != self._other
            or not self._leader.note().channels
        ):
            return
        if self._by_row:
            self._stale = sign_of(leader.note)
        elif self._lock.take_over(self._lock.reach() or 0):
            self._next["claim"] = self._turned_at  # the lock is to be signed
            self._lead(0.0)

    def _judge(self, sign: object) -> None:
        """Take over the lease row of a leader that has shown the same sign for too long."""
        silent = self._watch.check(sign, self._clock.monotonic())
        if silent >= self._lease:
            self._silent, self._stale = silent, sign

    def _stand_by(self, holder: Holder) -> None:
        self.role, self._has_remembered, self._is_paused = "standby", False, False
        self._watch, self._silent, self._stale = LeaderWatch(), 0.0, None
        self._queries, self._next = {}, {}
        self._leader.stand_by(holder)

    def _lead(self, silent: Seconds) -> None:
        """Lead as soon as the ledger has answered what it knows."""
        self.role, self._silent = "candidate", silent
        if "remember" not in self._queries:
            self._start("remember")

    def _take(self, remembered: AlertsNow | None, reason: str | None) -> None:
        """Lead, even if the ledger does not answer: two programs that notify are better than none."""
        self.role = "leader"
        self._has_remembered = remembered is not None
        mono = self._clock.monotonic()
        self._next = {"remember": mono + self._patience, "search": mono + SEARCH_EVERY}
        if self._is_paused:
            self._is_paused = False
            self._leader.resume(remembered)
            return
        self._leader.lead(remembered, reason)
        if self._silent:
            self._leader.notify_takeover(self._silent)
            self._silent = 0.0
