"""Telling, where `[daemon]` names another machine: this one shows, and tells people only while that one does not.

Never both: our office is opened when the daemon was silent for long enough, or says that nobody watches there; each
message of ours is held back if the daemon answers just before it goes; and before the daemon is shown again, the office
is closed, and what still waited in it is put aside, but for what is over and the daemon has not seen: that is told yet.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable

from msgspec.structs import replace

from collectors.daemon.collector import DaemonCollector
from collectors.daemon.connection import DaemonConnection
from trainmon.alerting.notify.base import Message, Retry, Sender, Sent
from trainmon.alerting.notify.delivery.service import NotificationService
from trainmon.alerting.notify.plots.render import ReadCurve
from trainmon.config import Settings
from trainmon.engine.snapshot_alerts import Status
from trainmon.ledger.actions import storable
from trainmon.ledger.alerts import read_recalled
from trainmon.ledger.ledger import Ledger
from trainmon.ledger.outbox import read_newest
from trainmon.lib import Clock, Instant, Seconds
from trainmon.model import (
    KEPT_RESOLVED,
    Alert,
    AlertRequest,
    AlertRequested,
    AlertsReported,
    Channel,
    ChannelsChanged,
    Event,
    Leadership,
    LeadershipChanged,
    Notice,
    State,
)
from trainmon.runtime.alert_service import AlertService, Program

log = logging.getLogger(__name__)

LAST_LOOK: Seconds = 6.0
"""The longest that a message waits for the daemon's answer just before it is sent."""

LATER: Seconds = 60.0
PATIENCE: Seconds = 5.0
"""For the ledger, to put aside what waits."""


