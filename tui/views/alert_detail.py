"""One alert in full, the moment of an alert or a spike, and the choices of mutes. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Literal, NamedTuple

from trainmon.analysis.attempts import places_shown
from trainmon.analysis.runs import trouble_of
from trainmon.lib import (
    DAY,
    DURATION_UNITS,
    Instant,
    Seconds,
    ago,
    clean,
    counted,
    instruction,
    listed,
    ordinal,
    shorten,
)
from trainmon.model import Alert, Log, Points, Run, Silence, State
from tui.keys import cap
from tui.style import Line, Link, Linked, Span, calm_age, count, duration, ended_how, sentence
from tui.views.alerts import (
    DELIVERY,
    SIGNS,
    STATUSES,
    delivered,
    is_muted,
    sender_sentence,
    severity,
    sign,
    silence_text,
    silences,
    status_of,
    worst_delivery_first,
    worst_first,
)
from tui.views.job_detail import time_and_age
from tui.views.table import LABEL, apart, fact, link_label, linked_fact, more_fact, optional_fact, safe, wrapped_fact

# ---- one alert in full, as lines -------------------------------------------------------------------------------------

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
    title = (Span(f"{symbol} {word}  ", f"{style} bold"), Span(clean(f"{phase}  {alert.rule}"), "bold"))
    stale = f"The data of this alert is stale: {safe(alert.data_why or 'its source is late')}."
    stale += " The alert keeps its state until new data arrives."
    is_stale = alert.data != "ok" and alert.is_open
    yield from apart(
        (title, *sentence(safe(alert.summary), width), *(sentence(stale, width, "warn") if is_stale else ())),
        *([optional_fact("what to do", instruction(alert.advice), width, "accent")] if alert.advice else []),
        (*related(alert, state, width), *times(alert, state.at, width)),
        acknowledgement(alert, state, width),
        notifications(alert, state, width),
        evidence(alert, state.at, width),
    )


def evidence(alert: Alert, now: Instant, width: int) -> Iterator[Line]:
    """The lines that show it, and when they were found if that is over."""
    is_present = alert.phase in ("pending", "firing") and alert.data == "ok"
    if alert.evidence:
        yield (Span("evidence" if is_present else f"evidence, {time_and_age(alert.found_at, now)}", "dim"),)
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
    for place in places_shown((alert.summary, *alert.evidence, *alert.cause)):
        if place.node in state.nodes:
            yield linked_fact("rank", Link("node", place.link), str(place), width)
    hidden = [one for one in state.alerts.values() if one.inhibited_by == alert.id and one.is_open]
    for index, one in enumerate(hidden[:HIDDEN_SHOWN]):
        yield linked_fact("" if index else "inhibits", Link("alert", one.id), f"{one.rule}: {one.summary}", width)
    yield from more_fact(len(hidden) - HIDDEN_SHOWN, width)
    yield fact("subject", safe(alert.subject), width)


def rules_of(run: str, state: State, width: int) -> Iterator[Line]:
    """The rules of the firing alerts of a run, beside a pane that has their texts."""
    names = dict.fromkeys(one.rule for one in state.alerts.values() if one.run == run and one.is_firing)
    return optional_fact("alerts", ", ".join(names), width, "warn")


def alerts_of(name: str, state: State, width: int, of: Literal["run", "node"] = "run") -> Iterator[Line | Linked]:
    """Links to the firing alerts of a run or a node, the worst first."""
    firing = [one for one in state.alerts.values() if getattr(one, of) == name and one.is_firing]
    firing.sort(key=lambda one: (STATUSES.index(status_of(one, state.at)), *worst_first(one)))
    for index, one in enumerate(firing[:FIRING_SHOWN]):
        word, style = severity(one, state.at)
        text = Span(shorten(safe(f"{one.rule}: {one.summary}"), width - LABEL - 7), "accent")
        mark = Span(f"{sign(one, state.at).text} {word} ", style)
        yield Linked(Link("alert", one.id), (*link_label("" if index else "alerts"), mark, text))
    yield from more_fact(len(firing) - FIRING_SHOWN, width, ": pane 5 lists all")


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
        yield fact(
            "acknowledged",
            f"no; press {cap('alerts.ack')} to acknowledge it",
            width,
            "warn" if alert.severity != "info" else "",
        )
    if is_muted(alert, now):
        why = f": {alert.muted_why}" if alert.muted_why else ""
        yield fact("muted", clean(f"for {ago((alert.muted_until or now) - now)} more{why}"), width, "accent")
        for one in (one for one in silences(state) if one.covers(alert)):
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
        (alert.flapping, "not sent: it flaps; the next notification comes when it is stable"),
        (alert.notified_at is None, "not sent: it waits for its group, or no channel is set up for such alerts"),
    )
    queued_for = "" if alert.notified_at is None else calm_age(max(0.0, state.at - alert.notified_at))
    otherwise = f"queued {queued_for} ago; no channel has answered yet"
    return next((reason for applies, reason in reasons if applies), otherwise)


# ---- the moment of an alert or a spike -------------------------------------------------------------------------------

STEP = re.compile(r"\bat step ([\d,]+)|\bsince step ([\d,]+)")
"""Where a summary of a rule names the step at which it began."""


NEAR, LARGE = 50, 1_000
"""Steps between two lines of a trainer; from which on a number of a line is hardly anything but a step."""


class Moment(NamedTuple):
    """A time in the life of a run, and what happened then."""

    run: str
    at: Instant
    text: str
    step: int | None = None
    evidence: tuple[str, ...] = ()
    """Lines of the log that an alert has kept, newest last."""
    metric: str = ""
    """The metric whose chart it was opened from."""


def moment_of_alert(name: str, state: State) -> Moment | None:
    """The beginning of an alert about a run, by the alert's id."""
    alert = state.alerts.get(name)
    if alert is None or alert.run is None or alert.run not in state.runs:
        return None
    named = STEP.search(alert.summary)
    step = None if named is None else int((named[1] or named[2]).replace(",", "") or 0)
    return Moment(alert.run, alert.since, clean(f"{alert.rule}: {alert.summary}"), step, alert.evidence)


