"""Each look at the State: what is wrong, what of it is told, and what must be written down before it is."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec.structs import replace

from trainmon.alerting.heartbeat import notices as bulletins
from trainmon.alerting.leadership import LeadershipTracker, delivered
from trainmon.alerting.pending_changes import PendingChanges
from trainmon.alerting.pipeline import HeartbeatSpec, Routing, routing
from trainmon.alerting.pipeline import clock_jumps as waking
from trainmon.alerting.pipeline import flapping as episodes
from trainmon.alerting.pipeline import grouping as gathering
from trainmon.alerting.pipeline import inhibit as inhibition
from trainmon.alerting.pipeline import lifecycle as judging
from trainmon.alerting.pipeline import requests as orders
from trainmon.alerting.pipeline import silences as mutes
from trainmon.alerting.rules import TEST, Rule
from trainmon.alerting.rules.evaluate import evaluate
from trainmon.lib import Clock, Instant, Seconds, SystemClock
from trainmon.model import (
    Alert,
    AlertChanges,
    AlertRequest,
    AlertRequested,
    AlertsRecalled,
    AlertsReported,
    ChannelsChanged,
    Delivered,
    Event,
    LeadershipChanged,
    SourceRemoved,
    State,
)

log = logging.getLogger(__name__)

LOOK_EVERY: Seconds = 0.8
"""The rules are gone through once a second: a State comes each second, and sometimes a little sooner."""

HURRY_EVERY: Seconds = 5.0
"""Between two looks at a source that something pending rests on, beyond its own pace."""


FELL_AGAIN: Seconds = 60.0
"""Between two lines of the log about looks that fail, each second."""


class Outbox(Protocol):
    """Where what is to be told goes: it writes it down first, then has it sent."""

    def hand_over(self, changes: AlertChanges) -> None:
        """Take it; never blocks."""


class AlertManager:
    """Belongs to the engine's thread. Without a post nothing is told: alerts are judged and shown."""

    def __init__(
        self,
        rules: tuple[Rule, ...],
        routing: Routing,
        post: Outbox | None,
        *,
        heartbeat: HeartbeatSpec | None = None,
        clock: Clock | None = None,
        hurry: Callable[[str], None] | None = None,
        is_apart: bool = False,
        token: Callable[[], str] = lambda: secrets.token_urlsafe(12),
    ) -> None:
        """`hurry` has a source looked at soon, by its name: one that something pending rests on. `is_apart`: each look
        is a program of its own, started by cron."""
        self._post = post
        self._heartbeat = heartbeat
        self._clock = clock or SystemClock()
        self._hurry = hurry
        self._token = token
        self._settings = rules, routing
        self._rules: Mapping[str, Rule] = {}
        self._routing = routing
        self._last: waking.Moment | None = None
        self._looked: Seconds | None = None
        """When the rules were last gone through, by the steady clock."""
        self._gone: frozenset[str] = frozenset()
        self._pace = gathering.GroupTimers()
        self._next_at: Instant | None = None
        self._hurried: dict[str, Seconds] = {}
        self._book = PendingChanges()
        self._watch = LeadershipTracker(is_apart=is_apart)
        self._fell: Seconds | None = None
        """When a look failed last, of which the log was told."""
        self._state = State()
        """The last that was looked at."""
        self._take_settings()

    @property
    def due_in(self) -> Seconds | None:
        """In how many seconds something is to be told: the engine makes its next State by then."""
        if self._next_at is None or self._last is None:
            return None
        return max(0.0, self._next_at - self._last.wall)

    def renew(self, rules: tuple[Rule, ...], routing: Routing) -> None:
        """From the next look on these are gone by; from any thread."""
        self._settings = rules, routing

    def goodbye(self, why: str) -> None:
        """Tell that nobody watches from now on; from any thread."""
        if (
            self._post is None
            or self._state.duty.holder != "us"
            or self._heartbeat is None
            or not self._heartbeat.start
        ):
            return
        now = self._clock.now()
        notice = bulletins.goodbye(self._heartbeat, self._routing, self._state, why, now)
        if notice is not None and self._post is not None:
            self._post.hand_over(AlertChanges(at=now, notices=(notice,)))

    def look(self, state: State, events: Sequence[Event], now: Instant) -> State:
        """The State with its alerts as they are now; what is to be told is handed over."""
        self._next_at = None
        before, present = state.alerts, waking.Moment(now, self._clock.monotonic())
        if self._settings[1] is not self._routing or self._settings[0] is not self._all_rules:
            self._take_settings()
            state = self._without_old_channels(state)
        jump = waking.jumped(self._last, present)
        self._last = present
        if jump is not None:
            state = self._woken(state, jump, now)
        for event in events:
            state = self._heard(state, event, now)
        try:
            state = self._seen(state, present)
        except Exception:  # what was heard is not forgotten with it; the dead-man's switch sees that nobody looks
            if self._fell is None or present.steady - self._fell >= FELL_AGAIN:
                self._fell = present.steady
                log.exception("the alerts could not be judged")
        if _is_same(before, state.alerts):
            state = replace(state, alerts=before)
        self._state = state
        return state

    def _seen(self, state: State, present: waking.Moment) -> State:
        """The State after what is wrong was found, and what of it is due was handed over."""
        now = present.wall
        if state.duty.holder in ("us", "nobody"):
            if self._looked is None or present.steady - self._looked >= LOOK_EVERY:
                state = self._judged(state, present)
            state = self._with_mutes(state, now)
            if self._post is not None and self._watch.may_tell(state.duty, present.steady):
                state = self._told(state, now)
                self._hand_over(state, now)
            else:
                self._book.dues.clear()
        return state

    # ---- what happens to us ------------------------------------------------------------------------------------------

    def _take_settings(self) -> None:
        self._all_rules, self._routing = self._settings
        self._rules = {rule.name: rule for rule in self._all_rules if rule.enabled}

    def _without_old_channels(self, state: State) -> State:
        named = {route.channel for route in self._routing.routes}
        channels = {name: channel for name, channel in state.channels.items() if name in named}
        return state if len(channels) == len(state.channels) else replace(state, channels=channels)

    def _woken(self, state: State, jump: waking.Jump, now: Instant) -> State:
        """No silence from before is believed, and no hold is over because of it."""
        log.warning("%s", jump.why)
        self._pace = gathering.GroupTimers()
        self._looked = None
        if jump.shift < 0:
            state = waking.not_dated_ahead(state, now)
        alerts = {name: episodes.after_jump(alert, jump, now) for name, alert in state.alerts.items()}
        return replace(state, woke_at=now, woke_why=jump.why, alerts=alerts)

    def _heard(self, state: State, event: Event, now: Instant) -> State:
        match event:
            case SourceRemoved(name):
                self._gone |= {name}
            case ChannelsChanged(channels):
                return replace(state, channels={**state.channels, **{channel.name: channel for channel in channels}})
            case LeadershipChanged():
                return self._watch.changed(state, event.duty, self._clock.monotonic(), self._book)
            case AlertsReported() if state.duty.holder in ("other", "daemon"):
                return replace(
                    state,
                    alerts={alert.id: alert for alert in event.alerts},
                    silences={silence.id: silence for silence in event.silences},
                    channels={channel.name: channel for channel in event.channels},
                    looked_at=event.at,
                )
            case AlertsRecalled(recalled):
                return self._watch.recalled(state, recalled, now, self._book)
            case Delivered():
                return delivered(state, event)
            case AlertRequested(order, number) if state.duty.holder in ("us", "nobody"):
                return self._ordered(state, order, number, now)
        return state

    def _ordered(self, state: State, order: AlertRequest, number: int | None, now: Instant) -> State:
        if not self._book.is_new_order(number):
            return state
        carried = orders.carry_out(order, state.alerts, state.silences, now)
        if carried.refused is not None:
            log.warning("not done: %s %s (%s): %s", order.verb, order.alert or "", order.via, carried.refused)
        self._book.note(carried.happened)
        if carried.test:
            state = self._asked_for_a_test(state, now)
        if carried.silence is not None:
            self._book.silences[carried.silence.id] = carried.silence
            state = replace(state, silences={**state.silences, carried.silence.id: carried.silence})
        if carried.alert is not None:
            state = replace(state, alerts={**state.alerts, carried.alert.id: carried.alert})
            taken = routing.acknowledged(carried.alert, self._routing, order.via, now) if order.verb == "ack" else None
            if taken is not None:
                self._book.dues.append(taken)
        return state

    # ---- what is wrong -----------------------------------------------------------------------------------------------

    def _judged(self, state: State, present: waking.Moment) -> State:
        now = present.wall
        passed = 0.0 if self._looked is None else present.steady - self._looked
        self._looked = present.steady
        findings = evaluate(self._rules.values(), state, now)
        gone, self._gone = self._gone, frozenset()
        look = judging.Evaluation(state, findings, self._rules, now, passed, self._token, gone)
        advanced = judging.advance(state.alerts, look)
        alerts = advanced.alerts | bulletins.answered(advanced.alerts, now)
        self._book.note(advanced.happened)
        self._book.drop(advanced.dropped)
        alerts |= inhibition.inhibited(alerts)
        if any(alert.flapping for alert in alerts.values()) or any(what != "found" for _, what, _ in advanced.happened):
            flapped = episodes.flapped(alerts, now, self._wakes)
            alerts |= flapped.changed
            self._book.note((name, "flapping", "it comes and goes") for name in flapped.begun)
            for name in flapped.begun:
                if (due := routing.flaps(alerts[name], self._routing, now)) is not None:
                    self._book.dues.append(due)
        self._look_sooner(alerts.values(), present.steady)
        return replace(state, alerts=alerts, looked_at=now)

    def _wakes(self, alert: Alert) -> bool:
        """Whether it wakes somebody each time, though it comes and goes."""
        found = self._rules.get(alert.rule)
        return alert.severity == "critical" and found is not None and not found.may_flap

    def _with_mutes(self, state: State, now: Instant) -> State:
        windows = {window.id: window for window in mutes.in_force(self._routing.windows, now)}
        people = {name: silence for name, silence in state.silences.items() if not silence.window}
        in_force = mutes.in_force((*people.values(), *windows.values()), now)
        kept = {silence.id: silence for silence in in_force}
        changed = {
            name: alert if alert.muted_until is not None else routing.unmuted(alert)
            for name, alert in mutes.muted(state.alerts, in_force, now).items()
        }
        if changed:
            state = replace(state, alerts={**state.alerts, **changed})
        return state if kept == state.silences else replace(state, silences=kept)

    def _look_sooner(self, alerts: Iterable[Alert], steady: Seconds) -> None:
        """Have what is suspicious looked at again sooner."""
        if self._hurry is None:
            return
        for name in {name for alert in alerts if alert.phase == "pending" for name in alert.sources}:
            if steady - self._hurried.get(name, -HURRY_EVERY) >= HURRY_EVERY:
                self._hurried[name] = steady
                self._hurry(name)
        if len(self._hurried) > 1_000:
            self._hurried = {name: at for name, at in self._hurried.items() if steady - at < HURRY_EVERY}

    # ---- what is told ------------------------------------------------------------------------------------------------

    def _told(self, state: State, now: Instant) -> State:
        state = self._with_bulletins(state, now)
        alerts = {name: routing.sunk(alert, now) for name, alert in state.alerts.items()}
        soon = inhibition.may_be_hidden_soon(alerts.values())
        dues, self._book.dues = self._book.dues, []
        dues = [due._replace(alert=alerts.get(due.alert.id, due.alert)) for due in dues]
        extra = {due.alert.id for due in dues}
        for alert in alerts.values():
            one = routing.due(alert, self._routing, now, alert.id in soon)
            if one is not None and alert.id not in extra:
                dues.append(one)
            self._book.account(alert, one is not None, self._routing)
        gathered = gathering.gather(dues, self._pace, now)
        self._pace, self._next_at = gathered.pace, gathered.next_at
        self._book.notices += gathered.notices
        alerts |= {alert.id: alert for alert in gathered.alerts}
        return replace(state, alerts=alerts)

    def _with_bulletins(self, state: State, now: Instant) -> State:
        spec, memory = self._heartbeat, self._book.memory
        if spec is None:
            return state
        self._book.remember(bulletins.ahead(memory, now))
        memory = self._book.memory
        made = [bulletins.sign_of_life(spec, self._routing, state, memory, now)]
        if not self._watch.has_begun:
            began = bulletins.beginning(spec, self._routing, state, memory, self._watch.unseen, now)
            self._watch.has_begun = began is not None
            made += [began] if began is not None else []
        for one in made:
            self._book.notices += one.notices
            self._book.remember(one.memory)
        is_due = bulletins.test_is_due(spec, memory, now)
        if is_due is None:
            self._book.remember({TEST: str(now)})
        return self._asked_for_a_test(state, now) if is_due else state

    def _asked_for_a_test(self, state: State, now: Instant) -> State:
        self._book.remember({TEST: str(now)})
        return replace(state, alerts={**state.alerts, **bulletins.tested(state.alerts, now, self._token)})

    def _hand_over(self, state: State, now: Instant) -> None:
        assert self._post is not None
        changes = self._book.changes(state, now)
        if changes is not None:
            self._post.hand_over(changes)


def _is_same(one: Mapping[str, Alert], other: Mapping[str, Alert]) -> bool:
    """Whether no alert changed: who shows them sees that at a glance."""
    return one is other or (len(one) == len(other) and all(one.get(name) is alert for name, alert in other.items()))
