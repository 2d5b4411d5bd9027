"""`5 Alerts` as rows: open alerts, then silences, then the last 24 hours. Pure, except for the kept rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from trainmon.lib import Instant, cell_width, clean, scrub, shorten
from trainmon.model import SEVERITIES, Alert, Silence, State
from tui.style import PAUSED, Span, calm_age, duration, ended_how, pad, remarks
from tui.views.alerts.status import (
    STATUSES,
    delivered,
    severity,
    sign,
    silence_text,
    silences,
    status_of,
    worst_delivery_first,
)
from tui.views.table import AGES_EVERY, filtered
from tui.widgets import HEADING, SENTENCE, Row, width_of

SILENCE = "silence:"
"""The prefix of the keys of silences. An alert's key is its id."""

SHOWN = 200
"""The most open alerts that have a row; the others are counted. Each row costs 0.1 ms."""

OVER = 100
"""The same of alerts that ended."""

SIGN, WORD, SINCE = 2, 5, 5
WIDE, WIDER = 72, 104


class AlertLayout(NamedTuple):
    """The cells of a line, and of the deliveries and remarks at its end."""

    width: int
    end: int
    """`sent ntfy 14:02:11  ack ana`."""

    @property
    def summary(self) -> int:
        return max(1, self.width - SIGN - WORD - SINCE - self.end)


