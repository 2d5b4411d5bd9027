"""Changes of actions and alerts as toasts: two States are compared, so that each change is shown once. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Literal, NamedTuple

from trainmon.lib import Instant, clean, counted, duration
from trainmon.model import Alert, Leadership, Milestone, Record, State
from tui.views.alerts import ONLY_SHOWS, is_muted

Severity = Literal["information", "warning", "error"]


class Toast(NamedTuple):
    """One message: title, text, severity."""

    title: str
    text: str
    severity: Severity = "information"


def notice_toasts(before: State | None, after: State) -> Iterator[Toast]:
    """What a person is told once."""
    if after.notice is not None and (before is None or after.notice != before.notice):
        yield Toast("first time", clean(after.notice, 400))


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
        text = after.status + (f": {after.outcome}" if after.outcome else "")
        yield Toast(title, clean(text, 600), SEVERITY.get(after.status, "information"))
    if after.note and after.note != before.note:
        yield Toast(title, clean(after.note, 600), "warning")
    earlier = {mark.name: mark for mark in before.marks}
    for mark in after.marks:
        was = earlier.get(mark.name, Milestone(mark.name))
        if mark.at is not None and was.at is None:
            yield Toast(title, clean(reached(mark.name, mark.at, after), 600))
        if mark.missed is not None and was.missed is None:
            yield Toast(title, clean(mark.missed, 600), "warning")


def reached(name: str, at: Instant, record: Record) -> str:
    """`taken after 3.3s`: the time since the action was done, not since its plan was requested."""
    return f"{name} after {duration(max(0.0, at - (record.done_at or record.action.requested_at)))}"


def in_flight(state: State | None) -> list[Record]:
    """The actions that this program was asked for and that are not known to be done. Those of an earlier program that
    ended in the middle of them are not among them."""
    if state is None:
        return []
    requested = [one for one in state.actions.values() if one.status == "asked"]
    return [one for one in requested if (one.written_at or one.action.requested_at) >= state.started_at]


# ---- alerts ----------------------------------------------------------------------------------------------------------

CRITICAL_AT_ONCE = 3
"""The most toasts about critical alerts at a time. When a cluster goes down there are more, which are counted."""

RECENT = 30.0
"""How long before the last State a new alert may have fired: those of a daemon arrive with its next answer."""


class AlertNews(NamedTuple):
    """Toasts, and whether to ring the bell."""

    toasts: tuple[Toast, ...] = ()
    bell: bool = False


def alert_toasts(before: State | None, after: State, notified: Container[str] = ()) -> AlertNews:
    """New critical alerts ring the bell. Acknowledgements and a new sender are only shown. A channel has already
    shown those in `notified`."""
    if before is None:
        return AlertNews()
    new = [one for one in newly_firing(before, after) if one.id not in notified]
    toasts = [Toast(f"CRITICAL  {clean(one.rule, 60)}", clean(one.summary, 400), "error") for one in new]
    rest = len(toasts) - CRITICAL_AT_ONCE + 1
    if rest > 1:
        more = Toast("CRITICAL", f"{counted(rest, 'more critical alert')}: press 5 for all", "error")
        toasts = [*toasts[: CRITICAL_AT_ONCE - 1], more]
    return AlertNews(
        (*toasts, *acknowledged(before, after), *sender_toasts(before.leadership, after.leadership)), bool(new)
    )


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
        text = clean(found[0].summary, 300) if len(found) == 1 else counted(len(found), "alert")
        yield Toast(clean(f"acknowledged by {found[0].acknowledged_by}", 80), text)


def sender_toasts(was: Leadership, now: Leadership) -> Iterator[Toast]:
    """A change of the sender, or a request that failed."""
    if was.holder == "daemon" and now.holder == "us":
        why = clean(f"{was.where} no longer sends notifications; this program sends them now", 200)
        yield Toast("alerts", f"{why}. {clean(now.problem or '', 200)}".removesuffix(". "), "warning")
    elif was.holder == "us" and now.holder == "daemon":
        yield Toast("alerts", clean(f"{now.where} sends notifications again; {ONLY_SHOWS}", 200))
    elif now.problem and now.problem != was.problem:
        yield Toast("alerts", clean(now.problem, 400), "warning")
