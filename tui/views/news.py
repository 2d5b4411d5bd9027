"""News: changes of actions and alerts as toasts, and what changed since the dashboard was last used. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Literal, NamedTuple

from trainmon.analysis.last_seen import SETTLES_WITHIN, disk_key, seen_run
from trainmon.lib import DAY, Instant, Seconds, ago, clean, counted, say, size
from trainmon.model import (
    OVER,
    Alert,
    Disk,
    LastSeen,
    Leadership,
    Milestone,
    Record,
    Run,
    SeenDisk,
    SeenRun,
    State,
    verdict_text,
)
from tui.style import Line, Link, Linked, Span, count, duration, percent, sentence, wall_clock
from tui.views.alerts import ONLY_SHOWS, SIGNS, TROUBLED, is_muted
from tui.views.runs import WORST_FIRST, reached, verdict_style

Severity = Literal["information", "warning", "error"]


class Toast(NamedTuple):
    """One message: title, text, severity."""

    title: str
    text: str
    severity: Severity = "information"


def notice_toasts(before: State | None, after: State) -> Iterator[Toast]:
    """What a person is told once."""
    if after.notice is not None and (before is None or after.notice != before.notice):
        yield Toast("notice", clean(after.notice, 400))


# ---- actions ---------------------------------------------------------------------------------------------------------

AT_ONCE = 5
"""The most toasts about actions at a time. A plan over fifty rows has more, which are counted."""

SEVERITY: dict[str, Severity] = {"failed": "error", "unknown": "warning", "refused": "warning"}


def action_toasts(before: State | None, after: State) -> list[Toast]:
    """What changed since the last State, none for the first, and for what was done before this program started. Of many
    toasts the worst, and the number of the others."""
    if before is None or before.actions is after.actions:
        return []
    toasts = [
        toast
        for key, record in after.actions.items()
        if record is not before.actions.get(key)
        if key in before.actions or record.action.requested_at >= after.started_at
        for toast in changes(before.actions.get(key) or Record(action=record.action), record)
    ]
    if len(toasts) <= AT_ONCE:
        return toasts
    ranked = sorted(toasts, key=lambda toast: ("error", "warning", "information").index(toast.severity))
    return [*ranked[: AT_ONCE - 1], Toast("more", f"{len(toasts) - AT_ONCE + 1} more action changes")]


def changes(before: Record, after: Record) -> Iterator[Toast]:
    """The toasts about one action."""
    title = clean(after.action.title, 120)
    if after.status not in (before.status, "asked"):
        text = after.status + (f": {say(after.outcome)}" if after.outcome else "")
        yield Toast(title, clean(text, 600), SEVERITY.get(after.status, "information"))
    if after.note and after.note != before.note:
        yield Toast(title, clean(after.note, 600), "warning")
    earlier = {mark.name: mark for mark in before.marks}
    for mark in after.marks:
        was = earlier.get(mark.name, Milestone(mark.name))
        if mark.at is not None and was.at is None:
            yield Toast(title, clean(reached(mark.name, mark.at, after), 600))
        if mark.missed is not None and was.missed is None:
            yield Toast(title, clean(say(mark.missed), 600), "warning")


def in_flight(state: State) -> list[Record]:
    """The actions that this program was asked for and that are not known to be done. Those of an earlier program that
    ended in the middle of them are not among them."""
    requested = [one for one in state.actions.values() if one.status == "asked"]
    return [one for one in requested if (one.written_at or one.action.requested_at) >= state.started_at]


# ---- alerts ----------------------------------------------------------------------------------------------------------

CRITICAL_AT_ONCE = 3
"""The most toasts about critical alerts at a time. When a cluster goes down there are more, which are counted."""

RECENT = 30.0
"""How long before the last State a new alert may have fired: those of a daemon arrive with its next answer."""


def alert_toasts(
    before: State | None, after: State, notified: Container[str] = (), *, listed: Container[str] | None = None
) -> tuple[tuple[Toast, ...], bool]:
    """The toasts, one line for each, and whether to ring the bell: for new critical alerts. Acknowledgements and a new
    sender are only shown. `listed`: the alerts whose texts the screen has, which no toast may cover. None: the screen
    lists no alerts; there, a channel has already shown those in `notified`."""
    if before is None:
        return (), False
    firing = list(newly_firing(before, after))
    new = [one for one in firing if one.id not in notified]
    unseen = new if listed is None else [one for one in firing if one.id not in listed]
    toasts = [Toast("", clean(f"CRITICAL  {one.rule}  {one.subject}", 56), "error") for one in unseen]
    rest = len(toasts) - CRITICAL_AT_ONCE + 1
    if rest > 1:
        more = Toast("", f"{counted(rest, 'more critical alert')}: pane 5 lists all", "error")
        toasts = [*toasts[: CRITICAL_AT_ONCE - 1], more]
    news = (*toasts, *acknowledged(before, after), *sender_toasts(before.leadership, after.leadership, after.config))
    return news, bool(new)


def newly_firing(before: State, after: State) -> Iterator[Alert]:
    """Critical alerts that are firing since the last State and are not muted. Alerts that were loaded from the ledger
    fired long ago and are not new."""
    for name, one in after.alerts.items() if before.alerts is not after.alerts else ():
        was = before.alerts.get(name)
        is_loud = one.severity == "critical" and one.is_firing and one.inhibited_by is None
        if was is one or not is_loud or is_muted(one, after.at):
            continue
        if was is None:
            is_new = one.fired_at is not None and one.fired_at >= before.at - RECENT
        else:
            is_new = not was.is_firing or was.severity != "critical" or was.inhibited_by is not None
        if is_new:
            yield one


def acknowledged(before: State, after: State) -> Iterator[Toast]:
    """One toast about the alerts that were acknowledged since the last State."""
    earlier = {} if before.alerts is after.alerts else before.alerts
    found = [
        one
        for name, one in after.alerts.items()
        if one.acknowledged_by is not None
        and (was := earlier.get(name)) is not None
        and was.acknowledged_by != one.acknowledged_by
    ]
    if found:
        text = clean(found[0].rule) if len(found) == 1 else counted(len(found), "alert")
        yield Toast(clean(f"acknowledged by {found[0].acknowledged_by}", 80), text)


def sender_toasts(was: Leadership, now: Leadership, said: str | None = None) -> Iterator[Toast]:
    """A change of the sender, or a request that failed. `said`: a problem that has a toast of its own."""
    if was.holder == "daemon" and now.holder == "us":
        why = clean(f"{was.where} no longer sends notifications; this program sends them now", 200)
        yield Toast("alerts", f"{why}. {clean(now.problem or '', 200)}".removesuffix(". "), "warning")
    elif was.holder == "us" and now.holder == "daemon":
        yield Toast("alerts", clean(f"{now.where} sends notifications again; {ONLY_SHOWS}", 200))
    elif now.problem and now.problem not in {was.problem, said}:
        yield Toast("alerts", clean(now.problem, 400), "warning")


# ---- what changed since the dashboard was last used ------------------------------------------------------------------

What = Literal["ended", "restarted", "in trouble", "recovered", "started", "new", "no longer watched", "alert", "disk"]

RUN_NEWS: tuple[What, ...] = ("ended", "restarted", "in trouble", "recovered", "started", "new", "no longer watched")
"""What may have happened to a run, in the order of the line."""

WAITING = frozenset({"queued", "idle"})

SHARE = 0.05
"""A disk is news when this share of it was written or freed."""

QUIET: Seconds = 600.0
"""After a shorter absence, nothing is said if nothing changed."""

INDENT = 2
"""Cells before the second line of a change."""


class Change(NamedTuple):
    """One change."""

    what: What
    text: str
    style: str = ""
    link: Link | None = None


def changes_since(seen: LastSeen, state: State) -> tuple[Change, ...]:
    """All changes: runs, then alerts, then disks. A run that is not there may still come: see `with_late_runs`."""
    disks = {disk_key(disk): disk for disk in state.disks.values()}
    return (
        *run_changes(seen, state, state.runs),
        *alert_changes(seen.at, state),
        *(change for key, was in seen.disks.items() if (change := disk_change(was, disks.get(key))) is not None),
    )


# ---- runs ------------------------------------------------------------------------------------------------------------


def run_changes(seen: LastSeen, state: State, names: Iterable[str]) -> list[Change]:
    """The news of these runs, in the order of the line."""
    known = [run for name in names if (run := state.runs[name]).verdict != "unknown"]
    found = [run_change(seen, run, state) for run in known]
    return sorted((one for one in found if one is not None), key=lambda one: RUN_NEWS.index(one.what))


def late_runs(seen: LastSeen, state: State) -> frozenset[str]:
    """The runs that were seen and are not there: they are gone, or their queue has not shown them yet."""
    return frozenset(name for name in seen.runs if name not in state.runs or state.runs[name].verdict == "unknown")


def with_late_runs(
    found: tuple[Change, ...], late: frozenset[str], seen: LastSeen, state: State
) -> tuple[tuple[Change, ...], frozenset[str]]:
    """The changes with those of late runs, and the runs that are still late. A run is gone if every queue was read, and
    some time ago: what a queue shows becomes a run a moment later."""
    come = late - late_runs(seen, state)
    queues = [source for source in state.sources.values() if source.kind == "slurm" and source.health != "off"]
    are_read = all(source.answered_at is not None for source in queues)
    is_sure = are_read and state.at - state.started_at >= SETTLES_WITHIN
    gone = {name for name in late if name not in state.runs} if is_sure else set()
    news = (*run_changes(seen, state, come), *(Change("no longer watched", clean(name), "dim") for name in gone))
    return (*news, *found) if news else found, late - come - gone


def run_change(seen: LastSeen, run: Run, state: State) -> Change | None:
    """What happened to one run."""
    was, now = seen.runs.get(run.name), seen_run(run, state)
    link, style = Link("run", run.name), verdict_style(run.verdict)
    text = clean(f"{run.name}: {verdict_text(run.verdict)}, {run.why}")
    if was is None:
        return Change("new", text, style, link)
    ended = [one for one in state.attempts.values() if one.run_id == run.name and (one.ended_at or 0.0) > seen.at]
    # without W&B, its step is always that of its log
    is_back = run.spec.wandb is None and None not in (was.step, now.step) and (now.step or 0) < (was.step or 0)
    again = restarted(was, now) or ("its steps went back" if is_back else None)
    again = again or (f"{counted(len(ended), 'attempt')} ended" if ended else None)
    has_ended = run.verdict in OVER and (was.verdict not in OVER or again is not None)
    if has_ended or (run.verdict in WAITING and was.verdict not in OVER | WAITING):
        return Change("ended", text, style, link)
    if again is not None and was.verdict not in WAITING | OVER:
        lost = sum(one.steps_lost or 0 for one in ended)
        again += f", {counted(lost, 'step')} lost" if lost else ""
        return Change("restarted", clean(f"{run.name}: {again}, {steps(was, now)}"), "warn", link)
    if run.verdict in TROUBLED and was.verdict != run.verdict:
        return Change("in trouble", text, style, link)
    if run.verdict not in OVER | WAITING | TROUBLED and was.verdict in OVER | WAITING | TROUBLED:
        return Change("recovered" if was.verdict in TROUBLED else "started", text, style, link)
    return None


def restarted(was: SeenRun, now: SeenRun) -> str | None:
    """How a run was restarted: by another job, by Slurm, or as another W&B run."""
    if was.job is not None and now.job is not None and was.job != now.job:
        return f"job {was.job.partition('/')[2]} → {now.job.partition('/')[2]}"
    if now.job == was.job and now.restarts > was.restarts:
        return f"restart {now.restarts} of its job"
    if was.attempt is not None and now.attempt is not None and was.attempt != now.attempt:
        return f"W&B run {was.attempt.rpartition('/')[2]} → {now.attempt.rpartition('/')[2]}"
    return None


def steps(was: SeenRun, now: SeenRun) -> str:
    """`step 12,875 → 21,004`, or `step 12,875` if it made none."""
    return f"step {count(was.step)}" + ("" if was.step == now.step else f" → {count(now.step)}")


# ---- alerts and disks ------------------------------------------------------------------------------------------------


def alert_changes(since: Instant, state: State) -> Iterator[Change]:
    """The alerts that have fired since then, the newest first. State keeps those that ended for a day."""
    fired = [one for one in state.alerts.values() if one.severity != "info" and (one.fired_at or 0.0) > since]
    for one in sorted(fired, key=lambda alert: (-(alert.fired_at or 0.0), alert.id)):
        _, word, style = SIGNS[one.severity]
        text = f"{clock_text(one.fired_at or 0.0, state.at)} {word} {clean(one.rule)}: {clean(one.summary)}"
        yield Change(
            "alert", f"{text}  ({alert_status(one, state)})", style if one.is_open else "dim", Link("alert", one.id)
        )


def alert_status(alert: Alert, state: State) -> str:
    """`open`, `acknowledged by ana`, `muted`, `ended after 12m`."""
    if alert.resolved_at is not None:
        return f"ended after {duration(max(0.0, alert.resolved_at - alert.since))}"
    if alert.acknowledged_by is not None:
        return clean(f"acknowledged by {alert.acknowledged_by}", 40)
    return "muted" if is_muted(alert, state.at) else "open"


def disk_change(was: SeenDisk, disk: Disk | None) -> Change | None:
    """A disk that has much more or less space, or that began or ceased to answer."""
    if disk is None:
        return None
    name = clean(disk_key(disk).partition(":")[2] if disk_key(disk) != disk.key else disk.key, 200)
    if disk.state != was.state:
        is_back = disk.state == "ok"
        text = f"{name}: answers again" if is_back else clean(f"{name}: {disk.error or 'does not answer'}", 400)
        return Change("disk", text, "ok" if is_back else "crit")
    free, before, total = disk.free_bytes, was.free_bytes, disk.total_bytes
    if free is None or before is None or not total or abs(free - before) < SHARE * total:
        return None
    now, then = percent(free, total), percent(before, was.total_bytes)
    sign = "+" if free > before else ""
    return Change(
        "disk", f"{name}: {now} free, was {then} ({sign}{size(free - before)})", "warn" if free < before else "ok"
    )


# ---- the line and the list -------------------------------------------------------------------------------------------


def clock_text(at: Instant, now: Instant) -> str:
    """`14:02` today, else `Nov 21 14:02`, in the zone of the header."""
    return wall_clock(at).strftime("%H:%M" if now - at < DAY / 2 else "%b %d %H:%M")


def summary(seen: LastSeen, changes: tuple[Change, ...], now: Instant) -> tuple[str, str]:
    """`Since 10:58 (3h10m): 2 runs ended, llm restarted, 3 alerts (1 open), /fsx: 12% free`, and its style. Empty if
    nothing changed in a few minutes."""
    if not changes and now - seen.at < QUIET:
        return "", ""
    parts, noun = list[str](), " runs"
    for what in RUN_NEWS:
        names = [name_of(change) for change in changes if change.what == what]
        if len(names) == 1:
            parts.append(f"{names[0]} {what}")
        elif names:
            parts.append(f"{len(names)}{noun} {what}")
            noun = ""
    if alerts := [change for change in changes if change.what == "alert"]:
        still_open = sum(change.style != "dim" for change in alerts)
        parts.append(f"{counted(len(alerts), 'alert')} ({f'{still_open} open' if still_open else 'all over'})")
    disks = [change for change in changes if change.what == "disk"]
    parts += [disks[0].text.partition(" (")[0]] if len(disks) == 1 else [f"{len(disks)} disks"] if disks else []
    styles = {change.style for change in changes}
    style = next((one for one in ("crit", "warn") if one in styles), "")
    news = ", ".join(parts) or "nothing changed"
    return f"Since {clock_text(seen.at, now)} ({duration(now - seen.at)}): {news}", style


def name_of(change: Change) -> str:
    """The name of the run that changed."""
    return change.text if change.link is None else clean(change.link.name)


TITLES = {"run": "RUNS", "alert": "ALERTS", "disk": "DISKS"}


def change_lines(
    seen: LastSeen | None, changes: tuple[Change, ...], state: State, width: int
) -> Iterator[Line | Linked]:
    """The list: the line in full, the changes, and the steps of the runs that train as before."""
    if seen is None:
        yield from sentence("No earlier use of this dashboard is known.", width)
        return
    when = f"{clock_text(seen.at, state.at)} {wall_clock(seen.at):%Z}"
    text = f"The dashboard was last used at {when}, {ago(state.at - seen.at)} ago."
    yield from sentence(text if changes else f"{text} Nothing changed.", width)
    for kind, title in TITLES.items():
        own = [change for change in changes if (change.what if change.what in ("alert", "disk") else "run") == kind]
        yield from ((), (Span(title, "head"),)) if own else ()
        for change in own:
            said = f"{change.what}  {change.text}" if kind == "run" else change.text
            first, *others = sentence(said, width - INDENT, change.style)
            yield first if change.link is None else Linked(change.link, first)
            yield from ((Span(" " * INDENT), *line) for line in others)
    if state.at - seen.at > DAY and any(change.what == "alert" for change in changes):
        yield from ((), *sentence("Of the alerts that are over, only those of the last day are listed.", width, "dim"))
    yield from unchanged(seen, changes, state)


def unchanged(seen: LastSeen, changes: tuple[Change, ...], state: State) -> Iterator[Line | Linked]:
    """The runs without news, and their steps."""
    named = {change.link.name for change in changes if change.link is not None and change.link.kind == "run"}
    rest = [run for name, run in state.runs.items() if name in seen.runs and name not in named]
    rest.sort(key=lambda run: (WORST_FIRST.index(run.verdict), run.name))
    yield from ((), (Span("AS BEFORE", "head"),)) if rest else ()
    for run in rest:
        text = clean(f"{run.name}: {verdict_text(run.verdict)}, {steps(seen.runs[run.name], seen_run(run, state))}")
        yield Linked(Link("run", run.name), (Span(text, verdict_style(run.verdict)),))
