"""One job on the full screen: its fields, and links to its run, its nodes and its log."""

from __future__ import annotations

from tui.panes.details import JobPane
from tui.screens.navigation import LinkedScreen
from tui.widgets import Link


class JobScreen(LinkedScreen):
    """Requests the job's details from the scheduler when it opens; Esc goes back."""

    PLACE = "job"

    def __init__(self, job: str) -> None:
        super().__init__(Link("job", job), JobPane(job, id="job-full"))

    def on_mount(self) -> None:
        self.watching.backend.look_at_job(self.about.name)
