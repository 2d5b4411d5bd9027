"""The notification channels: [[notify]]. The `type` of a table decides which settings it has."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, get_args

import msgspec

from trainmon.config.types import (
    Argv,
    Count,
    Duration,
    InvalidValue,
    Secret,
    Table,
    ValueType,
    matching,
    parse_secret,
    parse_table,
    quoted,
    type_name,
)
from trainmon.model import Route, Severity

# ---- settings of every channel -------------------------------------------------------------------------------------


class ChannelSettings(Table, frozen=True, kw_only=True):
    """Settings of every channel."""

    type: str
    """The type of the channel: `ntfy`, `webhook`, `alertmanager`, `healthchecks`, `command`, `desktop` or `apprise`."""
    name: str | None = None
    """The name of the channel. Without it: its type."""
    severity: Severity = "warning"
    """The minimum severity."""
    after: Duration | None = None
    """Escalation: send only alerts that nobody has acknowledged after this time."""
    runs: tuple[str, ...] = ()
    """Send only alerts of these runs, and alerts without a run. Without it: all."""
    rules: tuple[str, ...] = ()
    """Send only alerts of these rules. Without it: all."""
    resolved: bool = True
    """Whether resolved alerts are sent."""
    heartbeat: bool = True
    """Whether the regular reports and the weekly test are sent."""
    fallback: bool = False
    """Send only what another channel could not deliver: at once if that channel refuses it, otherwise critical
    notifications within one minute and others within five."""
    per_day: Count | None = None
    """The daily budget: at most this many messages in 24 hours. From 70% on, what is not critical is sent as a summary
    now and then; the last tenth is for critical alerts. Without it: 200 for `ntfy` and `apprise` (ntfy.sh accepts 250 a
    day), 1000 for the others."""


# ---- settings of each channel type ---------------------------------------------------------------------------------


class NtfySettings(Table, frozen=True, kw_only=True, tag_field="type", tag="ntfy"):
    """Push notifications through ntfy.sh or your own ntfy server."""

    topic: Topic
    """The topic. On a public server its name is the only secret. Never shown."""
    server: Address = "https://ntfy.sh"
    """The server."""
    token: Secret | None = None
    """An access token (`tk_…`). Never shown."""
    user: str | None = None
    """A user name, instead of a token."""
    password: Secret | None = None
    """The password of that user. Never shown."""
    call: Call | None = None
    """Also make a phone call for critical alerts: `"yes"` calls the first number of the ntfy account. Another number
    must be verified in that account."""
    acknowledge: bool = True
    """Whether notifications have a button that acknowledges the alert."""
    reply_topic: Topic | None = None
    """The topic that the button writes to, and that trainmon-tui reads. Without it: a random topic. Never
    shown."""
    reply_token: Secret | None = None
    """A token for the button, if the server requires one to write. Everybody who reads the notifications sees it, so it
    should be allowed to write to the reply topic only."""
    pictures: bool = True
    """Whether plots are attached as pictures. They need the extra `plots`; the first message without one notes it."""


class WebhookSettings(Table, frozen=True, kw_only=True, tag_field="type", tag="webhook"):
    """A POST with the payload of Alertmanager's webhooks, version 4."""

    url: Address
    """The address. Never shown."""
    headers: Headers = msgspec.field(default_factory=dict)
    """HTTP headers. Their values are never shown."""


class AlertmanagerSettings(Table, frozen=True, kw_only=True, tag_field="type", tag="alertmanager"):
    """Alerts for Prometheus' Alertmanager (API v2). Open alerts are posted again every minute, so it knows them after
    its restart, too. If trainmon-tui ends, they end there 15 minutes later. Reports, tests and notices of the daemon
    are alerts that end by themselves; `heartbeat = false` leaves out the reports and tests. For several Alertmanagers
    of one cluster, write a table for each."""

    url: Address
    """The address of Alertmanager, without `/api/v2`. Never shown."""
    token: Secret | None = None
    """A token for the header `Authorization: Bearer`. Never shown."""
    user: str | None = None
    """A user name for basic authentication, instead of a token."""
    password: Secret | None = None
    """The password of that user. Never shown."""


class HealthchecksSettings(Table, frozen=True, kw_only=True, tag_field="type", tag="healthchecks"):
    """A check of healthchecks.io or a similar service. The check is down while a critical alert is open. It
    only logs other notifications. Set its period to the maximum: it comes up again only when the last critical alert
    resolves. It is not a dead-man's switch. For that, create another check and set `ping` in `[heartbeat]`."""

    url: Address
    """The ping address of the check. Never shown."""


class CommandSettings(Table, frozen=True, kw_only=True, tag_field="type", tag="command"):
    """A program of your own. It reads the notification as JSON from its standard input."""

    command: Argv
    """The command. It runs without a shell, and no part of the notification is among its arguments."""


class DesktopSettings(Table, frozen=True, kw_only=True, tag_field="type", tag="desktop"):
    """A desktop notification on this machine, through notify-send. Without notify-send, the dashboard shows a toast and
    rings the bell while it sends notifications."""


