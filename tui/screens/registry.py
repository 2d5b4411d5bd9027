"""Which screen a link opens."""

from __future__ import annotations

from tui.backend import Backend
from tui.screens.base import StateScreen
from tui.screens.details import AlertScreen, JobScreen, NodeScreen, RunScreen
from tui.screens.log import LogScreen
from tui.screens.wandb import WandbScreen
from tui.widgets import Link

SCREENS = {"run": RunScreen, "job": JobScreen, "node": NodeScreen, "log": LogScreen, "alert": AlertScreen}
"""By the kind of a link; W&B charts need the backend as well."""


def screen_for(link: Link, backend: Backend) -> StateScreen:
    """A new screen about what a link names."""
    return WandbScreen(link.name, backend) if link.kind == "wandb" else SCREENS[link.kind](link.name)
