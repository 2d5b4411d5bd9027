"""Notices and messages to tell, for the tests of the channels."""

from __future__ import annotations

from typing import Any

from trainmon.alerting.notify.message import Message, render
from trainmon.lib import Instant
from trainmon.model import Alert, Notice

NOW: Instant = 1_800_000_000.0
"""2027-01-15 08:00:00 UTC."""
TOKEN = "tok-5eCr3t-0123456789"


def alert(**facts: Any) -> Alert:
    """A dead run, unless something else is said."""
    usual: dict[str, Any] = {
        "id": "k3v9x2ab",
        "rule": "run-dead",
        "subject": "run:video-2b",
        "severity": "critical",
        "summary": "no process of video-2b is left on 4 nodes; its last step was 12,345, 31m ago",
        "evidence": ("step 12344 loss 2.31", "step 12345 loss 2.30"),
        "advice": "trainmon-tui requeue video-2b starts it again",
        "run": "video-2b",
        "phase": "firing",
        "since": NOW - 1_860,
        "found_at": NOW,
        "fired_at": NOW,
        "token": TOKEN,
    }
    return Alert(**(usual | facts))


def notice(*alerts: Alert, **facts: Any) -> Notice:
    """That the dead run fired, unless something else is said."""
    usual: dict[str, Any] = {
        "key": "k3v9x2ab-fire",
        "kind": "fire",
        "reason": "fired",
        "severity": "critical",
        "at": NOW,
        "channels": ("phone",),
        "group": "run:video-2b",
        "alerts": alerts or (alert(),),
        "run": "video-2b",
    }
    return Notice(**(usual | facts))


def beat(**facts: Any) -> Notice:
    """A sign of life."""
    usual: dict[str, Any] = {
        "key": "heartbeat-1",
        "kind": "heartbeat",
        "reason": "every 4h",
        "severity": "info",
        "at": NOW,
        "channels": ("phone",),
        "title": "video-2b alive: step 12,345",
        "lines": ("video-2b: alive", "  step 12,345, loss 2.314"),
    }
    return Notice(**(usual | facts))


def message(*notices: Notice, now: Instant = NOW) -> Message:
    return render(notices or (notice(),), now)


def over(one: Alert, at: Instant = NOW) -> Notice:
    """That an alert is over."""
    resolved = alert(id=one.id, rule=one.rule, subject=one.subject, phase="resolved", resolved_at=at, ended="over")
    return notice(resolved, key=f"{one.id}-resolve", kind="resolve", reason="over for 1m", at=at)
