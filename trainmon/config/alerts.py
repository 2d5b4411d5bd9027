"""What is looked for and told, in the config: [[rule]], [alerts], [heartbeat], [daemon] and [[maintenance]]."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any

import msgspec

from trainmon.alerting.pipeline import HeartbeatSpec, Routing
from trainmon.alerting.rules import RULES, Rule
from trainmon.config.rule_types import Days, DurationOrNever, Moment, TimeOfDay, kind_of
from trainmon.config.table import Chosen, Table
from trainmon.config.types import (
    Argv,
    Duration,
    Flag,
    Host,
    InvalidValue,
    Secret,
    Text,
    ValueType,
    describe,
    did_you_mean,
    quoted,
)
from trainmon.lib import Instant, Seconds
from trainmon.model import Route, Silence

# ---- [[rule]] --------------------------------------------------------------------------------------------------------


def _own_settings(value: object) -> object:
    raise InvalidValue(f"is no setting; the settings of a rule stand beside its type, not in {describe(value)}")


OLD_NAMES = {"hold": "for", "keep": "keep_firing_for", "critical_hold": "critical_for"}
"""The names of rule settings before they were those of Prometheus."""


class RuleSettings(Table, frozen=True, kw_only=True):
    """Settings of one rule that differ from its defaults."""

    type: Text
    """The name of the rule."""
    settings: Annotated[Mapping[str, Any], ValueType("the rule's own settings", _own_settings)] = {}
    """The settings of the rule, beside `type`."""

    @classmethod
    def of(cls, raw: Mapping[str, object]) -> Chosen:
        """The settings of the rule that is named. Without a name only that is told."""
        name = raw.get("type")
        if name is None:
            raise InvalidValue("is missing: it says which rule")
        if not isinstance(name, str):
            raise InvalidValue(f"must be the name of a rule in quotes, not {describe(name)}")
        found = next((rule for rule in RULES if rule.name == name), None)
        if found is None:
            near = did_you_mean(name, [rule.name for rule in RULES])
            raise InvalidValue(
                f"is {quoted(name)}, and there is no such rule{near or '; `trainmon-tui rules` lists them'}"
            )
        return _table_of(found)

    @classmethod
    def packed(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {"type": values.get("type", ""), "settings": {k: v for k, v in values.items() if k != "type"}}


@cache
def _table_of(rule: type[Rule]) -> type[Table]:
    """The settings of one rule as a table of the config: the rule's own fields."""
    found = msgspec.structs.fields(rule)
    fields: list[tuple[str, Any, Any]] = [("type", Text, rule.name)]
    fields += [
        (
            field.name,
            Annotated[field.type, kind_of(field.type)],
            msgspec.field(default=field.default, name=field.encode_name),
        )
        for field in found
    ]
    names = {field.encode_name for field in found}
    old_names = {"aliases": {old: new for old, new in OLD_NAMES.items() if new in names}}
    made = msgspec.defstruct(rule.__name__, fields, bases=(Table,), namespace=old_names, frozen=True, kw_only=True)
    assert issubclass(made, Table)
    return made


def rules_of(settings: Sequence[RuleSettings]) -> tuple[Rule, ...]:
    """Every rule there is, in the order of RULES, set as the config says; those that are not enabled, too."""
    told = {entry.type: entry.settings for entry in settings}
    return tuple(msgspec.convert(dict(told.get(rule.name, {})), rule) for rule in RULES)


# ---- the others ------------------------------------------------------------------------------------------------------


class AlertsSettings(Table, frozen=True, kw_only=True):
    """How alerts are notified."""

    repeat: DurationOrNever = 4 * 3_600.0
    """The interval at which a critical alert that nobody acknowledged is notified again (Alertmanager:
    `repeat_interval`)."""


class HeartbeatSettings(Table, frozen=True, kw_only=True):
    """Regular reports, and a dead-man's switch elsewhere that notifies you when the daemon stops."""

    every: DurationOrNever = 4 * 3_600.0
    """The interval of a report to every channel: how the runs are."""
    ping: Secret | None = None
    """The dead-man's switch: a ping address of healthchecks.io or a similar service. `--alerts-only` pings it only
    while all is well; the service notifies you when the pings stop. Never shown."""
    ping_every: Duration = 60.0
    """The interval of the pings."""
    test: DurationOrNever = 7 * 86_400.0
    """The interval of a test notification on every channel that asks for an acknowledgement: a channel may accept
    everything and deliver nothing."""
    start: Flag = True
    """Whether `--alerts-only` sends a notification when it starts and when it ends."""


def heartbeat_of(settings: HeartbeatSettings, *, start: bool, host: str = "") -> HeartbeatSpec:
    """When signs of life are told; `start`: whether a daemon's beginning and end are; `host`: who tells them."""
    return HeartbeatSpec(
        every=settings.every or None, test_every=settings.test or None, start=start and settings.start, host=host
    )


class DaemonSettings(Table, frozen=True, kw_only=True):
    """Where `trainmon-tui --alerts-only` runs, for a dashboard on another machine. The dashboard shows the alerts of
    that daemon, acknowledges and mutes there, and sends nothing while the daemon does."""

    host: Host | None = None
    """A host that ssh knows. Without it: only this machine."""
    command: Argv = ("trainmon-tui",)
    """The command that starts trainmon-tui there. Use an absolute path if a login without a terminal does not find
    it."""
    every: Duration = 10.0
    """The polling period."""


class MaintenanceSettings(Table, frozen=True, kw_only=True):
    """A maintenance window: matching alerts are shown but not notified. All given conditions must match. Without any,
    it matches every alert."""

    name: Text | None = None
    """The reason, which is shown at the muted alerts."""
    begin: Moment | None = msgspec.field(default=None, name="from")
    """The start of a window that happens once."""
    at: TimeOfDay | None = None
    """The start of a recurring window, by the clock of this machine."""
    days: Days = ()
    """The days of a recurring window. Without it: every day."""
    lasts: Duration = msgspec.field(name="for")
    """How long it lasts."""
    run: Text | None = None
    """Match only this run."""
    node: Text | None = None
    """Match only this node."""
    rule: Text | None = None
    """Match only this rule."""
    subject: Text | None = None
    """Match only this subject, as `trainmon-tui status` names it."""


DAY: Seconds = 86_400.0
AHEAD = 3
"""Days that windows are known ahead; they are made anew long before."""


def windows_of(settings: Sequence[MaintenanceSettings], now: Instant) -> tuple[Silence, ...]:
    """The windows that are open, or will be within a few days."""
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
    for ahead in range(AHEAD + 1 + int(entry.lasts / DAY)):
        day = first + dt.timedelta(days=ahead)
        if not entry.days or day.weekday() in entry.days:
            # Of a time that the clocks skip or show twice in the year, Python's choice is as good as any.
            yield dt.datetime.combine(day, dt.time(hour, minute)).timestamp()


def routing_of(
    routes: tuple[Route, ...], alerts: AlertsSettings, maintenance: Sequence[MaintenanceSettings], now: Instant
) -> Routing:
    """How alerts reach people, with the windows of the next days."""
    return Routing(routes=routes, repeat=alerts.repeat or math.inf, windows=windows_of(maintenance, now))
