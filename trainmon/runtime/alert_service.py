"""The parts that find out what is wrong and tell people of it, joined for one start: rules, post, dead-man's switch."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from trainmon.alerting.heartbeat import unwell
from trainmon.alerting.manager import AlertManager
from trainmon.alerting.notify.base import Sender
from trainmon.alerting.notify.channels.healthchecks import Ping
from trainmon.alerting.notify.channels.ntfy_replies import Replies
from trainmon.alerting.notify.deadman import NAME, TIMEOUT, DeadMansSwitch
from trainmon.alerting.notify.delivery.service import NotificationService
from trainmon.alerting.notify.plots.render import PlotRenderer, ReadCurve
from trainmon.alerting.pipeline import Routing
from trainmon.alerting.rules import Rule
from trainmon.config import (
    InvalidValue,
    Settings,
    address_error,
    heartbeat_of,
    resolve_secret,
    routes_of,
    routing_of,
    rules_of,
)
from trainmon.ledger.ledger import Ledger, LedgerStuck, alerts_now
from trainmon.lib import Clock, ConfigError, Instant, Seconds, TrainmonError, clean
from trainmon.model import AlertChanges, AlertRequest, AlertsRecalled, ChannelsChanged, Event, LedgerTrouble, State
from trainmon.runtime.channels import listeners, senders

log = logging.getLogger(__name__)

Program = Literal["alerts-only", "once", "dashboard"]

FONTS = "fonts"
"""Where, beside the ledger, it is kept what fonts there are: a picture is drawn in a second then, and not in ten."""

FAREWELL: Seconds = 2.0
"""For the last words to the dead-man's switch, once everything else is told."""

WINDOWS_EVERY: Seconds = 6 * 3_600.0
"""Maintenance windows that come again are known some days ahead; they are made anew so often."""


def watched_rules(settings: Settings) -> tuple[Rule, ...]:
    """The rules that are looked at."""
    return tuple(rule for rule in rules_of(settings.rules) if rule.enabled)


def routing(settings: Settings, now: Instant) -> Routing:
    """How alerts reach people by these settings."""
    return routing_of(routes_of(settings.notify), settings.alerts, settings.maintenance, now)


def caveats(settings: Settings) -> Iterator[str]:
    """What may go unnoticed with these settings, a sentence each."""
    if not settings.notify:
        yield "nobody is told of anything: the config has no [[notify]]"
    elif len(settings.notify) == 1:
        (one,) = settings.notify
        yield f"one channel only ({one.label}): when it fails, nobody hears of it; add one that shares nothing with it"
    if settings.heartbeat.ping is None:
        yield "no dead-man's switch: when this machine or this program dies, nobody is told; set [heartbeat] ping"


def senses(settings: Settings) -> Settings:
    """What of the settings needs new connections, or a new start of the rest, where it changes."""
    plain = Settings()
    return replace(settings, rules=plain.rules, notify=plain.notify, alerts=plain.alerts, maintenance=plain.maintenance)


def judging(settings: Settings, clock: Clock) -> AlertManager:
    """Alerts are judged, by what the ledger remembers, and told to nobody."""
    return AlertManager(watched_rules(settings), routing(settings, clock.now()), None, clock=clock, is_apart=True)


def recall(directory: Path, submit: Callable[[Event], None], now: Instant) -> None:
    """What the ledger remembers of alerts: since when something is so, and what was muted."""
    try:
        found = alerts_now(directory, now)
    except LedgerStuck as error:
        submit(LedgerTrouble(error.message))
        return
    submit(AlertsRecalled(found.recalled))
    if found.channels:
        submit(ChannelsChanged(found.channels))


def ping_address(settings: Settings) -> str | None:
    """The dead-man's switch. Raises ConfigError."""
    if settings.heartbeat.ping is None:
        return None
    try:
        found = resolve_secret(settings.heartbeat.ping, os.environ)
    except InvalidValue as wrong:
        raise ConfigError([f'[heartbeat]: "ping" {wrong}']) from wrong
    if why := address_error(found):
        raise ConfigError([f'[heartbeat]: "ping" {why}'])
    return found


