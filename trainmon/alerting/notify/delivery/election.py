"""Which program leads: this one does when no other does, or when the leader makes no progress. It reports that to the
engine, and to other programs by its note in the ledger.

A leader renews its lease when it has evaluated its rules, and checks that it still leads before each message. If this
program was stopped, it reads from the ledger what happened meanwhile before it goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

from msgspec.structs import replace

from trainmon.alerting.notify.delivery.deliverer import Deliverer, Journal
from trainmon.analysis.attempts import unrecorded
from trainmon.ledger.alerts import read_requests, read_waiting
from trainmon.ledger.lease import Holder, LeaderNote, LeaderNow, LeaseLock, SourceNote, claim_row, release_row, sign_of
from trainmon.ledger.ledger import Answer, Ledger
from trainmon.ledger.reader import AlertsNow, read_all, remember
from trainmon.lib import Clock, Instant, Seconds, ago
from trainmon.model import (
    AlertChanges,
    AlertRequested,
    AlertsReported,
    AlertsRestored,
    Event,
    Leadership,
    LeadershipChanged,
    Notice,
    State,
)

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
NOTE_EVERY: Seconds = 10.0
"""How often the leader writes its note."""
SOURCE_NOTE_EVERY: Seconds = 2.0
"""The same at most, when something changed."""
QUIET: Seconds = 60.0
"""A leader that has not evaluated its rules for so long is reported as quiet: its disk is full, or it is stopped."""

NETWORK_LEDGER = "its ledger is on a network file system: another program takes over slowly, and by the clocks"
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
    """Belongs to the thread of the notification service. `state` is the newest of which the rules were evaluated, and
    `trouble` what is wrong with this program itself: any thread may set both."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        submit: Callable[[Event], None],
        deliverer: Deliverer,
        journal: Journal,
        wake: Callable[[], None],
        *,
        holder: Holder,
        by_row: bool,
        program: str,
        patience: Seconds,
        lease: Seconds = LEASE,
    ) -> None:
        """`by_row`: whether the lease is a row of the ledger, and not a lock."""
        self._ledger = ledger
        self._clock = clock
        self._submit = submit
        self._deliverer = deliverer
        self._journal = journal
        self._wake = wake
        self.holder = holder
        self._by_row = by_row
        self._program = program
        self._patience = patience
        self._lease = lease
        self.role: Literal["candidate", "leader", "paused", "standby"] = "candidate"
        """paused: a leader that was stopped. Another program may have led meanwhile, so nothing new is sent."""
        self.state: State | None = None
        self.trouble: str | None = None
        self._reason: str | None = None
        """Why the ledger does not answer this leader."""
        self._started_at = clock.now()
        self._leadership = Leadership()
        """As it was last reported."""
        self._noted: list[tuple[str, str, str | None]] = []
        """The health and the error of each source, as last written."""
        self.next_note = self._next_source_note = 0.0
        self._other = UNKNOWN
        """The leader while this program stands by, and its last note."""
        self._other_note: LeaderNote | None = None
        self._watch = LeaderWatch()
        self._silent: Seconds = 0.0
        """How long the leader that we take over from has made no progress; 0: there was none."""
        self._stale: object = None
        """The sign that its lease row shows then, until the row is ours."""
        self._renewed: object = None
        """The State whose evaluation last renewed the lease."""
        self._turned_at = clock.monotonic()
        self._lock = LeaseLock(ledger.file.parent, holder)
        self._queries: dict[str, tuple[Answer, Seconds]] = {}
        """What the ledger's thread was given, and when."""
        self._next: dict[str, Seconds] = {}
        self._has_remembered = False
        self._requests_until = 0

    @property
    def due_in(self) -> Seconds:
        """Seconds until the next turn if nobody wakes the service before."""
        mono = self._clock.monotonic()
        times = [since + self._patience for _, since in self._queries.values()] if self._is_candidate else []
        times += [self._next.get(name, mono) for name in self._wanted() if name not in self._queries]
        return max(0.0, min(times, default=mono + CLAIM_EVERY) - mono)

    def _wanted(self) -> tuple[str, ...]:
        if self.role == "leader":
            return ("claim", "requests", "search" if self._has_remembered else "remember")
        return ("claim", "watch") if self.role == "standby" else ("claim",)

    @property
    def _is_candidate(self) -> bool:
        """Whether it finds out who leads."""
        return self.role in ("candidate", "paused")

    @property
    def is_leading(self) -> bool:
        """Whether what this program finds is written and sent. From any thread."""
        return self.role in ("leader", "paused")

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
            self._start_over("paused")
            problem = "this program was stopped: it checks whether another one notified meanwhile"
            self._report(Leadership(problem=problem, since=self._leadership.since))
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
        if self._is_candidate and any(mono - since >= self._patience for _, since in self._queries.values()):
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
        evaluated = self.state
        if not self._lock.renew(has_progressed=evaluated is not self._renewed):
            self._stand_by(UNKNOWN)
        self._renewed = evaluated

    def lose(self, role: Literal["candidate", "standby"] = "candidate") -> None:
        """Another program has taken the lease, or did meanwhile. A candidate finds out who leads, as at the start."""
        was_leading = self.is_leading
        if was_leading or role == "standby":
            self._start_over(role)  # first: the threads that send ask for it
        self._journal.discard()
        if was_leading:
            self._deliverer.clear()
            self._report(Leadership(problem="another program leads now"))

    def _start_over(self, role: Literal["candidate", "paused", "standby"]) -> None:
        self.role, self._has_remembered = role, False
        self._queries, self._next = {}, {}

    def release(self) -> None:
        """Stop leading. Only the ledger's thread opens the lock; any thread may close it."""
        if self.is_leading and self._by_row:
            self._ledger.transact(lambda work: release_row(work, self.holder.name), self._wake)
        self._lock.release()

    # ---- queries

    def _start(self, name: str) -> None:
        every = {"requests": REQUESTS_EVERY, "remember": self._patience, "search": SEARCH_EVERY}
        if self.role == "leader" and self._stale is None:
            every["claim"] = CHECK_EVERY
        now, until, stale = self._clock.now(), self._requests_until, self._stale
        match name:
            case "claim" if self._by_row:
                note = self.note()
                answer = self._ledger.transact(lambda work: claim_row(work, note, stale), self._wake)
            case "claim":
                answer = self._ledger.run(self._lock.take, self._wake)
            case "remember":
                answer = self._ledger.transact(lambda work: remember(work, now), self._wake)
            case "search":
                answer = self._ledger.read(read_waiting, self._wake)
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
                if self._is_candidate:
                    self._take(answer.found, None)
                else:
                    self._remember_late(answer.found)
            case "remember" if self._is_candidate:
                self._take(None, answer.error)
            case "requests" if answer.found:
                self._requests_until = max(number for number, _ in answer.found)
                for number, request in answer.found:
                    self._submit(AlertRequested(request, number))
            case "search" if answer.found:
                self._deliverer.add(answer.found)
            case "watch" if answer.found is not None and self.role == "standby":
                self._report_leader(answer.found)
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
            if self.role == "standby" and self._by_row and answer.is_locked:
                self._judge(self._watch.sign)  # stopped within a transaction: nobody can take its row before it ends
            if self._is_candidate or (self.role == "standby" and self._stale is not None):
                self._take(None, answer.error)
        else:
            self._stale = self._journal.held = None
            if self.role != "leader":
                self._lead(self._silent)

    def _replace(self, leader: LeaderNow | None) -> None:
        """Take over from a leader without a channel, such as a dashboard without a config, if this program has one."""
        if leader is None or leader.note.channels or leader.note.holder != self._other or not self._deliverer.names:
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
        self.lose("standby")
        self._watch, self._silent, self._stale = LeaderWatch(), 0.0, None
        self._report(self._leadership_of(holder, None, self._clock.now()))

    def _lead(self, silent: Seconds) -> None:
        """Lead as soon as the ledger has answered what it knows."""
        if self.role != "paused":
            self.role = "candidate"
        self._silent = silent
        if "remember" not in self._queries:
            self._start("remember")

    def _take(self, remembered: AlertsNow | None, reason: str | None) -> None:
        """Lead, even if the ledger does not answer: two programs that notify are better than none."""
        was_paused, known, now = self.role == "paused", remembered or AlertsNow(), self._clock.now()
        mono = self._clock.monotonic()
        self._next = {"remember": mono + self._patience, "search": mono + SEARCH_EVERY}
        self._has_remembered = remembered is not None
        if not was_paused:
            self._journal.discard()
            if remembered is not None:  # what was being written when the lease was lost never tells
                self._journal.works()
            if self._stale is not None:  # the row still names the leader before: nothing is written until it is ours
                self._journal.held = reason
            self._reason = reason
        self.role = "leader"
        self._submit(AlertsRestored(known.stored))
        if not was_paused:
            self._report(Leadership(holder="us", where="here", problem=self._problem, since=now))
            self._deliverer.restore(known.channels, known.sent)
        self._deliverer.add(known.notifications)
        self._write_note()
        if self._silent:
            notice = took_over(self._other_note, self._silent, now, self._deliverer.everyday)
            self._deliverer.add_changes(AlertChanges(at=now, notices=(notice,)))
            self._silent = 0.0

    def _remember_late(self, remembered: AlertsNow) -> None:
        """The ledger has answered late. Alerts that were found meanwhile are newer than its alerts."""
        self._reason = None
        known = {alert.key for alert in self.state.alerts.values()} if self.state is not None else set()
        old = tuple(alert for alert in remembered.stored.alerts if alert.key not in known)
        self._submit(AlertsRestored(replace(remembered.stored, alerts=old)))
        self._deliverer.add(remembered.notifications)

    # ---- what this program reports of itself, and of the leader that it stands by for

    @property
    def _problem(self) -> str | None:
        """What is wrong with this program, in a sentence."""
        reason = self._reason or (NETWORK_LEDGER if self._ledger.is_network else None)
        return "; ".join(one for one in (self.trouble, reason) if one) or None

    def note(self) -> LeaderNote:
        """What this program writes about itself."""
        state = self.state
        return LeaderNote(
            holder=self.holder,
            program=self._program,
            started_at=self._started_at,
            last_tick_at=(state.evaluated_at or state.at) if state is not None else None,
            written_at=self._clock.now(),
            problem=self._problem,
            sources=tuple(
                SourceNote(
                    name=one.name, kind=one.kind, health=one.health, answered_at=one.answered_at, error=one.problem
                )
                for one in (state.sources.values() if state is not None else ())
            ),
            unrecorded={} if state is None else unrecorded(state),
            channels=self._deliverer.health,
        )

    def write_note_in_time(self) -> None:
        """Write the note when it is time for it: at once after the first evaluation of the rules, soon after the health
        of a source has changed."""
        mono = self._clock.monotonic()
        has_begun = self.state is not None and self._leadership.at is None
        has_changes = mono >= self._next_source_note and self._sources() != self._noted
        if mono >= self.next_note or has_begun or has_changes:
            self.next_note, self._next_source_note = mono + NOTE_EVERY, mono + SOURCE_NOTE_EVERY
            self._write_note()

    def _sources(self) -> list[tuple[str, str, str | None]]:
        sources = self.state.sources.values() if self.state is not None else ()
        return [(one.name, one.health, one.error) for one in sources]

    def _write_note(self) -> None:
        """Write how this program is, and report it."""
        if self.role == "paused":
            return
        note, self._noted = self.note(), self._sources()
        self._journal.write_note(note)
        problem, since = self._problem, self._leadership.since
        self._report(Leadership(holder="us", where="here", at=note.last_tick_at, problem=problem, since=since))

    def _report_leader(self, now: AlertsNow) -> None:
        """Report what the leader has written."""
        at = evaluated_at = self._clock.now()
        if now.leader is not None:
            self._other_note = note = now.leader.note
            self._report(self._leadership_of(note.holder, note, at))
            evaluated_at = note.last_tick_at or at
        self._submit(AlertsReported(now.stored.alerts, now.stored.silences, now.channels, evaluated_at))

    def _leadership_of(self, holder: Holder, note: LeaderNote | None, now: Instant) -> Leadership:
        there = "" if holder.host in ("", self.holder.host) else f" on {holder.host}"
        leadership = Leadership(holder="other", where=f"pid {holder.pid}{there}" if holder.pid else "another program")
        if note is None:
            return leadership
        at, problem = note.last_tick_at, note.problem
        if now - note.written_at > QUIET:
            problem = f"it has written nothing to the ledger for {ago(now - note.written_at)}"
        elif at is not None and now - at > QUIET:
            problem = f"it has not evaluated its rules for {ago(now - at)}"
        return replace(leadership, at=at, problem=problem, since=note.started_at)

    def _report(self, leadership: Leadership) -> None:
        if leadership != self._leadership:
            self._leadership = leadership
            self._submit(LeadershipChanged(leadership))


def took_over(note: LeaderNote | None, silent: Seconds, now: Instant, channels: tuple[str, ...]) -> Notice:
    """The notice that a standby has taken over. It asks people to end or continue the program that hangs: until then
    there is no standby."""
    who, pid = "The leader", "PID"
    if note is not None:
        pid = str(note.holder.pid)
        who = f"{note.program or 'The leader'} (pid {pid} on {note.holder.host})"
    return Notice(
        key=f"took-over/{note.holder.name if note else 'unknown'}/{now:.0f}",
        kind="direct",
        reason="the leader gave no sign of life",
        severity="warning",
        at=now,
        channels=channels,
        title="A standby notifies: the leader hangs",
        lines=(
            f"{who} did not evaluate its rules for {ago(silent)}: it is stopped, or hangs. This program notifies from "
            "now on. If the other program continues, it stands by.",
            f"What to do, on its machine: `kill -CONT {pid}` if somebody stopped it (Ctrl-Z, a debugger); else end it "
            f"with `kill {pid}`, or `kill -9 {pid}`, and start it again.",
        ),
    )
