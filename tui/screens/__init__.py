"""The screens: main, help, log, charts, and details of one thing."""

from __future__ import annotations

from tui.screens.base import StateScreen
from tui.screens.details import ChangesScreen, MomentScreen, screen_for
from tui.screens.help import TITLES, Help
from tui.screens.main import MainScreen

__all__ = ["TITLES", "ChangesScreen", "Help", "MainScreen", "MomentScreen", "StateScreen", "screen_for"]