class AlertService:
    """Alerting and its post. The dashboard has the same as the daemon: whoever holds the duty sends."""

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        submit: Callable[[Event], None],
        clock: Clock,
        *,
        program: Program,
        hurry: Callable[[str], None],
        curve: ReadCurve,
    ) -> None:
        now = clock.now()
        self._settings = settings
        self._clock = clock
        self._submit = submit
        self._ledger = ledger
        self._program = program
        self._directory = ledger.file.parent
        self._pictures = PlotRenderer(curve, clock, cache=self._directory / FONTS)
        self._ping = ping_address(settings) if program != "dashboard" else None
        self._deadman: DeadMansSwitch | None = None
        self._is_daemon = program == "alerts-only"
        self._begin_anew()
        self.alerting = AlertManager(
            watched_rules(settings),
            routing(settings, now),
            self,
            heartbeat=heartbeat_of(
                settings.heartbeat, start=program == "alerts-only", host=clean(socket.gethostname(), 60)
            ),
            clock=clock,
            poll_soon=hurry,
            is_apart=program == "once",
        )
        self._windows_at = now
        self._state = State()
        self._looked_at: Instant | None = None

    def _made(self, settings: Settings) -> tuple[Sender, ...]:
        """The channels; of those of apprise the daemon asks whether there are such services. Raises ConfigError."""
        return senders(settings.notify, state_directory=self._directory, clock=self._clock, ask=self._is_daemon)

    def _begin_anew(self) -> None:
        """An office that was not opened yet, with channels of its own. Raises ConfigError."""
        made = self._made(self._settings)
        self._listeners = self._listening(made)
        self.office = self._open(made, self._submit)

    def _open(self, made: Iterable[Sender], submit: Callable[[Event], None]) -> NotificationService:
        return NotificationService(
            self._ledger,
            tuple(made),
            submit,
            self._clock,
            routes=routes_of(self._settings.notify),
            attach=self._pictures,
            program=self._program,
        )

    def hand_over(self, changes: AlertChanges) -> None:
        """Implements Post: to the office that is there now."""
        self.office.hand_over(changes)

    def _listening(self, made: Sequence[Sender]) -> tuple[Replies, ...]:
        return listeners(made, self._submit, state_directory=self._directory, clock=self._clock)

    def start(self) -> None:
        self.office.start()
        for listener in self._listeners:
            listener.start()

    def stop(self, flush: Seconds) -> None:
        """Send what waits, for at most so long; what is left waits in the ledger."""
        for listener in self._listeners:
            listener.stop()
        self.office.stop(flush)
        if self._deadman is not None:
            self._deadman.stop(FAREWELL)

    def goodbye(self, why: str) -> None:
        """Have people told that nobody watches from now on."""
        self.alerting.announce_stop(why)
        if self._deadman is not None:
            self._deadman.farewell(f"stopped: {why}")

    def trouble(self, words: str | None) -> None:
        """What is wrong with this program itself, in a sentence, for all who ask how it is; None when nothing is."""
        self.office.report_trouble(words)

    def order(self, order: AlertRequest) -> None:
        """Have what a person says carried out by whoever has the duty."""
        self.office.request(order)

    def renew(self, settings: Settings) -> None:
        """Go by these settings from now on. Raises ConfigError, and then nothing has changed."""
        made = self._made(settings)
        before, self._listeners = self._listeners, self._listening(made)
        for listener in before:
            listener.stop()
        self._settings = settings
        self.office.reload(made, routes_of(settings.notify))
        for listener in self._listeners:
            listener.start()
        self._go_by(settings)

    def _go_by(self, settings: Settings) -> None:
        now = self._windows_at = self._clock.now()
        self.alerting.reconfigure(watched_rules(settings), routing(settings, now))

    def sign_of_life(self, state: State) -> None:
        """Tell the dead-man's switch how it is, once."""
        if self._ping is None or state.duty.holder != "us":
            return
        why = unwell(state, self._clock.now())
        try:
            Ping(NAME, self._ping, self._clock)("" if why is None else "fail", why or "all is well", TIMEOUT)
        except TrainmonError as error:
            log.warning("the dead-man's switch cannot be fed: %s", error)

    def _mind_switch(self, state: State) -> None:
        """Who tells people feeds the dead-man's switch: a daemon that stands by would hide that the other one hangs."""
        self._state = state
        is_ours = state.duty.holder == "us"
        if is_ours and self._deadman is None and self._ping is not None and self._is_daemon:
            self._deadman = DeadMansSwitch(
                self._ping,
                lambda: unwell(self._state, self._clock.now()),
                self._clock,
                self._settings.heartbeat.ping_every,
                is_leader=self.office.is_leader,
            )
            self._deadman.start()
        elif not is_ours and self._deadman is not None:
            self._deadman.stop(0.0)
            self._deadman = None

    def seen(self, state: State) -> None:
        """Each new State, on the engine's thread."""
        self._pictures.observe(state)
        self._mind_switch(state)
        if state.looked_at is None or state.looked_at == self._looked_at:
            return
        self._looked_at = state.looked_at
        self.office.tick(state)
        if abs(state.at - self._windows_at) >= WINDOWS_EVERY:
            self._go_by(self._settings)
