"""Changes of actions as short messages: two States are compared, so that each change is shown once. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from trainmon.lib import Instant, clean, duration
from trainmon.model import Milestone, Record, State

Severity = Literal["information", "warning", "error"]

AT_ONCE = 5
"""The most messages at a time. A plan over fifty rows has more, which are counted."""

SEVERITY: dict[str, Severity] = {"failed": "error", "unknown": "warning", "refused": "warning"}


class Toast(NamedTuple):
    """One message: title, text, severity."""

    title: str
    words: str
    severity: Severity = "information"


def action_toasts(before: State | None, after: State) -> list[Toast]:
    """The messages about what changed since the last State; none for the first State."""
    if before is None or before.actions is after.actions:
        return []
    toasts = [
        toast
        for key, record in after.actions.items()
        if record is not before.actions.get(key)
        for toast in changes(before.actions.get(key) or Record(action=record.action), record)
    ]
    return bounded(toasts)


def changes(before: Record, after: Record) -> Iterator[Toast]:
    """The messages about one action."""
    title = clean(after.action.title, 120)
    if after.status != before.status and after.status != "asked":
        words = f"{after.status}{f': {after.outcome}' if after.outcome else ''}"
        yield Toast(title, clean(words, 600), SEVERITY.get(after.status, "information"))
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
    return f"{name} after {duration(max(0.0, at - (record.done_at or record.action.asked_at)))}"


def bounded(toasts: list[Toast]) -> list[Toast]:
    """The first few messages, the worst first, and the number of the others."""
    if len(toasts) <= AT_ONCE:
        return toasts
    ranked = sorted(toasts, key=lambda toast: ("error", "warning", "information").index(toast.severity))
    rest = len(toasts) - AT_ONCE + 1
    return [*ranked[: AT_ONCE - 1], Toast("and more", f"{rest} more changes of actions")]


def in_flight(state: State | None) -> list[Record]:
    """Actions that this program was asked for and that are not known to be done: one that an earlier program was ended
    in the middle of is on its way no more."""
    actions = () if state is None else state.actions.values()
    begun = 0.0 if state is None else state.started_at
    return [one for one in actions if one.status == "asked" and (one.written_at or one.action.asked_at) >= begun]
