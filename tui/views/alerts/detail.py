"""One alert in full, as lines: summary, advice, links, times, acknowledgement, notifications, evidence. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from trainmon.lib import Instant, clean, ordinal, shorten
from trainmon.model import Alert, State
from tui.style import Span, calm_age, duration, ended_how
from tui.views.alerts.rows import ORDERS
from tui.views.alerts.status import (
    DELIVERY,
    SIGNS,
    STATUSES,
    delivered,
    is_muted,
    matches,
    sender_sentence,
    severity,
    sign,
    silence_text,
    silences,
    status_of,
    worst_delivery_first,
)
from tui.views.facts import LABEL, fact, link_label, linked_fact, more_fact, optional_fact, safe, wrapped_fact
from tui.views.jobs import time_and_age
from tui.widgets import Line, Link, Linked, sentence

KINDS = {
    "fire": "firing", "worse": "severity raised", "resolve": "resolved", "repeat": "again",
    "escalate": "escalated", "flapping": "flapping", "event": "event",
    "digest": "digest", "acknowledged": "acknowledged", "cause": "cause", "direct": "sent without the ledger",
    "channel": "channel problem",
}  # fmt: skip
"""The text of each kind of notification."""


def alert_lines(name: str, state: State, width: int) -> Iterator[Line | Linked]:
    """Everything known of one alert."""
    alert = state.alerts.get(name)
    if alert is None:
        yield (Span(f"Alert {clean(name)} is not known. Alerts are kept for one day after they end.", "dim"),)
        return
    symbol, word, style = SIGNS[alert.severity]
    phase = ended_how(alert) if alert.phase == "resolved" else alert.phase
    yield (Span(f"{symbol} {word}  ", f"{style} bold"), Span(clean(f"{phase}  {alert.rule}"), "bold"))
    yield from sentence(safe(alert.summary), width)
    if alert.data != "ok" and alert.is_open:
        why = safe(alert.data_why or "its source does not answer")
        yield from sentence(
            f"The data of this alert is stale: {why}. The alert keeps its state until new data arrives.", width, "warn"
        )
    yield ()
    if alert.advice:
        yield from optional_fact("what to do", alert.advice, width, "accent")
        yield ()
    yield from related(alert, state, width)
    yield from times(alert, state.at, width)
    yield ()
    yield from acknowledgement(alert, state, width)
    yield ()
    yield from notifications(alert, state, width)
    yield ()
    if alert.evidence:
        is_present = alert.phase in ("pending", "firing") and alert.data == "ok"
        yield (Span("evidence" if is_present else f"evidence, {time_and_age(alert.found_at, state.at)}", "dim"),)
    for line in alert.evidence:
        yield from sentence(safe(line), width)


HIDDEN_SHOWN, FIRING_SHOWN = 8, 5


def related(alert: Alert, state: State, width: int) -> Iterator[Line | Linked]:
    """Links to the alert that inhibits it, to its run, job and node, and to the alerts that it inhibits."""
    hides = state.alerts.get(alert.inhibited_by or "")
    if hides is not None:
        yield linked_fact("inhibitor", Link("alert", hides.id), f"{hides.rule}: {hides.summary}", width)
    if alert.run is not None and alert.run in state.runs:
        yield linked_fact("run", Link("run", alert.run), alert.run, width)
        job = state.jobs.get(state.runs[alert.run].job or "")
        if job is not None:
            yield linked_fact("job", Link("job", job.key), f"{job.id} {job.name}", width)
    if alert.node is not None and (alert.node in state.nodes or f"node:{alert.node}" in state.sources):
        yield linked_fact("node", Link("node", alert.node), alert.node, width)
    hidden = [one for one in state.alerts.values() if one.inhibited_by == alert.id and one.is_open]
    for index, one in enumerate(hidden[:HIDDEN_SHOWN]):
        yield linked_fact("" if index else "inhibits", Link("alert", one.id), f"{one.rule}: {one.summary}", width)
    yield from more_fact(len(hidden) - HIDDEN_SHOWN, width)
    yield fact("subject", safe(alert.subject), width)


def alerts_of(run: str, state: State, width: int) -> Iterator[Line | Linked]:
    """Links to the firing alerts of a run, the worst first."""
    firing = [one for one in state.alerts.values() if one.run == run and one.is_firing]
    firing.sort(key=lambda one: (STATUSES.index(status_of(one, state.at)), *ORDERS["worst"](one)))
    for index, one in enumerate(firing[:FIRING_SHOWN]):
        word, style = severity(one, state.at)
        text = Span(shorten(safe(f"{one.rule}: {one.summary}"), width - LABEL - 7), "accent")
        mark = Span(f"{sign(one, state.at).text} {word} ", style)
        yield Linked(Link("alert", one.id), (*link_label("" if index else "alerts"), mark, text))
    yield from more_fact(len(firing) - FIRING_SHOWN, width, ": press 5 for all")


def times(alert: Alert, now: Instant, width: int) -> Iterator[Line]:
    """When it began, fired, was last seen and ended."""
    yield fact("since", time_and_age(alert.since, now), width)
    if alert.fired_at is not None and alert.fired_at - alert.since >= 1.0:
        yield fact("fired", time_and_age(alert.fired_at, now), width)
    if alert.resolved_at is not None:
        lasted = "" if alert.event else f"; it lasted {duration(max(0.0, alert.resolved_at - alert.since))}"
        yield fact("ended", time_and_age(alert.resolved_at, now) + lasted, width)
    elif alert.clear_since is not None:
        yield fact(
            "recovering",
            f"condition false for {calm_age(now - alert.clear_since)}; resolves if it stays false",
            width,
        )
    elif alert.is_open:
        yield fact("last seen", f"{calm_age(max(0.0, now - alert.found_at))} ago", width)
    if alert.sources:
        yield fact("sources", safe(", ".join(alert.sources)), width, "dim")


def acknowledgement(alert: Alert, state: State, width: int) -> Iterator[Line]:
    """Its acknowledgement, the silences that match it, and whether it flaps."""
    now = state.at
    if alert.acknowledged_by is not None:
        at = "" if alert.acknowledged_at is None else f", {calm_age(max(0.0, now - alert.acknowledged_at))} ago"
        yield fact("acknowledged", clean(f"by {alert.acknowledged_by}{at}; no repeats, no escalation"), width)
    elif alert.is_firing and not alert.event:
        yield fact("acknowledged", "no; press a to acknowledge it", width, "warn" if alert.severity != "info" else "")
    if is_muted(alert, now):
        why = f": {alert.muted_why}" if alert.muted_why else ""
        yield fact("muted", clean(f"for {duration((alert.muted_until or now) - now)} more{why}"), width, "accent")
        for one in (one for one in silences(state) if matches(one, alert)):
            by = "a maintenance window of trainmon.toml" if one.window else f"by {one.by}"
            yield fact("", clean(f"{silence_text(one)}, {by}"), width, "dim")
    if alert.flapping:
        sent = "one notification was sent" if alert.flapping_notified else "one notification is sent"
        yield fact("flapping", f"{sent}; the next comes when the alert is stable", width, "warn")
    if alert.episode > 1:
        yield fact("episode", f"{ordinal(alert.episode)} of this subject, with less than a day between two", width)


def notifications(alert: Alert, state: State, width: int) -> Iterator[Line]:
    """Its deliveries, `sent ntfy 14:02:11, firing: <the answer of the channel>`, or why there are none; the sender."""
    deliveries = worst_delivery_first(alert)
    for index, one in enumerate(deliveries):
        merged = " with others in one message" if one.state == "merged" else ""
        answer = f": {one.answer}" if one.answer else ""
        text = f"{delivered(one, state.at).text}{merged}, {KINDS.get(one.kind, one.kind)}{answer}"
        yield from wrapped_fact("" if index else "notified", safe(text), width, DELIVERY[one.state][1])
    if not deliveries:
        yield from wrapped_fact("notified", why_not_sent(alert, state), width, "warn" if alert.is_firing else "dim")
    yield from wrapped_fact("sender", sender_sentence(state), width, "dim")


def why_not_sent(alert: Alert, state: State) -> str:
    """Why no notification was sent."""
    reasons = (
        (alert.phase == "pending", "not sent: still pending"),
        (alert.inhibited_by is not None, "not sent: another alert inhibits it and is sent instead"),
        (is_muted(alert, state.at), "not sent: muted"),
        (state.leadership.holder == "nobody", "not sent"),
        (alert.notified_at is None, "not sent: no channel takes this kind and severity"),
    )
    queued_for = "" if alert.notified_at is None else calm_age(max(0.0, state.at - alert.notified_at))
    otherwise = f"queued {queued_for} ago; no channel has answered yet"
    return next((reason for applies, reason in reasons if applies), otherwise)
