"""The nouns of alerting: what a rule finds, the alert that it becomes, what is told of it, and what came of that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from trainmon.lib import Instant, Seconds

Severity = Literal["critical", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")
"""The worst first."""


def is_worse(severity: Severity, than: Severity) -> bool:
    return SEVERITIES.index(severity) < SEVERITIES.index(than)


Phase = Literal["pending", "firing", "recovering", "resolved"]
"""pending: found, and its hold is not over. firing. recovering: no longer found, and its keep is not over. resolved."""

Data = Literal["ok", "stale", "error"]
"""Whether what the alert rests on can be seen now. Missing data never resolves anything."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule finds wrong with one subject at one time. Its identity is (rule, subject)."""

    rule: str
    subject: str
    """`run:video-2b`, `gpu:gpu-001/3`, `node:gpu-001`, `disk:login1:/tmp`, of a filesystem that the hosts of a cluster
    share `disk:prod:/fsx`, `cluster:prod`, `source:slurm:prod`,
    `channel:phone`, `rule:gpu-hot`, `self`; with what of it where there may be several: `node:gpu-001 mlx5_0/1`."""
    severity: Severity
    summary: str
    """One sentence with the numbers and their age."""
    evidence: tuple[str, ...] = ()
    """The lines or values that it was found by, the last the newest; at most 10 are kept."""
    advice: str = ""
    """What to do, with the key or the command that does it."""
    cluster: str = ""
    run: str | None = None
    """The run that suffers."""
    node: str | None = None
    sources: tuple[str, ...] = ()
    """The names in State.sources that it rests on: while one of them is silent, its absence says nothing."""
    since: Instant | None = None
    """Since when it is so, where that is known from the facts; else the first time that it was found."""
    proven: bool = False
    """Whether it is shown already (a run silent for an hour, a GPU off its bus): the rule's hold is not waited for."""
    by_age: bool = False
    """Whether it was found by how much time has passed without a word or a change: when the clock has jumped, that
    proves nothing before everyone had a minute to speak again."""
    event: bool = False
    """Something that happened (restarted, finished) and not something that lasts: told once, never "resolved". It is
    found for as long as it is new; another `since` is another episode."""
    person: bool = False
    """Done by a person on purpose: an information, whatever is configured."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one notice on one channel."""

    channel: str
    kind: str
    """The notice's kind."""
    state: Literal["waiting", "sending", "sent", "retrying", "dead", "merged", "stopped"]
    """dead: given up (the channel is broken). merged: told as part of a later message. stopped: no longer true,
    or delivered by another channel."""
    at: Instant
    """When that state began; of `sent`, when the channel said that it took it."""
    words: str | None = None
    """What the channel said, or what went wrong."""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One episode of one finding, from when it was first found until it is over and a day more."""

    id: str
    """Eight characters, for people to type; the same for the whole episode, and for no other."""
    rule: str
    subject: str
    severity: Severity
    summary: str
    evidence: tuple[str, ...] = ()
    advice: str = ""
    cluster: str = ""
    run: str | None = None
    node: str | None = None
    sources: tuple[str, ...] = ()
    event: bool = False
    person: bool = False
    phase: Phase = "pending"
    data: Data = "ok"
    data_why: str | None = None
    """Why it cannot be seen now, in a sentence."""
    since: Instant
    """Since when it is so."""
    found_at: Instant
    """When it was last found."""
    pending_since: Instant | None = None
    """Since when its hold runs: it was found at every look since then."""
    fired_at: Instant | None = None
    clear_since: Instant | None = None
    """Of a recovering one: since when it is no longer found."""
    resolved_at: Instant | None = None
    ended: str | None = None
    """How it ended: `over`, or `no longer watched` where its subject went, which resolves nothing."""
    acknowledged_by: str | None = None
    acknowledged_at: Instant | None = None
    acknowledged: Severity | None = None
    """How bad it was then: one that gets worse is nobody's yet."""
    muted_until: Instant | None = None
    muted_why: str | None = None
    inhibited_by: str | None = None
    """The id of the alert that hides it."""
    flapping: bool = False
    told_at: Instant | None = None
    """When a notice of it was last written into the outbox."""
    told: Severity | None = None
    """The severity that was told."""
    first_told_at: Instant | None = None
    """When it was told first: from then on an escalation counts."""
    told_on: tuple[str, ...] = ()
    """The channels that were told that it began, and not yet that it is over."""
    notices: int = 0
    """How many notices of it were written: the next one's number, of which its key is made."""
    repeats: int = 0
    escalated: int = 0
    """How many further channels it was taken to."""
    token: str = ""
    """What a phone must say to acknowledge it: random, of this episode alone. Never shown."""
    delivery: tuple[Delivery, ...] = ()
    """The newest of each channel."""

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
    """What is not told for a while; it is still shown. Every part that is given must match."""

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
    """When a person took it back early."""
    window: bool = False
    """Whether it is a maintenance window of the config."""


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
    """Why it is told now, in a few words: `fired`, `still firing after 4h, nobody has acknowledged it`."""
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
    told_by: tuple[str, ...] = ()
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


class AlertRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a person says of alerts, from a key, a command, a phone or another machine."""

    verb: Literal["ack", "unack", "mute", "unmute", "test"]
    at: Instant
    by: str
    alert: str | None = None
    """The id of the alert, or of the silence for `unmute`."""
    token: str | None = None
    """What came with it from outside; must then be the alert's own."""
    silence: Silence | None = None
    why: str = ""
    via: str = "key"
    """key, command, phone, daemon."""


class AlertChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What one look changed: all of it is written down in one transaction, or none of it."""

    at: Instant
    alerts: tuple[Alert, ...] = ()
    silences: tuple[Silence, ...] = ()
    notices: tuple[Notice, ...] = ()
    history: tuple[tuple[str, str, str], ...] = ()
    """(alert id, what happened: pending, fired, resolved, acknowledged …, in words)."""
    orders_until: int | None = None
    """The orders of others are carried out up to this number."""
    memory: Mapping[str, str] = {}
    """What must survive a restart besides: when the last heartbeat was told, and its like."""


class Recalled(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger remembers of alerts as a program starts, or takes over."""

    alerts: tuple[Alert, ...] = ()
    """Those that are open, and those that ended within a day."""
    silences: tuple[Silence, ...] = ()
    orders_until: int = 0
    memory: Mapping[str, str] = {}
    at: Instant | None = None
    """When anything was last written down: how long nobody looked."""


# ---- events ----------------------------------------------------------------------------------------------------------


class AlertsRecalled(msgspec.Struct, frozen=True):
    """This program begins to judge (or to tell) with what was known."""

    recalled: Recalled


class AlertRequested(msgspec.Struct, frozen=True):
    """A person said something of alerts. `number` is the order's in the ledger, where it came through it."""

    order: AlertRequest
    number: int | None = None


class Delivered(msgspec.Struct, frozen=True):
    """What became of a letter."""

    alerts: tuple[str, ...]
    delivery: Delivery


class ChannelsChanged(msgspec.Struct, frozen=True):
    """How these channels are doing now; others stay."""

    channels: tuple[Channel, ...]


class LeadershipChanged(msgspec.Struct, frozen=True):
    """Somebody else tells people of alerts from now on, or we do."""

    duty: Leadership


class AlertsReported(msgspec.Struct, frozen=True):
    """The alerts as the daemon on another machine sees them: shown here in place of our own."""

    alerts: tuple[Alert, ...]
    silences: tuple[Silence, ...]
    channels: tuple[Channel, ...]
    at: Instant


class AlertCounts(msgspec.Struct, frozen=True):
    """How many fire now."""

    critical: int = 0
    warning: int = 0
    info: int = 0


KEPT_RESOLVED: Seconds = 86_400.0
"""How long one that is over stays in the State."""
