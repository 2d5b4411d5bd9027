"""Findings over time become alerts: inactive → pending (hold) → firing → recovering (keep) → resolved. Pure.

Missing data resolves nothing, and neither does a subject that has vanished: what was looked at and is well is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from trainmon.alerting.pipeline.clock_jumps import is_believed, may_be_over
from trainmon.alerting.pipeline.flapping import Token, begun, firing_again
from trainmon.alerting.rules import TEST, Rule, ago, raised
from trainmon.lib import Instant, Seconds
from trainmon.model import KEPT_RESOLVED, Alert, Finding, State, is_worse

OVER = "over"
NOT_WATCHED = "no longer watched"
NOT_LOOKED_FOR = "no longer looked for"
NEVER_FIRED = "gone before its hold was over"

FRESH: Seconds = 10.0
"""`found_at` is brought up to date no more often, so that an alert that has not changed is the same value."""

RESOLVED_AT_MOST = 2_000
"""Of those that are over, the newest are kept; the ledger has them all."""

SURELY_GONE: Seconds = 600.0
"""After a start, the queue and the nodes that it names are known within it."""

OWED: Seconds = 1_800.0
"""So long after its end at most one is told of it: even of what flapped until then."""

Happening = tuple[str, str, str]
"""(alert id, what happened, in words)"""


class Evaluation(NamedTuple):
    """One look at the State: all that judging alerts needs."""

    state: State
    findings: tuple[Finding, ...]
    rules: Mapping[str, Rule]
    """By name, those that are looked for."""
    now: Instant
    passed: Seconds
    """Since the look before."""
    token: Token
    gone: frozenset[str] = frozenset()
    """Sources that left the config since the look before."""


class Advanced(NamedTuple):
    """What has become of all alerts."""

    alerts: dict[str, Alert]
    dropped: tuple[Alert, ...]
    """Those that were pending, and are not any more."""
    happened: tuple[Happening, ...]


def advance(alerts: Mapping[str, Alert], look: Evaluation) -> Advanced:
    """Take every alert one look further."""
    kept: dict[str, Alert] = {}
    dropped: list[Alert] = []
    happened: list[Happening] = []
    open_ones = {alert.key: alert for alert in alerts.values() if alert.is_open and alert.rule != TEST}
    over: dict[tuple[str, str], list[Alert]] = {}
    for alert in alerts.values():
        if alert.event and not alert.is_open:
            over.setdefault(alert.key, []).append(alert)
    errors = raised(look.findings)
    for finding in (one for one in look.findings if one.rule in look.rules):
        old = open_ones.pop((finding.rule, finding.subject), None)
        if old is not None and _is_another(old, finding):
            kept[old.id] = _ended(old, OVER, look.now)
            old = None
        if old is None and finding.event:
            old = _same_happening(finding, over, kept)
        new = _found(old, finding, look, alerts)
        if new is not None:
            kept[new.id] = new
            happened += _told_apart(old, new)
    for alert in open_ones.values():
        new = _unfound(alert, errors, look)
        happened += _told_apart(alert, new)
        if new.phase == "resolved" and new.fired_at is None:
            dropped.append(new)
        else:
            kept[new.id] = new
    rest = {alert.id: alert for alert in alerts.values() if not alert.is_open or alert.rule == TEST}
    return Advanced(_pruned(rest | kept, look.now), tuple(dropped), tuple(happened))


# ---- found -----------------------------------------------------------------------------------------------------------


def _is_another(alert: Alert, finding: Finding) -> bool:
    """Whether an event has happened anew: when it happened is what tells one from the next."""
    return finding.event and alert.event and finding.since is not None and abs(finding.since - alert.since) >= 1.0


def _same_happening(
    finding: Finding, over: Mapping[tuple[str, str], list[Alert]], kept: Mapping[str, Alert]
) -> Alert | None:
    """The alert of an event that is found again, such as after a restart: it is the same one, and was told."""
    for alert in over.get((finding.rule, finding.subject), ()):
        if alert.id not in kept and not _is_another(alert, finding):
            return replace(alert, phase="firing", resolved_at=None, ended=None)
    return None


def _found(old: Alert | None, finding: Finding, look: Evaluation, known: Mapping[str, Alert]) -> Alert | None:
    if not is_believed(look.state, finding, look.now):
        return None if old is None else _unseen(old, "stale", "nothing was heard of it since this program woke", look)
    alert = begun(finding, look.now, known, look.token) if old is None else _brought_up(old, finding, look.now)
    if alert.phase == "recovering":
        return firing_again(alert)
    if alert.phase == "pending" and _is_proven(alert, finding, look):
        return replace(alert, phase="firing", fired_at=look.now)
    return alert


def _brought_up(alert: Alert, finding: Finding, now: Instant) -> Alert:
    """The alert with what is found of it now; the same value when that is nothing new."""
    changes: dict[str, Any] = {
        name: value
        for name in ("severity", "summary", "evidence", "advice", "cluster", "run", "node", "sources", "person")
        if (value := getattr(finding, name)) != getattr(alert, name)
    }
    if alert.data != "ok":
        changes |= {"data": "ok", "data_why": None}
    if alert.acknowledged is not None and is_worse(finding.severity, alert.acknowledged):
        changes |= {"acknowledged_by": None, "acknowledged_at": None, "acknowledged": None}
        changes |= {"first_told_at": alert.first_told_at and now}
    if changes or abs(now - alert.found_at) >= FRESH:
        return replace(alert, found_at=now, **changes)
    return alert


def _is_proven(alert: Alert, finding: Finding, look: Evaluation) -> bool:
    """Whether it has been so for its hold, or need not wait for that."""
    rule = look.rules.get(finding.rule)
    hold = 0.0 if rule is None else rule.for_
    return finding.fires_at_once or look.now - (alert.pending_since or look.now) >= hold


# ---- not found -------------------------------------------------------------------------------------------------------


def _unfound(alert: Alert, errors: Mapping[str, str], look: Evaluation) -> Alert:
    rule = look.rules.get(alert.rule)
    if alert.rule in errors:
        return _unseen(alert, "error", errors[alert.rule], look)
    if rule is None:
        return _ended(alert, NOT_LOOKED_FOR, look.now)
    if _has_left(alert, look):
        return _ended(alert, NOT_WATCHED, look.now)
    if not may_be_over(look.state, alert.sources, look.now):
        return _unseen(alert, "stale", "nothing was heard of it since this program woke", look)
    try:
        if rule.has_left(look.state, alert, look.now):
            return _ended(alert, NOT_WATCHED, look.now)
        why = rule.blind(look.state, alert, look.now)
    except Exception as error:  # a rule that cannot say whether it sees does not see
        return _unseen(alert, "error", f"the rule {alert.rule} cannot say: {type(error).__name__}: {error}"[:200], look)
    return _cleared(alert, rule, look.now) if why is None else _unseen(alert, "stale", why, look)


def _unseen(alert: Alert, data: Any, why: str, look: Evaluation) -> Alert:
    """It cannot be looked at: it stays what it is. A hold waits meanwhile, and a recovery is not believed."""
    changes: dict[str, Any] = {}
    if alert.phase == "pending" and alert.pending_since is not None and look.passed > 0:
        changes["pending_since"] = min(look.now, alert.pending_since + look.passed)
    if alert.phase == "recovering":
        alert = firing_again(alert)
    if (alert.data, alert.data_why) != (data, why):
        changes |= {"data": data, "data_why": why}
    return replace(alert, **changes) if changes else alert


def _cleared(alert: Alert, rule: Rule, now: Instant) -> Alert:
    """It was looked at, and is well."""
    if alert.phase == "pending":
        return _ended(alert, NEVER_FIRED, now)
    if alert.event:
        return _ended(alert, OVER, now)
    since = now if alert.clear_since is None else alert.clear_since
    if now - since >= rule.keep_firing_for:
        return _ended(alert, OVER, now)
    if alert.phase == "recovering" and alert.data == "ok":
        return alert
    return replace(alert, phase="recovering", clear_since=since, data="ok", data_why=None)


def _ended(alert: Alert, how: str, now: Instant) -> Alert:
    """What was muted or hidden until its end is nothing that is still to be told."""
    is_kept_quiet = alert.muted_until is not None or alert.inhibited_by is not None or alert.flapping
    told = alert.told or (alert.severity if is_kept_quiet else None)
    changes: dict[str, Any] = {"phase": "resolved", "resolved_at": now, "ended": how, "told": told}
    return replace(alert, data="ok", data_why=None, inhibited_by=None, **changes)


def _has_left(alert: Alert, look: Evaluation) -> bool:
    """Whether nobody watches its subject any more: all its sources left the config, or its run did. What is not there
    just after a start, or while the queue that names it is not read, may still come."""
    state, names = look.state, _rests_on(alert)
    if names and all(name in look.gone and name not in state.sources for name in names):
        return True
    is_missing = bool(names) and not any(name in state.sources for name in names)
    if alert.subject.startswith("run:") and alert.run is not None:
        is_missing = is_missing or alert.run not in state.runs
    if alert.subject.startswith("channel:"):
        return alert.subject.removeprefix("channel:") not in state.channels and bool(state.channels)
    known_since = max(state.started_at, state.woke_at or 0.0, alert.found_at)
    return is_missing and look.now - known_since >= SURELY_GONE and _is_listed(alert, state)


def _rests_on(alert: Alert) -> tuple[str, ...]:
    """The sources by which its subject is watched, where there are any."""
    if alert.sources:
        return alert.sources
    if alert.subject.startswith("source:"):
        return (alert.subject.removeprefix("source:"),)
    return (f"node:{alert.node}",) if alert.node else ()


def _is_listed(alert: Alert, state: State) -> bool:
    """Whether all that says what there is to watch answers: the queues of its cluster."""
    queues = [
        source for source in state.sources.values() if source.kind == "slurm" and alert.cluster in ("", source.cluster)
    ]
    return bool(state.sources) and all(source.health == "ok" for source in queues)


# ---- what is said of it ----------------------------------------------------------------------------------------------


def _told_apart(old: Alert | None, new: Alert) -> list[Happening]:
    """What has happened between two looks, for the history."""
    happened: list[Happening] = []
    if old is None:
        happened.append((new.id, "found", new.summary))
    if new.fired_at is not None and (old is None or old.fired_at is None):
        happened.append((new.id, "fired", new.summary))
    if old is None:
        return happened
    if new.phase == "resolved":
        begin = new.since if new.fired_at is None else new.fired_at
        happened.append((new.id, "ended", f"{new.ended}, after {ago((new.resolved_at or begin) - begin)}"))
    elif new.data != old.data:
        happened.append((new.id, f"data {new.data}", new.data_why or "it is seen again"))
    elif new.fired_at is not None and new.severity != old.severity:
        happened.append((new.id, new.severity, new.summary))
    if old.acknowledged_by is not None and new.acknowledged_by is None:
        happened.append((new.id, "open", f"{new.severity} now, which {old.acknowledged_by} has not acknowledged"))
    return happened


def _pruned(alerts: dict[str, Alert], now: Instant) -> dict[str, Alert]:
    """Without those that have long been over."""
    over = [alert for alert in alerts.values() if not alert.is_open and not _is_owed(alert, now)]
    if not over:
        return alerts
    old = {alert.id for alert in over if now - (alert.resolved_at or 0.0) > KEPT_RESOLVED}
    if len(over) > RESOLVED_AT_MOST:
        over.sort(key=lambda alert: alert.resolved_at or 0.0, reverse=True)
        old |= {alert.id for alert in over[RESOLVED_AT_MOST:]}
    return {name: alert for name, alert in alerts.items() if name not in old} if old else alerts


def _is_owed(alert: Alert, now: Instant) -> bool:
    """Whether somebody is still to be told that it is over: at the next look, or when the mute ends."""
    if not alert.told_on and alert.told is not None:
        return False
    return alert.muted_until is not None or now - (alert.resolved_at or 0.0) < OWED
