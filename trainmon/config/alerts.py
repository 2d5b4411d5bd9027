"""The tables about alerts and retries: [[rule]], [alerts], [heartbeat], [daemon], [[maintenance]] and [retry]."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, get_args

import msgspec

from trainmon.alerting.pipeline.routing import HeartbeatSpec, Routing
from trainmon.alerting.rules import RULES, Rule
from trainmon.analysis.retries import DEFAULTS
from trainmon.config.types import (
    Argv,
    Datetime,
    Days,
    Duration,
    DurationOrNever,
    Host,
    InvalidValue,
    ListenAddress,
    Secret,
    Table,
    TextfilePath,
    TimeOfDay,
    ValueType,
    describe,
    did_you_mean,
    parse_duration,
    parse_each,
    quoted,
    type_name,
    whole_number,
)
from trainmon.lib import Instant, Seconds
from trainmon.model import RequeueMode, RetryChange, RetryLimit, RetryPolicy, Route, Silence

# ---- [[rule]] --------------------------------------------------------------------------------------------------------


OLD_NAMES = {"hold": "for", "keep": "keep_firing_for", "critical_hold": "critical_for"}
"""The names of rule settings before they were those of Prometheus."""


class RuleSettings(Table, frozen=True, kw_only=True):
    """Settings of one rule that differ from its defaults."""

    type: str
    """The name of the rule."""
    values: Mapping[str, Any] = {}
    """The other settings of the rule."""

    aliases = OLD_NAMES

    @classmethod
    def settings(cls, raw: Mapping[str, object]) -> Sequence[msgspec.structs.FieldInfo]:
        """`type`, and the fields of the rule that it names."""
        rules = {rule.name: rule for rule in RULES}
        name = type_name(raw, rules, "rule", "the name of a rule", "; `trainmon-tui rules` lists them")
        return (msgspec.structs.fields(cls)[0], *msgspec.structs.fields(rules[name]))

    @classmethod
    def pack(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {"type": values.pop("type", ""), "values": values}


def rules_of(settings: Sequence[RuleSettings]) -> tuple[Rule, ...]:
    """All rules with their settings, in the order of RULES; disabled rules are included."""
    values = {entry.type: entry.values for entry in settings}
    return tuple(msgspec.convert(values.get(rule.name, {}), rule) for rule in RULES)


# ---- the other tables about alerts -----------------------------------------------------------------------------------


class AlertsSettings(Table, frozen=True, kw_only=True):
    """How alerts are notified."""

    repeat: DurationOrNever = 4 * 3_600.0
    """The interval of repeated notifications for a critical alert that nobody has acknowledged (Alertmanager:
    `repeat_interval`)."""


class HeartbeatSettings(Table, frozen=True, kw_only=True):
    """Regular reports, and an external dead-man's switch that notifies you when the daemon stops."""

    every: DurationOrNever = 4 * 3_600.0
    """The interval of a report on all runs, which goes to every channel."""
    ping: Secret | None = None
    """The dead-man's switch: a ping address of healthchecks.io or a similar service. `--alerts-only` pings it only
    while monitoring works. The service notifies you when the pings stop. Never shown."""
    ping_every: Duration = 60.0
    """The interval of the pings."""
    test: DurationOrNever = 7 * 86_400.0
    """The interval of a test notification, which goes to every channel and asks for an acknowledgement: a channel may
    accept everything and deliver nothing."""
    start: bool = True
    """Whether `--alerts-only` sends a notification when it starts and when it ends."""


def heartbeat_of(settings: HeartbeatSettings, *, start: bool, host: str = "") -> HeartbeatSpec:
    """The heartbeat of these settings. `start`: whether to notify when the daemon starts and ends; `host`: its host."""
    return HeartbeatSpec(
        every=settings.every or None, test_every=settings.test or None, start=start and settings.start, host=host
    )


class DaemonSettings(Table, frozen=True, kw_only=True):
    """Where `trainmon-tui --alerts-only` runs, for a dashboard on another machine. The dashboard shows the alerts of
    that daemon, and acknowledges and mutes there. It sends no notifications while the daemon does. `metrics` and
    `textfile` are for the daemon itself: what it offers to Prometheus."""

    host: Host | None = None
    """A host that ssh knows. Without it: only this machine."""
    command: Argv = ("trainmon-tui",)
    """The command that starts trainmon-tui there. Use an absolute path if a non-interactive SSH session does
    not find it."""
    every: Duration = 10.0
    """The polling period."""
    metrics: ListenAddress | None = None
    """Where the daemon serves `/metrics` for Prometheus, such as `"127.0.0.1:9464"`. A port without an address is
    opened for this machine only. Everybody who reaches the address can read the metrics. Without it: no port is
    opened."""
    textfile: TextfilePath | None = None
    """A file that the daemon writes every 15s with the same metrics, for the textfile collector of node_exporter. The
    daemon removes it when it ends. Without it: no file."""


class MaintenanceSettings(Table, frozen=True, kw_only=True):
    """A maintenance window: matching alerts are shown but not notified. All given conditions must match. Without any,
    it matches every alert."""

    name: str | None = None
    """The reason, which is shown with the muted alerts."""
    begin: Datetime | None = msgspec.field(default=None, name="from")
    """The start of a single window."""
    at: TimeOfDay | None = None
    """The start of a recurring window, in the local time of this machine."""
    days: Days = ()
    """The days of a recurring window. Without it: every day."""
    lasts: Duration = msgspec.field(name="for")
    """How long the window lasts."""
    run: str | None = None
    """Match only this run."""
    node: str | None = None
    """Match only this node."""
    rule: str | None = None
    """Match only this rule."""
    subject: str | None = None
    """Match only this subject, as `trainmon-tui status` names it."""


