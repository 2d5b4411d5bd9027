"""tui.views."""

from __future__ import annotations

from tui.views.action_news import Severity, Toast, in_flight, told
from tui.views.action_requests import BUTTONS, TITLES, Kind, Subject, ask, button, hosts, key_of, names
from tui.views.alert_news import fired, rung
from tui.views.disks import DiskRows, ShownDisk, gather, head, layout, ordered, row, silence
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
    "DiskRows",
    "Kind",
    "Severity",
    "ShownDisk",
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
    "gather",
    "head",
    "hosts",
    "in_flight",
    "job_lines",
    "key_of",
    "layout",
    "lead",
    "log_named",
    "made",
    "names",
    "ordered",
    "overdue",
    "pair",
    "read_for",
    "record_lines",
    "row",
    "rows",
    "rung",
    "safe",
    "said",
    "settings_lines",
    "silence",
    "style",
    "summary",
    "switch",
    "told",
    "visible",
    "wandb_lines",
]
