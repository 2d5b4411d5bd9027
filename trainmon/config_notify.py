"""Who is told, in the config: [[notify]], whose `type` says which settings it has."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

import msgspec

from trainmon.clock import Seconds
from trainmon.config_notify_kinds import Address, AppriseUrl, Call, Headers, Topic
from trainmon.config_table import Chosen, Table
from trainmon.config_values import (
    Argv,
    Duration,
    Flag,
    Kind,
    Secret,
    Text,
    Texts,
    Wrong,
    nearest,
    one_of,
    quoted,
    shown,
)
from trainmon.model_alerts import Route

# ---- what all channels have ------------------------------------------------------------------------------------------


class Channel(Table, frozen=True, kw_only=True):
    """Who is told, and of what: settings of every channel."""

    type: Text
    """Which kind of channel: `ntfy`, `webhook`, `healthchecks`, `command`, `desktop` or `apprise`."""
    name: Text | None = None
    """What it is called here. Absent: its type."""
    severity: Annotated[Literal["critical", "warning", "info"], one_of("critical", "warning", "info")] = "warning"
    """The least that it is told."""
    after: Duration | None = None
    """Only what nobody has acknowledged for this long: the next in an escalation."""
    runs: Texts = ()
    """Only of these runs, and of what is of no run. Absent: of all."""
    rules: Texts = ()
    """Only by these rules. Absent: by all."""
    resolved: Flag = True
    """Whether it is told that something is over."""
    heartbeat: Flag = True
    """Whether it is told the sign of life, and tested every week."""
    fallback: Flag = False
    """Told only what another channel could not deliver: within a minute what is critical, else within five; at once
    where that channel refuses."""


# ---- what each kind of them has --------------------------------------------------------------------------------------


class NtfySettings(Table, frozen=True, kw_only=True, tag_field="type", tag="ntfy"):
    """`type = "ntfy"`: push messages by ntfy.sh, or by a server of your own."""

    topic: Topic
    """Its topic. On a public server its name is the only secret there is. Never shown."""
    server: Address = "https://ntfy.sh"
    """The server."""
    token: Secret | None = None
    """An access token (`tk_…`). Never shown."""
    user: Text | None = None
    """Or the name of a user."""
    password: Secret | None = None
    """That user's password. Never shown."""
    call: Call | None = None
    """Of critical alerts the phone rings as well: `"yes"` for the account's first number, or one that it verified."""
    acknowledge: Flag = True
    """Whether a message has a button that acknowledges it."""
    reply_topic: Topic | None = None
    """The topic that the button writes to and that is read here. Absent: one that nobody can guess. Never shown."""
    reply_token: Secret | None = None
    """What the button shows the server, where that lets nobody write without one: a token that may write to the reply
    topic alone, as all who read the messages see it."""
    pictures: Flag = True
    """Whether pictures go with its messages."""


class WebhookSettings(Table, frozen=True, kw_only=True, tag_field="type", tag="webhook"):
    """`type = "webhook"`: a POST with the payload of Alertmanager's webhooks, version 4."""

    url: Address
    """Where to. Never shown."""
    headers: Headers = msgspec.field(default_factory=dict)
    """Headers that go with it; their values are never shown."""


class HealthchecksSettings(Table, frozen=True, kw_only=True, tag_field="type", tag="healthchecks"):
    """`type = "healthchecks"`: a check of healthchecks.io or its like, which is down while a critical alert is open,
    and keeps a log of all else. Give it the longest period there is: only the end of the last alert turns it up again.
    It is no dead-man's switch; that is `ping` under `[heartbeat]`, with a check of its own."""

    url: Address
    """The check's ping address. Never shown."""


class CommandSettings(Table, frozen=True, kw_only=True, tag_field="type", tag="command"):
    """`type = "command"`: a program of yours, which gets the message as JSON on its standard input."""

    command: Argv
    """What is run: no shell, and nothing of the message among its arguments."""


class DesktopSettings(Table, frozen=True, kw_only=True, tag_field="type", tag="desktop"):
    """`type = "desktop"`: a notification of this machine's desktop, by notify-send; where that reaches none, a message
    and the bell in the dashboard that tells people."""


class AppriseSettings(Table, frozen=True, kw_only=True, tag_field="type", tag="apprise"):
    """`type = "apprise"`: e-mail, Slack, Discord, Telegram, PagerDuty, Pushover, Twilio and 160 more, by apprise."""

    url: AppriseUrl
    """The service as apprise writes it, such as `mailto://…` or `slack://…`. Never shown. One recipient each: of
    several, all are told again when one of them cannot be reached."""
    pictures: Flag = True
    """Whether pictures go with its messages, where the service takes any."""


Own = NtfySettings | WebhookSettings | HealthchecksSettings | CommandSettings | DesktopSettings | AppriseSettings
KINDS: dict[str, type[Table]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Own)}
"""By the `type` that it is called."""


class NotifySettings(Channel, frozen=True, kw_only=True):
    """Who is told of alerts: one table a channel. Two channels that share nothing, and a dead-man's switch
    (`[heartbeat] ping`), are what lets people sleep."""

    own: Annotated[Own, Kind("the channel's own settings", shown)]
    """The settings of its type."""

    @property
    def called(self) -> str:
        return self.name or self.type

    @classmethod
    def of(cls, raw: Mapping[str, object]) -> Chosen:
        """All settings of the channel that is named."""
        name = raw.get("type")
        if name is None:
            raise Wrong("is missing: it says which kind of channel")
        if not isinstance(name, str):
            raise Wrong(f"must be the name of a kind of channel in quotes, not {shown(name)}")
        if name not in KINDS:
            near = nearest(name, KINDS) or f"; there is {', '.join(KINDS)}, and apprise speaks to all else"
            raise Wrong(f"is {quoted(name)}, and there is no such kind of channel{near}")
        return _table_of(name)

    @classmethod
    def packed(cls, values: dict[str, Any]) -> dict[str, Any]:
        common = {field.name for field in msgspec.structs.fields(Channel)}
        own = {key: value for key, value in values.items() if key not in common}
        own["type"] = values.get("type", "")
        return {key: value for key, value in values.items() if key in common} | {"own": own}


@functools.cache
def _table_of(name: str) -> type[Table]:
    """All settings of one kind of channel as a table of the config."""
    fields = [
        (field.name, field.type, _default(field))
        for struct in (Channel, KINDS[name])
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


def clashes(settings: Sequence[NotifySettings], runs: Sequence[str], rules: Sequence[str]) -> Iterator[str]:
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
                    yield f'{where}: "{kind}s" has {quoted(name)}, and there is no such {kind}{nearest(name, known)}'
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
