"""The W&B charts of one run on the full screen."""

from __future__ import annotations

from tui.backend import Backend
from tui.panes import WandbPane
from tui.screens.navigation import LinkedScreen
from tui.widgets import Link


class WandbScreen(LinkedScreen):
    """The same pane as on the main screen, with all the room; Esc goes back."""

    PLACE = "wandb-screen"

    def __init__(self, run: str, backend: Backend) -> None:
        pane = WandbPane(backend, id="wandb-full")
        pane.run = run
        super().__init__(Link("wandb", run), pane)