class AppriseSettings(Table, frozen=True, kw_only=True, tag_field="type", tag="apprise"):
    """E-mail, Slack, Discord, Telegram, PagerDuty, Pushover, Twilio and 160 more, through apprise. It needs the extra
    `apprise`. Without it, the other channels send, and `channel-failing` and `check` show the command that installs
    it."""

    url: AppriseUrl
    """The URL of the service in apprise's form, such as `mailto://…` or `slack://…`. Never shown. Use one recipient per
    channel: if one of several cannot be reached, all are notified again."""
    pictures: bool = True
    """Whether plots are attached as pictures, if the service supports them. They need the extra `plots`."""


Own = (
    NtfySettings
    | WebhookSettings
    | AlertmanagerSettings
    | HealthchecksSettings
    | CommandSettings
    | DesktopSettings
    | AppriseSettings
)
CHANNEL_TYPES: dict[str, type[Table]] = {str(channel.__struct_config__.tag): channel for channel in get_args(Own)}
"""The settings of each channel type, by its `type`."""


class NotifySettings(ChannelSettings, frozen=True, kw_only=True):
    """Who is notified of alerts: one table per channel. Use two independent channels and a dead-man's switch
    (`[heartbeat] ping`)."""

    own: Own
    """The settings of its type."""

    @property
    def label(self) -> str:
        """The name of the channel, or its type."""
        return self.name or self.type

    @property
    def budget(self) -> int:
        """Its daily budget."""
        return self.per_day or (200 if self.type in ("ntfy", "apprise") else 1_000)

    @classmethod
    def settings(cls, raw: Mapping[str, object]) -> Sequence[msgspec.structs.FieldInfo]:
        """The settings of every channel, and those of the channel type that is named."""
        otherwise = f"; the types are {', '.join(CHANNEL_TYPES)} (for all others)"
        name = type_name(raw, CHANNEL_TYPES, "channel type", "a channel type", otherwise)
        return (*msgspec.structs.fields(ChannelSettings), *msgspec.structs.fields(CHANNEL_TYPES[name]))

    @classmethod
    def pack(cls, values: dict[str, Any]) -> dict[str, Any]:
        common = {key: values[key] for key in values if key in ChannelSettings.__struct_fields__}
        own = {key: values[key] for key in values if key not in common}
        return common | {"own": own | {"type": values.get("type", "")}}


def routes_of(settings: Sequence[NotifySettings]) -> tuple[Route, ...]:
    """The route of each channel: the alerts that it gets."""
    return tuple(
        Route(
            channel=entry.label,
            severity=entry.severity,
            after=entry.after or 0.0,
            runs=entry.runs,
            rules=entry.rules,
            resolved=entry.resolved,
            heartbeat=entry.heartbeat,
            fallback=entry.fallback,
        )
        for entry in settings
    )


# ---- value types -----------------------------------------------------------------------------------------------------

TOPIC = re.compile(r"[-_A-Za-z0-9]{1,64}")
PHONE = re.compile(r"yes|\+\d{1,100}")
REFERENCES = ("env:", "file:")
"""The secret is in the environment or in a file, and not in the config itself."""


def topic_error(text: str) -> str | None:
    return None if TOPIC.fullmatch(text) else "must have 1 to 64 characters: letters, digits, - and _"


def address_error(text: str) -> str | None:
    try:
        parts = urllib.parse.urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    return None if good and text.isprintable() and " " not in text else 'must be a URL such as "https://host/path"'


def apprise_url_error(text: str) -> str | None:
    """What is wrong with the form of an apprise address. Only apprise knows whether the service exists."""
    error = 'must be a URL of apprise, such as "slack://…" or "mailto://…"'
    return None if re.match(r"[A-Za-z][A-Za-z0-9]{1,40}://\S", text) else error


def _checked_secret(error: Callable[[str], str | None]) -> Callable[[object], str]:
    """A parser of a secret whose text, if it stands in the config itself, has no such error."""

    def parse(value: object) -> str:
        text = parse_secret(value)
        if not text.startswith(REFERENCES) and (why := error(text)):
            raise InvalidValue(why)
        return text

    return parse


def parse_headers(value: object) -> dict[str, str]:
    """HTTP headers: names, and secrets as their values.

    Raises:
        InvalidValue: when it is not a table of headers, or a value is not a secret.
    """
    headers = parse_table(value, '{ Authorization = "env:HOOK_LOGIN" }')
    for name, text in headers.items():
        if not re.fullmatch(r"[A-Za-z0-9-]+", name):
            raise InvalidValue(f"has {quoted(name)}, which is not an HTTP header name")
        try:
            parse_secret(text)
        except InvalidValue as wrong:
            raise InvalidValue(f"has a {quoted(name)} that {wrong}") from wrong
    return headers


Topic = Annotated[str, ValueType('a topic; "env:NAME" or "file:/path"', _checked_secret(topic_error))]
Address = Annotated[str, ValueType('a URL; "env:NAME" or "file:/path"', _checked_secret(address_error))]
AppriseUrl = Annotated[
    str, ValueType('a URL of apprise; "env:NAME" or "file:/path"', _checked_secret(apprise_url_error))
]
Headers = Annotated[Mapping[str, str], ValueType('a table of strings: { Authorization = "env:NAME" }', parse_headers)]
Call = Annotated[
    str,
    ValueType(
        '"yes" or a phone number',
        matching(PHONE, '"yes" or a phone number such as "+4930123456"'),
    ),
]