def alert_layout(width: int) -> AlertLayout:
    if width >= WIDER:
        return AlertLayout(width, min(56, width * 2 // 5))
    return AlertLayout(width, 23 if width >= WIDE else max(0, min(12, width - SIGN - WORD - SINCE - 8)))


def alert_head(shape: AlertLayout) -> tuple[Span, ...]:
    end = shorten("SENT, ACK" if shape.end > 12 else "SENT", shape.end)
    return (Span(f"  {'SEV':<{WORD}}{'HELD':>{SINCE - 1}} {'SUMMARY':<{shape.summary}}{end}", "head"),)


def row(alert: Alert, state: State, shape: AlertLayout) -> Row:
    """One alert as one line."""
    now, symbol, word = state.at, sign(alert, state.at), severity(alert, state.at)
    since = calm_age(max(0.0, (now if alert.event else alert.resolved_at or now) - alert.since))
    style = "" if status_of(alert, now) == "open" else "dim"
    return Row(
        alert.id,
        (
            Span(symbol.text + " ", symbol.style),
            Span(pad(word.text, WORD), word.style),
            Span(f"{since:>{SINCE - 1}} ", style),
            *summary(alert, shape.summary, style),
            *end(alert, state, shape.end),
        ),
    )


EVIDENCE = 24
"""Cells that must be left beside the summary to show the newest line of evidence there."""


def summary(alert: Alert, width: int, style: str) -> tuple[Span, ...]:
    """The summary, and the newest evidence if there is room for it."""
    text = shorten(clean(alert.summary), width - 1)
    left = width - 1 - cell_width(text)
    if not alert.evidence or left < EVIDENCE:
        return (Span(pad(text, width), style),)
    return (Span(text, style), Span(pad(shorten(f"  {scrub(clean(alert.evidence[-1]))}", left), left + 1), "dim"))


def end(alert: Alert, state: State, width: int) -> tuple[Span, ...]:
    """Failed deliveries, then remarks, then other deliveries; as many as fit."""
    failed: list[Span] = []
    others: list[Span] = []
    for one in worst_delivery_first(alert):
        span = delivered(one, state.at)
        if cell_width(span.text) > width:  # without its time, or without its channel as well
            word = span.text.partition(f" {clean(one.channel, 80)}")[0]
            named = f"{word} {clean(one.channel)}"
            span = span._replace(text=named if cell_width(named) <= width else word)
        (failed if one.state in ("dead", "retrying") else others).append(span)
    middle = remarks(alert, state)
    if not alert.is_open:  # when it was resolved, or why it ended otherwise: its subject went away
        passed = calm_age(max(0.0, state.at - (alert.resolved_at or state.at)))
        how = ended_how(alert)
        text = f"resolved {passed}" if how == "resolved" else clean(how, 40)
        fits = how == "resolved" and cell_width(text) + 4 <= width
        middle = [Span(f"{text} ago" if fits else text, "dim")]
    elif middle and cell_width(middle[0].text) > width:
        middle[0] = middle[0]._replace(text=middle[0].text.partition(" by ")[0])
    return fitting([*failed, *middle, *others], width)


def fitting(spans: Sequence[Span], width: int) -> tuple[Span, ...]:
    """As many spans as fit. The first is always shown, cut if necessary."""
    found = [span._replace(text=shorten(span.text, width)) for span in spans[:1]]
    for span in spans[1:]:
        if width_of(found) + 2 + cell_width(span.text) > width:
            break
        found += [Span("  "), span]
    return tuple(found)


def silence_row(silence: Silence, now: Instant, width: int) -> Row:
    """`◐ muted 43m left  rule gpu-hot on gpu:gpu-003/5  by ana: in repair`."""
    by = "maintenance window of trainmon.toml" if silence.window else f"by {silence.by}"
    left = f"{duration(silence.until - now):>6} left  "
    text = clean(f"{silence_text(silence)}  {by}" + (f": {silence.why}" if silence.why else ""))
    return Row(SILENCE + silence.id, (Span(f"{PAUSED} ", "accent"), Span(left),
                                      Span(shorten(text, width - SIGN - cell_width(left)), "dim")))  # fmt: skip


# ---- all of them -----------------------------------------------------------------------------------------------------

ORDERS: dict[str, Callable[[Alert], tuple[object, ...]]] = {
    "worst": lambda one: (SEVERITIES.index(one.severity), one.fired_at or one.since, one.id),
    "newest": lambda one: (-(one.fired_at or one.since), one.id),
    "run": lambda one: (one.run is None, one.run or "", SEVERITIES.index(one.severity), one.id),
    "rule": lambda one: (one.rule, one.subject, one.id),
}


def matching(state: State, query: str) -> list[Alert]:
    """The alerts that match a filter."""

    def searched(alert: Alert) -> str:
        deliveries = (f"{one.channel} {one.state}" for one in alert.delivery)
        return " ".join((
            alert.id, alert.rule, alert.subject, alert.severity, alert.phase, status_of(alert, state.at),
            alert.run or "", alert.node or "", alert.cluster, alert.summary, alert.data, alert.acknowledged_by or "",
            *deliveries,
        ))  # fmt: skip

    return filtered(state.alerts.values(), query, searched)


def open_alerts(state: State, sort: str, query: str = "") -> list[Alert]:
    """The open alerts that match a filter: by what a person has to do, then in this order."""
    ranked = [(STATUSES.index(status_of(one, state.at)), one) for one in matching(state, query)]
    found = sorted(ranked, key=lambda entry: (entry[0], *ORDERS[sort](entry[1])))
    return [one for rank, one in found if STATUSES[rank] != "over"]


def ended_alerts(state: State, query: str = "") -> list[Alert]:
    """The alerts that ended within the last day, and acknowledged events; the latest first."""
    found = [one for one in matching(state, query) if one.fired_at is not None and status_of(one, state.at) == "over"]
    return sorted(found, key=lambda one: (-(one.resolved_at or one.since), one.id))


def alert_rows(state: State, shape: AlertLayout, sort: str = "worst", query: str = "") -> list[Row]:
    """The whole pane; empty if there is nothing to show."""
    firing, ended, muted = open_alerts(state, sort, query), ended_alerts(state, query), [] if query else silences(state)
    found = [row(one, state, shape) for one in firing[:SHOWN]]
    if len(firing) > SHOWN:
        found.append(Row(f"{SENTENCE}more", (Span(f"and {len(firing) - SHOWN:,} more; / filters", "warn"),)))
    if not found and (muted or ended):
        text = "No firing alert matches." if query else "No alert is firing."
        found.append(Row(f"{SENTENCE}none", (Span(text, "ok"),)))
    sections = (
        ("MUTED (m unmutes)", [silence_row(one, state.at, shape.width) for one in muted]),
        ("LAST 24 HOURS", [row(one, state, shape) for one in ended[:OVER]]),
    )
    for title, lines in sections:
        if lines:
            found += [Row(HEADING + title, (Span(shorten(f"  {title}", shape.width), "head"),)), *lines]
    return found


class AlertRows:
    """Keeps the rows until an alert, the width or an age has changed."""

    def __init__(self) -> None:
        self._state = State()
        self._key: tuple[object, ...] = ()
        self._rows: Sequence[Row] = ()

    def rows(self, state: State, width: int, sort: str, query: str) -> Sequence[Row]:
        last, self._state = self._state, state
        settings = (state.at // AGES_EVERY, width, sort, query)
        is_same = last.alerts is state.alerts and last.silences is state.silences
        if not is_same or self._key[1:] != settings:
            alerts = tuple(
                (one.id, one.phase, one.severity, one.data, one.acknowledged_by, one.muted_until, one.inhibited_by,
                 one.flapping, one.delivery)
                for one in state.alerts.values()
            )  # fmt: skip
            key = ((alerts, tuple(silences(state))), *settings)
            if key != self._key:
                self._key, self._rows = key, alert_rows(state, alert_layout(width), sort, query)
        return self._rows
