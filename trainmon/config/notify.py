"""Who is told, in the config: [[notify]], whose `type` says which settings it has."""

from __future__ import annotations

import functools
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

import msgspec

from trainmon.config.table import Chosen, Table
from trainmon.config.types import (
    Argv,
    Duration,
    Flag,
    InvalidValue,
    Secret,
    Text,
    Texts,
    ValueType,
    describe,
    did_you_mean,
    one_of,
    parse_secret,
    quoted,
)
from trainmon.lib import Seconds
from trainmon.model import Route

# ---- what all channels have ------------------------------------------------------------------------------------------


class ChannelSettings(Table, frozen=True, kw_only=True):
    """Settings of every channel."""

    type: Text
    """The type of the channel: `ntfy`, `webhook`, `healthchecks`, `command`, `desktop` or `apprise`."""
    name: Text | None = None
    """The name of the channel. Without it: its type."""
    severity: Annotated[Literal["critical", "warning", "info"], one_of("critical", "warning", "info")] = "warning"
    """The minimum severity."""
    after: Duration | None = None
    """Escalation: send only alerts that nobody acknowledged for this long."""
    runs: Texts = ()
    """Send only alerts of these runs, and alerts without a run. Without it: all."""
    rules: Texts = ()
    """Send only alerts of these rules. Without it: all."""
    resolved: Flag = True
    """Whether resolved alerts are sent."""
    heartbeat: Flag = True
    """Whether the regular reports and the weekly test are sent."""
    fallback: Flag = False
    """Send only what another channel could not deliver: critical messages within a minute, others within five, and at
    once if that channel refuses."""


# ---- what each kind of them has --------------------------------------------------------------------------------------


class NtfySettings(Table, frozen=True, kw_only=True, tag_field="type", tag="ntfy"):
    """Push notifications by ntfy.sh or your own ntfy server."""

    topic: Topic
    """The topic. On a public server its name is the only secret. Never shown."""
    server: Address = "https://ntfy.sh"
    """The server."""
    token: Secret | None = None
    """An access token (`tk_…`). Never shown."""
    user: Text | None = None
    """A user name, instead of a token."""
    password: Secret | None = None
    """The password of that user. Never shown."""
    call: Call | None = None
    """Also ring the phone for critical alerts: `"yes"` for the first number of the account, or a number that it has
    verified."""
    acknowledge: Flag = True
    """Whether notifications have a button that acknowledges."""
    reply_topic: Topic | None = None
    """The topic that the button writes to, and that trainmon-tui reads. Without it: one that nobody can guess. Never
    shown."""
    reply_token: Secret | None = None
    """A token for the button, if the server requires one to write. Everybody who reads the notifications sees it, so it
    should be allowed to write to the reply topic only."""
    pictures: Flag = True
    """Whether pictures are attached."""


class WebhookSettings(Table, frozen=True, kw_only=True, tag_field="type", tag="webhook"):
    """A POST with the payload of Alertmanager's webhooks, version 4."""

    url: Address
    """The address. Never shown."""
    headers: Headers = msgspec.field(default_factory=dict)
    """HTTP headers. Their values are never shown."""


class HealthchecksSettings(Table, frozen=True, kw_only=True, tag_field="type", tag="healthchecks"):
    """A check of healthchecks.io or a similar service. It is down while a critical alert is open, and logs everything
    else. Give it the longest period possible: only the end of the last alert turns it up again. It is not a dead-man's
    switch; use `ping` in `[heartbeat]` with a check of its own for that."""

    url: Address
    """The ping address of the check. Never shown."""


class CommandSettings(Table, frozen=True, kw_only=True, tag_field="type", tag="command"):
    """A program of yours. It gets the notification as JSON on its standard input."""

    command: Argv
    """The command. It runs without a shell, and no part of the notification is among its arguments."""


class DesktopSettings(Table, frozen=True, kw_only=True, tag_field="type", tag="desktop"):
    """A desktop notification of this machine, by notify-send. If there is none, a dashboard that sends notifications
    shows a toast and rings the bell."""


