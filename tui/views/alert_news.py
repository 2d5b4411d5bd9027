"""Changes of alerts as short messages: two States are compared, so that each change is shown once. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import NamedTuple

from trainmon.lib import clean, counted
from trainmon.model import Alert, State
from tui.views.action_news import Toast
from tui.views.alerts import is_muted

AT_ONCE = 3
"""The most messages at a time. When a cluster goes down there are more, which are counted."""


class AlertNews(NamedTuple):
    """Messages, and whether to ring the bell."""

    toasts: tuple[Toast, ...] = ()
    bell: bool = False


def alert_toasts(before: State | None, after: State, notified: Container[str] = ()) -> AlertNews:
    """New critical alerts ring the bell. Acknowledgements and a new sender are only shown. A channel has already
    shown those in `notified`."""
    if before is None:
        return AlertNews()
    new = [one for one in newly_firing(before, after) if one.id not in notified]
    toasts = [Toast(f"CRITICAL  {clean(one.rule, 60)}", clean(one.summary, 400), "error") for one in new]
    if len(toasts) > AT_ONCE:
        rest = len(toasts) - AT_ONCE + 1
        toasts = [
            *toasts[: AT_ONCE - 1],
            Toast("CRITICAL", f"{counted(rest, 'more critical alert')}: 5 shows all", "error"),
        ]
    if before.alerts is not after.alerts:
        toasts += _acknowledged(before, after)
    return AlertNews((*toasts, *_duty(before, after)), bool(new))


def newly_firing(before: State, after: State) -> Iterator[Alert]:
    """Critical alerts that are firing since the last State and are not muted. Alerts that were loaded from the ledger
    fired long ago and are not new."""
    if before.alerts is after.alerts:
        return
    for name, one in after.alerts.items():
        was = before.alerts.get(name)
        if was is one or one.severity != "critical" or not one.is_firing:
            continue
        if one.inhibited_by is not None or is_muted(one, after.at):
            continue
        new = was is None and one.fired_at is not None and one.fired_at >= before.at - RECENT
        came = was is not None and (not was.is_firing or was.severity != "critical" or was.inhibited_by is not None)
        if new or came:
            yield one


RECENT = 30.0
"""How long before the last State a new alert may have fired: those of a daemon arrive with its next answer."""


def _acknowledged(before: State, after: State) -> list[Toast]:
    found = [
        one
        for name, one in after.alerts.items()
        if one.acknowledged_by is not None
        and (was := before.alerts.get(name)) is not None
        and was.acknowledged_by != one.acknowledged_by
    ]
    if not found:
        return []
    who = clean(f"acknowledged by {found[0].acknowledged_by}", 80)
    if len(found) > 1:
        return [Toast(who, counted(len(found), "alert"))]
    return [Toast(who, clean(found[0].summary, 300))]


def _duty(before: State, after: State) -> list[Toast]:
    """A change of the sender, or a request that failed."""
    was, now = before.duty, after.duty
    if was is now:
        return []
    if was.holder == "daemon" and now.holder == "us":
        why = clean(f"{was.where} no longer sends notifications; this program sends them now", 200)
        return [Toast("alerts", f"{why}. {clean(now.words or '', 200)}".removesuffix(". "), "warning")]
    if was.holder == "us" and now.holder == "daemon":
        return [
            Toast(
                "alerts", clean(f"{now.where} sends notifications again; this program only shows alerts and rings", 200)
            )
        ]
    if now.words and now.words != was.words:
        return [Toast("alerts", clean(now.words, 400), "warning")]
    return []
