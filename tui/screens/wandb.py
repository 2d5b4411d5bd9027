"""The W&B charts of one run on the full screen."""

from __future__ import annotations

from textual.app import ComposeResult

from trainmon.model import State
from tui.backend import Backend
from tui.panes import WandbPane
from tui.screens.navigation import LinkedScreen
from tui.widgets import Link


class WandbScreen(LinkedScreen):
    """The same pane as on the main screen, with all the room; Esc goes back."""

    PLACE = "wandb-screen"

    def __init__(self, run: str, backend: Backend) -> None:
        super().__init__(Link("wandb", run))
        self.wandb = WandbPane(backend, id="wandb-full")
        self.wandb.run = run
        self.pane = self.wandb

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.wandb
        yield self.foot

    def on_mount(self) -> None:
        super().on_mount()
        self.wandb.focus_body()

    def show(self, state: State) -> None:
        self.header.show(state)
        self.wandb.show(state)
