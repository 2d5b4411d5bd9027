"""Open alerts, silences and the last 24 hours as rows; an alert in short texts, and as the mark of other rows. Pure."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC
from enum import IntEnum
from functools import lru_cache, partial
from math import inf
from typing import Literal, NamedTuple, TypeVar

from msgspec.structs import replace

from trainmon.lib import (
    Instant,
    Seconds,
    ago,
    cell_width,
    clean,
    counted,
    instruction,
    listed,
    scrub,
    shorten,
    shorten_sentence,
)
from trainmon.model import (
    SEVERITIES,
    SILENT,
    Alert,
    Channel,
    Delivery,
    Leadership,
    Severity,
    Silence,
    State,
    verdict_text,
)
from tui.keys import cap
from tui.style import (
    CRIT,
    DONE,
    HEADING,
    INFO,
    MUTED,
    PAUSED,
    SENTENCE,
    WAITING,
    WARN,
    Row,
    Span,
    Times,
    age,
    calm_age,
    ended_how,
    in_zone,
    pad,
    remarks,
    wall_clock,
    width_of,
)
from tui.views.table import AGES_EVERY, Column, chosen_columns, filtered, heads, ordered, row_cells

# ---- an alert in short texts, the sender of notifications, and the alerts of the run, job, node or disk o ------------

SIGNS: Mapping[Severity, tuple[str, str, str]] = {
    "critical": (CRIT, "CRIT", "crit"),
    "warning": (WARN, "WARN", "warn"),
    "info": (INFO, "INFO", "accent"),
}
"""Of each severity its symbol, its word and its style."""

AlertStatus = Literal["open", "recovering", "acknowledged", "muted", "inhibited", "pending", "over"]
STATUSES: tuple[AlertStatus, ...] = ("open", "recovering", "acknowledged", "muted", "inhibited", "pending", "over")
"""What a person has to do, the most urgent first. `open` is firing and not acknowledged; `recovering`: the condition
is false, and the alert resolves if it stays false."""


def status_of(alert: Alert, now: Instant) -> AlertStatus:
    """What a person has to do. An acknowledged event is over."""
    return (
        "over"
        if not alert.is_open or (alert.event and alert.acknowledged_by is not None)
        else "pending"
        if not alert.is_firing
        else "inhibited"
        if alert.inhibited_by is not None
        else "muted"
        if is_muted(alert, now)
        else "acknowledged"
        if alert.acknowledged_by is not None
        else "open"
        if alert.phase == "firing"
        else "recovering"
    )


def is_muted(alert: Alert, now: Instant) -> bool:
    return alert.muted_until is not None and alert.muted_until > now


def urgent(alerts: Iterable[Alert], now: Instant) -> list[Alert]:
    """The alerts that need a person now: the most severe first, then the oldest."""
    return sorted((one for one in alerts if one.severity != "info" and status_of(one, now) == "open"), key=worst_first)


Found = TypeVar("Found")


def with_times(state: State, last: list[Mapping[str, Alert]]) -> State:
    """The State with the summaries of its alerts in the zone of the screens. `last`: the alerts that were given, and
    those that came back."""
    if Times.zone is not UTC and (not last or last[0] is not state.alerts):
        alerts = {name: replace(one, summary=in_zone(one.summary, one.found_at)) for name, one in state.alerts.items()}
        last[:] = [state.alerts, alerts]
    return state if Times.zone is UTC else replace(state, alerts=last[1])


def once_per_state(compute: Callable[[State], Found]) -> Callable[[State], Found]:
    """Compute it only if the alerts or the time differ from the last call: several panes need it in one paint."""
    last: list[tuple[Mapping[str, Alert], Instant, Found]] = []

    def computed(state: State) -> Found:
        if not last or last[0][0] is not state.alerts or last[0][1] != state.at:
            last[:] = [(state.alerts, state.at, compute(state))]
        return last[0][2]

    return computed


@once_per_state
def most_urgent(state: State) -> tuple[Alert, ...]:
    """The urgent alerts of a State."""
    return tuple(urgent(state.alerts.values(), state.at))


SETTLED: Seconds = 10.0
"""How long a condition must have held before it moves the panes: a blip must not."""


@once_per_state
def awaited(state: State) -> tuple[Alert, ...]:
    """The alerts that a person should look at: the urgent ones, then those that are pending for a while."""
    held = (one for one in pending(state) if state.at - one.since >= SETTLED)
    return *most_urgent(state), *sorted(held, key=worst_first)


def pending(state: State) -> list[Alert]:
    """The alerts whose condition has begun, and that are not sent yet."""
    return [
        one
        for one in state.alerts.values()
        if one.severity != "info" and one.phase == "pending" and not is_muted(one, state.at)
    ]


def sign(alert: Alert, now: Instant) -> Span:
    """Its symbol. Resolved, recovering and pending alerts have their own."""
    symbol, _, style = SIGNS[alert.severity]
    if alert.phase == "resolved":
        return Span(DONE, "dim" if alert.event or alert.ended not in (None, "over") else "ok")
    if alert.phase == "pending":
        return Span(WAITING, "dim")
    return Span(PAUSED, style) if alert.phase == "recovering" else Span(symbol, severity(alert, now).style)


def severity(alert: Alert, now: Instant) -> Span:
    """`CRIT`: the severity as a word."""
    _, word, style = SIGNS[alert.severity]
    return Span(word, style if status_of(alert, now) == "open" else "dim")


# ---- deliveries ------------------------------------------------------------------------------------------------------

DELIVERY: Mapping[str, tuple[str, str]] = {
    "dead": ("dead", "crit"),
    "retrying": ("retrying", "warn"),
    "waiting": ("queued", ""),
    "sending": ("sending", ""),
    "sent": ("sent", "ok"),
    "merged": ("sent", "ok"),
    "stopped": ("not sent", "dim"),
}
"""The text and style of each delivery state, the worst first."""


def delivered(one: Delivery, now: Instant) -> Span:
    """`sent ntfy 14:02:11`; `sent ntfy Sep 21 14:02` after half a day, in the zone of the header."""
    word, style = DELIVERY[one.state]
    time = wall_clock(one.at).strftime("%H:%M:%S" if now - one.at < 43_200 else "%b %d %H:%M")
    return Span(clean(f"{word} {one.channel} {time}", 80), style)


def worst_delivery_first(alert: Alert) -> list[Delivery]:
    order = list(DELIVERY)
    return sorted(alert.delivery, key=lambda one: (order.index(one.state), -one.at))


# ---- the sender ------------------------------------------------------------------------------------------------------

STUCK_AFTER = 60.0
"""A sender whose loop has not run for this long counts as stopped."""


def sender_text(leader: Leadership, now: Instant) -> Span:
    """`sent here`, `bastion 9s ok`, `not sent`: which program sends notifications, and whether its loop runs."""
    if leader.holder == "daemon" and leader.at is None:
        return Span(clean(f"asking {leader.where}", 32))
    if leader.holder == "nobody":
        return Span("not sent", "warn")
    is_here = leader.holder == "us"
    name = clean("here" if is_here else leader.where or leader.holder, 24)
    passed = 0.0 if leader.at is None else max(0.0, now - leader.at)
    if passed >= STUCK_AFTER:
        return Span(f"{name} late {calm_age(passed)}", "crit")
    if is_here:
        return Span("sent here!", "warn") if leader.problem else Span("sent here")
    age = "" if leader.at is None else f" {calm_age(passed - passed % 5)}"
    return Span(f"{name}{age} {'!' if leader.problem else 'ok'}", "warn" if leader.problem else "")


def sender(state: State) -> Span:
    """The sender of a State. Without a channel the leader sends nothing."""
    found = sender_text(state.leadership, state.at)
    if has_no_channel(state) and found.style != "crit":
        return Span("no channel", "warn" if urgent_counts(state) else "")
    return found


def has_no_channel(state: State) -> bool:
    """Whether the leader has no channel and sends nothing. Another program's channels come with its note."""
    leader = state.leadership
    return not state.channels and (leader.holder == "us" or (leader.holder == "other" and leader.at is not None))


