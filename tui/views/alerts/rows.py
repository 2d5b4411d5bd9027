"""`5 Alerts` as rows: what fires first, then what is muted, then the last day. Pure, but for what it keeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from trainmon.lib import Instant, cell_width, clean, scrub, shorten
from trainmon.model import SEVERITIES, Alert, Silence, State
from tui.style import PAUSED, Span, calm_age, duration, pad
from tui.views.alerts.words import STANDINGS, delivered, is_trouble, marks, matched, severity, sign, silences, standing
from tui.views.alerts.words import worst_delivery_first as deliveries
from tui.widgets import HEADING, SENTENCE, Row

SILENCE = "silence:"
"""What the keys of rows about what is muted begin with; an alert's key is its id."""

SHOWN = 200
"""Open alerts with a row each; of ten thousand the rest is counted. Each costs a tenth of a millisecond."""

OVER = 100
"""The same of those that are over."""

SIGN, WORD, SINCE = 2, 5, 5
WIDE, WIDER = 72, 104


class AlertLayout(NamedTuple):
    """The cells of a line, and of its end."""

    width: int
    end: int
    """For who knows: `sent ntfy 14:02:11  ack ana`."""

    @property
    def summary(self) -> int:
        return max(1, self.width - SIGN - WORD - SINCE - self.end)


