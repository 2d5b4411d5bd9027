"""Pure functions from State to lines and rows; the panes and dialogs show them."""

from __future__ import annotations

from tui.views.action_news import Severity, Toast, action_toasts, in_flight
from tui.views.action_requests import BUTTONS, TITLES, Kind, Subject, ask, button, hosts, key_of, names
from tui.views.alert_news import alert_toasts, newly_firing
from tui.views.facts import LABEL, fact, fact_text, link_label, log_named, safe
from tui.views.palette import Command, commands, found
from tui.views.plan import command, described, rows, summary, visible
from tui.views.runs import (
    GOING,
    RANK,
    WORST_FIRST,
    action_lines,
    checkpoint_lines,
    job_lines,
    overdue,
    record_lines,
    switch,
    verdict_style,
)
from tui.views.wandb import settings_lines, wandb_lines

__all__ = [
    "BUTTONS",
    "GOING",
    "LABEL",
    "RANK",
    "TITLES",
    "WORST_FIRST",
    "Command",
    "Kind",
    "Severity",
    "Subject",
    "Toast",
    "action_lines",
    "action_toasts",
    "alert_toasts",
    "ask",
    "button",
    "checkpoint_lines",
    "command",
    "commands",
    "described",
    "fact",
    "fact_text",
    "found",
    "hosts",
    "in_flight",
    "job_lines",
    "key_of",
    "link_label",
    "log_named",
    "names",
    "newly_firing",
    "overdue",
    "record_lines",
    "rows",
    "safe",
    "settings_lines",
    "summary",
    "switch",
    "verdict_style",
    "visible",
    "wandb_lines",
]
