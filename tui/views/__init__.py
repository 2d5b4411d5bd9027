"""tui.views."""

from __future__ import annotations

from tui.views.action_news import Severity, Toast, in_flight, told
from tui.views.action_requests import BUTTONS, TITLES, Kind, Subject, ask, button, hosts, key_of, names
from tui.views.alert_news import fired, rung
from tui.views.facts import LABEL, lead, log_named, pair, safe, said
from tui.views.mute_choices import USUAL, Choice, choices, made, read_for
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
    style,
    switch,
)
from tui.views.wandb import settings_lines, wandb_lines

__all__ = [
    "BUTTONS",
    "GOING",
    "LABEL",
    "RANK",
    "TITLES",
    "USUAL",
    "WORST_FIRST",
    "Choice",
    "Command",
    "Kind",
    "Severity",
    "Subject",
    "Toast",
    "action_lines",
    "ask",
    "button",
    "checkpoint_lines",
    "choices",
    "command",
    "commands",
    "described",
    "fired",
    "found",
    "hosts",
    "in_flight",
    "job_lines",
    "key_of",
    "lead",
    "log_named",
    "made",
    "names",
    "overdue",
    "pair",
    "read_for",
    "record_lines",
    "rows",
    "rung",
    "safe",
    "said",
    "settings_lines",
    "style",
    "summary",
    "switch",
    "told",
    "visible",
    "wandb_lines",
]
