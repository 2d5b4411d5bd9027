"""Dialogs: plans, menus, logins, silences, the command palette."""

from tui.modals.dialog import (
    Columns,
    Complete,
    Dialog,
    Find,
    Jump,
    LoginPrompt,
    Mute,
    Once,
    OrderedInput,
    Pick,
    SaveLog,
    TextPrompt,
    ask,
    is_displayed,
)
from tui.modals.log_format import LogFormat
from tui.modals.menu import CommandPalette, Menu
from tui.modals.plan import PlanScreen

__all__ = [
    "Columns",
    "CommandPalette",
    "Complete",
    "Dialog",
    "Find",
    "Jump",
    "LogFormat",
    "LoginPrompt",
    "Menu",
    "Mute",
    "Once",
    "OrderedInput",
    "Pick",
    "PlanScreen",
    "SaveLog",
    "TextPrompt",
    "ask",
    "is_displayed",
]
