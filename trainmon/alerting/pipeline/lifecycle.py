"""The lifecycle of an alert: inactive → pending (`for`) → firing → recovering (`keep_firing_for`) → resolved. Pure.

Missing data resolves no alert, and neither does a subject that vanished. An alert resolves only when current data shows
that its condition is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from trainmon.alerting.pipeline.episode import Token, after_outage, firing_again, new_alert
from trainmon.alerting.rules import TEST, Rule
from trainmon.alerting.rules.base import NOT_WATCHED, Gone, Results, Unknown
from trainmon.analysis.last_seen import SETTLES_WITHIN
from trainmon.lib import Instant, Seconds, ago, clean, dated, group_by
from trainmon.model import KEPT_RESOLVED, Alert, Finding, Problem, State, is_worse

OVER = "over"
RULE_OFF = "its rule is disabled"
NO_NEW_DATA = "no new data since this program resumed"

FOUND_AT_EVERY: Seconds = 10.0
"""`found_at` is updated at most this often, so that an unchanged alert stays the same value."""

RESOLVED_AT_MOST = 2_000
"""The newest resolved alerts are kept in State. The ledger has them all."""

EVENTS_KEPT = 3
"""Of one subject, the newest resolved alert is kept, or this many events: an event may be found again."""

LISTED_WITHIN: Seconds = 600.0
"""After a start, the queue and the nodes that it names are known within this time. That the config has left out a run
is known sooner without a queue, if every source answers, also those of its alert: see `SETTLES_WITHIN`."""

NOTIFY_END_WITHIN: Seconds = 1_800.0
"""The end of an alert is notified at most this long after it, even if the alert flapped until then."""

HistoryEntry = tuple[str, str, str]
"""(alert id, what happened, details)"""


class Evaluation(NamedTuple):
    """One evaluation of the rules."""

    state: State
    results: Results
    rules: Mapping[str, Rule]
    """The enabled rules, by name."""
    now: Instant
    elapsed: Seconds
    """Time since the evaluation before."""
    token: Token
    gone: frozenset[str] = frozenset()
    """Sources that left the config since the evaluation before."""


class Advanced(NamedTuple):
    """All alerts after an evaluation."""

    alerts: dict[str, Alert]
    dropped: tuple[Alert, ...]
    """Alerts that were pending and never fired."""
    history: tuple[HistoryEntry, ...]


def advance(alerts: Mapping[str, Alert], evaluation: Evaluation) -> Advanced:
    """Apply the findings of one evaluation to all alerts."""
    now = evaluation.now
    kept: dict[str, Alert] = {}
    dropped: list[Alert] = []
    history: list[HistoryEntry] = []
    open_alerts = {alert.key: alert for alert in alerts.values() if alert.is_open and alert.rule != TEST}
    ended = sorted((alert for alert in alerts.values() if not alert.is_open), key=lambda alert: alert.episode)
    before = {alert.key: alert for alert in ended}  # the last episode
    ended_events = group_by((alert for alert in ended if alert.event), lambda alert: alert.key)
    for finding in (one for one in evaluation.results.findings if one.rule in evaluation.rules):
        key = (finding.rule, finding.subject)
        old = open_alerts.pop(key, None)
        if old is not None and _is_another_event(old, finding):
            kept[old.id] = before[key] = _dated(_ended(old, OVER, now))
            old = None
        if old is None and finding.event:
            # An event that is found again, such as after a restart, is the one that was notified.
            same = (
                one for one in ended_events.get(key, ()) if one.id not in kept and not _is_another_event(one, finding)
            )
            old = next((replace(one, phase="firing", resolved_at=None, ended=None) for one in same), None)
        new = _with_finding(old, finding, evaluation, alerts, before.get(key))
        if new is not None:
            kept[new.id] = new
            history += _changes(old, new)
    for alert in open_alerts.values():
        new = _dated(_without_finding(alert, evaluation))
        history += _changes(alert, new)
        if new.phase == "resolved" and new.fired_at is None:
            dropped.append(new)
        else:
            kept[new.id] = new
    rest = {alert.id: alert for alert in alerts.values() if not alert.is_open or alert.rule == TEST}
    return Advanced(_without_old(rest | kept, now), tuple(dropped), tuple(history))


def _is_another_event(alert: Alert, finding: Finding) -> bool:
    """Whether an event happened again. Its time distinguishes it from the one before."""
    return finding.event and alert.event and finding.since is not None and abs(finding.since - alert.since) >= 1.0


def _with_finding(
    old: Alert | None, finding: Finding, evaluation: Evaluation, known: Mapping[str, Alert], before: Alert | None
) -> Alert | None:
    """The alert of a finding; None if the finding is not believed and there was no alert. `before`: the last episode of
    its subject."""
    now = evaluation.now
    if not is_trusted(evaluation.state, finding, now):
        return None if old is None else _dated(_with_unknown_data(old, Unknown(NO_NEW_DATA), evaluation))
    alert = new_alert(finding, now, known, evaluation.token, before) if old is None else _updated(old, finding, now)
    if alert.phase == "recovering":
        return firing_again(alert)
    is_held = now - (alert.pending_since or now) >= evaluation.rules[finding.rule].for_ and not finding.is_unconfirmed
    if alert.phase == "pending" and (finding.fires_at_once or is_held):
        return replace(alert, phase="firing", fired_at=now)
    return alert


def _updated(alert: Alert, finding: Finding, now: Instant) -> Alert:
    """The alert with the details of its finding; the same value if they are unchanged."""
    changes: dict[str, Any] = {
        name: value for name in Problem.__struct_fields__ if (value := getattr(finding, name)) != getattr(alert, name)
    }
    if alert.data != "ok":
        changes |= {"data": "ok", "data_why": None}
    if alert.acknowledged is not None and is_worse(finding.severity, alert.acknowledged):
        changes |= {"acknowledged_by": None, "acknowledged_at": None, "acknowledged": None}
        changes |= {"first_notified_at": alert.first_notified_at and now}
    is_new = changes or abs(now - alert.found_at) >= FOUND_AT_EVERY
    return replace(alert, found_at=now, **changes) if is_new else alert


def _without_finding(alert: Alert, evaluation: Evaluation) -> Alert:
    """An open alert that has no finding now: it ends, recovers, or its data is missing."""
    now, rule = evaluation.now, evaluation.rules.get(alert.rule)
    if rule is None:
        return _ended(alert, RULE_OFF, now)
    unseen = evaluation.results.unseen[alert.key]
    if not isinstance(unseen, Unknown) or unseen.data != "error":
        if _has_left(alert, evaluation):
            return _ended(alert, NOT_WATCHED, now)
        if not may_resolve(evaluation.state, alert.sources, now):
            unseen = Unknown(NO_NEW_DATA)
    if isinstance(unseen, Gone):
        return _ended(_with_present(alert, rule, evaluation), unseen.how, now)
    if isinstance(unseen, Unknown):
        return _with_unknown_data(alert, unseen, evaluation)
    if alert.phase == "pending":
        return _ended(alert, "over before it fired", now)
    since = now if alert.clear_since is None else alert.clear_since
    if alert.event or (unseen.may_end and now - since >= rule.keep_firing_for):
        return _ended(_with_present(alert, rule, evaluation), OVER, now)
    if alert.phase == "recovering" and alert.data == "ok":
        return alert
    summary = f"{alert.summary}{unseen.note}" if alert.phase == "firing" else alert.summary
    return replace(alert, phase="recovering", clear_since=since, data="ok", data_why=None, summary=summary)


def _with_present(alert: Alert, rule: Rule, evaluation: Evaluation) -> Alert:
    """An alert that ends: its summary begins with how its subject is now, if its rule can say that. An event was."""
    present = dated(clean(rule.present(evaluation.state, alert)), evaluation.now)
    summary = f"before: {dated(alert.summary, alert.found_at)}"
    return alert if alert.event else replace(alert, summary=f"{present}; {summary}" if present else summary)


def _dated(alert: Alert) -> Alert:
    """An alert that is not found now. The ages in its summary count from when it was last found."""
    summary = dated(alert.summary, alert.found_at)
    return alert if summary == alert.summary else replace(alert, summary=summary)


def _with_unknown_data(alert: Alert, unknown: Unknown, evaluation: Evaluation) -> Alert:
    """An alert without current data keeps its state. Its `for` pauses, and a recovery does not count."""
    changes: dict[str, Any] = {}
    if alert.phase == "pending" and alert.pending_since is not None and evaluation.elapsed > 0:
        changes["pending_since"] = min(evaluation.now, alert.pending_since + evaluation.elapsed)
    if alert.phase == "recovering":
        alert = firing_again(alert)
    if (alert.data, alert.data_why) != (unknown.data, unknown.why):
        changes |= {"data": unknown.data, "data_why": unknown.why}
    return replace(alert, **changes) if changes else alert


def _ended(alert: Alert, how: str, now: Instant) -> Alert:
    """A resolved alert. If it was silenced, inhibited or flapping until its end, it needs no notification."""
    is_quiet = alert.muted_until is not None or alert.inhibited_by is not None or alert.flapping
    return replace(
        alert,
        notified_as=alert.notified_as or (alert.severity if is_quiet else None),
        inhibited_by=None,
        phase="resolved",
        resolved_at=now,
        ended=how,
        data="ok",
        data_why=None,
    )


def _has_left(alert: Alert, evaluation: Evaluation) -> bool:
    """Whether the subject is no longer watched: all its sources left the config, or its run did.

    A source that is missing just after a start, or while the queue that names it is not read, may still appear.
    """
    state, names = evaluation.state, alert.sources
    kind, _, name = alert.subject.partition(":")
    if kind == "channel":
        return name not in state.channels and bool(state.channels)
    if not names and (kind == "source" or alert.node):
        names = (name if kind == "source" else f"node:{alert.node}",)
    if names and all(one in evaluation.gone and one not in state.sources for one in names):
        return True
    run_left = kind == "run" and alert.run is not None and alert.run not in state.runs
    is_missing = run_left or (bool(names) and not any(one in state.sources for one in names))
    health = {one.health for one in state.sources.values()}
    queues = {
        one.health for one in state.sources.values() if one.kind == "slurm" and alert.cluster in ("", one.cluster)
    }
    known_since = max(state.started_at, state.clock_jumped_at or 0.0, state.leadership.since or 0.0, alert.found_at)
    is_sure = (
        run_left
        and not queues  # which list no job that died before the start
        and bool(names)  # with hosts on the command line, or another config, they are not read here
        and all(name in state.sources and state.sources[name].health == "ok" for name in names)
        and alert.found_at < state.started_at
        and health <= {"ok", "off"}
    )
    return (
        is_missing
        and "ok" in health
        and queues <= {"ok"}
        and evaluation.now - known_since >= (SETTLES_WITHIN if is_sure else LISTED_WITHIN)
    )


def _changes(old: Alert | None, new: Alert) -> list[HistoryEntry]:
    """What one evaluation changed of an alert, for its history."""
    history: list[HistoryEntry] = [(new.id, "found", new.summary)] if old is None else []
    if new.fired_at is not None and (old is None or old.fired_at is None):
        history.append((new.id, "fired", new.summary))
    if old is None:
        return history
    if new.phase == "resolved":
        begin = new.since if new.fired_at is None else new.fired_at
        history.append((new.id, "ended", f"{new.ended}, after {ago((new.resolved_at or begin) - begin)}"))
    elif new.data != old.data:
        history.append((new.id, f"data {new.data}", new.data_why or "data is available again"))
    elif new.fired_at is not None and new.severity != old.severity:
        history.append((new.id, new.severity, new.summary))
    if old.acknowledged_by is not None and new.acknowledged_by is None:
        history.append((new.id, "open", f"{new.severity} now, which {old.acknowledged_by} has not acknowledged"))
    return history


def _without_old(alerts: dict[str, Alert], now: Instant) -> dict[str, Alert]:
    """The alerts without those that were resolved long ago and need no notification any more."""

    def may_be_notified(alert: Alert) -> bool:
        is_recent = alert.muted_until is not None or now - (alert.resolved_at or 0.0) < NOTIFY_END_WITHIN
        return is_recent and (bool(alert.notified_on) or alert.notified_as is None)

    over = [
        alert for alert in alerts.values() if not alert.is_open and not alert.flapping and not may_be_notified(alert)
    ]
    over.sort(key=lambda alert: (alert.resolved_at or 0.0, alert.episode), reverse=True)
    old = {alert.id for alert in over if now - (alert.resolved_at or 0.0) > KEPT_RESOLVED}
    newer = Counter(alert.key for alert in alerts.values() if alert.episode > 1 and alert.is_open)
    for alert in over:
        newer[alert.key] += 1
        if newer[alert.key] > (EVENTS_KEPT if alert.event else 1):
            old.add(alert.id)
    old |= {alert.id for alert in over[RESOLVED_AT_MOST:]}
    return {name: alert for name, alert in alerts.items() if name not in old} if old else alerts


# ---- clock jumps and suspends ----------------------------------------------------------------------------------------

JUMP: Seconds = 10.0
"""The wall clock was set if it moved by more than this in addition to the time that passed. NTP slews by less."""

STANDSTILL: Seconds = 30.0
"""Evaluations run once a second. A longer pause than this means that the program or its machine was suspended."""

SETTLING: Seconds = 60.0
"""After a clock jump, ignore a source's old data for this long. A dead connection is detected and dialled again
within it."""


class Moment(NamedTuple):
    """One time by two clocks."""

    wall: Instant
    steady: Seconds


class Jump(NamedTuple):
    """A gap between two evaluations: a clock that was set, or a suspend."""

    outage: Seconds
    """How long nothing was evaluated, as far as is known."""
    shift: Seconds
    """How far the wall clock moved in addition to the time that passed. Negative: it was set back."""
    why: str


def find_jump(last: Moment | None, present: Moment) -> Jump | None:
    """The jump between two evaluations, if there was one. A suspend looks like a clock that was set forward, because
    the steady clock stands still meanwhile."""
    if last is None:
        return None
    passed = max(0.0, present.steady - last.steady)
    shift = present.wall - last.wall - passed
    if shift > JUMP:
        return Jump(passed + shift, shift, f"this machine slept for {ago(shift)}, or its clock was set forward by that")
    if shift < -JUMP:
        return Jump(
            passed if passed > STANDSTILL else 0.0, shift, f"the clock of this machine was set back by {ago(-shift)}"
        )
    if passed > STANDSTILL:
        return Jump(passed, 0.0, f"this program was suspended for {ago(passed)}")
    return None


def apply_jump(state: State, jump: Jump, now: Instant) -> State:
    """The State after a jump. Times before it are ignored for a minute, and every wait of an alert takes as long as
    without the jump."""
    if jump.shift < 0:
        state = not_in_the_future(state, now)
    alerts = {}
    for name, alert in state.alerts.items():
        moved = ["notified_at", "first_notified_at", "acknowledged_at"] if jump.shift else []
        if jump.shift < 0:
            moved += ["found_at", "fired_at", "resolved_at", "pending_since", "clear_since"]
            moved += [] if alert.event else ["since"]
        changes: dict[str, Any] = {
            field: at + jump.shift for field in moved if (at := getattr(alert, field)) is not None
        }
        shifted: Alert = replace(alert, **changes) if changes else alert
        alerts[name] = after_outage(shifted, jump.outage, now) if jump.outage else shifted
    return replace(state, clock_jumped_at=now, clock_jump_why=jump.why, alerts=alerts)


def is_trusted(state: State, finding: Finding, now: Instant) -> bool:
    """Whether a finding rests on data from after the last jump, or began after it. A finding by age alone waits until
    every source had time to answer."""
    jumped_at = state.clock_jumped_at
    if jumped_at is None or now - jumped_at >= SETTLING or (finding.since is not None and finding.since > jumped_at):
        return True
    return not finding.by_age and _have_answered(state, finding.sources, jumped_at)


def may_resolve(state: State, sources: Collection[str], now: Instant) -> bool:
    """Whether a missing finding means anything: all sources of the alert have answered since the last jump."""
    jumped_at = state.clock_jumped_at
    return (
        jumped_at is None
        or now - jumped_at >= SETTLING
        or (bool(sources) and _have_answered(state, sources, jumped_at))
    )


def _have_answered(state: State, names: Collection[str], since: Instant) -> bool:
    """A source that `not_in_the_future` moved was last seen exactly at `since`, which does not count."""
    sources = (state.sources.get(name) for name in names)
    return all(
        source is not None and source.answered_at is not None and source.answered_at > since for source in sources
    )


def not_in_the_future(state: State, now: Instant) -> State:
    """The State after its clock was set back: no time is later than now. A source with a future time would count
    as answering until then."""

    def clamped(value: Any, *names: str) -> Any:
        future = {name: now for name in names if (at := getattr(value, name, None)) is not None and at > now}
        return replace(value, **future) if future else value

    return replace(
        state,
        sources={name: clamped(source, "answered_at") for name, source in state.sources.items()},
        nodes={name: clamped(node, "gpus_at", "host_at", "greeted_at") for name, node in state.nodes.items()},
        disks={name: clamped(disk, "at") for name, disk in state.disks.items()},
        runs={
            name: replace(
                run,
                log=clamped(run.log, "at", "checked_at", "modified_at", "began_at"),
                progress=clamped(run.progress, "at", "doing_at", "busy_since", "skipping_since"),
            )
            for name, run in state.runs.items()
        },
    )
