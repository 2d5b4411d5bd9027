"""One job on the full screen: its fields in words, its run, its nodes and its log to follow."""

from __future__ import annotations

from textual.app import ComposeResult

from trainmon.model import State
from tui.panes.details import JobPane
from tui.screens.navigation import LinkedScreen
from tui.widgets import Link


class JobScreen(LinkedScreen):
    """Asks the scheduler for the job's details when it opens; Esc goes back."""

    PLACE = "job"

    def __init__(self, job: str) -> None:
        super().__init__(Link("job", job))
        self.job_pane = JobPane(job, id="job-full")
        self.pane = self.job_pane

    def compose(self) -> ComposeResult:
        yield self.header
        yield self.job_pane
        yield self.foot

    def on_mount(self) -> None:
        super().on_mount()
        self.watching.backend.look_at_job(self.about.name)
        self.job_pane.focus_body()

    def show(self, state: State) -> None:
        self.header.show(state)
        self.job_pane.show(state)
