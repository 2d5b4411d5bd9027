"""Alerts as rows, as one alert in full, and as marks on other rows."""

from __future__ import annotations

from tui.views.alerts.detail import alert_lines, alerts_of
from tui.views.alerts.marks import STYLES, Concern, alert_marks, alert_ranks, rule_key, with_mark
from tui.views.alerts.moments import Moment, log_line, moment_of_alert, moment_of_curve, moment_of_run
from tui.views.alerts.mute_choices import USUAL, Choice, choices, parse_duration, silences_of
from tui.views.alerts.rows import ORDERS, SHOWN, SILENCE, AlertRows, alert_head, alert_layout, open_alerts
from tui.views.alerts.status import (
    SIGNS,
    alerts_about,
    alerts_about_subjects,
    broken_channels,
    is_muted,
    matches,
    most_urgent,
    open_counts,
    pending_count,
    sender,
    sender_sentence,
    sender_text,
    silence_text,
    silences,
    status_of,
    urgent,
    urgent_counts,
)

__all__ = [
    "ORDERS",
    "SHOWN",
    "SIGNS",
    "SILENCE",
    "STYLES",
    "USUAL",
    "AlertRows",
    "Choice",
    "Concern",
    "Moment",
    "alert_head",
    "alert_layout",
    "alert_lines",
    "alert_marks",
    "alert_ranks",
    "alerts_about",
    "alerts_about_subjects",
    "alerts_of",
    "broken_channels",
    "choices",
    "is_muted",
    "log_line",
    "matches",
    "moment_of_alert",
    "moment_of_curve",
    "moment_of_run",
    "most_urgent",
    "open_alerts",
    "open_counts",
    "parse_duration",
    "pending_count",
    "rule_key",
    "sender",
    "sender_sentence",
    "sender_text",
    "silence_text",
    "silences",
    "silences_of",
    "status_of",
    "urgent",
    "urgent_counts",
    "with_mark",
]
