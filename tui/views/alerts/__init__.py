"""Alerts as rows, as one alert in full, and as marks on other rows."""

from __future__ import annotations

from tui.views.alerts.detail import alert_lines, alerts_of
from tui.views.alerts.mute_choices import USUAL, Choice, choices, parse_duration, silences_of
from tui.views.alerts.rows import ORDERS, SHOWN, SILENCE, AlertRows, head, layout, opened
from tui.views.alerts.status import (
    SIGNS,
    broken,
    is_muted,
    matched,
    matches,
    most_urgent,
    remarks,
    sender,
    sender_sentence,
    sender_text,
    silences,
    standing,
    summed,
    tally,
    urgent,
)
from tui.views.alerts.targets import about, about_subjects, marked, marks, worst

__all__ = [
    "ORDERS",
    "SHOWN",
    "SIGNS",
    "SILENCE",
    "USUAL",
    "AlertRows",
    "Choice",
    "about",
    "about_subjects",
    "alert_lines",
    "alerts_of",
    "broken",
    "choices",
    "head",
    "is_muted",
    "layout",
    "marked",
    "marks",
    "matched",
    "matches",
    "most_urgent",
    "opened",
    "parse_duration",
    "remarks",
    "sender",
    "sender_sentence",
    "sender_text",
    "silences",
    "silences_of",
    "standing",
    "summed",
    "tally",
    "urgent",
    "worst",
]
