"""The alert service of one program: senders of channels, rules, notification service, listeners, dead-man's switch."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from trainmon.alerting.heartbeat import unwell
from trainmon.alerting.manager import AlertManager
from trainmon.alerting.notify.channels.alertmanager import Alertmanager, Resender
from trainmon.alerting.notify.channels.apprise.sender import FOLDER, Apprise, later, pages
from trainmon.alerting.notify.channels.command import Command
from trainmon.alerting.notify.channels.desktop import Desktop, missing
from trainmon.alerting.notify.channels.healthchecks import NAME, TIMEOUT, DeadMansSwitch, Healthchecks, Ping
from trainmon.alerting.notify.channels.http import host_of
from trainmon.alerting.notify.channels.ntfy import PUBLIC, Memory, Ntfy, Replies, is_guessable, login_of
from trainmon.alerting.notify.channels.webhook import Webhook
from trainmon.alerting.notify.delivery.service import NotificationService
from trainmon.alerting.notify.message import Broken, Retry, Sender
from trainmon.alerting.notify.plots.render import PlotRenderer, ReadCurve
from trainmon.config import (
    InvalidValue,
    NotifySettings,
    Settings,
    address_error,
    apprise_url_error,
    enabled_rules,
    heartbeat_of,
    quoted,
    resolve_secret,
    routes_of,
    routing_of,
    topic_error,
)
from trainmon.config.notify import (
    AlertmanagerSettings,
    AppriseSettings,
    CommandSettings,
    DesktopSettings,
    HealthchecksSettings,
    NtfySettings,
    WebhookSettings,
)
from trainmon.ledger.ledger import Ledger, LedgerStuck, alerts_now
from trainmon.lib import Clock, ConfigError, Instant, Seconds, SystemClock, TrainmonError, clean, remove_abandoned
from trainmon.model import (
    Alert,
    AlertChanges,
    AlertRequest,
    Channel,
    Event,
    State,
)

log = logging.getLogger(__name__)

# ---- makes the senders of the configured channels --------------------------------------------------------------------

GUESSABLE = "its topic is easy to guess, and everybody who knows it can read along: use `openssl rand -hex 12`"
NO_BUTTON = (
    "it logs in, and its Acknowledge button does not: set reply_token, or let everybody write to the reply topic"
)

CHECK_TIMEOUT: Seconds = 15.0
"""How long apprise's child may take to check one address."""


def senders(
    settings: Sequence[NotifySettings],
    *,
    environ: Mapping[str, str] = os.environ,
    state_directory: Path | None = None,
    clock: Clock | None = None,
    ask: bool = False,
) -> tuple[Sender, ...]:
    """One sender for each configured channel.

    `state_directory` keeps the names of reply topics. With `ask`, apprise checks that it knows each service: its child
    process takes a second for each.

    Raises: ConfigError: when a secret is missing or not valid; it lists all of them.
    """
    made: list[Sender] = []
    problems: list[str] = []
    for number, entry in enumerate(settings, 1):
        read = _Secrets(environ)
        sender = _make(entry, read, clock or SystemClock(), state_directory)
        if ask and not read.problems and isinstance(sender, Apprise):
            try:
                sender.check(CHECK_TIMEOUT)
            except (Retry, Broken) as error:
                if isinstance(error, Broken) and sender.health.state != "broken":
                    read.problems.append(f'"url": {error.message}')
                else:  # the machine is too busy now, or apprise is not installed: other channels can send
                    log.warning("the channel %s cannot be checked now: %s", sender.health.name, error)
        problems += [f"[[notify]] #{number} ({quoted(entry.label)[1:-1]}): {problem}" for problem in read.problems]
        if not read.problems:
            made.append(sender)
    if problems:
        raise ConfigError(problems)
    return tuple(made)


def listeners(
    made: Sequence[Sender],
    submit: Callable[[Event], None],
    *,
    state_directory: Path | None = None,
    clock: Clock | None = None,
) -> tuple[Replies, ...]:
    """One thread for each ntfy channel with an Acknowledge button: it receives the replies of phones."""
    memory = Memory(state_directory)
    return tuple(
        Replies(sender, memory, submit, clock) for sender in made if isinstance(sender, Ntfy) and sender.reply_topic
    )


CHECKED = (Alertmanager, Apprise, Ntfy)
"""The channels that find out without a message whether they can work: `check`."""


def resolve(written: str, environ: Mapping[str, str], wrong: Callable[[str], str | None]) -> str:
    """What a setting names or holds. `wrong` says why that cannot be used.

    Raises: InvalidValue: when it cannot be read, or is wrong.
    """
    found = resolve_secret(written, environ)
    if why := wrong(found):
        raise InvalidValue(why)
    return found


