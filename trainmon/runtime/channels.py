"""Makes the senders of the configured channels: reads their secrets, and reports every mistake at once."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from trainmon.alerting.notify.channels.alertmanager import Alertmanager
from trainmon.alerting.notify.channels.apprise.sender import Apprise, later, pages
from trainmon.alerting.notify.channels.command import Command
from trainmon.alerting.notify.channels.desktop import Desktop, missing
from trainmon.alerting.notify.channels.healthchecks import Healthchecks, Ping
from trainmon.alerting.notify.channels.http import host_of
from trainmon.alerting.notify.channels.ntfy import PUBLIC, Memory, Ntfy, Replies, is_guessable, login_of
from trainmon.alerting.notify.channels.webhook import Webhook
from trainmon.alerting.notify.message import Retry, Sender
from trainmon.config import (
    InvalidValue,
    NotifySettings,
    address_error,
    apprise_url_error,
    quoted,
    resolve_secret,
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
from trainmon.ledger.ledger import LedgerStuck, alerts_now
from trainmon.lib import Clock, ConfigError, Seconds, SystemClock
from trainmon.model import Channel, Event

log = logging.getLogger(__name__)

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
                if refusal := sender.refused(CHECK_TIMEOUT):
                    read.problems.append(f'"url": {refusal}')
            except Retry as error:  # the machine is too busy now: the first message will show it
                log.warning("apprise cannot check %s now: %s", sender.health.name, error.message)
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


def unfit(sender: Sender, timeout: Seconds) -> str | None:
    """Why a channel cannot work, as far as a check without a message can find."""
    return sender.check(timeout) if isinstance(sender, Alertmanager | Apprise | Ntfy) else None


class _Secrets:
    """Reads the secrets of one channel and collects their errors."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.problems: list[str] = []

    def __call__(self, name: str, written: str, wrong: Callable[[str], str | None] = lambda _: None) -> str:
        try:
            found = resolve_secret(written, self._environ)
            why = wrong(found)
        except InvalidValue as error:
            found, why = "", str(error)
        if why:
            self.problems.append(f'"{name}" {why}')
        return found

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