DAY: Seconds = 86_400.0
DAYS_AHEAD = 3
"""Recurring windows are computed for this many days; they are renewed long before."""


def windows_of(settings: Sequence[MaintenanceSettings], now: Instant) -> tuple[Silence, ...]:
    """The maintenance windows that are open or start within a few days, as silences."""
    return tuple(
        Silence(
            id=f"maintenance-{number}" if start == entry.begin else f"maintenance-{number}-{start:.0f}",
            rule=entry.rule,
            subject=entry.subject,
            run=entry.run,
            node=entry.node,
            until=start + entry.lasts,
            by="the config",
            why=entry.name or "maintenance",
            made_at=start,
            window=True,
        )
        for number, entry in enumerate(settings, 1)
        for start in _starts(entry, now)
        if start + entry.lasts > now
    )


def _starts(entry: MaintenanceSettings, now: Instant) -> Iterator[Instant]:
    if entry.begin is not None:
        yield entry.begin
        return
    hour, minute = entry.at or (0, 0)
    first = dt.datetime.fromtimestamp(now - entry.lasts, dt.UTC).astimezone().date()
    for ahead in range(DAYS_AHEAD + 1 + int(entry.lasts / DAY)):
        day = first + dt.timedelta(days=ahead)
        if not entry.days or day.weekday() in entry.days:
            # A time that the clock skips or repeats at a change to or from summer time is Python's choice.
            yield dt.datetime.combine(day, dt.time(hour, minute)).timestamp()


def routing_of(
    routes: tuple[Route, ...], alerts: AlertsSettings, maintenance: Sequence[MaintenanceSettings], now: Instant
) -> Routing:
    """The routing of alerts, with the maintenance windows of the next days."""
    return Routing(routes=routes, repeat=alerts.repeat or math.inf, windows=windows_of(maintenance, now))


# ---- [retry] ---------------------------------------------------------------------------------------------------------

KEYS = ("times", "within", "after_change")
CHANGES: tuple[str, ...] = get_args(RetryChange)


def parse_limit(value: object) -> dict[str, object]:
    """A number of retries, or a table with `times`, `within` and `after_change`.

    Raises:
        InvalidValue: when it is neither, or has an unknown setting.
    """
    if not isinstance(value, dict):
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidValue(f"must be a number of retries or a table, not {describe(value)}")
        return {"times": whole_number(0)(value)}
    for key in value:
        if key not in KEYS:
            raise InvalidValue(f"has the unknown setting {quoted(key)}{did_you_mean(key, KEYS)}")
    if "times" not in value:
        raise InvalidValue("needs the number of retries: times = 1")
    found: dict[str, object] = {"times": whole_number(0)(value["times"])}
    if "within" in value:
        found["within"] = parse_duration(value["within"])
    otherwise = f" in after_change; it must be one of: {', '.join(CHANGES)}"
    return {**found, "after_change": parse_each(value.get("after_change", []), CHANGES.__contains__, otherwise)}


Limit = Annotated[
    RetryLimit,
    ValueType(
        'a number of retries, or { times = 1, within = "1d", after_change = ["batch"] }',
        parse_limit,
        lambda limit: str(limit.times),
    ),
]


class RetrySettings(Table, frozen=True, kw_only=True):
    """What trainmon-tui does when an attempt of a run ends before its target. The name of a cause sets how often the
    run is retried after it. Only retries without a new step and without a new checkpoint count. In a table, `times` is
    that number. `within` counts only the retries that ended within this period; without it, all retries since the last
    net progress count. `after_change` lists what must have changed first, at least one of `batch`, `checkpointing`
    (activation checkpointing) and `placement` (the number of nodes and GPUs); without it, nothing must have changed. A
    plain number keeps the changes of the default."""

    auto_requeue: RequeueMode = "off"
    """Whether `--alerts-only` requeues a job that has failed, within the budget of its cause. `"suggest"`: it only
    notifies you. A `[[run]]` may have its own setting."""
    limits: Mapping[str, RetryLimit] = {}
    """The causes with another limit than the default."""

    @classmethod
    def settings(cls, raw: Mapping[str, object]) -> Sequence[msgspec.structs.FieldInfo]:
        """`auto_requeue`, and every cause that may have a budget."""
        causes = (
            msgspec.structs.FieldInfo(name=cause, encode_name=cause, type=Limit, default=limit)
            for cause, limit in DEFAULTS.items()
        )
        return (msgspec.structs.fields(cls)[0], *causes)

    @classmethod
    def pack(cls, values: dict[str, Any]) -> dict[str, Any]:
        """A plain number keeps the changes that the default asks for."""
        own = {name: limit for name, limit in DEFAULTS.items() if name in values}
        limits = {name: {"after_change": limit.after_change, **values.pop(name)} for name, limit in own.items()}
        return {**values, "limits": limits}


def policy_of(settings: RetrySettings | None, auto_requeue: RequeueMode | None) -> RetryPolicy:
    """The policy of a run with this setting of its own."""
    retry = settings or RetrySettings()
    mode = auto_requeue or retry.auto_requeue
    return RetryPolicy(auto_requeue=mode, is_own=auto_requeue is not None, limits=retry.limits)
