"""One alert in full, as lines: summary, advice, links, times, acknowledgement, notifications, evidence. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from trainmon.lib import Instant, clean, shorten
from trainmon.model import Alert, Delivery, State
from tui.style import Span, calm_age, duration
from tui.views.alerts.rows import ORDERS
from tui.views.alerts.status import (
    DELIVERY,
    SIGNS,
    STANDINGS,
    delivered,
    is_muted,
    matched,
    matches,
    sender_sentence,
    severity,
    sign,
    silences,
    standing,
    worst_delivery_first,
)
from tui.views.facts import LABEL, fact, link_label, safe, wrapped_fact
from tui.views.jobs import moment
from tui.widgets import Line, Link, Linked, sentence

KINDS = {
    "fire": "firing", "worse": "severity raised", "resolve": "resolved", "repeat": "again",
    "escalate": "escalated", "flapping": "flapping", "event": "event",
    "digest": "digest", "acknowledged": "acknowledged", "direct": "sent without the ledger",
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
    phase = {"resolved": f"{alert.ended or 'over'}"}.get(alert.phase, alert.phase)
    yield (Span(f"{symbol} {word}  ", f"{style} bold"), Span(clean(f"{phase}  {alert.rule}"), "bold"))
    yield from sentence(safe(alert.summary), width)
    if alert.data != "ok" and alert.is_open:
        why = safe(alert.data_why or "its source does not answer")
        yield from sentence(f"Its data is stale: {why}. It keeps its state until new data comes.", width, "warn")
    yield ()
    if alert.advice:
        yield from wrapped_fact("what to do", safe(alert.advice), width, "accent")
        yield ()
    yield from leads(alert, state, width)
    yield from times(alert, state, width)
    yield ()
    yield from acknowledgement(alert, state, width)
    yield ()
    yield from notifications(alert, state, width)
    yield ()
    yield from evidence(alert, width)


def leads(alert: Alert, state: State, width: int) -> Iterator[Line | Linked]:
    """Links to the alert that inhibits it, to its run, job and node, and to the alerts that it inhibits."""
    hides = state.alerts.get(alert.inhibited_by or "")
    if hides is not None:
        yield Linked(
            Link("alert", hides.id), (*link_label("hidden by"), link_text(f"{hides.rule}: {hides.summary}", width))
        )
    if alert.run is not None and alert.run in state.runs:
        yield Linked(Link("run", alert.run), (*link_label("run"), link_text(alert.run, width)))
        job = state.jobs.get(state.runs[alert.run].job or "")
        if job is not None:
            yield Linked(Link("job", job.key), (*link_label("job"), link_text(f"{job.id} {job.name}", width)))
    if alert.node is not None and (alert.node in state.nodes or f"node:{alert.node}" in state.sources):
        yield Linked(Link("node", alert.node), (*link_label("node"), link_text(alert.node, width)))
    hidden = [one for one in state.alerts.values() if one.inhibited_by == alert.id and one.is_open]
    for place, one in enumerate(hidden[:8]):
        label = "" if place else "hides"
        yield Linked(Link("alert", one.id), (*link_label(label), link_text(f"{one.rule}: {one.summary}", width)))
    if len(hidden) > 8:
        yield fact("", f"and {len(hidden) - 8} more", width, "dim")
    yield fact("subject", safe(alert.subject), width)


def link_text(text: str, width: int) -> Span:
    return Span(shorten(safe(text), width - LABEL), "accent")


AT_MOST = 5


def alerts_of(run: str, state: State, width: int) -> Iterator[Line | Linked]:
    """Links to the firing alerts of a run, the worst first."""
    firing = [one for one in state.alerts.values() if one.run == run and one.is_firing]
    firing.sort(key=lambda one: (STANDINGS.index(standing(one, state.at)), *ORDERS["worst"](one)))
    for place, one in enumerate(firing[:AT_MOST]):
        mark, word = sign(one, state.at), severity(one, state.at)
        said = link_text(f"{one.rule}: {one.summary}", width - 7)
        head = Span(f"{mark.text} {word.text} ", word.style)
        yield Linked(Link("alert", one.id), (*link_label("" if place else "alerts"), head, said))
    if len(firing) > AT_MOST:
        yield fact("", f"and {len(firing) - AT_MOST} more: 5 shows all", width, "dim")


def times(alert: Alert, state: State, width: int) -> Iterator[Line]:
    """When it began, fired, was last seen and ended."""
    now = state.at
    yield fact("since", moment(alert.since, now), width)
    if alert.fired_at is not None and alert.fired_at - alert.since >= 1.0:
        yield fact("fired", moment(alert.fired_at, now), width)
    if alert.resolved_at is not None:
        lasted = "" if alert.event else f"; it lasted {duration(max(0.0, alert.resolved_at - alert.since))}"
        yield fact("ended", moment(alert.resolved_at, now) + lasted, width)
    elif alert.clear_since is not None:
        yield fact("recovering", f"not found for {calm_age(now - alert.clear_since)}; resolves if this lasts", width)
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
        yield fact("acknowledged", "not yet; a acknowledges it", width, "warn" if alert.severity != "info" else "")
    if is_muted(alert, now):
        why = f": {alert.muted_why}" if alert.muted_why else ""
        yield fact("muted", clean(f"for {duration((alert.muted_until or now) - now)} more{why}"), width, "accent")
        for one in silences(state):
            if matches(one, alert):
                by = "a maintenance window of trainmon.toml" if one.window else f"by {one.by}"
                yield fact("", clean(f"{matched(one)}, {by}"), width, "dim")
    if alert.flapping:
        yield fact("flapping", "sent once, then again when it is stable", width, "warn")


def notifications(alert: Alert, state: State, width: int) -> Iterator[Line]:
    """Its deliveries, or why there are none; and the sender."""
    found = worst_delivery_first(alert)
    for place, one in enumerate(found):
        yield from delivery("" if place else "notified", one, state.at, width)
    if not found:
        yield from wrapped_fact("notified", not_sent(alert, state), width, "warn" if alert.is_firing else "dim")
    yield from wrapped_fact("sender", sender_sentence(state), width, "dim")


def delivery(label: str, one: Delivery, now: Instant, width: int) -> Iterator[Line]:
    """`sent ntfy 14:02:11, firing: <what the channel said>`"""
    of = KINDS.get(one.kind, one.kind)
    merged = " with others in one message" if one.state == "merged" else ""
    said = f": {one.words}" if one.words else ""
    style = DELIVERY[one.state][1]
    yield from wrapped_fact(label, safe(f"{delivered(one, now).text}{merged}, {of}{said}"), width, style)


def not_sent(alert: Alert, state: State) -> str:
    """Why no notification was sent."""
    if alert.phase == "pending":
        return "not sent: still pending"
    if alert.inhibited_by is not None:
        return "not sent: the alert that hides it is sent instead"
    if is_muted(alert, state.at):
        return "not sent: muted"
    if state.duty.holder == "nobody":
        return "not sent"
    if alert.told_at is not None:
        return f"queued {calm_age(max(0.0, state.at - alert.told_at))} ago; no channel has answered yet"
    return "not sent: no channel takes this kind and severity"


def evidence(alert: Alert, width: int) -> Iterator[Line]:
    """The lines or values that it was found by."""
    if not alert.evidence:
        return
    yield (Span("evidence", "dim"),)
    for line in alert.evidence:
        yield from sentence(safe(line), width)