def broken_channels(channels: Iterable[Channel]) -> list[Channel]:
    """The broken channels."""
    return [one for one in channels if one.state == "broken"]


TROUBLED = SILENT | {"diverged"}

ONLY_SHOWS = "this program only shows alerts and rings the bell"


def sender_sentence(state: State) -> str:
    """The sender and its channels in a sentence."""
    leader, names = state.leadership, [f"{one.name} ({one.type})" for one in state.channels.values()]
    by = f" by {', '.join(names)}" if names else ""
    who = "this program" if leader.holder == "us" else f"the leader ({leader.where})"
    texts = {
        "nobody": "No notifications are sent. Alerts are only shown here",
        "us": f"This program sends notifications{by}",
        "other": f"Another program on this machine ({leader.where}) sends notifications{by}",
        "daemon": f"The daemon on {leader.where} sends notifications{by}; {ONLY_SHOWS}",
    }
    is_silent = has_no_channel(state)
    text = f"No notifications are sent: {who} has no [[notify]] in its config" if is_silent else texts[leader.holder]
    return clean(text + (f". {leader.problem}" if leader.problem else ""), 400)


def calm_sentence(state: State) -> tuple[str, str]:
    """That nothing fires, as far as the rules can know, and the style of this sentence."""
    odd = [one for one in state.runs.values() if one.verdict in TROUBLED]
    names = listed([clean(f"{one.name} is {verdict_text(one.verdict)}") for one in odd], most=2)
    silent = sum(source.answered_at is None and source.health != "off" for source in state.sources.values())
    choices = (
        (state.evaluated_at is None, "The rules have not been evaluated yet.", "dim"),
        (bool(odd), f"No alert is firing, although {names}.", "warn"),
        (bool(silent), f"No alert is firing. No answer yet from {counted(silent, 'source')}.", "dim"),
        (True, "No alert is firing.", "ok"),
    )
    return next((text, style) for applies, text, style in choices if applies)


