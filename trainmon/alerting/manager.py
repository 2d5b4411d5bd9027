"""The alert manager: each evaluation runs the rules, updates the alerts, and hands over notifications."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Protocol

from msgspec.structs import replace

from trainmon.alerting import heartbeat
from trainmon.alerting.handover import LeadershipTracker, PendingChanges, as_reported, delivered
from trainmon.alerting.pipeline import episode, lifecycle, quiet, routing
from trainmon.alerting.pipeline.routing import HeartbeatSpec, Paces, Routing
from trainmon.alerting.rules import TEST, Rule
from trainmon.alerting.rules.base import evaluate
from trainmon.lib import Clock, Instant, Seconds, SystemClock
from trainmon.model import (
    AlertChanges,
    AlertRequest,
    AlertRequested,
    AlertsReported,
    AlertsRestored,
    ChannelsChanged,
    Delivered,
    Event,
    LeadershipChanged,
    LedgerReplaced,
    NodeReading,
    SourceRemoved,
    State,
)

log = logging.getLogger(__name__)

EVALUATE_EVERY: Seconds = 0.8
"""Rules are evaluated once a second: a State comes each second, and sometimes a little sooner."""

LOG_ERROR_EVERY: Seconds = 60.0
"""An error that comes with every evaluation is logged this often."""


class Outbox(Protocol):
    """Stores changes in the ledger, then sends their notifications."""

    def enqueue(self, changes: AlertChanges) -> None:
        """Take the changes; never blocks."""


class AlertManager:
    """Evaluates alerts in the engine's thread. Without an outbox, alerts are shown but not notified."""

    def __init__(
        self,
        rules: tuple[Rule, ...],
        routing: Routing,
        outbox: Outbox | None,
        *,
        heartbeat: HeartbeatSpec | None = None,
        clock: Clock | None = None,
        poll_soon: Callable[[str], None] | None = None,
        runs_once: bool = False,
        token: Callable[[], str] = lambda: secrets.token_urlsafe(12),
    ) -> None:
        """`poll_soon` is asked at each evaluation to poll a source, by its name, because a pending alert depends on it.
        `runs_once`: each evaluation is a program of its own, started by cron."""
        self._outbox = outbox
        self._heartbeat = heartbeat
        self._clock = clock or SystemClock()
        self._poll_soon = poll_soon
        self._token = token
        self._new_settings = self._settings = rules, routing
        self._last: lifecycle.Moment | None = None
        self._evaluated_at: Seconds | None = None
        """The last evaluation of the rules, by the steady clock."""
        self._gone: frozenset[str] = frozenset()
        self._paces: Paces = {}
        self._next_at: Instant | None = None
        self._changes = PendingChanges()
        self._leadership = LeadershipTracker(runs_once=runs_once)
        self._error_logged_at: Seconds | None = None
        self._state = State()
        """The State of the last evaluation."""

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Those that are evaluated."""
        return self._settings[0]

    @property
    def due_in(self) -> Seconds | None:
        """Seconds until a waiting notification is due: the engine makes its next State by then."""
        if self._next_at is None or self._last is None:
            return None
        return max(0.0, self._next_at - self._last.wall)

    def reconfigure(self, rules: tuple[Rule, ...], routing: Routing) -> None:
        """Use these rules and routes from the next evaluation on. Any thread may call it."""
        self._new_settings = rules, routing

    def evaluate_now(self) -> None:
        """Evaluate the rules for the next State, however recent the last evaluation is. Any thread may call it."""
        self._evaluated_at = None

    def announce_stop(self, why: str) -> None:
        """Notify that this program stops watching. Any thread may call it."""
        spec = self._heartbeat
        if self._outbox is None or spec is None or not spec.start or self._state.leadership.holder != "us":
            return
        notice = heartbeat.stopped(spec, self._settings[1], self._state, why, self._clock.now())
        if notice is not None:
            self._outbox.enqueue(AlertChanges(at=notice.at, notices=(notice,)))

    def evaluate(self, state: State, events: Sequence[Event], now: Instant) -> State:
        """The State with its alerts as they are now. Changes and notifications are handed over."""
        self._next_at = None
        before, present = state.alerts, lifecycle.Moment(now, self._clock.monotonic())
        if self._new_settings is not self._settings:
            self._settings = self._new_settings
            routed = {route.channel for route in self._settings[1].routes}
            state = replace(state, channels={name: one for name, one in state.channels.items() if name in routed})
        jump = lifecycle.find_jump(self._last, present)
        self._last = present
        if jump is not None:
            log.warning("%s", jump.why)
            self._paces, self._evaluated_at = {}, None
            state = lifecycle.apply_jump(state, jump, now)
        for event in (one for one in events if not isinstance(one, NodeReading)):  # hundreds come each second
            state = self._apply(state, event, now)
        try:
            state = self._run_pipeline(state, present)
        except Exception:  # the events are applied nevertheless; the dead-man's switch sees that nothing is evaluated
            if self._error_logged_at is None or present.steady - self._error_logged_at >= LOG_ERROR_EVERY:
                self._error_logged_at = present.steady
                log.exception("the alerts could not be evaluated")
        after = state.alerts
        if len(before) == len(after) and all(before.get(name) is alert for name, alert in after.items()):
            state = replace(state, alerts=before)  # the same value: nothing needs to be drawn again
        self._state = state
        return state

    def _run_pipeline(self, state: State, present: lifecycle.Moment) -> State:
        """Evaluate → lifecycle → inhibit → flapping → silences → heartbeat → routing → grouping → outbox."""
        if state.leadership.holder not in ("us", "nobody"):
            return state
        (all_rules, routes), (now, steady), changes = self._settings, present, self._changes
        elapsed = None if self._evaluated_at is None else steady - self._evaluated_at
        if elapsed is None or elapsed >= EVALUATE_EVERY:
            self._evaluated_at = steady
            rules = {rule.name: rule for rule in all_rules if rule.enabled}
            results = evaluate(rules.values(), state, now)
            evaluation = lifecycle.Evaluation(state, results, rules, now, elapsed or 0.0, self._token, self._gone)
            advanced = lifecycle.advance(state.alerts, evaluation)
            self._gone = frozenset()
            changes.note(advanced.history)
            changes.drop(advanced.dropped)
            alerts = advanced.alerts | heartbeat.acknowledged_tests(advanced.alerts, now)
            alerts |= quiet.inhibited(alerts)
            if any(alert.flapping for alert in alerts.values()) or any(
                what != "found" for _, what, _ in advanced.history
            ):
                flapped = episode.flapped(alerts, now, {name for name, rule in rules.items() if not rule.may_flap})
                changes.note((name, "flapping", "it fires and resolves repeatedly") for name in flapped.started)
                alerts |= flapped.changed
            if self._poll_soon is not None:
                for name in {name for alert in alerts.values() if alert.phase == "pending" for name in alert.sources}:
                    self._poll_soon(name)
            state = replace(state, alerts=alerts, evaluated_at=now)
        state = self._silenced(state, now)
        if self._outbox is None or not self._leadership.may_notify(state.leadership, steady):
            changes.extra_due.clear()
            return state
        if self._heartbeat is not None:
            state = self._with_heartbeat(state, self._heartbeat, now)
        alerts = {name: routing.downgraded(alert, now) for name, alert in state.alerts.items()}
        routed = routing.route(alerts, routes, now)
        for alert in alerts.values():
            changes.account(alert, alert.id in routed, routes)
        extra = [due._replace(alert=alerts.get(due.alert.id, due.alert)) for due in changes.extra_due]
        changes.extra_due.clear()
        others = routed.keys() - {due.alert.id for due in extra}
        due_alerts = [*extra, *(due for name, due in routed.items() if name in others)]
        if state.evaluated_at == now:  # their advice rests on the same facts
            due_alerts = routing.with_causes(due_alerts, alerts, state, routes, now)
        grouped = routing.group_alerts(due_alerts, self._paces, now)
        self._paces, self._next_at = grouped.paces, grouped.next_at
        changes.notices += grouped.notices
        state = replace(state, alerts=alerts | {alert.id: alert for alert in grouped.alerts})
        if (batch := changes.take(state, now)) is not None:
            self._outbox.enqueue(batch)
        return state

    # ---- events ------------------------------------------------------------------------------------------------------

    def _apply(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case SourceRemoved(name):
                self._gone |= {name}
            case ChannelsChanged(channels):
                return replace(state, channels={**state.channels, **{channel.name: channel for channel in channels}})
            case LeadershipChanged():
                return self._leadership.changed(state, event.leadership, self._clock.monotonic(), self._changes)
            case LedgerReplaced():
                self._changes.write_all(state)
            case AlertsReported() if state.leadership.holder in ("other", "daemon"):
                return replace(
                    state,
                    alerts={alert.id: as_reported(alert, now) for alert in event.alerts},
                    silences={silence.id: silence for silence in event.silences},
                    channels={channel.name: channel for channel in event.channels},
                    evaluated_at=event.at,
                )
            case AlertsRestored(stored):
                return self._leadership.restore(state, stored, now, self._changes)
            case Delivered():
                return delivered(state, event)
            case AlertRequested(request, number) if state.leadership.holder in ("us", "nobody"):
                return self._apply_request(state, request, now) if self._changes.is_new_request(number) else state
        return state

    def _apply_request(self, state: State, request: AlertRequest, now: Instant) -> State:
        result = quiet.apply(request, state.alerts, state.silences, now)
        if result.refused is not None:
            log.warning("refused: %s %s (%s): %s", request.verb, request.alert or "", request.via, result.refused)
        self._changes.note(result.history)
        if result.test:
            state = self._with_new_test(state, now)
        if result.silence is not None:
            self._changes.silences[result.silence.id] = result.silence
            state = replace(state, silences={**state.silences, result.silence.id: result.silence})
        if result.alert is not None:
            state = replace(state, alerts={**state.alerts, result.alert.id: result.alert})
            if request.verb == "ack":
                due = routing.due_acknowledgement(result.alert, self._settings[1], request.via, now)
                self._changes.extra_due += [due] if due is not None else []
        return state

    # ---- stages ------------------------------------------------------------------------------------------------------

    def _silenced(self, state: State, now: Instant) -> State:
        people = (silence for silence in state.silences.values() if not silence.window)
        in_force = quiet.in_force((*people, *self._settings[1].windows), now)
        changed = {
            name: alert if alert.muted_until is not None else routing.unmuted(alert)
            for name, alert in quiet.muted(state.alerts, in_force).items()
        }
        if changed:
            state = replace(state, alerts={**state.alerts, **changed})
        kept = {silence.id: silence for silence in in_force}
        return state if kept == state.silences else replace(state, silences=kept)

    def _with_heartbeat(self, state: State, spec: HeartbeatSpec, now: Instant) -> State:
        """Add the start, the heartbeat and the test, if they are due."""
        changes, routes = self._changes, self._settings[1]
        # Because of a time in the future, nothing would be notified until then.
        changes.remember({key: now for key, at in changes.memory.items() if at > now})
        made = [heartbeat.heartbeat(spec, routes, state, changes.memory, now)]
        if not self._leadership.is_announced:
            started = heartbeat.started(spec, routes, state, changes.memory, self._leadership.outage, now)
            self._leadership.is_announced = started is not None
            made += [started] if started is not None else []
        for one in made:
            changes.notices += one.notices
            changes.remember(one.memory)
        if spec.test_every is None:
            return state
        if TEST not in changes.memory:  # its period starts now
            changes.remember({TEST: now})
        return self._with_new_test(state, now) if now - changes.memory[TEST] >= spec.test_every else state

    def _with_new_test(self, state: State, now: Instant) -> State:
        self._changes.remember({TEST: now})
        return replace(state, alerts={**state.alerts, **heartbeat.new_test(state.alerts, now, self._token)})
