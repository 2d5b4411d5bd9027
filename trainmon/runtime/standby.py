"""Standby of a dashboard: if `[daemon]` names another machine, this program notifies only while that daemon does not.

This program notifies when the daemon was silent for long enough, or when no daemon runs there. It checks the daemon
again just before each message, so both notify only if it cannot reach a daemon that runs, or in a race (see
docs/explanation/delivery.md). Before it stands by again, it stops its notification service and
what waits there, except news that is over and that the daemon has not seen: that is still sent.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Collection, Sequence

from msgspec.structs import replace

from collectors.daemon import DaemonCollector, DaemonConnection
from trainmon.alerting.notify.delivery.service import NotificationService
from trainmon.alerting.notify.message import Message, Retry, Sender, Sent
from trainmon.config import Settings
from trainmon.engine.snapshot import Status
from trainmon.ledger.actions import storable
from trainmon.ledger.alerts import counted, read_newest, read_stored_alerts
from trainmon.ledger.ledger import Ledger
from trainmon.lib import Clock, Instant, Seconds
from trainmon.model import (
    KEPT_RESOLVED,
    Alert,
    AlertRequest,
    AlertRequested,
    AlertsReported,
    ChannelsChanged,
    Event,
    Leadership,
    LeadershipChanged,
    Notice,
    State,
)
from trainmon.runtime.alert_service import AlertService, Program, Sources

log = logging.getLogger(__name__)

LAST_CHECK: Seconds = 6.0
"""How long a message waits for the daemon's answer just before it is sent."""

LATER: Seconds = 60.0
PATIENCE: Seconds = 5.0
"""For the ledger, to stop what waits."""


