"""Reports to the engine and to other programs whether this program leads, and what follows from it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.alerting.notify.delivery.dispatcher import Dispatcher
from trainmon.alerting.notify.delivery.journal import Journal
from trainmon.alerting.notify.delivery.leader_watch import took_over
from trainmon.alerting.rules import ago
from trainmon.ledger.lease import Holder, LeaderNote, SourceNote
from trainmon.ledger.outbox import Address
from trainmon.ledger.reader import AlertsNow
from trainmon.lib import Clock, Instant, Seconds
from trainmon.model import (
    AlertChanges,
    AlertRequest,
    AlertRequested,
    AlertsRecalled,
    AlertsReported,
    Channel,
    Event,
    Leadership,
    LeadershipChanged,
    Notification,
    Recalled,
    State,
)

log = logging.getLogger(__name__)

QUIET: Seconds = 60.0
"""A leader that has not evaluated its rules for so long is reported as quiet: its disk is full, or it is stopped."""
GIVEN_AT_MOST = 20_000

NETWORK_LEDGER = "its ledger is on a network file system: which program tells people is agreed on slowly, and by clocks"


class Remembered(NamedTuple):
    """What the ledger knows when this program begins to lead."""

    recalled: Recalled
    notifications: tuple[Notification, ...]
    channels: tuple[Channel, ...]


class LeaderState:
    """Belongs to the thread of the notification service. `state` is the newest of which the rules were evaluated."""

    def __init__(
        self,
        holder: Holder,
        clock: Clock,
        submit: Callable[[Event], None],
        dispatcher: Dispatcher,
        journal: Journal,
        *,
        program: str,
        is_network: bool,
    ) -> None:
        self._clock = clock
        self._submit = submit
        self._dispatcher = dispatcher
        self._journal = journal
        self._program = program
        self._warning = NETWORK_LEDGER if is_network else None
        self._started_at = clock.now()
        self.holder = holder
        self._reason: str | None = None
        self._duty = Leadership()
        self._theirs: LeaderNote | None = None
        """The last note of the leader that we stand by for."""
        self._given: dict[Address, None] = {}
        """The notifications that the workers have or had: what the ledger remembers late is not sent twice."""
        self._noted: tuple[tuple[str, str, str | None], ...] = ()
        """The health and the error of each source, as last written."""
        self.state: State | None = None
        self.trouble: str | None = None
        """What is wrong with this program itself."""
        self.is_leading = False
        self._is_paused = False
        """Whether we may have lost the lease: what was found is kept, and nothing new is sent."""

    @property
    def name(self) -> str:
        return self.holder.name

    @property
    def words(self) -> str | None:
        """What is wrong with this program, in a sentence."""
        return "; ".join(reason for reason in (self.trouble, self._reason) if reason) or None

    def note(self) -> LeaderNote:
        """What this program writes about itself."""
        state = self.state
        sources = state.sources.values() if state is not None else ()
        return LeaderNote(
            holder=self.holder,
            program=self._program,
            started_at=self._started_at,
            last_tick_at=(state.looked_at or state.at) if state is not None else None,
            written_at=self._clock.now(),
            words=self.words,
            sources=tuple(
                SourceNote(name=one.name, kind=one.kind, health=one.health, seen_at=one.seen_at, error=one.error)
                for one in sources
            ),
            channels=self._dispatcher.health,
        )

    @property
    def has_begun(self) -> bool:
        """Whether the rules were evaluated for the first time, and no note says so yet."""
        return self.state is not None and self._duty.at is None

    @property
    def is_news(self) -> bool:
        """Whether the health of a source differs from the last note."""
        return self._sources() != self._noted

    def _sources(self) -> tuple[tuple[str, str, str | None], ...]:
        sources = self.state.sources.values() if self.state is not None else ()
        return tuple((one.name, one.health, one.error) for one in sources)

    def write_note(self) -> None:
        """Write how this program is, and report it."""
        if self._is_paused:
            return
        note, self._noted = self.note(), self._sources()
        self._journal.write_note(note)
        self._report(
            Leadership(holder="us", where="here", at=note.last_tick_at, words=self.words, since=self._duty.since)
        )

    def deliver(self, notifications: Iterable[Notification]) -> None:
        """Give notifications to their workers."""
        notifications = list(notifications)
        self._given |= {(notification.notice.key, notification.channel): None for notification in notifications}
        while len(self._given) > GIVEN_AT_MOST:
            del self._given[next(iter(self._given))]
        self._dispatcher.deliver(notifications)

    # ---- for the election

    def lead(self, remembered: Remembered | None, reason: str | None) -> None:
        """This program leads. None: the ledger could not say in time what was known, for this reason."""
        self._reason = reason or self._warning
        self._journal.discard()
        self.is_leading = True
        self._submit(AlertsRecalled(remembered.recalled if remembered is not None else Recalled()))
        self._report(Leadership(holder="us", where="here", at=None, words=self.words, since=self._clock.now()))
        if remembered is not None:
            self._dispatcher.recall(remembered.channels)
            self.deliver(remembered.notifications)
        self.write_note()

    def notify_takeover(self, silent: Seconds) -> None:
        """The previous leader has made no progress for so long."""
        now = self._clock.now()
        notice = took_over(self._theirs, silent, now, self._dispatcher.everyday)
        self._journal.add_changes(AlertChanges(at=now, notices=(notice,)))

    def pause(self) -> None:
        """This program was stopped: another may have led meanwhile. Nothing new is sent before `resume`."""
        self._is_paused = True
        words = "this program stood still: it asks whether another one notified meanwhile"
        self._report(Leadership(words=words, since=self._duty.since))

    def resume(self, remembered: Remembered | None) -> None:
        """This program leads still. None: the ledger could not say what was known."""
        self._is_paused = False
        self._submit(AlertsRecalled(remembered.recalled if remembered is not None else Recalled()))
        if remembered is not None:
            self.deliver(one for one in remembered.notifications if (one.notice.key, one.channel) not in self._given)
        self.write_note()

    def remember(self, remembered: Remembered) -> None:
        """The ledger can say now what was known. Alerts that we found meanwhile are newer than that."""
        self._reason = self._warning
        known = {alert.key for alert in self.state.alerts.values()} if self.state is not None else set()
        old = tuple(alert for alert in remembered.recalled.alerts if alert.key not in known)
        self._submit(AlertsRecalled(replace(remembered.recalled, alerts=old)))
        self.deliver(one for one in remembered.notifications if (one.notice.key, one.channel) not in self._given)

    def lose(self) -> None:
        """Another program leads now, or did meanwhile."""
        self._journal.discard()
        if self.is_leading:
            self.is_leading = self._is_paused = False
            self._dispatcher.clear()
            self._report(Leadership(words="another program took the duty of telling people"))

    def stand_by(self, holder: Holder) -> None:
        """Another program leads."""
        if self.is_leading:
            self.lose()
        self._report(self._leadership_of(holder, None, self._clock.now()))

    def watch(self, now: AlertsNow) -> None:
        """Report what the leader has written."""
        at, note = self._clock.now(), now.duty.note if now.duty is not None else None
        if note is not None:
            self._report(self._leadership_of(note.holder, note, at))
            self._theirs = note
        told_at = note.last_tick_at if note is not None else None
        recalled = now.recalled
        self._submit(AlertsReported(recalled.alerts, recalled.silences, now.channels, told_at if told_at else at))

    def deliver_strays(self, notifications: list[Notification]) -> None:
        """Deliver those that have waited in the ledger for a while and have no worker."""
        strays = [notification for notification in notifications if not self._dispatcher.knows(notification)]
        if strays:
            log.info("%d notifications wait in the ledger and have no worker: they are sent now", len(strays))
        self.deliver(strays)

    def request(self, requests: list[tuple[int, AlertRequest]]) -> None:
        """Submit what people requested through the ledger."""
        for number, request in requests:
            self._submit(AlertRequested(request, number))

    # ---- the report to the engine

    def _leadership_of(self, holder: Holder, note: LeaderNote | None, now: Instant) -> Leadership:
        where = f"pid {holder.pid}" if holder.host in ("", self.holder.host) else f"pid {holder.pid} on {holder.host}"
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

    def _report(self, duty: Leadership) -> None:
        if duty != self._duty:
            self._duty = duty
            self._submit(LeadershipChanged(duty))
