"""All details of one job, with links."""

from __future__ import annotations

from trainmon.lib import clean
from trainmon.model import State
from tui.panes.details.linked import LinkedPane
from tui.views import Subject
from tui.views.jobs import job_lines


class JobPane(LinkedPane):
    """One job by its key, whatever becomes of it."""

    NAME = "Job"

    def __init__(self, job: str, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.job = job

    def subjects(self) -> tuple[Subject, ...]:
        return (("job", self.job),)

    def copy_text(self) -> str | None:
        """The job's id."""
        job = None if self.state is None else self.state.jobs.get(self.job)
        return self.job.partition("/")[2] if job is None else job.id

    def draw(self, state: State, width: int) -> None:
        job = state.jobs.get(self.job)
        self.caption(clean(self.job if job is None else f"{job.id}  {job.name}  of {job.user} on {job.cluster}"))
        self.tell(job_lines(self.job, state, width))