class Standby(AlertService):
    """An AlertService whose notification service runs only while the daemon does not notify."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        submit: Callable[[Event], None],
        clock: Clock,
        program: Program,
        sources: Sources,
        *,
        host: str,
        connection: DaemonConnection,
    ) -> None:
        self._connection = connection
        self._is_open = False
        self._remainder: NotificationService | None = None
        """Sends notifications that only this machine knows of, while the daemon notifies."""
        self._why = ""
        self._generation = 0
        self._changing = threading.Lock()
        daemon = settings.daemon
        self.daemon = DaemonCollector(
            host, daemon.command, daemon.every, connection.shell, submit, clock,
            on_active=self._stand_by, on_silent=self._take_over,
        )  # fmt: skip
        super().__init__(settings, ledger, submit, clock, program, sources)

    def start(self) -> None:
        self.daemon.start()

    def stop(self, flush: Seconds) -> None:
        self.daemon.stop()
        with self._changing:
            self._stop_remainder(flush)
            if self._is_open:
                super().stop(flush)
        self._connection.close()

    def observe(self, state: State) -> None:
        super().observe(state)
        if (remainder := self._remainder) is not None:
            remainder.tick(state)  # it leads on our ledger, so it must renew the lease

    def submit_request(self, request: AlertRequest) -> None:
        """Send it to whoever evaluates the alerts now."""
        if self.daemon.is_active is True:
            self.daemon.send(request)
        elif self._is_open:
            super().submit_request(request)
        else:
            self._submit(AlertRequested(request))

    # ---- on the daemon's thread ------------------------------------------------------------------------------------

    def _take_over(self, why: str) -> None:
        """The daemon does not notify: this program does."""
        with self._changing:
            log.warning("%s does not notify (%s): this program does", self.daemon.host, why)
            self._why = f"{self.daemon.host} does not notify: {why}"
            self._submit(
                LeadershipChanged(Leadership(holder="us", where="here", problem=self._why, since=self._clock.now()))
            )
            self._stop_remainder(0.0)
            self._is_open = True
            super().start()

    def _stand_by(self, status: Status) -> None:
        """The daemon notifies: stop our notification service, and what waits there and the daemon sends itself."""
        with self._changing:
            if self._is_open:
                log.info("%s notifies again: this program stands by", self.daemon.host)
                self._is_open = False
                super().stop(0.0)
                self._create_service()
            now, reason = self._clock.now(), f"{self.daemon.host} notifies"
            answer = self._ledger.transact(
                lambda connection: stop_waiting(connection, now, status, reason), lambda: None
            )
            if not answer.done.wait(PATIENCE):
                log.warning("waiting notifications could not be stopped: the ledger does not answer")
            elif answer.found:  # what happened while nobody watched there; this service gets nothing new
                log.info("%d notifications that %s does not know of are still sent", answer.found, self.daemon.host)
                self._remainder = super()._make_service(self._senders(self._settings), lambda event: None)
                self._remainder.start()

    def _stop_remainder(self, flush: Seconds) -> None:
        if self._remainder is not None:
            self._remainder.stop(flush)
            self._remainder = None

    # ---- our notification service ----------------------------------------------------------------------------------

    def _make_service(self, made: Sequence[Sender], submit: Callable[[Event], None]) -> NotificationService:
        self._generation += 1
        number = self._generation

        def submit_current(event: Event) -> None:
            """Reports on leadership and channels count only from the current service, and only while it runs."""
            about_us = isinstance(event, LeadershipChanged | AlertsReported | ChannelsChanged)
            if about_us and not (self._is_open and number == self._generation):
                return
            if (
                isinstance(event, LeadershipChanged)
                and event.leadership.holder == "us"
                and event.leadership.problem is None
            ):
                event = LeadershipChanged(replace(event.leadership, problem=self._why))
            submit(event)

        return super()._make_service([Fenced(one, self.daemon) for one in made], submit_current)


class Fenced:
    """A channel that sends nothing while the daemon answers that it notifies."""

    def __init__(self, sender: Sender, daemon: DaemonCollector) -> None:
        self.health = sender.health
        self._sender = sender
        self._daemon = daemon

    def send(self, message: Message, timeout: Seconds) -> Sent:
        """Send, unless the daemon sends.

        Raises:
            Retry: while the daemon answers and sends the notifications itself.
        """
        if self._daemon.answers(LAST_CHECK):
            raise Retry(f"{self._daemon.host} notifies", LATER)
        return self._sender.send(message, timeout)


AT_MOST = 10_000
SAME: Seconds = 120.0
"""Two machines see the same event at most this far apart."""

OF_OUR_VIEW = frozenset({"node-unreachable", "cluster-unreachable", "monitor-blind", "clock-jumped"})
"""Rules about what this machine can reach: once the daemon watches again, they do not matter."""


def stop_waiting(connection: sqlite3.Connection, now: Instant, status: Status, reason: str) -> int:
    """Stop what the daemon sends itself; return how many notifications only this machine can send."""
    still = {one.id for one in read_stored_alerts(connection, now).alerts if one.is_open}
    left = [
        notification.id
        for notification in read_newest(connection, now - KEPT_RESOLVED, AT_MOST)
        if notification.state in ("waiting", "leased", "dead") and is_ours(notification.notice, still, status)
    ]
    with counted(connection, "outbox", "1"):
        connection.execute(
            "UPDATE outbox SET state = 'stopped', words = ?, changed_at = ? "
            "WHERE state IN ('waiting', 'leased', 'dead') AND id NOT IN (SELECT value FROM json_each(?))",
            (storable(reason), now, str(left)),
        )
    return len(left)


def is_ours(notice: Notice, still: Collection[str], status: Status) -> bool:
    """Whether only this machine knows of it. The daemon finds alerts that still fire; it may have missed others."""
    return any(
        (alert.event or alert.id not in still)
        and alert.rule not in OF_OUR_VIEW
        and alert.subject.partition(":")[0] not in ("source", "channel", "rule", "self")
        and not is_known(alert, status)
        for alert in notice.alerts
    )


def is_known(alert: Alert, status: Status) -> bool:
    """Whether the daemon knows the alert: it fires there, or ended there after it began here."""
    same = [one for one in (*status.alerts, *status.ended) if one.key == alert.key]
    if alert.event:
        return any(abs(one.since - alert.since) < SAME for one in same)
    return any(one.is_open or (one.resolved_at or 0.0) >= alert.since for one in same)
