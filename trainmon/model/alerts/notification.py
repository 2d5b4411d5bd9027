"""Notifications: notices, channels, routes and deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from trainmon.lib import Instant, Seconds
from trainmon.model.alerts.alert import Alert, Severity, Silence

NoticeKind = Literal[
    "fire", "worse", "resolve", "repeat", "escalate", "flapping", "event", "digest", "acknowledged", "cause",
    "heartbeat", "test", "start", "goodbye", "channel", "direct",
]  # fmt: skip


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """A message to people: what, why now, and on which channels. It is stored before anything is sent."""

    key: str
    """The deduplication key. The same event has the same key, also after a crash and on another machine. Key and
    channel are unique in the outbox, and a receiver can use the key to detect duplicates."""
    kind: NoticeKind
    reason: str
    """Why it is sent now: `fired`, `still firing after 4h, not acknowledged`."""
    severity: Severity
    at: Instant
    channels: tuple[str, ...]
    """The names of the channels. Each channel has its own row in the outbox."""
    group: str = ""
    """Notices with the same group are combined: one message for eight GPUs of a node."""
    alerts: tuple[Alert, ...] = ()
    """The alerts at the time `at`; if there are very many, the most severe."""
    more: int = 0
    """How many further alerts it includes; `lines` then counts all of them by rule."""
    run: str | None = None
    title: str = ""
    """Title and lines of a notice without alerts (heartbeat, test, goodbye)."""
    lines: tuple[str, ...] = ()
    link: str | None = None
    """The web page of its run."""
    expires_at: Instant | None = None
    """When it is no longer useful, such as an old heartbeat; null if it must arrive."""


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the outbox: one notice for one channel."""

    id: int
    channel: str
    notice: Notice
    state: Literal["waiting", "leased", "sent", "dead", "merged", "stopped"] = "waiting"
    attempts: int = 0
    next_at: Instant = 0.0
    made_at: Instant
    sent_at: Instant | None = None
    answer: str | None = msgspec.field(default=None, name="words")
    delivered_by: tuple[str, ...] = ()
    """The channels that have delivered it because this one was down."""

    @property
    def is_stand_in(self) -> bool:
        """Whether it was meant for another channel, which could not deliver it."""
        return self.channel not in self.notice.channels


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    """The health of one channel."""

    name: str
    type: str
    target: str = ""
    """Its destination, masked."""
    severity: Severity = "warning"
    """The minimum severity that it receives."""
    state: Literal["ok", "retrying", "broken", "unknown"] = "unknown"
    """unknown: nothing was sent through it yet."""
    problem: str | None = msgspec.field(default=None, name="words")
    """The last error, in a sentence."""
    sent_at: Instant | None = None
    since: Instant | None = None
    """Since when it fails."""
    waiting: int = 0
    oldest_at: Instant | None = None
    """When the oldest waiting notification was queued, or its daily budget allowed to send it."""
    overdue: int = 0
    """The number of overdue messages: other channels deliver them instead."""
    sent: int = 0
    failed: int = 0
    sent_in_day: int = 0
    """How many messages it sent in the last 24 hours."""
    per_day: int = 0
    """Its daily budget: the most messages in 24 hours; 0 if there is none."""
    note: str | None = None
    """A hint about it, such as a topic that can be guessed."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Which notices one channel receives."""

    channel: str
    severity: Severity = "warning"
    """The minimum severity."""
    after: Seconds = 0.0
    """Escalation: only alerts that nobody has acknowledged after this time."""
    runs: tuple[str, ...] = ()
    """Only alerts of these runs, and alerts without a run; empty: all."""
    rules: tuple[str, ...] = ()
    """Only alerts of these rules; empty: all."""
    resolved: bool = True
    """Whether it receives notices of resolved alerts."""
    heartbeat: bool = True
    fallback: bool = False
    """Whether it receives only what another channel could not deliver."""


class Leadership(msgspec.Struct, frozen=True, kw_only=True):
    """Which program sends notifications now."""

    holder: Literal["us", "other", "daemon", "nobody"] = "nobody"
    """us: this program. other: another program with the same ledger. daemon: the daemon of `[daemon]` on another
    machine. nobody: alerts are only shown here; no notifications are sent."""
    where: str = ""
    """The sender in words: `here`, `bastion`, `pid 4711`."""
    at: Instant | None = None
    """When it last evaluated the rules."""
    problem: str | None = msgspec.field(default=None, name="words")
    """Its problem, in a sentence."""
    since: Instant | None = None


class AlertChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of one evaluation. They are stored in one transaction."""

    at: Instant
    alerts: tuple[Alert, ...] = ()
    silences: tuple[Silence, ...] = ()
    notices: tuple[Notice, ...] = ()
    history: tuple[tuple[str, str, str], ...] = ()
    """Alert id, event (pending, fired, resolved, acknowledged …), and a description."""
    requests_until: int | None = None
    """The requests of other programs were executed up to this number."""
    memory: Mapping[str, str] = {}
    """Other values that must survive a restart, such as the time of the last heartbeat."""