class AppriseSettings(Table, frozen=True, kw_only=True, tag_field="type", tag="apprise"):
    """E-mail, Slack, Discord, Telegram, PagerDuty, Pushover, Twilio and 160 more, by apprise."""

    url: AppriseUrl
    """The service as apprise writes it, such as `mailto://…` or `slack://…`. Never shown. Use one recipient per
    channel: if one of several cannot be reached, all are notified again."""
    pictures: Flag = True
    """Whether pictures are attached, if the service supports them."""


Own = NtfySettings | WebhookSettings | HealthchecksSettings | CommandSettings | DesktopSettings | AppriseSettings
CHANNEL_TYPES: dict[str, type[Table]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Own)}
"""By the `type` that it is called."""


class NotifySettings(ChannelSettings, frozen=True, kw_only=True):
    """Who is notified of alerts: one table per channel. Use two channels that share nothing, and a dead-man's switch
    (`[heartbeat] ping`)."""

    own: Annotated[Own, ValueType("the channel's own settings", describe)]
    """The settings of its type."""

    @property
    def called(self) -> str:
        return self.name or self.type

    @classmethod
    def of(cls, raw: Mapping[str, object]) -> Chosen:
        """All settings of the channel that is named."""
        name = raw.get("type")
        if name is None:
            raise InvalidValue("is missing: it says which kind of channel")
        if not isinstance(name, str):
            raise InvalidValue(f"must be the name of a kind of channel in quotes, not {describe(name)}")
        if name not in CHANNEL_TYPES:
            near = (
                did_you_mean(name, CHANNEL_TYPES)
                or f"; there is {', '.join(CHANNEL_TYPES)}, and apprise speaks to all else"
            )
            raise InvalidValue(f"is {quoted(name)}, and there is no such kind of channel{near}")
        return _table_of(name)

    @classmethod
    def packed(cls, values: dict[str, Any]) -> dict[str, Any]:
        common = {field.name for field in msgspec.structs.fields(ChannelSettings)}
        own = {key: value for key, value in values.items() if key not in common}
        own["type"] = values.get("type", "")
        return {key: value for key, value in values.items() if key in common} | {"own": own}


@functools.cache
def _table_of(name: str) -> type[Table]:
    """All settings of one kind of channel as a table of the config."""
    fields = [
        (field.name, field.type, _default(field))
        for struct in (ChannelSettings, CHANNEL_TYPES[name])
        for field in msgspec.structs.fields(struct)
    ]
    made = msgspec.defstruct(f"{name.title()}Channel", fields, bases=(Table,), frozen=True, kw_only=True)
    assert issubclass(made, Table)
    return made


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return msgspec.field(default_factory=field.default_factory)
    return field.default


# ---- what is made of them --------------------------------------------------------------------------------------------


def routes_of(settings: Sequence[NotifySettings]) -> tuple[Route, ...]:
    """What each channel is told."""
    return tuple(
        Route(
            channel=entry.called,
            severity=entry.severity,
            after=_seconds(entry.after),
            runs=entry.runs,
            rules=entry.rules,
            resolved=entry.resolved,
            heartbeat=entry.heartbeat,
            fallback=entry.fallback,
        )
        for entry in settings
    )


def _seconds(after: Seconds | None) -> Seconds:
    return after or 0.0


def notify_conflicts(settings: Sequence[NotifySettings], runs: Sequence[str], rules: Sequence[str]) -> Iterator[str]:
    """A sentence for each thing that one channel says against another, or against the rest of the config."""
    first: dict[str, int] = {}
    for number, entry in enumerate(settings, 1):
        where = f"[[notify]] #{number} ({quoted(entry.called)[1:-1]})"
        if entry.called in first:
            yield f'{where}: the name {quoted(entry.called)} is taken by [[notify]] #{first[entry.called]}; set "name"'
        first.setdefault(entry.called, number)
        for kind, said, known in (("run", entry.runs, runs), ("rule", entry.rules, rules)):
            for name in said:
                if name not in known and (kind == "rule" or known):
                    near = did_you_mean(name, known)
                    yield f'{where}: "{kind}s" has {quoted(name)}, and there is no such {kind}{near}'
        yield from (f"{where}: {words}" for words in _own_clashes(entry.own))
    if settings and all(entry.fallback or entry.after for entry in settings):
        yield 'every [[notify]] waits for another to fail ("fallback", "after"); one must be told at once'