def layout(width: int) -> AlertLayout:
    if width >= WIDER:
        return AlertLayout(width, min(56, width * 2 // 5))
    return AlertLayout(width, 23 if width >= WIDE else max(0, min(12, width - SIGN - WORD - SINCE - 8)))


def head(shape: AlertLayout) -> tuple[Span, ...]:
    end = shorten("SENT, ACK" if shape.end > 12 else "SENT", shape.end)
    return (Span(f"  {'SEV':<{WORD}}{'FOR':>{SINCE - 1}} {'WHAT':<{shape.summary}}{end}", "head"),)


def row(alert: Alert, state: State, shape: AlertLayout) -> Row:
    """One alert as one line."""
    now, first = state.at, sign(alert, state.at)
    word, where = severity(alert, now), standing(alert, now)
    until = now if alert.event else alert.resolved_at or now
    since = calm_age(max(0.0, until - alert.since))
    look = "" if where == "open" else "dim"
    return Row(
        alert.id,
        (
            Span(first.text + " ", first.style),
            Span(pad(word.text, WORD), word.style),
            Span(f"{since:>{SINCE - 1}} ", look),
            *what(alert, shape.summary, look),
            *end(alert, state, shape.end),
        ),
    )


EVIDENCE = 24
"""Cells that must be left for the newest line of evidence to stand beside the summary."""


def what(alert: Alert, width: int, look: str) -> tuple[Span, ...]:
    """The summary, and where there is room for it what it was seen by."""
    summary = shorten(clean(alert.summary), width - 1)
    left = width - 1 - cell_width(summary)
    if not alert.evidence or left < EVIDENCE:
        return (Span(pad(summary, width), look),)
    return (Span(summary, look), Span(pad(shorten(f"  {scrub(clean(alert.evidence[-1]))}", left), left + 1), "dim"))


def end(alert: Alert, state: State, width: int) -> tuple[Span, ...]:
    """Who knows: a delivery that fails first, then what a person said, then what was delivered; what fits."""
    found = deliveries(alert)
    said = [short(one.channel, delivered(one, state.at), width) for one in found]
    failed = [span for one, span in zip(found, said, strict=True) if is_trouble(one)]
    well = [span for one, span in zip(found, said, strict=True) if not is_trouble(one)]
    if not alert.is_open:
        return fitting([*failed, ended(alert, state.at), *well], width)
    return fitting([*failed, *marks(alert, state), *well], width)


def short(channel: str, told: Span, width: int) -> Span:
    """Without its time, or without its channel, where that is all there is room for."""
    if cell_width(told.text) <= width:
        return told
    word, _, _ = told.text.partition(f" {clean(channel, 80)}")
    named = f"{word} {clean(channel)}"
    return told._replace(text=named if cell_width(named) <= width else word)


def ended(alert: Alert, now: Instant) -> Span:
    """`over 5m ago`; that its subject went is no end."""
    if alert.ended not in (None, "over"):
        return Span(clean(alert.ended or "", 40), "dim")
    return Span(f"over {calm_age(max(0.0, now - (alert.resolved_at or now)))}", "dim")


def fitting(spans: Iterable[Span], width: int) -> tuple[Span, ...]:
    """As many as fit, the first in any case and cut if it must be."""
    found: list[Span] = []
    for span in spans:
        gap = "  " if found else ""
        if not found:
            span = span._replace(text=shorten(span.text, width))
        if cell_width(gap + span.text) > width:
            break
        found += [Span(gap)] * bool(gap) + [span]
        width -= cell_width(gap + span.text)
    return tuple(found)


def silence_row(silence: Silence, now: Instant, width: int) -> Row:
    """`◐ muted 43m left  rule gpu-hot on gpu:gpu-003/5  by ana: being mended`."""
    by = "maintenance window of trainmon.toml" if silence.window else f"by {silence.by}"
    why = f": {silence.why}" if silence.why else ""
    left = f"{duration(silence.until - now):>6} left  "
    words = clean(f"{matched(silence)}  {by}{why}")
    return Row(SILENCE + silence.id, (Span(f"{PAUSED} ", "accent"), Span(left),
                                      Span(shorten(words, width - SIGN - cell_width(left)), "dim")))  # fmt: skip


# ---- all of them -----------------------------------------------------------------------------------------------------

Order = Callable[[Alert], tuple[object, ...]]

ORDERS: dict[str, Order] = {
    "worst": lambda one: (SEVERITIES.index(one.severity), one.fired_at or one.since, one.id),
    "newest": lambda one: (-(one.fired_at or one.since), one.id),
    "run": lambda one: (one.run is None, one.run or "", SEVERITIES.index(one.severity), one.id),
    "rule": lambda one: (one.rule, one.subject, one.id),
}


def haystack(alert: Alert, now: Instant) -> str:
    """What `/` looks through."""
    parts = (alert.id, alert.rule, alert.subject, alert.severity, alert.phase, standing(alert, now), alert.run or "",
             alert.node or "", alert.cluster, alert.summary, alert.data, alert.acknowledged_by or "",
             *(f"{one.channel} {one.state}" for one in alert.delivery))  # fmt: skip
    return " ".join(parts).lower()


def opened(state: State, sort: str, wanted: str = "") -> list[Alert]:
    """The open alerts that match: what nobody has taken on first, within that in the order asked for."""
    now, order = state.at, ORDERS[sort]
    stands = [(STANDINGS.index(standing(one, now)), one) for one in matching(state, wanted)]
    found = [((place, *order(one)), one) for place, one in stands if STANDINGS[place] != "over"]
    return [one for _, one in sorted(found, key=lambda entry: entry[0])]


def over(state: State, wanted: str = "") -> list[Alert]:
    """Those that fired and ended within the last day, the last first, and what happened and is known to somebody."""
    past = [one for one in matching(state, wanted) if standing(one, state.at) == "over"]
    found = [one for one in past if one.fired_at is not None]
    return sorted(found, key=lambda one: (-(one.resolved_at or one.since), one.id))


def matching(state: State, wanted: str) -> list[Alert]:
    words = wanted.lower().split()
    alerts = state.alerts.values()
    return [one for one in alerts if all(word in haystack(one, state.at) for word in words)] if words else list(alerts)


def rows(state: State, shape: AlertLayout, sort: str = "worst", wanted: str = "") -> list[Row]:
    """The whole pane; empty where there is nothing at all to say."""
    firing, ended_ones = opened(state, sort, wanted), over(state, wanted)
    found = [row(one, state, shape) for one in firing[:SHOWN]]
    if len(firing) > SHOWN:
        found.append(Row(f"{SENTENCE}more", (Span(f"and {len(firing) - SHOWN:,} more; / filters", "warn"),)))
    hushed = [] if wanted else silences(state)
    if not found and (hushed or ended_ones):
        found.append(
            Row(f"{SENTENCE}none", (Span("No firing alert matches." if wanted else "No alert is firing.", "ok"),))
        )
    if hushed:
        found.append(heading("MUTED; m unmutes one", shape.width))
        found += [silence_row(one, state.at, shape.width) for one in hushed]
    if ended_ones:
        found.append(heading("LAST 24 HOURS", shape.width))
        found += [row(one, state, shape) for one in ended_ones[:OVER]]
    return found


def heading(text: str, width: int) -> Row:
    return Row(HEADING + text, (Span(shorten(f"  {text}", width), "head"),))


def looks(state: State) -> tuple[object, ...]:
    """What of the alerts changes their rows at once. Their summaries tell ages, and most change every second: those are
    shown anew every ten."""
    alerts = tuple(
        (one.id, one.phase, one.severity, one.data, one.acknowledged_by, one.muted_until, one.inhibited_by,
         one.flapping, one.delivery)
        for one in state.alerts.values()
    )  # fmt: skip
    return alerts, tuple(silences(state))


class AlertRows:
    """Keeps the rows until an alert, the width or an age has changed."""

    AGES_EVERY = 10.0

    def __init__(self) -> None:
        self._seen: State | None = None
        self._why: tuple[object, ...] = ()
        self._rows: Sequence[Row] = ()

    def rows(self, state: State, width: int, sort: str, wanted: str) -> Sequence[Row]:
        tick = state.at // self.AGES_EVERY
        if not self._is_same(state) or self._why[1:] != (tick, width, sort, wanted):
            why = (looks(state), tick, width, sort, wanted)
            if why != self._why:
                self._why, self._rows = why, rows(state, layout(width), sort, wanted)
        self._seen = state
        return self._rows

    def _is_same(self, state: State) -> bool:
        seen = self._seen
        return seen is not None and seen.alerts is state.alerts and seen.silences is state.silences