class _Secrets:
    """Reads the secrets of one channel and collects their errors."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[str] = []

    def __call__(self, name: str, written: str, wrong: Callable[[str], str | None] = lambda _: None) -> str:
        try:
            return resolve(written, self._environ, wrong)
        except InvalidValue as error:
            self.problems.append(f'"{name}" {error}')
            return ""

    def maybe(self, name: str, written: str | None) -> str | None:
        return None if written is None else self(name, written)


def _make(entry: NotifySettings, read: _Secrets, clock: Clock, directory: Path | None) -> Sender:
    """The sender of each type of channel."""
    match entry.own:
        case NtfySettings() as own:
            return _ntfy(entry, own, read, clock, directory)
        case WebhookSettings() as own:
            url = read("url", own.url, address_error)
            headers = {name: read(f"headers.{name}", text) for name, text in own.headers.items()}
            return Webhook(_health(entry, host_of(url)), url=url, headers=headers, clock=clock)
        case AlertmanagerSettings() as own:
            url = read("url", own.url, address_error)
            login = login_of(read.maybe("token", own.token), own.user, read.maybe("password", own.password))
            return Alertmanager(_health(entry, host_of(url)), url=url, login=login, clock=clock)
        case HealthchecksSettings() as own:
            url = read("url", own.url, address_error)
            known = partial(_open_critical_alerts, directory, entry.label, clock) if directory is not None else None
            return Healthchecks(_health(entry, host_of(url)), ping=Ping(entry.label, url, clock), known=known)
        case CommandSettings() as own:
            return Command(_health(entry, own.command[0]), argv=own.command)
        case AppriseSettings() as own:
            url = read("url", own.url, apprise_url_error)
            notes = (later(url), pages(url) if entry.heartbeat else None)
            return Apprise(_health(entry, f"{url.partition('://')[0]}://***", *notes), url=url, pictures=own.pictures)
        case DesktopSettings():
            return Desktop(_health(entry, "this machine", missing()))


def _ntfy(entry: NotifySettings, own: NtfySettings, read: _Secrets, clock: Clock, directory: Path | None) -> Ntfy:
    server = read("server", own.server, address_error).rstrip("/")
    topic = read("topic", own.topic, topic_error)
    login = login_of(read.maybe("token", own.token), own.user, read.maybe("password", own.password))
    reply_login = login_of(read.maybe("reply_token", own.reply_token), None, None)
    reply_topic = None
    if own.acknowledge and own.reply_topic is None:
        reply_topic = Memory(directory).topic(server, topic)
    elif own.acknowledge and own.reply_topic is not None:
        reply_topic = read("reply_topic", own.reply_topic, topic_error)
    host, notes = host_of(server), []
    if host == PUBLIC and login is None and is_guessable(topic):
        notes.append(GUESSABLE)
    if own.acknowledge and login is not None and own.reply_token is None:
        notes.append(NO_BUTTON)
    return Ntfy(
        _health(entry, f"{host}/***", *notes),
        server=server,
        topic=topic,
        login=login,
        call=own.call,
        reply_topic=reply_topic,
        reply_login=reply_login,
        pictures=own.pictures,
        clock=clock,
    )


def _open_critical_alerts(directory: Path, channel: str, clock: Clock) -> frozenset[str] | None:
    """The open critical alerts that this channel has notified of, by the ledger."""
    try:
        alerts = alerts_now(directory, clock.now()).stored.alerts
    except LedgerStuck as error:
        log.warning("it is not known which alerts %s has notified of: %s", channel, error.message)
        return None
    notified = (one for one in alerts if channel in one.notified_on and one.severity == "critical" and one.is_open)
    return frozenset(one.id for one in notified if not one.event)


def _health(entry: NotifySettings, target: str, *notes: str | None) -> Channel:
    note = "; ".join(note for note in notes if note) or None
    return Channel(
        name=entry.label, type=entry.type, severity=entry.severity, target=target, note=note, per_day=entry.budget
    )


# ---- the alert service of one program --------------------------------------------------------------------------------

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
        return resolve(settings.heartbeat.ping, os.environ, address_error)
    except InvalidValue as wrong:
        raise ConfigError([f'[heartbeat]: "ping" {wrong}']) from wrong


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
        self._plots = PlotRenderer(sources.curve, clock, cache=self._directory / FONTS, tells_why=program != "once")
        self._ping = ping_address(settings) if program != "dashboard" else None
        self._deadman: DeadMansSwitch | None = None
        self._is_daemon = program == "alerts-only"
        self._create_service()
        self.alerting = AlertManager(
            enabled_rules(settings.rules),
            routing_of(settings, now),
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
        self.alerting.reconfigure(enabled_rules(settings.rules), routing_of(settings, now))

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
