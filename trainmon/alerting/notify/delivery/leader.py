"""Reports to the engine and to other programs whether this program leads, and what follows from it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec.structs import replace

from trainmon.alerting.notify.delivery.deliverer import Deliverer
from trainmon.alerting.notify.delivery.journal import Journal
from trainmon.alerting.rules import ago
from trainmon.analysis.attempts import unrecorded
from trainmon.ledger.lease import Holder, LeaderNote, SourceNote
from trainmon.ledger.reader import AlertsNow
from trainmon.lib import Clock, Instant, Seconds
from trainmon.model import (
    AlertChanges,
    AlertRequest,
    AlertRequested,
    AlertsReported,
    AlertsRestored,
    Event,
    Leadership,
    LeadershipChanged,
    Notice,
    Notification,
    State,
)

log = logging.getLogger(__name__)

QUIET: Seconds = 60.0
"""A leader that has not evaluated its rules for so long is reported as quiet: its disk is full, or it is stopped."""

NETWORK_LEDGER = "its ledger is on a network file system: another program takes over slowly, and by the clocks"


class LeaderState:
    """Belongs to the thread of the notification service. `state` is the newest of which the rules were evaluated."""

    def __init__(
        self,
        holder: Holder,
        clock: Clock,
        submit: Callable[[Event], None],
        deliverer: Deliverer,
        journal: Journal,
        *,
        program: str,
        is_network: bool,
    ) -> None:
        self._clock = clock
        self._submit = submit
        self._deliverer = deliverer
        self._journal = journal
        self._program = program
        self._warning = NETWORK_LEDGER if is_network else None
        self._started_at = clock.now()
        self.holder = holder
        self._reason: str | None = None
        self._leadership = Leadership()
        self._leader_note: LeaderNote | None = None
        """The last note of the leader that we stand by for."""
        self._noted: list[tuple[str, str, str | None]] = []
        """The health and the error of each source, as last written."""
        self.state: State | None = None
        self.trouble: str | None = None
        """What is wrong with this program itself."""
        self.is_leading = False
        self._is_paused = False
        """Whether we may have lost the lease: what was found is kept, and nothing new is sent."""

    @property
    def problem(self) -> str | None:
        """What is wrong with this program, in a sentence."""
        return "; ".join(reason for reason in (self.trouble, self._reason) if reason) or None

    def note(self) -> LeaderNote:
        """What this program writes about itself."""
        state = self.state
        return LeaderNote(
            holder=self.holder,
            program=self._program,
            started_at=self._started_at,
            last_tick_at=(state.evaluated_at or state.at) if state is not None else None,
            written_at=self._clock.now(),
            problem=self.problem,
            sources=tuple(
                SourceNote(
                    name=one.name, kind=one.kind, health=one.health, answered_at=one.answered_at, error=one.problem
                )
                for one in (state.sources.values() if state is not None else ())
            ),
            unrecorded={} if state is None else unrecorded(state),
            channels=self._deliverer.health,
        )

    @property
    def has_begun(self) -> bool:
        """Whether the rules were evaluated for the first time, and no note has reported that yet."""
        return self.state is not None and self._leadership.at is None

    @property
    def has_source_changes(self) -> bool:
        """Whether the health of a source differs from the last note."""
        return self._sources() != self._noted

    def _sources(self) -> list[tuple[str, str, str | None]]:
        sources = self.state.sources.values() if self.state is not None else ()
        return [(one.name, one.health, one.error) for one in sources]

    def write_note(self) -> None:
        """Write how this program is, and report it."""
        if self._is_paused:
            return
        note, self._noted = self.note(), self._sources()
        self._journal.write_note(note)
        self._report(
            Leadership(
                holder="us", where="here", at=note.last_tick_at, problem=self.problem, since=self._leadership.since
            )
        )

    # ---- for the election

    def lead(self, remembered: AlertsNow | None, reason: str | None) -> None:
        """This program leads. `remembered` is None if the ledger did not answer in time, for this reason."""
        known = remembered or AlertsNow()
        self._reason = reason or self._warning
        self._journal.discard()
        self.is_leading = True
        self._submit(AlertsRestored(known.stored))
        self._report(Leadership(holder="us", where="here", at=None, problem=self.problem, since=self._clock.now()))
        self._deliverer.restore(known.channels, known.sent)
        self._deliverer.add(known.notifications)
        self.write_note()

    def notify_takeover(self, silent: Seconds) -> None:
        """The previous leader has made no progress for so long."""
        now = self._clock.now()
        self._journal.add_changes(
            AlertChanges(at=now, notices=(took_over(self._leader_note, silent, now, self._deliverer.everyday),))
        )

    def pause(self) -> None:
        """This program was stopped: another may have led meanwhile. Nothing new is sent before `resume`."""
        self._is_paused = True
        problem = "this program was stopped: it checks whether another one notified meanwhile"
        self._report(Leadership(problem=problem, since=self._leadership.since))

    def resume(self, remembered: AlertsNow | None) -> None:
        """This program still leads. `remembered` is None if the ledger did not answer."""
        known = remembered or AlertsNow()
        self._is_paused = False
        self._submit(AlertsRestored(known.stored))
        self._deliverer.add_unknown(known.notifications)
        self.write_note()

    def remember(self, remembered: AlertsNow) -> None:
        """The ledger has answered late. Alerts that were found meanwhile are newer than its alerts."""
        self._reason = self._warning
        known = {alert.key for alert in self.state.alerts.values()} if self.state is not None else set()
        old = tuple(alert for alert in remembered.stored.alerts if alert.key not in known)
        self._submit(AlertsRestored(replace(remembered.stored, alerts=old)))
        self._deliverer.add_unknown(remembered.notifications)

    def lose(self) -> None:
        """Another program leads now, or did meanwhile."""
        self._journal.discard()
        if self.is_leading:
            self.is_leading = self._is_paused = False
            self._deliverer.clear()
            self._report(Leadership(problem="another program leads now"))

    def stand_by(self, holder: Holder) -> None:
        """Another program leads."""
        if self.is_leading:
            self.lose()
        self._report(self._leadership_of(holder, None, self._clock.now()))

    def watch(self, now: AlertsNow) -> None:
        """Report what the leader has written."""
        at = evaluated_at = self._clock.now()
        if now.leader is not None:
            self._leader_note = note = now.leader.note
            self._report(self._leadership_of(note.holder, note, at))
            evaluated_at = note.last_tick_at or at
        self._submit(AlertsReported(now.stored.alerts, now.stored.silences, now.channels, evaluated_at))

    def deliver(self, notifications: list[Notification]) -> None:
        """Deliver what has waited in the ledger for a while, if nobody has it."""
        self._deliverer.add_unknown(notifications)

    def request(self, requests: list[tuple[int, AlertRequest]]) -> None:
        """Submit what people requested through the ledger."""
        for number, request in requests:
            self._submit(AlertRequested(request, number))

    # ---- the report to the engine

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
