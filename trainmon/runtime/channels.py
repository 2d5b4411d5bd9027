"""Makes the senders of the configured channels: reads their secrets, and reports every mistake at once."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from trainmon.alerting.notify.base import Retry, Sender
from trainmon.alerting.notify.channels.apprise.sender import Apprise, later, pages
from trainmon.alerting.notify.channels.command import Command
from trainmon.alerting.notify.channels.desktop import Desktop, missing
from trainmon.alerting.notify.channels.healthchecks import Healthchecks, Ping
from trainmon.alerting.notify.channels.http import host_of
from trainmon.alerting.notify.channels.ntfy import PUBLIC, Ntfy, is_guessable, login_of
from trainmon.alerting.notify.channels.ntfy_replies import Memory, Replies
from trainmon.alerting.notify.channels.webhook import Webhook
from trainmon.config import (
    AppriseSettings,
    CommandSettings,
    DesktopSettings,
    HealthchecksSettings,
    InvalidValue,
    NotifySettings,
    NtfySettings,
    WebhookSettings,
    address_error,
    apprise_url_error,
    quoted,
    resolve_secret,
    topic_error,
)
from trainmon.ledger.ledger import LedgerStuck, alerts_now
from trainmon.lib import Clock, ConfigError, Seconds, SystemClock
from trainmon.model import Channel, Event

log = logging.getLogger(__name__)

GUESSABLE = (
    "its topic can be guessed, and whoever guesses it reads along: take one of chance, such as `openssl rand -hex 12`"
)
NO_BUTTON = (
    "it logs in, and its Acknowledge button does not: it works only where the server lets everybody write to the "
    "reply topic, or with a reply_token"
)

CHECK_TIMEOUT: Seconds = 15.0
"""How long apprise's child may take to check one address."""


class Parts(NamedTuple):
    """What all senders share."""

    clock: Clock
    memory: Memory
    directory: Path | None
    """Where the ledger is."""


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
    parts = Parts(clock or SystemClock(), Memory(state_directory), state_directory)
    made: list[Sender] = []
    problems: list[str] = []
    for number, entry in enumerate(settings, 1):
        read = _Secrets(environ)
        sender = FACTORIES[type(entry.own)](entry, entry.own, read, parts)
        if ask and not read.problems and isinstance(sender, Apprise):
            try:
                refusal = sender.refused(CHECK_TIMEOUT)
            except Retry as error:  # the machine is too busy to say: its messages will
                log.warning("apprise cannot check %s now: %s", sender.health.name, error.message)
                refusal = None
            if refusal:
                read.problems.append(f'"url": {refusal}')
        problems += [f"[[notify]] #{number} ({quoted(entry.label)[1:-1]}): {words}" for words in read.problems]
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
    return sender.check(timeout) if isinstance(sender, Apprise | Ntfy) else None


class _Secrets:
    """Reads the secrets of one channel and collects what is wrong with them."""

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


def _ntfy(entry: NotifySettings, own: NtfySettings, read: _Secrets, parts: Parts) -> Sender:
    server = read("server", own.server, address_error).rstrip("/")
    topic = read("topic", own.topic, topic_error)
    login = login_of(read.maybe("token", own.token), own.user, read.maybe("password", own.password))
    reply_login = login_of(read.maybe("reply_token", own.reply_token), None, None)
    reply_topic = None
    if own.acknowledge and own.reply_topic is None:
        reply_topic = parts.memory.topic(server, topic)
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
        clock=parts.clock,
    )


def _webhook(entry: NotifySettings, own: WebhookSettings, read: _Secrets, parts: Parts) -> Sender:
    url = read("url", own.url, address_error)
    headers = {name: read(f"headers.{name}", text) for name, text in own.headers.items()}
    return Webhook(_health(entry, host_of(url)), url=url, headers=headers, clock=parts.clock)


def _healthchecks(entry: NotifySettings, own: HealthchecksSettings, read: _Secrets, parts: Parts) -> Sender:
    url = read("url", own.url, address_error)
    known = None
    if parts.directory is not None:
        known = partial(_open_critical_alerts, parts.directory, entry.label, parts.clock)
    return Healthchecks(_health(entry, host_of(url)), ping=Ping(entry.label, url, parts.clock), known=known)


def _open_critical_alerts(directory: Path, channel: str, clock: Clock) -> frozenset[str] | None:
    """The open critical alerts of which the ledger says that this channel was notified."""
    try:
        alerts = alerts_now(directory, clock.now()).recalled.alerts
    except LedgerStuck as error:
        log.warning("the ledger cannot say which alerts %s was notified of: %s", channel, error.message)
        return None
    notified = (alert for alert in alerts if channel in alert.notified_on and alert.severity == "critical")
    return frozenset(alert.id for alert in notified if alert.is_open and not alert.event)


def _command(entry: NotifySettings, own: CommandSettings, read: _Secrets, parts: Parts) -> Sender:
    return Command(_health(entry, own.command[0]), argv=own.command)


def _apprise(entry: NotifySettings, own: AppriseSettings, read: _Secrets, parts: Parts) -> Sender:
    url = read("url", own.url, apprise_url_error)
    notes = (later(url), pages(url) if entry.heartbeat else None)
    return Apprise(_health(entry, f"{url.partition('://')[0]}://***", *notes), url=url, pictures=own.pictures)


def _desktop(entry: NotifySettings, own: DesktopSettings, read: _Secrets, parts: Parts) -> Sender:
    return Desktop(_health(entry, "this machine", missing()))


FACTORIES: Mapping[type, Callable[[NotifySettings, Any, _Secrets, Parts], Sender]] = {
    NtfySettings: _ntfy,
    WebhookSettings: _webhook,
    HealthchecksSettings: _healthchecks,
    CommandSettings: _command,
    AppriseSettings: _apprise,
    DesktopSettings: _desktop,
}
"""What makes the sender of each type of channel."""


def _health(entry: NotifySettings, target: str, *notes: str | None) -> Channel:
    note = "; ".join(note for note in notes if note) or None
    return Channel(name=entry.label, type=entry.type, severity=entry.severity, target=target, note=note)
