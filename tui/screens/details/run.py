"""One run on the full screen: everything known of it, and links to its jobs, nodes, log and charts."""

from __future__ import annotations

import os
from functools import partial
from typing import ClassVar

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
        pane = RunPane(id="run-full", follow=True)
        pane.run = run
        super().__init__(Link("run", run), pane)

    def show(self, state: State) -> None:
        super().show(state)
        run = state.runs.get(self.about.name)
        place = "run" if run is None or run.spec.wandb is None else "run-wandb"
        if self.foot.place != place:
            self.foot.at(place)

    # ---- its samples ----

    def action_save_samples(self) -> None:
        """Ask for a folder, and fetch the newest sample of each metric into it."""
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
        app, name, target = self.app, self.about.name, str(meant(folder))
        notify = partial(app.notify, title=f"samples of {clean(name)}", timeout=15, markup=False)
        notify(f"fetching into {clean(target)}")

        def reply(text: str) -> None:
            """On another thread."""
            app.call_later(notify, clean(text))

        self.watching.backend.save_samples(name, target, reply)