def moment_of_run(run: Run, state: State) -> Moment | None:
    """The beginning of its worst open alert, or its spike."""
    alerts = [one for one in state.alerts.values() if one.run == run.name and one.severity != "info" and one.is_open]
    for alert in sorted(alerts, key=lambda one: (status_of(one, state.at) == "pending", *worst_first(one))):
        return moment_of_alert(alert.id, state)
    spike = trouble_of(run, "spike") or trouble_of(run, "nan")
    if spike is None:
        return None
    text = clean(f"the {spike.key} was {spike.value:.4g} at step {count(int(spike.step))}")
    return Moment(run.name, spike.at, text, int(spike.step))


def log_line(moment: Moment, run: Run) -> int | None:
    """The number of the log line of that moment: the line of its step, or without one the last line of the evidence;
    None if the last lines do not have it."""
    log = run.log
    if log is None:
        return None
    found = line_of_step(log, step_of(moment, run), is_earlier=moment.at < (run.memory.back_at or 0.0))
    if found is None and moment.step is None:
        kept_at = ((line, at) for line in reversed(moment.evidence) for at in reversed(range(len(log.lines))))
        found = next((at for line, at in kept_at if line and log.lines[at].startswith(line)), None)
    return None if found is None else log.first + found


def step_of(moment: Moment, run: Run) -> int | None:
    """The step of that moment: by its alert, or by the usual time of a step."""
    progress = run.progress
    usual = progress.step_time_s or progress.cadence_s
    if moment.step is not None or progress.step is None or progress.at is None or not usual:
        return moment.step
    return round(progress.step - max(0.0, progress.at - moment.at) / usual)


def line_of_step(log: Log, step: int | None, *, is_earlier: bool) -> int | None:
    """The index of the line with the nearest step. A restart repeats steps: `is_earlier` takes the line before it."""
    if step is None or step <= 0:
        return None
    said = enumerate(log.numbers, start=len(log.lines) - len(log.numbers))
    steps = [(index, one.step) for index, one in said if one is not None and one.step is not None]
    if not steps:
        return line_with_number(log.lines, step, is_earlier=is_earlier)
    numbers = [number for _, number in steps]
    usual = median(abs(later - one) for one, later in pairwise(numbers)) if len(numbers) > 1 else 0
    if step < min(numbers) - usual or (is_earlier and step > max(numbers) + usual):
        return None
    _, index = min((abs(number - step), index if is_earlier else -index) for index, number in steps)
    return abs(index)


