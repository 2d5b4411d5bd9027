"""The screens: main, help, log, charts, and details of one thing."""

from __future__ import annotations

from tui.screens.base import StateScreen
from tui.screens.details import ChangesScreen, screen_for
from tui.screens.help import TITLES, Help
from tui.screens.main import MainScreen
from tui.screens.moment import MomentScreen

__all__ = ["TITLES", "ChangesScreen", "Help", "MainScreen", "MomentScreen", "StateScreen", "screen_for"]
