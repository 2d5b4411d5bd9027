"""The alert service of one program: rules, notification service, listeners and dead-man's switch."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from trainmon.alerting.heartbeat import unwell
from trainmon.alerting.manager import AlertManager
from trainmon.alerting.notify.channels.alertmanager import Alertmanager, Resender
from trainmon.alerting.notify.channels.apprise.sender import FOLDER
from trainmon.alerting.notify.channels.healthchecks import NAME, TIMEOUT, DeadMansSwitch, Ping
from trainmon.alerting.notify.channels.ntfy import Replies
from trainmon.alerting.notify.delivery.service import NotificationService
from trainmon.alerting.notify.message import Sender
from trainmon.alerting.notify.plots.render import PlotRenderer, ReadCurve
from trainmon.config import (
    InvalidValue,
    Settings,
    address_error,
    heartbeat_of,
    resolve_secret,
    routes_of,
)
from trainmon.ledger.ledger import Ledger
from trainmon.lib import Clock, ConfigError, Instant, Seconds, TrainmonError, clean, remove_abandoned
from trainmon.model import (
    Alert,
    AlertChanges,
    AlertRequest,
    Event,
    State,
)
from trainmon.runtime.channels import listeners, senders
from trainmon.runtime.evaluation import enabled_rules, routing

log = logging.getLogger(__name__)

Program = Literal["alerts-only", "once", "dashboard"]

FONTS = "fonts"
"""The font cache beside the ledger: with it a plot takes one second instead of ten."""

FAREWELL: Seconds = 2.0
"""How long the last ping of the dead-man's switch may take."""

WINDOWS_EVERY: Seconds = 6 * 3_600.0
"""Recurring maintenance windows are computed some days ahead, this often."""


class Sources(NamedTuple):
    """What alerting needs of the collectors."""

    poll_soon: Callable[[str], None]
    curve: ReadCurve


def caveats(settings: Settings) -> Iterator[str]:
    """Warnings about these settings, one sentence each."""
    if not settings.notify:
        yield "nobody is notified: the config has no [[notify]]"
    elif len(settings.notify) == 1:
        one = settings.notify[0].label
        yield f"only one channel ({one}): when it fails, nobody is notified; add one that does not depend on it"
    if settings.heartbeat.ping is None:
        yield "no dead-man's switch: when this machine or this program dies, nobody is notified; set [heartbeat] ping"


def ping_address(settings: Settings) -> str | None:
    """The address of the dead-man's switch.

    Raises: ConfigError: when it is missing or not valid.
    """
    if settings.heartbeat.ping is None:
        return None
    try:
        return resolve_address(settings.heartbeat.ping)
    except InvalidValue as wrong:
        raise ConfigError([f'[heartbeat]: "ping" {wrong}']) from wrong


def resolve_address(written: str) -> str:
    """The address that a setting names or holds.

    Raises: InvalidValue: when it cannot be read, or is no address.
    """
    found = resolve_secret(written, os.environ)
    if why := address_error(found):
        raise InvalidValue(why)
    return found


