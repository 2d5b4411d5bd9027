"""Panes about one run, job, disk or alert: lines, some of which are links."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from trainmon.analysis.explanation import AttemptRecords, GpuHour, Report, explain, short_id, with_state
from trainmon.analysis.wandb import client_file
from trainmon.lib import clean
from trainmon.model import Attempt, State, WandbRun
from tui.backend import Backend
from tui.charts.render import gpu_hour_lines
from tui.keys import bindings
from tui.panes.base import FollowingPane, Pane
from tui.services.changes import Changes
from tui.style import Line, Linked, Row, first_link, rows, short
from tui.views.actions import Subject
from tui.views.alert_detail import Moment, alert_lines, moment_of_alert, moment_of_run
from tui.views.alerts import alerts_about
from tui.views.disks import disk_lines, disk_of_key, spare_line, spares
from tui.views.job_detail import explanation_lines, job_lines, report_lines, text_lines
from tui.views.jobs import with_ended
from tui.views.news import change_lines
from tui.views.runs import run_lines, settings_lines
from tui.views.table import fact_text
from tui.widgets import KeyedLines, TextView

CHARTED_NODES = 4
"""The nodes of an attempt whose GPUs are plotted. The rest have their numbers only."""


class LinkedPane(Pane):
    """Facts, and links for Enter; its cursor starts on the first link. Without `follow` the links are only text."""

    def __init__(self, about: str, backend: Backend, *, id: str, follow: bool = True) -> None:  # noqa: A002
        """`about`: the id of its alert, or the key of its job or disk. `id`: Textual's name for it."""
        super().__init__(id=id)
        self.about = about
        self.backend = backend
        self.lines = KeyedLines() if follow else TextView()
        self.follow = follow
        self._is_on_link = not follow

    def on_mount(self) -> None:
        self.heads.display = False

    def copy_text(self) -> str | None:
        """The id of its alert or attempt, as `trainmon-tui ack` and `explain` take it."""
        return self.about

    def show_lines(self, lines: Iterable[Line | Linked]) -> None:
        """Show these lines; the cursor stays on its link."""
        self.lines.set_rows(rows(lines))
        link = first_link(self.lines.rows)
        if link is not None and not self._is_on_link:
            self._is_on_link = self.lines.move_to(link)


class AlertPane(LinkedPane):
    """One alert by its id, even after it has ended."""

    NAME = "Alert"
    LISTS_ALERTS = True
    BINDINGS = bindings("alerts")

    def alerts(self) -> tuple[str, ...]:
        return (self.about,)

    def moment(self) -> Moment | None:
        return moment_of_alert(self.about, self.state)

    def draw(self, state: State, width: int) -> None:
        alert = state.alerts.get(self.about)
        self.caption(clean(self.about if alert is None else f"{alert.id}  {alert.rule}  {alert.subject}"))
        self.show_lines(alert_lines(self.about, state, width))


class ChangesPane(LinkedPane):
    """What changed since the dashboard was last used, with links to the runs and alerts."""

    NAME = "Changes"
    changes: Changes

    def copy_text(self) -> str | None:
        return self.changes.summary(self.state.at) or None

    def draw(self, state: State, width: int) -> None:
        self.caption("since the dashboard was last used")
        self.show_lines(change_lines(self.changes.seen, self.changes.current(state), state, width))


class JobPane(LinkedPane):
    """One job by its key, even after it has left the queue; with its texts, which are read once its details are."""

    NAME = "Job"
    texts: dict[str, Sequence[str]] | None = None

    def on_mount(self) -> None:
        """Request the details from the scheduler."""
        self.backend.poll_job(self.about)

    def _show_text(self, title: str, lines: Sequence[str]) -> None:
        self.texts = {**(self.texts or {}), title: lines}
        self.again()

    def subjects(self) -> tuple[Subject, ...]:
        return (("job", self.about),)

    def copy_text(self) -> str | None:
        """The job's id."""
        job = with_ended(self.state).jobs.get(self.about)
        return self.about.partition("/")[2] if job is None else job.id

    def draw(self, state: State, width: int) -> None:
        state = with_ended(state)
        job = state.jobs.get(self.about)
        if self.texts is None and job is not None and (job.detail_at is not None or job.stage == "ended"):
            self.texts = {}
            self.backend.read_job(job, partial(self.app.call_later, self._show_text))
        self.caption(clean(self.about if job is None else f"{job.id}  {job.name}  of {job.user} on {job.cluster}"))
        self.show_lines((*job_lines(self.about, state, width), *text_lines(self.texts or {}, width)))


