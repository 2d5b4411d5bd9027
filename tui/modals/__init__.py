"""tui.modals."""

from __future__ import annotations

from tui.modals.acknowledge import Acknowledge
from tui.modals.find import Find
from tui.modals.folder import Folder
from tui.modals.jump import Jump, Target
from tui.modals.menu import Menu
from tui.modals.mute import Mute, Muting
from tui.modals.once import Dialog, Once
from tui.modals.palette import Palette
from tui.modals.pick import Pick
from tui.modals.plan import PlanScreen
from tui.modals.prompt import Ask

__all__ = [
    "Acknowledge",
    "Ask",
    "Dialog",
    "Find",
    "Folder",
    "Jump",
    "Menu",
    "Mute",
    "Muting",
    "Once",
    "Palette",
    "Pick",
    "PlanScreen",
    "Target",
]
