"""The channels of the config as senders: secrets are read here, and every mistake is told at once, in words."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

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


ASKED_FOR: Seconds = 15.0


class Parts(NamedTuple):
    """What a channel is made with, besides its settings."""

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
    """One for each channel of the config. Raises ConfigError with every secret that is missing or is none.

    In `state_directory` it is kept what reply topics are called. With `ask`, apprise is asked whether it knows the
    services, which takes its child a second each.
    """
    parts = Parts(clock or SystemClock(), Memory(state_directory), state_directory)
    made: list[Sender] = []
    problems: list[str] = []
    for number, entry in enumerate(settings, 1):
        read = _Secrets(environ)
        sender = _sender(entry, read, parts)
        if ask and not read.problems and isinstance(sender, Apprise):
            read.problems += _refused(sender)
        problems += [f"[[notify]] #{number} ({quoted(entry.called)[1:-1]}): {words}" for words in read.problems]
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
    """What reads the answers of phones, a thread each: start them with the program, stop them with it."""
    memory = Memory(state_directory)
    return tuple(
        Replies(sender, memory, submit, clock) for sender in made if isinstance(sender, Ntfy) and sender.reply_topic
    )


def unfit(sender: Sender, timeout: Seconds) -> str | None:
    """Why a channel cannot work, as far as can be known without sending anything by it."""
    return sender.check(timeout) if isinstance(sender, Apprise | Ntfy) else None


def _refused(sender: Apprise) -> Iterator[str]:
    try:
        words = sender.refused(ASKED_FOR)
    except Retry as error:  # the machine is too busy to say: its messages will
        log.warning("apprise cannot be asked about %s: %s", sender.health.name, error.message)
        return
    if words:
        yield f'"url": {words}'


class _Secrets:
    """Reads the secrets of one channel; what is wrong with them is kept, and told of all at once."""

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


def _sender(entry: NotifySettings, read: _Secrets, parts: Parts) -> Sender:
    own = entry.own
    health = Channel(name=entry.called, type=entry.type, severity=entry.severity)
    if isinstance(own, NtfySettings):
        return _ntfy(health, own, read, parts)
    if isinstance(own, WebhookSettings):
        url = read("url", own.url, address_error)
        headers = {name: read(f"headers.{name}", text) for name, text in own.headers.items()}
        return Webhook(_at(health, host_of(url)), url=url, headers=headers, clock=parts.clock)
    if isinstance(own, HealthchecksSettings):
        url = read("url", own.url, address_error)
        known = partial(_known, parts.directory, health.name, parts.clock) if parts.directory is not None else None
        return Healthchecks(_at(health, host_of(url)), ping=Ping(health.name, url, parts.clock), known=known)
    if isinstance(own, CommandSettings):
        return Command(_at(health, own.command[0]), argv=own.command)
    if isinstance(own, AppriseSettings):
        url = read("url", own.url, apprise_url_error)
        schema = url.partition("://")[0]
        notes = [note for note in (later(url), pages(url) if entry.heartbeat else None) if note]
        return Apprise(_at(health, f"{schema}://***", "; ".join(notes) or None), url=url, pictures=own.pictures)
    return Desktop(_at(health, "this machine", missing()))


def _ntfy(health: Channel, own: NtfySettings, read: _Secrets, parts: Parts) -> Ntfy:
    server = read("server", own.server, address_error).rstrip("/")
    topic = read("topic", own.topic, topic_error)
    login = login_of(read.maybe("token", own.token), own.user, read.maybe("password", own.password))
    reply_login = login_of(read.maybe("reply_token", own.reply_token), None, None)
    notes = list(_notes(own, topic, host_of(server), has_login=login is not None))
    return Ntfy(
        _at(health, f"{host_of(server)}/***", "; ".join(notes) or None),
        server=server,
        topic=topic,
        login=login,
        call=own.call,
        reply_topic=_reply_topic(own, read, lambda: parts.memory.topic(server, topic)),
        reply_login=reply_login,
        pictures=own.pictures,
        clock=parts.clock,
    )


def _reply_topic(own: NtfySettings, read: _Secrets, made: Callable[[], str]) -> str | None:
    if not own.acknowledge:
        return None
    return made() if own.reply_topic is None else read("reply_topic", own.reply_topic, topic_error)


def _notes(own: NtfySettings, topic: str, host: str, *, has_login: bool) -> Iterator[str]:
    if host == PUBLIC and not has_login and is_guessable(topic):
        yield GUESSABLE
    if own.acknowledge and has_login and own.reply_token is None:
        yield NO_BUTTON


def _known(directory: Path, channel: str, clock: Clock) -> frozenset[str] | None:
    """The critical alerts that the ledger knows to be open, and to be told by this channel."""
    try:
        alerts = alerts_now(directory, clock.now()).recalled.alerts
    except LedgerStuck as error:
        log.warning("what %s was told before is not known now: %s", channel, error.message)
        return None
    told = (alert for alert in alerts if channel in alert.told_on and alert.severity == "critical")
    return frozenset(alert.id for alert in told if alert.is_open and not alert.event)


def _at(health: Channel, target: str, note: str | None = None) -> Channel:
    return msgspec.structs.replace(health, target=target, note=note)
