"""Grouping: due alerts become a few notifications: one for eight GPUs of a node, a few for ten thousand alerts; the
first one of a failure has its cause. Pure.

Nothing is dropped: a notification of more alerts than it carries says how many, and of which rules.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from trainmon.alerting.pipeline.lifecycle import NOTIFY_END_WITHIN
from trainmon.alerting.pipeline.routing import DueAlert, Routing, notified, quiet_because
from trainmon.analysis.explanation import brief
from trainmon.analysis.retries import ENDED_ON_PURPOSE
from trainmon.lib import Instant, Seconds, counted
from trainmon.model import SEVERITIES, Alert, Attempt, Notice, NoticeKind, RetryPolicy, Severity, State

CARRIED = 200
"""Alerts that one notification carries, the worst first. Its lines count the others."""

COUNTED_ABOVE = 8
"""With more alerts of several rules, a notification lists the number of alerts of each rule."""

GROUPS = 4
"""Notifications of one kind per evaluation. More groups are merged by rule and cluster, or all into one."""

PAUSES: tuple[Seconds, ...] = (0.0, 5.0, 15.0, 60.0, 300.0)
"""The pauses between notifications of a growing group: none at first, then longer ones (Alertmanager: group_interval,
always 5 min)."""

CRITICAL_PAUSE: Seconds = 60.0
"""A critical alert waits at most this long for its group."""

GATHER: Seconds = 5.0
"""The first critical alert of a subject waits at most this long, and only if a notification went out just before."""

QUIET: Seconds = 600.0
"""A group without a notification for this long starts again."""

BURST, BURST_WITHIN, BURST_PAUSE = 8, 60.0, 30.0
"""After this many notifications in a minute, new alerts are notified together every 30 s. The first alert of a run or a
node does not wait for that, unless there were this many first alerts. The first critical alert of a subject never waits
for that."""

FIRST_PAUSE: Seconds = 1.5
"""The pause between first alerts of two nodes of one group."""

REASONS = 3
"""The reasons that one notification names."""

GROUPS_REMEMBERED = 1_000
OWNERS_REMEMBERED = 20_000


Key = TypeVar("Key", bound=Hashable)

Owner = tuple[Severity, str]
"""(severity, run or node); of a critical alert also (severity, subject)"""


class GroupTimer(NamedTuple):
    """The last notification of one group, and the number of notifications in a row."""

    at: Instant
    times: int


class GroupTimers(msgspec.Struct, frozen=True):
    """What was notified lately, so that a spreading fault does not flood the channels."""

    groups: Mapping[tuple[NoticeKind, str], GroupTimer] = {}
    recent: tuple[Instant, ...] = ()
    """The times of the last notifications of new alerts."""
    owners: Mapping[Owner, Instant] = {}
    """The last notification of each severity, for each run and node; for each subject, of a critical alert."""
    firsts: tuple[Instant, ...] = ()
    """The times of the last notifications with a first alert of a run or a node, or a first critical one."""


class Grouped(NamedTuple):
    """The notifications of one evaluation, and the alerts and timers after it."""

    notices: tuple[Notice, ...]
    alerts: tuple[Alert, ...]
    timers: GroupTimers
    next_at: Instant | None
    """When the next waiting group is notified."""


NEW_ALERTS: frozenset[NoticeKind] = frozenset({"fire", "event"})
TOGETHER: frozenset[NoticeKind] = frozenset({"resolve", "flapping"})
"""The kinds of which all alerts are one group."""
PACED = NEW_ALERTS | TOGETHER
"""The kinds that may come in thousands. Only these are delayed."""


def group_alerts(due_alerts: Sequence[DueAlert], timers: GroupTimers, now: Instant) -> Grouped:
    """The notifications of the groups that are ready. The others wait."""
    notices: list[Notice] = []
    alerts: dict[str, Alert] = {}
    later: list[Instant] = []
    for (kind, channels, why), mine in _by(due_alerts, _sort_key).items():
        groups = _by(mine, lambda one: group_of(one.alert))
        key = " ".join((*channels, why)) if kind in TOGETHER else ""
        times = {group: _ready_time((kind, key or group), members, timers) for group, members in groups.items()}
        urgent = {group: at for group, members in groups.items() if (at := _urgent(kind, group, members, timers))}
        if min(urgent.values(), default=math.inf) <= now:
            times |= dict.fromkeys(urgent, now)  # all first critical alerts that wait go together
        else:
            times |= {group: min(at, times[group]) for group, at in urgent.items()}
        # Waiting groups go along with a ready group of the same node.
        nodes = {_node(members) for group, members in groups.items() if times[group] <= now} - {None}
        ready = {
            group: members
            for group, members in groups.items()
            if times[group] <= now or _node(members) in nodes or (key and min(times.values()) <= now)
        }
        later += [at for group, at in times.items() if group not in ready]
        is_one = bool(key) or (bool(urgent) and _is_burst(timers.firsts, now))
        for group, members in _merged(ready, 1 if is_one else GROUPS).items():
            after = [notified(one, now) for one in members]
            notices.append(notice := _notice(kind, channels, group, members, after, now))
            alerts |= {one.id: one if one.thread else replace(one, thread=notice.key) for one in after}
        timers = _advanced(timers, kind, {key: mine} if key and ready else ready, now)
    return Grouped(tuple(notices), tuple(alerts.values()), timers, min(later, default=None))


def _sort_key(due: DueAlert) -> tuple[NoticeKind, tuple[str, ...], str]:
    """What is never mixed in one notification. An alert that is no longer watched is not one that is over."""
    return due.kind, due.channels, due.reason if due.kind == "resolve" else ""


def _by(due_alerts: Iterable[DueAlert], key: Callable[[DueAlert], Key]) -> dict[Key, list[DueAlert]]:
    found: dict[Key, list[DueAlert]] = {}
    for one in due_alerts:
        found.setdefault(key(one), []).append(one)
    return found


def group_of(alert: Alert) -> str:
    """The group of an alert: the GPUs of a node, the nodes and disks of a cluster."""
    match alert.subject.partition(":")[0]:
        case "gpu" if alert.node:
            return f"{alert.rule} {alert.node}"
        case "node" | "disk" | "source":
            return f"{alert.rule} {alert.cluster}"
    return f"{alert.rule} {alert.subject}"


def _node(members: Iterable[DueAlert]) -> str | None:
    """The node that all alerts of a group are about, if it is one."""
    nodes = {one.alert.node for one in members}
    return nodes.pop() if len(nodes) == 1 else None


def _is_first(alert: Alert, timers: GroupTimers, at: Instant) -> bool:
    """Whether nothing as severe was notified of its run or node lately; of a critical alert, of its subject."""
    if alert.severity == "critical":
        return at - timers.owners.get(("critical", alert.subject), -QUIET) >= QUIET
    owner, as_bad = alert.node or alert.run, SEVERITIES[: SEVERITIES.index(alert.severity) + 1]
    return owner is not None and not any(at - timers.owners.get((one, owner), -QUIET) < QUIET for one in as_bad)


def _is_burst(times: Sequence[Instant], at: Instant) -> bool:
    return len(times) >= BURST and at - times[-BURST] < BURST_WITHIN


def _urgent(kind: NoticeKind, group: str, members: Sequence[DueAlert], timers: GroupTimers) -> Instant | None:
    """By when the first critical alert of a subject is notified. It waits at most GATHER, and only just after another
    notification of its group; in a burst, after any."""
    times = [
        (
            max(one.alert.found_at if one.alert.fired_at is None else one.alert.fired_at, one.ready_at - GATHER),
            one.ready_at,
        )
        for one in members
        if kind in NEW_ALERTS and one.alert.severity == "critical" and _is_first(one.alert, timers, one.ready_at)
    ]
    if not times:
        return None
    fired, ready = min(times)
    before = timers.groups.get((kind, group), GroupTimer(-math.inf, 0))
    last = max(before.at, timers.firsts[-1] if _is_burst(timers.firsts, fired) else -math.inf)
    if fired - last >= GATHER:
        return ready
    return (min(last, fired) if before.times == 1 else fired) + GATHER


def _ready_time(key: tuple[NoticeKind, str], members: Sequence[DueAlert], timers: GroupTimers) -> Instant:
    """When a group is ready: with its first ready alert, but not too soon after its last notification."""
    ready = min(one.ready_at for one in members)
    if key[0] not in PACED:
        return ready
    before = timers.groups.get(key)
    if before is not None:
        is_critical = key[0] in NEW_ALERTS and any(one.alert.severity == "critical" for one in members)
        pause = PAUSES[min(before.times, len(PAUSES) - 1)]
        ready = max(ready, before.at + (min(pause, CRITICAL_PAUSE) if is_critical else pause))
    if key[0] in TOGETHER:
        return ready
    # The first alert of a run or a node does not wait for a burst, except for one of such alerts.
    others = (one for one in members if one.alert.severity != "critical")
    first = min((one.ready_at for one in others if _is_first(one.alert, timers, one.ready_at)), default=math.inf)
    if _is_burst(timers.firsts, first):
        first = math.inf
    if before is not None:
        first = max(first, before.at + FIRST_PAUSE)
    if _is_burst(timers.recent, ready):
        ready = max(ready, timers.recent[-1] + BURST_PAUSE)
    return min(ready, first)


def _merged(ready: Mapping[str, list[DueAlert]], at_most: int = GROUPS) -> Mapping[str, list[DueAlert]]:
    """One group per node. If these are too many: one per rule and cluster; if still too many: one for all."""
    per_node = Counter(_node(members) for members in ready.values())
    merged: dict[str, list[DueAlert]] = {}
    for group, members in ready.items():
        node = _node(members)
        merged.setdefault(group if node is None or per_node[node] == 1 else f"node {node}", []).extend(members)
    if len(merged) <= at_most:
        return merged
    everything = [one for members in merged.values() for one in members]
    wider = _by(everything, lambda one: f"{one.alert.rule} {one.alert.cluster}")
    return wider if len(wider) <= at_most else {"": everything}


def _advanced(
    timers: GroupTimers, kind: NoticeKind, ready: Mapping[str, Sequence[DueAlert]], now: Instant
) -> GroupTimers:
    if not ready or kind not in PACED:
        return timers
    groups = {key: one for key, one in timers.groups.items() if now - one.at < QUIET}
    for group in ready:
        before = groups.pop((kind, group), None)
        groups[kind, group] = GroupTimer(now, 1 if before is None else before.times + 1)
    if kind in TOGETHER:
        return replace(timers, groups=groups)
    owners = {owner: at for owner, at in timers.owners.items() if 0 <= now - at < QUIET}
    first_groups = sum(any(_is_first(one.alert, timers, now) for one in members) for members in ready.values())
    firsts = (*timers.firsts, *(now,) * min(first_groups, GROUPS))[-BURST:]
    alerts = [one.alert for members in ready.values() for one in members]
    owners |= {(alert.severity, owner): now for alert in alerts if (owner := alert.node or alert.run) is not None}
    owners |= {("critical", alert.subject): now for alert in alerts if alert.severity == "critical"}
    return GroupTimers(
        dict(list(groups.items())[-GROUPS_REMEMBERED:]),
        (*timers.recent, *(now,) * min(len(ready), GROUPS))[-BURST:],
        dict(list(owners.items())[-OWNERS_REMEMBERED:]),
        firsts,
    )


def _notice(
    kind: NoticeKind,
    channels: tuple[str, ...],
    group: str,
    members: Sequence[DueAlert],
    alerts: Sequence[Alert],
    now: Instant,
) -> Notice:
    worst = sorted(alerts, key=lambda alert: (SEVERITIES.index(alert.severity), alert.since, alert.subject))
    runs = {alert.run for alert in alerts}
    is_mixed = len({alert.rule for alert in alerts}) > 1
    reasons = list(dict.fromkeys(one.reason for one in members))
    # The same alerts with the same numbers of notifications are the same notification.
    # An end has one cause, however many alerts and programs report it.
    names = (alert.cause_of if kind == "cause" else f"{alert.id} {alert.notices}" for alert in alerts)
    text = "\n".join(sorted(map(str, names)))
    return Notice(
        key=f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:20]}",
        kind="digest" if is_mixed and kind in NEW_ALERTS else kind,
        reason="; ".join(reasons[:REASONS]) + (", and others" if reasons[REASONS:] else ""),
        severity="info" if kind in ("acknowledged", "cause") else worst[0].severity,
        at=now,
        channels=channels,
        group=group,
        alerts=tuple(worst[:CARRIED]),
        more=max(0, len(worst) - CARRIED),
        run=runs.pop() if len(runs) == 1 else None,
        lines=_counts(alerts) if len(alerts) > CARRIED or (is_mixed and len(alerts) > COUNTED_ABOVE) else (),
    )


def _counts(alerts: Iterable[Alert]) -> tuple[str, ...]:
    """How many of each rule, the worst first: `412 × gpu-hot (critical)`."""
    counts = Counter((SEVERITIES.index(alert.severity), alert.rule) for alert in alerts)
    lines = [f"{count:,} × {rule} ({SEVERITIES[rank]})" for (rank, rule), count in sorted(counts.items())]
    return (f"{counted(counts.total(), 'alert')} at once", *lines)


# ---- the cause of a failure in its messages --------------------------------------------------------------------------

ENDS = frozenset({"run-dead", "ended-early", "restarted"})
"""The rules about the end of an attempt that no person ended, and about the start of the next one, which may be the
only message about an end."""

NEAR: Seconds = 120.0
"""An alert begins with the last step or with the end of the job, by the clock of another machine. So the end of its
attempt is at most this long before it."""

LOG_WITHIN: Seconds = 60.0
"""The end of the log and the last checkpoint are awaited this long: they decide about the cause and the loss."""


def with_causes(
    due_alerts: Iterable[DueAlert], alerts: Mapping[str, Alert], state: State, routing: Routing, now: Instant
) -> list[DueAlert]:
    """The due alerts. The first message of a failure names its cause if that is known; else one follow-up does, when
    nothing else of the alert is due."""
    found, explained = list(due_alerts), {alert.cause_of for alert in alerts.values()}
    known_due = {due.alert.id: due for due in found}
    for alert in (one for one in alerts.values() if one.rule in ENDS and one.cause_of is None):
        due, is_follow_up = known_due.get(alert.id), alert.first_notified_at is not None
        if (due is None) is not is_follow_up or (is_follow_up and quiet_because(alert) is not None):
            continue
        attempt = _ended_attempt(alert, state, now)
        channels = _channels(alert, routing) if due is None else due.channels
        if attempt is None or attempt.attempt_id in explained or not channels:
            continue
        policy = state.runs[attempt.run_id].spec.retry if attempt.run_id in state.runs else RetryPolicy()
        if lines := brief(attempt, state.attempts.values(), state.actions.values(), policy):
            named = replace(alert, cause=lines, cause_of=attempt.attempt_id)
            explained.add(attempt.attempt_id)
            if due is None:
                found.append(DueAlert(named, "cause", "its cause is known", channels, now))
            else:
                found[found.index(due)] = due._replace(alert=named)
    return found


def _channels(alert: Alert, routing: Routing) -> tuple[str, ...]:
    """The channels that the alert was notified on, also if its end was notified since. A fallback delivers what they
    cannot."""
    names = {*alert.notified_on, *(one.channel for one in alert.delivery)}
    return tuple(route.channel for route in routing.routes if route.channel in names and not route.fallback)


def _ended_attempt(alert: Alert, state: State, now: Instant) -> Attempt | None:
    """The attempt whose end the alert reports, once everything about that end is known."""
    is_recent = alert.fired_at is not None and now - (alert.resolved_at or now) < NOTIFY_END_WITHIN
    if not (alert.is_firing or is_recent):
        return None
    until = (now if alert.fired_at is None else alert.fired_at) + NEAR
    attempts = [one for one in state.attempts.values() if one.run_id == alert.run]
    ended = (
        one
        for one in attempts
        if alert.since - NEAR <= (one.ended_at or 0.0) <= until
        and (not alert.event or one.start < alert.since)  # not the one that was started
    )
    attempt = max(ended, key=lambda one: one.ended_at or 0.0, default=None)
    if attempt is None or attempt.end is None or any(one.stage == "ending" for one in attempts):
        return None
    is_planned = alert.event and attempt.cause is not None and attempt.cause.cause in ENDED_ON_PURPOSE
    is_read = not attempt.end.awaits_log or now - attempt.end.noticed_at >= LOG_WITHIN
    return attempt if is_read and not is_planned else None