class AlertService:
    """Evaluates alerts and sends notifications. Dashboard and daemon have the same one: the leader sends."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        submit: Callable[[Event], None],
        clock: Clock,
        program: Program,
        sources: Sources,
    ) -> None:
        now = clock.now()
        self._settings = settings
        self._clock = clock
        self._submit = submit
        self._ledger = ledger
        self._program = program
        self._directory = ledger.file.parent
        self._plots = PlotRenderer(sources.curve, clock, cache=self._directory / FONTS)
        self._ping = ping_address(settings) if program != "dashboard" else None
        self._deadman: DeadMansSwitch | None = None
        self._is_daemon = program == "alerts-only"
        self._create_service()
        self.alerting = AlertManager(
            enabled_rules(settings),
            routing(settings, now),
            self,
            heartbeat=heartbeat_of(settings.heartbeat, start=self._is_daemon, host=clean(socket.gethostname(), 60)),
            clock=clock,
            poll_soon=sources.poll_soon,
            runs_once=program == "once",
        )
        self._windows_at = now
        self._state = State()
        self._evaluated_at: Instant | None = None

    def _senders(self, settings: Settings) -> tuple[Sender, ...]:
        """The senders of all channels. The daemon checks that apprise knows their services.

        Raises: ConfigError: when a channel is not valid.
        """
        return senders(settings.notify, state_directory=self._directory, clock=self._clock, ask=self._is_daemon)

    def _create_service(self) -> None:
        """Create a notification service with senders of its own; it is not started.

        Raises: ConfigError: when a channel is not valid.
        """
        made = self._senders(self._settings)
        self._listeners = self._make_listeners(made)
        self.notifications = self._make_service(made, self._submit)

    def _make_service(self, made: Sequence[Sender], submit: Callable[[Event], None]) -> NotificationService:
        return NotificationService(
            self._ledger,
            made,
            submit,
            self._clock,
            routes=routes_of(self._settings.notify),
            attach=self._plots,
            program=self._program,
        )

    def enqueue(self, changes: AlertChanges) -> None:
        """Implements Outbox, with the current notification service."""
        self.notifications.enqueue(changes)

    def _make_listeners(self, made: Sequence[Sender]) -> tuple[Replies | Resender, ...]:
        """The threads that some channels have beside their worker."""
        replies = listeners(made, self._submit, state_directory=self._directory, clock=self._clock)
        return (*replies, *(Resender(one, self._own_alerts) for one in made if isinstance(one, Alertmanager)))

    def _own_alerts(self) -> Iterable[Alert] | None:
        """All alerts, if this program leads and has evaluated them."""
        state = self._state
        is_ours = state.leadership.holder == "us" and state.evaluated_at is not None
        return state.alerts.values() if is_ours and self.notifications.is_leader() else None

    def start(self) -> None:
        remove_abandoned(FOLDER)
        self.notifications.start()
        for listener in self._listeners:
            listener.start()

    def stop(self, flush: Seconds) -> None:
        """Send what waits, for at most this long; the rest waits in the ledger."""
        for listener in self._listeners:
            listener.stop()
        self.notifications.stop(flush)
        if self._deadman is not None:
            self._deadman.stop(FAREWELL)

    def announce_stop(self, why: str) -> None:
        """Notify people that nobody watches from now on."""
        self.alerting.announce_stop(why)
        if self._deadman is not None:
            self._deadman.farewell(f"stopped: {why}")

    def submit_request(self, request: AlertRequest) -> None:
        """Have the leader carry out the request of a person."""
        self.notifications.request(request)

    def reload(self, settings: Settings) -> None:
        """Use these settings from now on.

        Raises: ConfigError: when they are not valid; nothing has changed then.
        """
        made = self._senders(settings)
        before, self._listeners = self._listeners, self._make_listeners(made)
        for listener in before:
            listener.stop()
        self._settings = settings
        self.notifications.reload(made, routes_of(settings.notify))
        for listener in self._listeners:
            listener.start()
        self._apply(settings)

    def _apply(self, settings: Settings) -> None:
        now = self._windows_at = self._clock.now()
        self.alerting.reconfigure(enabled_rules(settings), routing(settings, now))

    def ping_once(self, state: State) -> None:
        """Ping the dead-man's switch once."""
        if self._ping is None or state.leadership.holder != "us":
            return
        why = unwell(state, self._clock.now())
        try:
            Ping(NAME, self._ping, self._clock)("" if why is None else "fail", why or "everything is ok", TIMEOUT)
        except TrainmonError as error:
            log.warning("the dead-man's switch cannot be pinged: %s", error)

    def _feed_deadman(self, state: State) -> None:
        """Only the leader pings the dead-man's switch: a standby would hide that the leader hangs."""
        self._state = state
        is_ours = state.leadership.holder == "us"
        if is_ours and self._deadman is None and self._ping is not None and self._is_daemon:
            self._deadman = DeadMansSwitch(
                self._ping,
                lambda: unwell(self._state, self._clock.now()),
                self._clock,
                self._settings.heartbeat.ping_every,
                is_leader=self.notifications.is_leader,
            )
            self._deadman.start()
        elif not is_ours and self._deadman is not None:
            self._deadman.stop(0.0)
            self._deadman = None

    def observe(self, state: State) -> None:
        """Handle each new State, on the engine's thread."""
        self._plots.observe(state)
        self._feed_deadman(state)
        if state.evaluated_at is None or state.evaluated_at == self._evaluated_at:
            return
        self._evaluated_at = state.evaluated_at
        self.notifications.tick(state)
        if abs(state.at - self._windows_at) >= WINDOWS_EVERY:
            self._apply(self._settings)
