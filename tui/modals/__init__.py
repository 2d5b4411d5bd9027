"""Dialogs: plans, menus, logins, silences, the command palette."""

from __future__ import annotations

from tui.modals.acknowledge import Acknowledge
from tui.modals.find import Find
from tui.modals.folder import Folder
from tui.modals.jump import Jump, Target
from tui.modals.menu import Menu
from tui.modals.mute import Mute, Muting
from tui.modals.once import Dialog, Once
from tui.modals.palette import CommandPalette
from tui.modals.pick import Pick
from tui.modals.plan import PlanScreen
from tui.modals.prompt import LoginPrompt

__all__ = [
    "Acknowledge",
    "CommandPalette",
    "Dialog",
    "Find",
    "Folder",
    "Jump",
    "LoginPrompt",
    "Menu",
    "Mute",
    "Muting",
    "Once",
    "Pick",
    "PlanScreen",
    "Target",
]
