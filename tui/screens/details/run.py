"""One run on the full screen: everything known of it, and the way on to its jobs, its nodes, its log and its charts."""

from __future__ import annotations

import os
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from trainmon.lib import clean, counted
from trainmon.model import State
from tui.keys import bindings
from tui.modals import Folder
from tui.panes.details import RunPane
from tui.screens.navigation import LinkedScreen
from tui.services.folders import for_samples, meant
from tui.widgets import Link


class RunScreen(LinkedScreen):
    """The detail pane with all the room; Esc goes back."""

    PLACE = "run"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("samples")]

    def __init__(self, run: str) -> None:
        super().__init__(Link("run", run))
        self.run_pane = RunPane(id="run-full", follow=True)
        self.run_pane.run = run
        self.pane = self.run_pane

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.run_pane
        yield self.foot

    def on_mount(self) -> None:
        super().on_mount()
        self.run_pane.focus_body()

    def show(self, state: State) -> None:
        run = state.runs.get(self.about.name)
        place = "run" if run is None or run.spec.wandb is None else "run-wandb"
        if self.foot.place != place:
            self.foot.at(place)
        self.header.show(state)
        self.run_pane.show(state)

    # ---- its samples ----

    def action_save_samples(self) -> None:
        """Ask for a folder, and have the newest of each metric fetched into it."""
        name = self.about.name
        run = None if self.watching.shown is None else self.watching.shown.runs.get(name)
        samples = () if run is None or run.wandb is None else run.wandb.samples
        if not samples:
            self.app.notify(f"{clean(name)} has logged no images or videos", severity="warning", markup=False)
            return
        what = f"Fetch {counted(len(samples), 'sample')} of {clean(name)}"
        self.app.push_screen(Folder(what, str(for_samples(name, os.environ))), self._save_into)

    def _save_into(self, folder: str | None) -> None:
        if folder is None:
            return
        app, name, into = self.app, self.about.name, str(meant(folder))
        tell = partial(app.notify, title=f"samples of {clean(name)}", timeout=15, markup=False)

        def answered(words: str) -> None:
            """On another thread."""
            app.call_later(tell, clean(words))

        tell(f"being fetched into {clean(into)}")
        self.watching.backend.save_samples(name, into, answered)
