"""The screens: main, help, log, charts, and details of one thing."""

from __future__ import annotations

from tui.screens.base import StateScreen
from tui.screens.help import TITLES, Help
from tui.screens.log import LogScreen
from tui.screens.main import MainScreen
from tui.screens.registry import screen_for

__all__ = ["TITLES", "Help", "LogScreen", "MainScreen", "StateScreen", "screen_for"]