def line_with_number(lines: Sequence[str], step: int, *, is_earlier: bool) -> int | None:
    """The index of the line that has this number; of a large one, also a number near it: not every step has a line."""
    for near in sorted(
        range(step - NEAR, step + NEAR + 1) if step >= LARGE else (step,), key=lambda one: abs(one - step)
    ):
        wanted = re.compile(rf"(?<![\d.,])(?<!\d[:/-])0*(?:{near}|{near:,})(?![\d:]|[.,/-]\d)")
        order = range(len(lines)) if is_earlier else range(len(lines) - 1, -1, -1)
        found = next((index for index in order if wanted.search(lines[index])), None)
        if found is not None:
            return found
    return None


def moment_of_curve(run: str, metric: str, points: Points) -> Moment | None:
    """The point of a curve that is no number, or else the one that is farthest from its median."""
    finite = [value for value in points.values if math.isfinite(value)]
    if len(points.values) < 2:
        return None
    odd = next((index for index, value in enumerate(points.values) if not math.isfinite(value)), None)
    middle = median(finite) if finite else math.nan
    index = max(range(len(finite)), key=lambda i: abs(finite[i] - middle)) if odd is None else odd
    value, step = points.values[index], int(points.steps[index])
    text = clean(f"{metric} was {value:.4g} at step {count(step)}")
    text += "" if odd is not None else f", the farthest from its median of {middle:.4g} in the chart"
    return Moment(run, points.times[index], text, step, metric=metric)


# ---- the choices of `m` ----------------------------------------------------------------------------------------------

USUAL = "1h"
LONGEST: Seconds = 30 * DAY
"""People forget longer silences. Such a rule should be disabled in trainmon.toml."""

_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])")


class Choice(NamedTuple):
    """One choice: its key, its text, and the matchers of its silences."""

    key: str
    text: str
    matchers: tuple[dict[str, str], ...]


def choices(alerts: Sequence[Alert]) -> tuple[Choice, ...]:
    """The choices, the narrowest first: these alerts, their rules, subjects, nodes, runs."""
    rules = list(dict.fromkeys(one.rule for one in alerts))
    subjects = list(dict.fromkeys(one.subject for one in alerts))
    nodes = list(dict.fromkeys(one.node for one in alerts if one.node))
    runs = list(dict.fromkeys(one.run for one in alerts if one.run))
    is_other = not set(subjects) <= {f"run:{run}" for run in runs} | {f"node:{node}" for node in nodes}
    offered = (
        ("rule", "rule {}, on every run, node and disk", rules),
        ("subject", "all alerts on {}", subjects if is_other else []),
        ("node", "all alerts on node {}", nodes),
        ("run", "all alerts of run {}", runs),
    )
    first = f"{rules[0]} on {subjects[0]}" if len(alerts) == 1 else f"these {counted(len(alerts), 'alert')}"
    these = tuple({"rule": one.rule, "subject": one.subject} for one in alerts)
    return (
        Choice("these", clean(first, 200), these),
        *(
            Choice(
                key,
                clean(text.format(listed(names, most=3)), 200),
                tuple({key: name} for name in names),
            )
            for key, text, names in offered
            if names
        ),
    )


def silences_of(choice: Choice, until: Instant, why: str) -> tuple[Silence, ...]:
    """The silences of a choice. The backend fills in their author and time."""
    return tuple(
        Silence(
            id="", rule=match.get("rule"), subject=match.get("subject"), run=match.get("run"), node=match.get("node"),
            until=until, by="", why=why, made_at=0.0,
        )
        for match in choice.matchers
    )  # fmt: skip


def parse_duration(text: str) -> Seconds | str:
    """`1h`, `90m`, `2d4h` as seconds, or a sentence about the error."""
    text = text.strip().lower()
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip():
        return "type a duration such as 30m, 1h, 2d or 1w"
    seconds = sum(float(number) * DURATION_UNITS[unit] for number, unit in parts)
    if seconds < 60:
        return "the shortest duration is 1m"
    return "the longest duration is 30d; disable an unwanted rule in trainmon.toml" if seconds > LONGEST else seconds
