"""The screen of each kind of link."""

from __future__ import annotations

from tui.backend import Backend
from tui.screens.base import StateScreen
from tui.screens.details import AlertScreen, JobScreen, NodeScreen, RunScreen
from tui.screens.log import LogScreen
from tui.screens.wandb import WandbScreen
from tui.widgets import Link

SCREENS = {"run": RunScreen, "job": JobScreen, "node": NodeScreen, "log": LogScreen, "alert": AlertScreen}
"""By kind of link. W&B charts need the backend as well."""


def screen_for(link: Link, backend: Backend) -> StateScreen:
    """A new screen for a link."""
    return WandbScreen(link.name, backend) if link.kind == "wandb" else SCREENS[link.kind](link.name)