def _own_clashes(own: Own) -> Iterator[str]:
    if isinstance(own, NtfySettings):
        if own.token is not None and (own.user is not None or own.password is not None):
            yield '"token" logs in by itself; leave out "user" and "password"'
        elif (own.user is None) != (own.password is None):
            missing = "password" if own.password is None else "user"
            yield f'"{missing}" is missing: "user" and "password" go together'
        if own.reply_topic is not None and own.reply_topic == own.topic:
            yield '"reply_topic" must be another than "topic": what is told there would be read as an answer'


TOPIC = re.compile(r"[-_A-Za-z0-9]{1,64}")
NUMBER = re.compile(r"yes|\+\d{1,100}")
ELSEWHERE = ("env:", "file:")


def is_elsewhere(text: str) -> bool:
    """Whether a secret is in the environment or in a file, and not in the config itself."""
    return text.startswith(ELSEWHERE)


def parse_topic(value: object) -> str:
    """A topic of ntfy. On a public server its name is all that keeps others out: it is never repeated."""
    text = parse_secret(value)
    if not is_elsewhere(text):
        why = topic_error(text)
        if why:
            raise InvalidValue(why)
    return text


def topic_error(text: str) -> str | None:
    return None if TOPIC.fullmatch(text) else "must be 1 to 64 letters, figures, - or _ as ntfy wants them"


def parse_address(value: object) -> str:
    """An address of HTTP. It may hold a secret: it is never repeated."""
    text = parse_secret(value)
    if not is_elsewhere(text):
        why = address_error(text)
        if why:
            raise InvalidValue(why)
    return text


def address_error(text: str) -> str | None:
    try:
        parts = urllib.parse.urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    return None if good and text.isprintable() and " " not in text else 'must be an address such as "https://host/path"'


def parse_apprise_url(value: object) -> str:
    """An address as apprise writes it. Whether there is such a service, only apprise knows."""
    text = parse_secret(value)
    if not is_elsewhere(text):
        why = apprise_url_error(text)
        if why:
            raise InvalidValue(why)
    return text


def apprise_url_error(text: str) -> str | None:
    if re.match(r"[A-Za-z][A-Za-z0-9]{1,40}://\S", text):
        return None
    return 'must be an address as apprise writes it, such as "slack://…" or "mailto://…"'


def parse_call(value: object) -> str:
    if not isinstance(value, str) or not NUMBER.fullmatch(value):
        raise InvalidValue(f'must be "yes" or a telephone number such as "+4930123456", not {describe(value)}')
    return value


def parse_headers(value: object) -> dict[str, str]:
    """Headers of HTTP: a name, and a secret for its value."""
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise InvalidValue('must be a table of texts such as { Authorization = "env:HOOK_LOGIN" }')
    for name, text in value.items():
        if not re.fullmatch(r"[A-Za-z0-9-]+", name):
            raise InvalidValue(f"has {quoted(name)}, which is not the name of a header")
        try:
            parse_secret(text)
        except InvalidValue as wrong:
            raise InvalidValue(f"has a {quoted(name)} that {wrong}") from wrong
    return value


Topic = Annotated[str, ValueType('a topic; "env:NAME" or "file:/path"', parse_topic)]
Address = Annotated[str, ValueType('an address; "env:NAME" or "file:/path"', parse_address)]
AppriseUrl = Annotated[str, ValueType('an address of apprise; "env:NAME" or "file:/path"', parse_apprise_url)]
Headers = Annotated[Mapping[str, str], ValueType('texts: { Authorization = "env:NAME" }', parse_headers)]
Call = Annotated[str, ValueType('"yes" or a telephone number', parse_call)]
