"""Alerts: the finding of a rule, the alert, silences; and notifications: notices, channels, routes and deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Literal

import msgspec
from msgspec.structs import replace

from trainmon.lib import Instant, Seconds

# ---- alerts ----------------------------------------------------------------------------------------------------------

Severity = Literal["critical", "warning", "info"]

SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")
"""The worst first."""


def is_worse(severity: Severity, than: Severity) -> bool:
    return SEVERITIES.index(severity) < SEVERITIES.index(than)


Phase = Literal["pending", "firing", "recovering", "resolved"]
"""pending: found for less than `for`. recovering: no longer found for less than `keep_firing_for`."""

Data = Literal["ok", "stale", "error"]
"""Whether the data of the alert is available now. Missing data never resolves an alert."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What findings and alerts share. Its identity is (rule, subject)."""

    rule: str
    subject: str
    """`run:video-2b`, `gpu:gpu-001/3`, `node:gpu-001`, `disk:login1:/tmp`, of a filesystem that the hosts of a cluster
    share `disk:prod:/fsx`, `cluster:prod`, `source:slurm:prod`,
    `channel:phone`, `rule:gpu-hot`, `self`; with what of it where there may be several: `node:gpu-001 mlx5_0/1`."""
    severity: Severity
    summary: str
    """One sentence with the numbers and their age."""
    evidence: tuple[str, ...] = ()
    """The lines or values that prove it, newest last; at most 10."""
    advice: str = ""
    """What to do, with the key or command for it."""
    cluster: str = ""
    run: str | None = None
    """The affected run."""
    node: str | None = None
    sources: tuple[str, ...] = ()
    """The names in State.sources that it depends on. While one of them is silent, the alert stays open."""
    event: bool = False
    """Something that happened once (restarted, finished). It is notified once and never "resolved". Another `since` is
    another episode."""
    person: bool = False
    """Done by a person on purpose. Its severity is always `info`."""
    known: Mapping[str, float | str] = {}
    """What code must know of it later, also after a restart of this program: nothing reads a summary. `starts`: whether
    the next attempt on that node does not fail by it: it would be slow, or the driver has set the bad memory aside."""


class Finding(Problem, frozen=True, kw_only=True):
    """What a rule finds wrong with one subject at one time. Its identity is (rule, subject)."""

    since: Instant | None = None
    """When it began, if the data shows that; else when it was first found."""
    fires_at_once: bool = False
    """Whether the alert fires without waiting for the rule's `for`: a run silent for an hour, a GPU off its bus."""
    is_unconfirmed: bool = False
    """Whether the alert stays pending, however long it is found: a single step may jump and come back."""
    by_age: bool = False
    """Whether it was found by the age of data. After a clock jump it is ignored for a minute, until all sources have
    reported again."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery of one notice on one channel."""

    channel: str
    kind: str
    """The notice's kind."""
    state: Literal["waiting", "sending", "sent", "retrying", "dead", "merged", "stopped"]
    """dead: given up (the channel is broken). merged: sent as part of a later message. stopped: no longer true,
    or delivered by another channel."""
    at: Instant
    """When that state began; for `sent`, when the channel accepted it."""
    answer: str | None = msgspec.field(default=None, name="words")
    """The answer of the channel, or the error."""


ALERT_FIELDS = {
    "notified_at": "told_at",
    "notified_as": "told",
    "first_notified_at": "first_told_at",
    "notified_on": "told_on",
}
"""Fields that have an older name in the ledger and in JSON."""