# ---- silences ------------------------------------------------------------------------------------------------------


def silence_text(silence: Silence) -> str:
    """`rule gpu-hot on gpu:gpu-003/5`: what a silence matches."""
    parts = (("on", silence.subject), ("of run", silence.run), ("on node", silence.node))
    rule = f"rule {silence.rule}" if silence.rule else "everything"
    return clean(" ".join([rule, *(f"{word} {name}" for word, name in parts if name)]), 200)


def silences(state: State) -> list[Silence]:
    """The active silences, by their end."""
    found = [one for one in state.silences.values() if one.ended_at is None and one.until > state.at]
    return sorted(found, key=lambda one: (one.until, one.id))


# ---- counts ----------------------------------------------------------------------------------------------------------


def urgent_counts(state: State) -> tuple[Span, ...]:
    """`2 CRIT`, `1 WARN`: the number of urgent alerts by severity."""
    found = most_urgent(state)
    counts = [(level, sum(one.severity == level for one in found)) for level in SEVERITIES[:2]]
    return tuple(Span(f"{number} {SIGNS[level][1]}", SIGNS[level][2]) for level, number in counts if number)


def pending_count(state: State) -> tuple[Span, ...]:
    """`1 pending alert`: their number. Beside those of urgent alerts, the noun is left out."""
    if not (found := pending(state)):
        return ()
    return (Span(f"{len(found)} pending" if most_urgent(state) else counted(len(found), "pending alert"), "warn"),)


def open_counts(state: State) -> str:
    """`2 critical  1 warning  3 acknowledged`: all open alerts, for a title."""
    open_ones = [(one.severity, status_of(one, state.at)) for one in state.alerts.values()]
    counts = Counter[str](level if stands == "open" else stands for level, stands in open_ones if stands != "over")
    return "  ".join(f"{counts[name]} {name}" for name in (*SEVERITIES, *STATUSES[1:-1]) if counts[name]) or "none"


# ---- alerts of rows --------------------------------------------------------------------------------------------------

TAKEN = ("open", "recovering", "acknowledged", "muted")
"""Alerts that a person may acknowledge or mute from a row: neither inhibited nor pending ones."""


def disk_of(alert: Alert) -> str | None:
    """The key of the disk that an alert is about."""
    return alert.subject.removeprefix("disk:").partition(" ")[0] if alert.subject.startswith("disk:") else None


def alerts_about(
    state: State, *, runs: Collection[str] = (), nodes: Collection[str] = (), disks: Collection[str] = ()
) -> tuple[str, ...]:
    """The ids of the firing alerts of these runs, nodes and disks (`login1:/tmp`), the worst first. Acknowledged and
    muted ones are among them."""
    found = [
        one
        for one in state.alerts.values()
        if one.severity != "info"
        and status_of(one, state.at) in TAKEN
        and (one.run in runs or one.node in nodes or disk_of(one) in disks)
    ]
    first = {one.id: rank for rank, one in enumerate(urgent(found, state.at))}
    return tuple(one.id for one in sorted(found, key=lambda one: (first.get(one.id, len(first)), one.since, one.id)))