class Standby(AlertService):
    """The same parts as Telling; its office is open only while nobody tells on the other machine."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        submit: Callable[[Event], None],
        clock: Clock,
        *,
        host: str,
        line: DaemonConnection,
        program: Program,
        hurry: Callable[[str], None],
        curve: ReadCurve,
    ) -> None:
        self._line = line
        self._is_open = False
        self._rest: NotificationService | None = None
        """Sends what only this machine knows of, while the daemon tells of all else."""
        self._why = ""
        self._offices = 0
        self._changing = threading.Lock()
        daemon = settings.daemon
        self.daemon = DaemonCollector(
            host, daemon.command, daemon.every, line.shell, submit, clock, takes=self._stand_by, gives=self._take_over
        )  # fmt: skip
        super().__init__(settings, ledger, submit, clock, program=program, hurry=hurry, curve=curve)

    def start(self) -> None:
        self.daemon.start()

    def stop(self, flush: Seconds) -> None:
        self.daemon.stop()
        with self._changing:
            self._end_rest(flush)
            if self._is_open:
                super().stop(flush)
        self._line.close()

    def seen(self, state: State) -> None:
        super().seen(state)
        if (rest := self._rest) is not None:
            rest.tick(state)  # it leads on our ledger, and must be seen not to hang

    def order(self, order: AlertRequest) -> None:
        """To whoever judges the alerts now."""
        if self.daemon.is_on_duty is True:
            self.daemon.order(order)
        elif self._is_open:
            super().order(order)
        else:
            self._submit(AlertRequested(order))

    # ---- on the daemon's thread ------------------------------------------------------------------------------------

    def _take_over(self, why: str) -> None:
        """Nobody tells there: we do."""
        with self._changing:
            log.warning("%s does not tell people (%s): this program does", self.daemon.host, why)
            self._why = f"{self.daemon.host} does not tell people: {why}"
            self._submit(
                LeadershipChanged(Leadership(holder="us", where="here", words=self._why, since=self._clock.now()))
            )
            self._end_rest(0.0)
            self._is_open = True
            super().start()

    def _stand_by(self, status: Status) -> None:
        """It tells people: close our office, and put aside what waits in it and is told there."""
        with self._changing:
            if self._is_open:
                log.info("%s tells people again: this program shows", self.daemon.host)
                self._is_open = False
                super().stop(0.0)
                self._begin_anew()
            now, words = self._clock.now(), f"{self.daemon.host} tells people"
            answer = self._ledger.transact(lambda kept: put_aside(kept, now, status, words), lambda: None)
            if not answer.done.wait(PATIENCE):
                log.warning("what waits to be sent could not be put aside: the ledger does not answer")
            elif answer.found:
                self._tell_the_rest(int(str(answer.found)))

    def _tell_the_rest(self, number: int) -> None:
        """What happened while nobody watched there, and never went out. Nothing new is handed to this office."""
        log.info("%d messages of which %s knows nothing are still to be sent", number, self.daemon.host)
        self._rest = super()._open(self._made(self._settings), lambda event: None)
        self._rest.start()

    def _end_rest(self, flush: Seconds) -> None:
        if self._rest is not None:
            self._rest.stop(flush)
            self._rest = None

    # ---- our office ------------------------------------------------------------------------------------------------

    def _open(self, made: Iterable[Sender], submit: Callable[[Event], None]) -> NotificationService:
        self._offices += 1
        number = self._offices

        def say(event: Event) -> None:
            """Only what the present office says of duty and channels counts, and only while it is open."""
            about_us = isinstance(event, LeadershipChanged | AlertsReported | ChannelsChanged)
            if about_us and not (self._is_open and number == self._offices):
                return
            if isinstance(event, LeadershipChanged) and event.duty.holder == "us" and event.duty.words is None:
                event = LeadershipChanged(replace(event.duty, words=self._why))
            submit(event)

        return super()._open([Fenced(one, self.daemon) for one in made], say)


class Fenced:
    """A channel of ours: it sends nothing that the daemon, back this moment, tells as well."""

    def __init__(self, sender: Sender, daemon: DaemonCollector) -> None:
        self._sender = sender
        self._daemon = daemon

    @property
    def health(self) -> Channel:
        return self._sender.health

    def send(self, message: Message, timeout: Seconds) -> Sent:
        if self._daemon.answers(LAST_LOOK):
            raise Retry(f"{self._daemon.host} tells people", LATER)
        return self._sender.send(message, timeout)

    def close(self) -> None:
        self._sender.close()


AT_MOST = 10_000
SAME: Seconds = 120.0
"""Two machines see the same happening so far apart."""

OF_OUR_VIEW = frozenset({"node-unreachable", "cluster-unreachable", "monitor-blind", "clock-jumped"})
"""Rules about how this machine sees the others: once that machine watches again, they are no news."""


def put_aside(connection: sqlite3.Connection, now: Instant, status: Status, words: str) -> int:
    """Send nothing of what that machine tells itself; how many letters are left, that only we can tell."""
    still = {one.id for one in read_recalled(connection, now).alerts if one.is_open}
    left = [
        letter.id
        for letter in read_newest(connection, now - KEPT_RESOLVED, AT_MOST)
        if letter.state in ("waiting", "leased", "dead") and is_ours(letter.notice, still, status)
    ]
    connection.execute(
        "UPDATE outbox SET state = 'stopped', words = ?, changed_at = ? "
        "WHERE state IN ('waiting', 'leased', 'dead') AND id NOT IN (SELECT value FROM json_each(?))",
        (storable(words), now, str(left)),
    )
    return len(left)


def is_ours(notice: Notice, still: Collection[str], status: Status) -> bool:
    """Whether nobody but us can tell of it. What is still so is found by that machine; what is over is known to it or
    is not."""
    return any(
        (alert.event or alert.id not in still) and not _is_of_our_view(alert) and not is_known(alert, status)
        for alert in notice.alerts
    )


def _is_of_our_view(alert: Alert) -> bool:
    return alert.rule in OF_OUR_VIEW or alert.subject.partition(":")[0] in ("source", "channel", "rule", "self")


def is_known(alert: Alert, status: Status) -> bool:
    """Whether that machine has seen it, too: it fires there, or ended there after it had begun here."""
    same = [one for one in (*status.alerts, *status.ended) if one.key == alert.key]
    if alert.event:
        return any(abs(one.since - alert.since) < SAME for one in same)
    return any(one.is_open or (one.resolved_at or 0.0) >= alert.since for one in same)