class AttemptPane(LinkedPane):
    """The explanation of one attempt. What the State does not have, the ledger has."""

    NAME = "Attempt"
    stored: tuple[Attempt, AttemptRecords] | None = None
    _charts: tuple[tuple[GpuHour, ...], int, Sequence[Line]] = ((), 0, ())
    """What they show, their width, and the lines: drawing takes longer than all the rest."""

    def on_mount(self) -> None:
        self.backend.read_attempt(self.about, partial(self.app.call_later, self._show_stored))

    def _show_stored(self, attempt: Attempt, records: AttemptRecords) -> None:
        self.stored = attempt, records
        self.again()

    def draw(self, state: State, width: int) -> None:
        stored, records = self.stored or (None, AttemptRecords())
        attempt = state.attempts.get(self.about, stored)
        if attempt is None:
            self.caption(clean(self.about))
            self.show_message(("This attempt is not in the ledger.", "dim"))
            return
        self.caption(clean(f"{short_id(attempt)} of {attempt.run_id}"))
        run = state.runs.get(attempt.run_id)
        one = explain(attempt, with_state(records, attempt, state), None if run is None else run.spec.retry)
        if one.gpu_hours is not self._charts[0] or width != self._charts[1]:
            drawn = (gpu_hour_lines(hour, width, plain=self.is_ascii) for hour in one.gpu_hours[:CHARTED_NODES])
            self._charts = one.gpu_hours, width, [line for lines in drawn for line in (*lines, ())]
        self.show_lines(explanation_lines(one, width, self._charts[2]))


class ReportPane(LinkedPane):
    """The reliability report of one run, or of all, from the ledger as it was when this opened."""

    NAME = "Report"
    report: Report | None = None

    def on_mount(self) -> None:
        self.backend.read_report(self.about or None, partial(self.app.call_later, self._show_report))

    def _show_report(self, found: Report) -> None:
        self.report = found
        self.again()

    def draw(self, state: State, width: int) -> None:
        self.caption(clean(f"{self.about or 'all runs'}, the last 30 days"))
        if self.report is None:
            self.show_message(("Reading the ledger…", "dim"))
        else:
            self.show_lines(report_lines(self.report, width))


class OneDiskPane(LinkedPane):
    """One disk by the key of its row."""

    NAME = "Disk"

    def alerts(self) -> tuple[str, ...]:
        shown = disk_of_key(self.about, self.state)
        return () if shown is None else alerts_about(self.state, disks=shown.subjects)

    def copy_text(self) -> str | None:
        """The whole path of the checkpoint under the cursor, or else the fact there."""
        texts, state = {row.key: row.text for row in self.lines.rows}, self.state
        shown = disk_of_key(self.about, state)
        if shown is None or self.selected not in texts:
            return None
        lines = ((Row("", spare_line(run, one, state.at, self.width)), one.path) for run, one in spares(shown, state))
        paths = {line.text: path for line, path in lines}
        return paths.get(texts[self.selected]) or fact_text([*texts.values()], [*texts].index(self.selected))

    def draw(self, state: State, width: int) -> None:
        shown = disk_of_key(self.about, state)
        self.caption(clean(self.about) if shown is None else shown.name)
        self.show_lines(disk_lines(shown, state, width))


class RunPane(LinkedPane, FollowingPane):
    """The selected run's jobs, numbers, checkpoints, switches, log, nodes, and its W&B run."""

    NAME = "Run"
    _settings: tuple[WandbRun | None, int, Sequence[Line]] = (None, 0, ())

    def copy_text(self) -> str | None:
        """The path of its log, or else its name."""
        run = self.followed
        return self.run if run is None or run.log is None or run.log.path is None else f"{run.log.host}:{run.log.path}"

    def moment(self) -> Moment | None:
        return None if self.followed is None else moment_of_run(self.followed, self.state)

    def draw(self, state: State, width: int) -> None:
        run = state.runs.get(self.run or "")
        rate = None if run is None or not self.follow else run.progress.tokens_per_s
        self.caption(clean(run.name) if run is not None else "", "" if rate is None else f"{short(rate)} tokens/s")
        if run is None:
            self.show_message(
                ("No run is selected." if self.run is None else f"{clean(self.run)} is no longer watched.", "dim")
            )
            return
        shown = client_file.shown(run, is_failing=False) if self.follow else None
        one = None if shown is None else shown.current
        if self._settings[:2] != (one, width):
            # up to 600 lines that change once a minute; only the run's own screen shows them
            self._settings = one, width, [] if one is None else list(settings_lines(one, width))
        self.show_lines((*run_lines(run, state, width, few=not self.follow), *self._settings[2]))