class Alert(Problem, frozen=True, kw_only=True, rename=ALERT_FIELDS):
    """One episode of one finding. Of a subject, the newest resolved episode is kept for a day."""

    id: str
    """Eight characters that people can type; unique to the episode."""
    phase: Phase = "pending"
    data: Data = "ok"
    data_why: str | None = None
    """Why the data is not available now, in a sentence."""
    since: Instant
    """When it began."""
    found_at: Instant
    """When it was last found."""
    pending_since: Instant | None = None
    """Since when every evaluation found it: `for` counts from here."""
    fired_at: Instant | None = None
    clear_since: Instant | None = None
    """For a recovering alert: since when it is no longer found."""
    resolved_at: Instant | None = None
    ended: str | None = None
    """How it ended: `over`, or `no longer watched` if its subject disappeared, which resolves nothing."""
    acknowledged_by: str | None = None
    acknowledged_at: Instant | None = None
    acknowledged: Severity | None = None
    """The severity when it was acknowledged. A worse severity needs a new acknowledgement."""
    muted_until: Instant | None = None
    muted_why: str | None = None
    inhibited_by: str | None = None
    """The id of the alert that hides it."""
    flapping: bool = False
    flapping_notified: bool = False
    """Whether people were notified that it flaps."""
    flaps: tuple[int, ...] = ()
    """When earlier episodes of its subject fired and resolved in the last 20 minutes: the first and the last time of
    each minute."""
    episode: int = 1
    """Its number among the episodes of its subject. Episodes more than a day apart are not counted together."""
    notified_at: Instant | None = None
    """When a notice of it was last written into the outbox."""
    notified_as: Severity | None = None
    """The severity of which people were notified."""
    first_notified_at: Instant | None = None
    """When people were first notified of it: escalations count from then on."""
    notified_on: tuple[str, ...] = ()
    """The channels that were notified of its start, and not yet of its end."""
    notices: int = 0
    """How many notices of it were written. The key of the next notice contains this number."""
    repeats: int = 0
    escalated: int = 0
    """How many further channels it was escalated to."""
    token: str = ""
    """The random secret with which a phone acknowledges this episode. It is never shown."""
    delivery: tuple[Delivery, ...] = ()
    """The latest delivery of each channel."""
    thread: str = ""
    """The key of the first notice of it: a follow-up belongs to that message."""
    cause: tuple[str, ...] = ()
    """Why its run ended, what that cost, and whether a restart helps, once people were notified of that."""
    cause_of: str | None = None
    """The attempt whose end that explains. Of a stall its own id, once people were notified of the ranks that hold it
    up: its summary has them."""

    @property
    def key(self) -> tuple[str, str]:
        return self.rule, self.subject

    @property
    def is_open(self) -> bool:
        return self.phase != "resolved"

    @property
    def is_firing(self) -> bool:
        return self.phase in ("firing", "recovering")


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """Suppresses notifications of matching alerts; they are still shown. Every part that is set must match."""

    id: str
    rule: str | None = None
    subject: str | None = None
    run: str | None = None
    node: str | None = None
    until: Instant
    by: str
    why: str = ""
    made_at: Instant
    ended_at: Instant | None = None
    """When a person ended it early."""
    window: bool = False
    """Whether it is a maintenance window of the config."""

    def covers(self, alert: Alert) -> bool:
        """Whether it matches an alert: every part that is set must. `*` and `?` are wildcards, and a part also matches
        what it begins: `node:gpu-001` matches the InfiniBand ports of that node."""
        parts = (
            (self.rule, alert.rule), (self.subject, alert.subject), (self.run, alert.run), (self.node, alert.node),
        )  # fmt: skip
        return all(
            wanted is None
            or (value is not None and (wanted == value or value.startswith(wanted + " ") or fnmatchcase(value, wanted)))
            for wanted, value in parts
        )


class AlertRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a person about alerts, by a key, a command, a phone or another machine."""

    verb: Literal["ack", "unack", "mute", "unmute", "test"]
    at: Instant
    by: str
    alert: str | None = None
    """The id of the alert, or of the silence for `unmute`."""
    token: str | None = None
    """The secret of a request from outside. It must be the token of the alert."""
    silence: Silence | None = None
    why: str = ""
    via: str = "key"
    """key, command, phone, daemon."""


class StoredAlerts(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger stores of alerts, for a program that starts or takes over."""

    alerts: tuple[Alert, ...] = ()
    """Open alerts, and those that ended within a day."""
    silences: tuple[Silence, ...] = ()
    requests_until: int = 0
    memory: Mapping[str, Instant] = {}
    at: Instant | None = None
    """When the ledger was last written: no alert was evaluated since."""


KEPT_RESOLVED: Seconds = 86_400.0
"""How long a resolved alert stays in the State."""


# ---- notifications ---------------------------------------------------------------------------------------------------

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

    id: int = 0
    """0: it has none yet."""
    channel: str
    notice: Notice
    because: str | None = None
    """Why this channel stands in for one that could not deliver it."""
    state: Literal["waiting", "leased", "sent", "dead", "merged", "stopped"] = "waiting"
    attempts: int = 0
    next_at: Instant = 0.0
    made_at: Instant
    sent_at: Instant | None = None
    answer: str | None = msgspec.field(default=None, name="words")
    delivered_by: tuple[str, ...] = ()
    """The channels that have delivered it because this one was down."""
    is_unwritten: bool = False
    """Whether it is sent without the ledger, which is stuck."""

    @property
    def address(self) -> tuple[str, str]:
        """It identifies the row."""
        return self.notice.key, self.channel

    @property
    def told(self) -> Notice:
        """What people are told: the notice with all reasons."""
        is_direct = self.is_unwritten and self.notice.kind != "direct"
        reasons = (self.notice.reason, self.because, "sent directly: ledger stuck" if is_direct else None)
        return replace(self.notice, reason="; ".join(one for one in reasons if one))

    def for_another(self, channel: str, because: str) -> Notification:
        """The same notice for a channel that stands in for this one. It has waited as long."""
        reasons = (one for one in (self.because, because) if one)
        return Notification(channel=channel, notice=self.notice, because="; ".join(reasons), made_at=self.made_at)

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
    memory: Mapping[str, Instant] = {}
    """Times that must survive a restart, such as that of the last heartbeat."""