def alerts_about_subjects(state: State, subjects: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """The same of the subjects of rows: runs, jobs (by their run) and nodes."""
    jobs = {name for kind, name in subjects if kind == "job"}
    runs = {name for kind, name in subjects if kind == "run"} | {n for n, run in state.runs.items() if run.job in jobs}
    return alerts_about(state, runs=runs, nodes={name for kind, name in subjects if kind == "node"})


def marking(state: State, run: str) -> Alert | None:
    """The alert behind the mark of a run's row: the worst one that nobody has taken care of."""
    found = [
        one
        for one in state.alerts.values()
        if one.run == run
        and one.severity != "info"
        and not is_muted(one, state.at)
        and status_of(one, state.at) in UNSETTLED
    ]
    return min(found, key=lambda one: (status_of(one, state.at) == "pending", worst_first(one)), default=None)


# ---- how serious the open alerts of a row are ------------------------------------------------------------------------


class Concern(IntEnum):
    """The worst open alert of a row, the worst first. A pending alert has begun and is not sent yet."""

    CRITICAL = 0
    WARNING = 1
    PENDING = 2
    NONE = 3


STYLES: Mapping[Concern, str] = {Concern.CRITICAL: "crit", Concern.WARNING: "warn", Concern.PENDING: "warn"}


class Concerns(NamedTuple):
    """The concern of each run, node and disk that has one."""

    runs: dict[str, Concern]
    nodes: dict[str, Concern]
    disks: dict[str, Concern]
    """By Disk.key."""
    rules: dict[str, Concern]
    """By `rule_key`."""


def rule_key(run: str, rule: str) -> str:
    return f"{rule} {run}"


UNSETTLED: Collection[AlertStatus] = ("open", "pending")
"""Alerts that nobody has taken care of: they mark their rows."""

PRESENT: Collection[AlertStatus] = (*UNSETTLED, "recovering", "acknowledged", "inhibited")
"""Alerts whose condition holds: they move their rows up."""


def _of_statuses(statuses: Collection[AlertStatus], state: State) -> Concerns:
    """The concerns by unmuted alerts of these statuses."""
    found = Concerns({}, {}, {}, {})
    for one in state.alerts.values():
        if one.severity == "info" or is_muted(one, state.at):
            continue
        if (status := status_of(one, state.at)) in statuses:
            concern = Concern.PENDING if status == "pending" else Concern(SEVERITIES.index(one.severity))
            keys = (one.run, one.node, disk_of(one), one.run and rule_key(one.run, one.rule))
            for known, key in zip(found, keys, strict=True):
                if key is not None:
                    known[key] = min(concern, known.get(key, concern))
    return found


alert_marks = once_per_state(partial(_of_statuses, UNSETTLED))
alert_ranks = once_per_state(partial(_of_statuses, PRESENT))


def with_mark(row: Row, concern: Concern | None) -> Row:
    """The row with its mark in place of the blank after its sign. The sign of a marked row is never green."""
    return row if concern is None or concern not in STYLES else Row(row.key, partial(_marked, row, STYLES[concern]))


def _marked(row: Row, style: str) -> tuple[Span, ...]:
    if not row.spans or len(row.spans[0].text) != 2:
        return row.spans
    first, *rest = row.spans
    return (Span(first.text[0], style if first.style == "ok" else first.style), Span("!", style), *rest)


# ---- `5 Alerts` as rows ----------------------------------------------------------------------------------------------

SILENCE = "silence:"
"""The prefix of the keys of silences. An alert's key is its id."""

SHOWN = 200
"""The most open alerts that have a row; the others are counted. Each row costs 0.1 ms."""

OVER = 100
"""The same of alerts that ended."""

SIGN, WORD, SINCE = 2, 5, 5
WIDE, WIDER = 72, 104
LEAST_SUMMARY, LINES, MOST_LINES = 16, 3, 9
"""Cells of a summary that can be wrapped, and its most lines: where rows are short of room, and where they are not."""


TO_DO = "what to do: "

COMMAND = re.compile(r"(\b[A-Z] [a-z][^:;()]*): trainmon-tui [^;)]*[^;).]")
"""A command behind the key that does the same: `C cancels its job: trainmon-tui cancel llm`."""


def to_do(alert: Alert) -> str:
    """What to do about an alert, in the keys of the screen; empty if nothing is known."""
    return TO_DO + COMMAND.sub(r"\1", clean(instruction(alert.advice))) if alert.advice else ""


@lru_cache(2 * SHOWN)  # an age in one of the rows lays them all out again
def lines_of(text: str, width: int, indent: int = 0) -> tuple[str, ...]:
    """A text as lines, the first one behind an indent."""
    return tuple(textwrap.wrap(text, width, initial_indent=" " * indent))


def sentence_lines(text: str, width: int, most: int, aside: int = 0) -> list[str]:
    """A sentence as at most so many lines, the first behind `aside` blanks. It ends with a whole part if that leaves
    no line empty."""
    lines = lines_of(text, width, aside)
    while len(lines) > most and len(fewer := lines_of(text := text.rpartition("; ")[0], width, aside)) >= max(1, most):
        lines = fewer
    cut = [shorten_sentence(" ".join(lines[most - 1 :]), width)] if len(lines) > most > 0 else []
    return [*lines[: max(0, most - len(cut))], *cut]


class AlertLayout(NamedTuple):
    """The cells of a line, and of the deliveries and remarks at its end."""

    width: int
    end: int
    """`sent ntfy 14:02:11  ack ana`."""
    columns: tuple[Column[Alert, Instant], ...] = ()
    """Those that a person chose in place of the others. They leave one line for the summary."""
    lines: int = LINES
    """The most lines of a summary."""
    over: bool = False
    """Whether alerts that are over have as many lines, not one."""
    advice: int = 0
    """Of how many alerts, the first ones, the summary has as many lines as it needs, and what to do stands below it if
    nobody has taken care of them."""

    @property
    def word(self) -> int:
        """Cells of `CRIT`; in a narrow pane the sign says it."""
        return WORD if self.width >= WIDE else 0

    @property
    def summary(self) -> int:
        return max(1, self.width - SIGN - self.word - SINCE - self.end)

    def advises(self, alert: Alert, now: Instant) -> bool:
        """Whether its rows say what to do."""
        has_room = self.advice > 0 and not self.columns and self.summary >= LEAST_SUMMARY
        return has_room and bool(alert.advice) and status_of(alert, now) in UNSETTLED

    def wrapped(self, text: str) -> list[str]:
        """A summary as lines: the first beside the deliveries, the others also below them."""
        if self.lines == 1 or self.summary < LEAST_SUMMARY:
            return [shorten_sentence(text, self.summary - 1)]
        space = self.summary + self.end - 1
        first, *rest = sentence_lines(text, space, self.lines, self.end) or [""]
        return [shorten(first[self.end :], self.summary - 1), *(shorten(line, space) for line in rest)]


def alert_layout(width: int, chosen: Sequence[str] = ()) -> AlertLayout:
    if columns := chosen_columns(ALERT_FIELDS, chosen, width, LEAST_SUMMARY):
        return AlertLayout(width, 0, columns)
    if width >= WIDER:
        return AlertLayout(width, min(56, width * 2 // 5), lines=1)
    return AlertLayout(width, 23 if width >= WIDE else max(0, min(12, width - SIGN - SINCE - 8)))


def alert_head(shape: AlertLayout, sort: str = "") -> tuple[Span, ...]:
    if shape.columns:
        return (Span(f"  {heads(shape.columns, sort)} {SUMMARY.headed(sort)}", "head"),)
    end = shorten("SENT, ACK" if shape.end > 12 else "SENT", shape.end)
    names = SEVERITY.headed(sort).ljust(shape.word)[: shape.word] + HELD.headed(sort).rjust(SINCE - 1).ljust(SINCE)
    return (Span(f"  {names}{SUMMARY.headed(sort):<{shape.summary}}{end}", "head"),)


def rows(alert: Alert, state: State, shape: AlertLayout) -> list[Row]:
    """One alert: a row, and below it what its summary needs. One that is over has one line."""
    text, style = clean(alert.summary), "" if status_of(alert, state.at) == "open" else "dim"
    if shape.columns:
        symbol, cells = sign(alert, state.at), row_cells(shape.columns, alert, state.at, style)
        rest = Span(" " + shorten_sentence(text, shape.width - SIGN - 1 - width_of(cells)), style)
        return [Row(alert.id, (Span(symbol.text + " ", symbol.style), *cells, rest))]
    over = status_of(alert, state.at) == "over" and not shape.over
    first, *more = [shorten_sentence(text, shape.summary - 1)] if over else shape.wrapped(text)
    if shape.advises(alert, state.at):
        more += lines_of(to_do(alert), shape.summary + shape.end - 1)
    indent = Span(" " * (SIGN + shape.word + SINCE))
    below = (Row(f"{HEADING}{alert.id}:{at}", (indent, Span(line, style))) for at, line in enumerate(more))
    return [Row(alert.id, partial(first_line, alert, first, state, shape)), *below]


def first_line(alert: Alert, text: str, state: State, shape: AlertLayout) -> tuple[Span, ...]:
    """The first line of an alert, with this part of its summary."""
    now, symbol, word = state.at, sign(alert, state.at), severity(alert, state.at)
    since = age((now if alert.event else alert.resolved_at or now) - alert.since)
    style = "" if status_of(alert, now) == "open" else "dim"
    return (
        Span(symbol.text + " ", symbol.style),
        Span(pad(word.text, WORD)[: shape.word], word.style),
        Span(f"{since:>{SINCE - 1}} ", style),
        *summary(alert, text, shape.summary, style),
        *end(alert, state, shape.end),
    )


EVIDENCE = 24
"""Cells that must be left beside the summary to show the newest line of evidence there."""


def summary(alert: Alert, text: str, width: int, style: str) -> tuple[Span, ...]:
    """The first line of the summary, and the newest evidence if there is room for it."""
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
    """`◇ muted 43m left  rule gpu-hot on gpu:gpu-003/5  by ana: in repair`."""
    by = "maintenance window of trainmon.toml" if silence.window else f"by {silence.by}"
    left = f"{ago(silence.until - now):>6} left  "
    text = clean(f"{silence_text(silence)}  {by}" + (f": {silence.why}" if silence.why else ""))
    return Row(SILENCE + silence.id, (Span(f"{MUTED} ", "accent"), Span(left),
                                      Span(shorten(text, width - SIGN - cell_width(left)), "dim")))  # fmt: skip


# ---- all of them -----------------------------------------------------------------------------------------------------

SEVERITY = Column[Alert, Instant]("severity", lambda one, _: (one.severity,), head="SEV")
HELD = Column[Alert, Instant](
    "held", lambda one, now: ((now if one.event else one.resolved_at or now) - one.since,), "s", upwards=True,
    head="HELD",
)  # fmt: skip
SUMMARY = Column[Alert, Instant]("summary", lambda one, _: (one.summary,), head="SUMMARY")

ALERT_FIELDS: tuple[Column[Alert, Instant], ...] = (
    SEVERITY,
    Column("status", lambda one, now: (status_of(one, now), one.phase)),
    # known by its whole name
    Column("rule", lambda one, _: (one.rule,), width=23, left=True, head="RULE",
           cell=lambda one, _: Span(shorten(clean(one.rule), 22))),
    Column("run", lambda one, _: (one.run,)),
    Column("node", lambda one, _: (one.node,)),
    Column("subject", lambda one, _: (one.subject,)),
    HELD,
    Column("fired", lambda one, now: (now - (one.fired_at or one.since),), "s", upwards=True),
    SUMMARY,
    Column("ack", lambda one, _: (one.acknowledged_by,)),
    Column("channel", lambda one, _: (f"{sent.channel} {sent.state}" for sent in one.delivery)),
    Column("cluster", lambda one, _: (one.cluster,)),
    Column("data", lambda one, _: (one.data,)),
    Column("id", lambda one, _: (one.id,)),
)  # fmt: skip
"""What alerts are filtered and sorted by."""


def worst_first(alert: Alert) -> tuple[int, Instant, str]:
    """The most severe alert, then the oldest."""
    return SEVERITIES.index(alert.severity), alert.fired_at or alert.since, alert.id


def open_alerts(state: State, sort: str, query: str = "") -> list[Alert]:
    """The open alerts that match a filter: by what a person has to do, then by a field, else the worst first."""
    found = sorted(filtered(state.alerts.values(), query, ALERT_FIELDS, state.at), key=worst_first)
    statuses = {one.id: STATUSES.index(status_of(one, state.at)) for one in found}
    by_field = ordered(found, sort, ALERT_FIELDS, state.at)
    return sorted((one for one in by_field if STATUSES[statuses[one.id]] != "over"), key=lambda one: statuses[one.id])


def ended_alerts(state: State, query: str = "") -> list[Alert]:
    """The alerts that ended within the last day, and acknowledged events; the latest first."""
    matching = filtered(state.alerts.values(), query, ALERT_FIELDS, state.at)
    found = [one for one in matching if one.fired_at is not None and status_of(one, state.at) == "over"]
    return sorted(found, key=lambda one: (-(one.resolved_at or one.since), one.id))


ENDED = "LAST 24 HOURS"


def alert_rows(state: State, shape: AlertLayout, sort: str = "worst", query: str = "") -> list[Row]:
    """The whole pane; empty if there is nothing to show."""
    firing, ended, muted = open_alerts(state, sort, query), ended_alerts(state, query), [] if query else silences(state)
    told, plain = shape._replace(lines=MOST_LINES), shape._replace(advice=0)
    shapes = (told if at < shape.advice else plain for at in range(SHOWN))
    found = [line for one, each in zip(firing, shapes, strict=False) for line in rows(one, state, each)]
    if len(firing) > SHOWN:
        found.append(
            Row(f"{SENTENCE}more", (Span(f"and {len(firing) - SHOWN:,} more; {cap('view.filter')} filters", "warn"),))
        )
    if not found and (muted or ended):
        text, style = ("No firing alert matches.", "ok") if query else calm_sentence(state)
        found.append(Row(f"{SENTENCE}none", (Span(shorten(text, shape.width), style),)))
    sections = (
        (f"MUTED ({cap('alerts.mute')} on a row unmutes)", [silence_row(one, state.at, shape.width) for one in muted]),
        (ENDED, [line for one in ended[:OVER] for line in rows(one, state, shape)]),
    )
    for title, lines in sections:
        if lines:
            found += [Row(HEADING + title, (Span(shorten(f"  {title}", shape.width), "head"),)), *lines]
    return found


FEW = 20
"""So many open alerts are laid out again as soon as a text has changed, so that no other pane tells another age; more
of them with the ages."""


class AlertRows:
    """Keeps the rows until an alert, the size or an age has changed."""

    def __init__(self) -> None:
        self._state = State()
        self._key: tuple[object, ...] = ()
        self._rows: Sequence[Row] = ()
        self.shape = alert_layout(0)
        self.wanted = 0
        """How many rows show every summary of an open alert in full, and of the first one what to do; fewer where the
        screen has not even a row for each alert."""

    def rows(
        self,
        state: State,
        size: tuple[int, int],
        sort: str,
        query: str,
        chosen: tuple[str, ...] = (),
        screen: float = inf,
    ) -> Sequence[Row]:
        """The rows, with as many lines of each summary as there is room for. `screen`: the rows of the whole screen."""
        last, self._state = self._state, state
        settings = (state.at // AGES_EVERY, size, sort, query, chosen, screen)
        is_same = last.alerts is state.alerts and last.silences is state.silences
        if not is_same or self._key[1:] != settings:
            are_few = sum(one.is_open for one in state.alerts.values()) <= FEW
            alerts = tuple(
                (one.id, one.phase, one.severity, one.data, one.acknowledged_by, one.muted_until, one.inhibited_by,
                 one.flapping, one.delivery, one.summary if are_few else "")
                for one in state.alerts.values()
            )  # fmt: skip
            key = ((alerts, tuple(silences(state))), *settings)
            if key != self._key:
                self._key = key
                self._lay_out(state, size, sort, query, chosen, screen)
        return self._rows

    def _lay_out(
        self, state: State, size: tuple[int, int], sort: str, query: str, chosen: tuple[str, ...], screen: float
    ) -> None:
        usual = alert_layout(size[0], chosen)
        least = usual._replace(advice=1)
        first, each = (usual._replace(lines=MOST_LINES, advice=most) for most in (1, SHOWN))
        shown = min(SHOWN, len(open_alerts(state, sort, query)))
        self.wanted = shown if shown >= screen else len(alert_rows(state, first, sort, query))
        has_room = shown <= size[1]  # for a row of each
        more = (each._replace(over=True), each, first, least._replace(lines=LINES))
        for self.shape in (*(more if has_room else ()), least):
            self._rows = alert_rows(state, self.shape, sort, query)
            keys = [*(row.key for row in self._rows), HEADING + ENDED]
            if (len(self._rows) if self.shape.over else keys.index(HEADING + ENDED)) <= size[1]:
                return
