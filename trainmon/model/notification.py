"""Notifications: what is sent, by which channels, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from trainmon.lib import Instant, Seconds
from trainmon.model.alert import Alert, Severity, Silence

NoticeKind = Literal[
    "fire", "worse", "resolve", "repeat", "escalate", "flapping", "event", "digest", "acknowledged",
    "heartbeat", "test", "start", "goodbye", "channel", "direct",
]  # fmt: skip


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something to be told: what, why now, and by which channels. Written down before anything is sent."""

    key: str
    """Stable: the same happening makes the same key, after a crash and on another machine. With the channel, the
    dedup key of the outbox; what a receiver is given to recognise a second copy."""
    kind: NoticeKind
    reason: str
    """Why it is told now, in a few words: `fired`, `still firing after 4h, not acknowledged`."""
    severity: Severity
    at: Instant
    channels: tuple[str, ...]
    """The names of the channels; a row of the outbox each."""
    group: str = ""
    """What belongs together: one message for eight GPUs of a node."""
    alerts: tuple[Alert, ...] = ()
    """As they were at `at`; of very many the worst."""
    more: int = 0
    """How many further alerts it stands for; `lines` then counts them all by rule."""
    run: str | None = None
    title: str = ""
    """Of a notice that is about no alert (heartbeat, test, goodbye): its title and its lines."""
    lines: tuple[str, ...] = ()
    link: str | None = None
    """The page where its run is seen."""
    expires_at: Instant | None = None
    """After this it is no longer worth sending (an old heartbeat); null for what must arrive."""


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
    words: str | None = None
    delivered_by: tuple[str, ...] = ()
    """The channels that have delivered it in place of this one, which was down."""

    @property
    def is_stand_in(self) -> bool:
        """Whether it was meant for another channel, which could not deliver it."""
        return self.channel not in self.notice.channels


class Channel(msgspec.Struct, frozen=True, kw_only=True):
    """How one channel is doing."""

    name: str
    type: str
    target: str = ""
    """Where it goes, masked."""
    severity: Severity = "warning"
    """The least that it is told."""
    state: Literal["ok", "retrying", "broken", "unknown"] = "unknown"
    """unknown: nothing was sent by it yet."""
    words: str | None = None
    """What went wrong last, in a sentence."""
    sent_at: Instant | None = None
    since: Instant | None = None
    """Since when it fails."""
    waiting: int = 0
    oldest_at: Instant | None = None
    """When the oldest that waits was written."""
    overdue: int = 0
    """Messages that it should have delivered by now: other channels deliver them in its place."""
    sent: int = 0
    failed: int = 0
    note: str | None = None
    """What is good to know of it: receipts that are not followed, a topic that can be guessed."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """What one channel is told."""

    channel: str
    severity: Severity = "warning"
    """The least."""
    after: Seconds = 0.0
    """Only what nobody has acknowledged for this long: the next in an escalation."""
    runs: tuple[str, ...] = ()
    """Only of these runs, and of what is of no run; all without any."""
    rules: tuple[str, ...] = ()
    """Only by these rules."""
    resolved: bool = True
    """Whether it is told that something is over."""
    heartbeat: bool = True
    fallback: bool = False
    """Told only what another channel could not deliver."""


class Leadership(msgspec.Struct, frozen=True, kw_only=True):
    """Who tells people of the alerts now."""

    holder: Literal["us", "other", "daemon", "nobody"] = "nobody"
    """us: this program. other: another one on this machine, with the same ledger. daemon: the one of `[daemon]` on
    another machine. nobody: alerts are shown here, and told to no one."""
    where: str = ""
    """Whose they are, in words: `here`, `bastion`, `pid 4711`."""
    at: Instant | None = None
    """When its loop last went round."""
    words: str | None = None
    """What is wrong with it, in a sentence."""
    since: Instant | None = None


class AlertChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What one look changed: all of it is written down in one transaction, or none of it."""

    at: Instant
    alerts: tuple[Alert, ...] = ()
    silences: tuple[Silence, ...] = ()
    notices: tuple[Notice, ...] = ()
    history: tuple[tuple[str, str, str], ...] = ()
    """(alert id, what happened: pending, fired, resolved, acknowledged …, in words)."""
    requests_until: int | None = None
    """The orders of others are carried out up to this number."""
    memory: Mapping[str, str] = {}
    """What must survive a restart besides: when the last heartbeat was told, and its like."""
