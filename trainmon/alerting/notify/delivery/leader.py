"""What it means to have the duty, or that another program has it: told to the engine, and to every other program."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from msgspec.structs import replace

from trainmon.alerting.notify.delivery.dispatcher import Dispatcher
from trainmon.alerting.notify.delivery.election import Remembered
from trainmon.alerting.notify.delivery.journal import Journal
from trainmon.alerting.notify.delivery.leader_watch import took_over
from trainmon.alerting.rules import ago
from trainmon.ledger.lease import Holder, LeaderNote, SourceNote, ourselves
from trainmon.ledger.outbox import Address
from trainmon.ledger.reader import AlertsNow
from trainmon.lib import Clock, Instant, Seconds
from trainmon.model import (
    AlertChanges,
    AlertRequest,
    AlertRequested,
    AlertsRecalled,
    AlertsReported,
    Event,
    Leadership,
    LeadershipChanged,
    Notification,
    Recalled,
    State,
)

log = logging.getLogger(__name__)

QUIET: Seconds = 60.0
"""A program on duty that has not gone through its rules for so long is told to be quiet: a full disk, a stopped one."""
GIVEN_AT_MOST = 20_000


class LeaderState:
    """Implements Crew. `state` is the newest that all rules were gone through."""

    def __init__(
        self, clock: Clock, submit: Callable[[Event], None], desks: Dispatcher, *, program: str, network: str | None
    ) -> None:
        """`network`: what is to be said of a ledger on a network file system."""
        self._clock = clock
        self._submit = submit
        self._desks = desks
        self._program = program
        self._network = network
        self._started_at = clock.now()
        self._us = ourselves()
        self._words: str | None = None
        self._duty = Leadership()
        self._theirs: LeaderNote | None = None
        """What the leader that we stand by for last wrote down."""
        self._given: dict[Address, None] = {}
        """The letters that had a desk already: what the ledger remembers late is not told twice."""
        self._noted: tuple[tuple[str, str, str | None], ...] = ()
        """What was written down of each source: its health and its error."""
        self.books: Journal
        """Set once, before the start."""
        self.state: State | None = None
        self.trouble: str | None = None
        """What is wrong with this program besides, by its own word."""
        self.is_on_duty = False
        self._is_paused = False
        """Whether it is not known if we lead still: what was found is kept, and nothing new is told."""

    @property
    def name(self) -> str:
        return self._us.name

    @property
    def words(self) -> str | None:
        """What is wrong with this program, in a sentence."""
        return "; ".join(words for words in (self.trouble, self._words) if words) or None

    def note(self) -> LeaderNote:
        """What this program says of itself."""
        state = self.state
        sources = state.sources.values() if state is not None else ()
        return LeaderNote(
            holder=self._us,
            program=self._program,
            started_at=self._started_at,
            last_tick_at=(state.looked_at or state.at) if state is not None else None,
            written_at=self._clock.now(),
            words=self.words,
            sources=tuple(
                SourceNote(name=one.name, kind=one.kind, health=one.health, seen_at=one.seen_at, error=one.error)
                for one in sources
            ),
            channels=self._desks.health,
        )

    @property
    def has_begun(self) -> bool:
        """Whether the rules were gone through for the first time, and nobody else knows yet."""
        return self.state is not None and self._duty.at is None

    @property
    def is_news(self) -> bool:
        """Whether a source does better or worse than others read."""
        return self._sources() != self._noted

    def _sources(self) -> tuple[tuple[str, str, str | None], ...]:
        sources = self.state.sources.values() if self.state is not None else ()
        return tuple((one.name, one.health, one.error) for one in sources)

    def go_round(self) -> None:
        """Write down how we are."""
        if self._is_paused:
            return
        note, self._noted = self.note(), self._sources()
        self.books.note(note)
        self._tell(
            Leadership(holder="us", where="here", at=note.last_tick_at, words=self.words, since=self._duty.since)
        )

    def deliver(self, letters: Iterable[Notification]) -> None:
        """Give letters to their desks."""
        letters = list(letters)
        self._given |= {(letter.notice.key, letter.channel): None for letter in letters}
        while len(self._given) > GIVEN_AT_MOST:
            del self._given[next(iter(self._given))]
        self._desks.deliver(letters)

    # ---- for the roster

    def took(self, remembered: Remembered | None, words: str | None) -> None:
        self._words = words or self._network
        self.books.forget()
        self.is_on_duty = True
        self._submit(AlertsRecalled(remembered.recalled if remembered is not None else Recalled()))
        self._tell(Leadership(holder="us", where="here", at=None, words=self.words, since=self._clock.now()))
        if remembered is not None:
            self._desks.recall(remembered.channels)
            self.deliver(remembered.letters)
        self.go_round()

    def took_over(self, silent: Seconds) -> None:
        now = self._clock.now()
        told = took_over(self._theirs, silent, now, self._desks.everyday)
        self.books.enter(AlertChanges(at=now, notices=(told,)))

    def pause(self) -> None:
        self._is_paused = True
        words = "this program stood still: it asks whether another one notified meanwhile"
        self._tell(Leadership(words=words, since=self._duty.since))

    def resume(self, remembered: Remembered | None) -> None:
        self._is_paused = False
        self._submit(AlertsRecalled(remembered.recalled if remembered is not None else Recalled()))
        if remembered is not None:
            self.deliver(one for one in remembered.letters if (one.notice.key, one.channel) not in self._given)
        self.go_round()

    def remember(self, remembered: Remembered) -> None:
        """Alerts that we found ourselves meanwhile are newer than what the ledger knows of them."""
        self._words = self._network
        known = {alert.key for alert in self.state.alerts.values()} if self.state is not None else set()
        old = tuple(alert for alert in remembered.recalled.alerts if alert.key not in known)
        self._submit(AlertsRecalled(replace(remembered.recalled, alerts=old)))
        self.deliver(letter for letter in remembered.letters if (letter.notice.key, letter.channel) not in self._given)

    def lose(self) -> None:
        """The duty is another's now, or was meanwhile."""
        self.books.forget()
        if self.is_on_duty:
            self.is_on_duty = self._is_paused = False
            self._desks.clear()
            self._tell(Leadership(words="another program took the duty of telling people"))

    def stand_by(self, holder: Holder, note: LeaderNote | None) -> None:
        if self.is_on_duty:
            self.lose()
        self._tell(self._of(holder, note, self._clock.now()))

    def watch(self, now: AlertsNow) -> None:
        at, note = self._clock.now(), now.duty.note if now.duty is not None else None
        if note is not None:
            self._tell(self._of(note.holder, note, at))
            self._theirs = note
        told_at = note.last_tick_at if note is not None else None
        recalled = now.recalled
        self._submit(AlertsReported(recalled.alerts, recalled.silences, now.channels, told_at if told_at else at))

    def found(self, letters: list[Notification]) -> None:
        strays = [letter for letter in letters if not self._desks.knows(letter)]
        if strays:
            log.info("%d letters wait in the ledger and at no desk: they are given to them", len(strays))
        self.deliver(strays)

    def ordered(self, orders: list[tuple[int, AlertRequest]]) -> None:
        for number, order in orders:
            self._submit(AlertRequested(order, number))

    # ---- the duty, as it is told

    def _of(self, holder: Holder, note: LeaderNote | None, now: Instant) -> Leadership:
        where = f"pid {holder.pid}" if holder.host in ("", self._us.host) else f"pid {holder.pid} on {holder.host}"
        where = where if holder.pid else "another program"
        at = note.last_tick_at if note is not None else None
        words = note.words if note is not None else None
        if note is not None and now - note.written_at > QUIET:
            words = f"it has written nothing down for {ago(now - note.written_at)}"
        elif at is not None and now - at > QUIET:
            words = f"it has not gone through its rules for {ago(now - at)}"
        return Leadership(
            holder="other", where=where, at=at, words=words, since=note.started_at if note is not None else None
        )

    def _tell(self, duty: Leadership) -> None:
        if duty != self._duty:
            self._duty = duty
            self._submit(LeadershipChanged(duty))
