"""tui.views.alerts."""

from __future__ import annotations

from tui.views.alerts.detail import alert_lines, alerts_of
from tui.views.alerts.marks import marked
from tui.views.alerts.rows import ORDERS, SHOWN, SILENCE, AlertRows, head, layout, opened
from tui.views.alerts.targets import about, about_subjects
from tui.views.alerts.words import (
    SIGNS,
    broken,
    duty_words,
    is_muted,
    matched,
    matches,
    most_urgent,
    silences,
    standing,
    summed,
    tally,
    telling,
    urgent,
    who_tells,
)

__all__ = [
    "ORDERS",
    "SHOWN",
    "SIGNS",
    "SILENCE",
    "AlertRows",
    "about",
    "about_subjects",
    "alert_lines",
    "alerts_of",
    "broken",
    "duty_words",
    "head",
    "is_muted",
    "layout",
    "marked",
    "matched",
    "matches",
    "most_urgent",
    "opened",
    "silences",
    "standing",
    "summed",
    "tally",
    "telling",
    "urgent",
    "who_tells",
]
