"""Panes about one run, job or alert: lines, some of which are links."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from textual.binding import BindingType

from trainmon.lib import Instant, clean, shorten_start
from trainmon.model import Progress, Run, State, WandbRun
from tui.keys import bindings
from tui.panes.base import Pane
from tui.style import UNKNOWN, VERDICTS, Span, count, duration, eta, real, short, since
from tui.views import (
    GOING,
    LABEL,
    Subject,
    checkpoint_lines,
    fact,
    job_lines,
    link_label,
    log_named,
    recent_actions,
    safe,
    settings_lines,
    switch,
    wandb_lines,
)
from tui.views.alerts import alert_lines, alerts_of
from tui.views.facts import wrapped_fact
from tui.views.jobs import job_lines as job_details
from tui.views.jobs import node_links
from tui.widgets import KeyedLines, Line, Link, Linked, TextView, first_link, rows, sentence


class LinkedPane(Pane):
    """Facts, and links for Enter. Without `follow` the links are only text."""

    def __init__(self, *, id: str, follow: bool = True) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.lines = KeyedLines() if follow else TextView()
        self._begun = not follow

    def on_mount(self) -> None:
        self.heads.display = False

    def tell(self, lines: Iterable[Line | Linked]) -> None:
        """Show these; the cursor stays on the link where it was."""
        self.lines.set_rows(rows(lines))
        link = first_link(self.lines.rows)
        if link is not None and not self._begun:
            self._begun = self.lines.move_to(link)


class AlertPane(LinkedPane):
    """One alert by its id, whatever becomes of it."""

    NAME = "Alert"
    LISTS_ALERTS = True
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("alerts")]

    def __init__(self, alert: str, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.alert = alert

    def alerts(self) -> tuple[str, ...]:
        return (self.alert,)

    def copy_text(self) -> str | None:
        """Its id, as `trainmon-tui ack` takes it."""
        return self.alert

    def draw(self, state: State, width: int) -> None:
        alert = state.alerts.get(self.alert)
        self.caption(clean(self.alert if alert is None else f"{alert.id}  {alert.rule}  {alert.subject}"))
        self.tell(alert_lines(self.alert, state, width))


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
        self.tell(job_details(self.job, state, width))


class RunPane(LinkedPane):
    """The selected run's jobs, numbers, checkpoints, switches, log, nodes, and what W&B says of it."""

    NAME = "Run"

    def __init__(self, *, id: str, follow: bool = False) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id, follow=follow)
        self.run: str | None = None
        self.follow = follow
        self._settings: tuple[WandbRun | None, int, list[Line]] = (None, 0, [])

    def follow_run(self, name: str | None) -> None:
        """Show this run from now on."""
        if name != self.run:
            self.run = name
            self.again()

    def subjects(self) -> tuple[Subject, ...]:
        return () if self.run is None else (("run", self.run),)

    @property
    def page(self) -> str | None:
        """The address of the page of its current W&B run."""
        run = None if self.state is None else self.state.runs.get(self.run or "")
        return None if run is None or run.wandb is None or run.wandb.current is None else run.wandb.current.url

    def copy_text(self) -> str | None:
        """The path of its log, or else its name."""
        run = None if self.state is None else self.state.runs.get(self.run or "")
        return self.run if run is None or run.log is None or run.log.path is None else f"{run.log.host}:{run.log.path}"

    def draw(self, state: State, width: int) -> None:
        run = state.runs.get(self.run or "")
        self.caption(clean(run.name) if run is not None else "")
        if run is None:
            self.say(("No run is selected." if self.run is None else f"{clean(self.run)} is no longer watched.", "dim"))
            return
        self.tell((*lines(run, state, state.at, width, few=not self.follow), *self._settings_of(run, width)))

    def _settings_of(self, run: Run, width: int) -> list[Line]:
        """Summary and config, up to 600 lines that change once a minute. Only the run's own screen shows them."""
        one = None if run.wandb is None else run.wandb.current
        if not self.follow or one is None:
            return []
        of, wide, made = self._settings
        if of is not one or wide != width:
            made = list(settings_lines(one, width))
            self._settings = one, width, made
        return made


def lines(run: Run, state: State, now: Instant, width: int, *, few: bool = False) -> Iterator[Line | Linked]:
    """The lines. `few`: the main ones only."""
    symbol, look = VERDICTS[run.verdict]
    yield (Span(f"{symbol} {run.verdict}", f"{look} bold"),)
    yield from sentence(clean(run.why), width)
    yield ()
    alerts = tuple(alerts_of(run.name, state, width))
    yield from (*alerts, ()) if alerts else ()
    jobs = tuple(job_lines(run, state, width))
    yield from (*jobs, ()) if jobs else ()
    yield from numbers(run, now, width)
    yield ()
    yield from checkpoint_lines(run, state, width)
    yield ()
    yield from switch("kill", run.kill, now, width)
    yield from switch("save", run.save, now, width)
    yield from recent_actions(run, state, width)
    yield ()
    yield from where(run, now, width)
    yield from wandb_lines(run, state, width, few=few)
    yield ()
    if not run.spec.nodes:
        yield fact("nodes", "-", width, "dim")
    yield from node_links(run.spec.nodes, state, width)


def numbers(run: Run, now: Instant, width: int) -> Iterator[Line]:
    progress = run.progress
    target = "" if progress.target_step is None else f" of {count(progress.target_step)}"
    last = since(progress.at, now) + (" ago" if progress.at is not None else "")
    usual = f", usually every {duration(progress.cadence_s)}" if progress.cadence_s is not None else ""
    yield fact("step", count(progress.step) + target, width)
    yield fact("last step", last + usual, width)
    yield fact("left", eta(run.eta_at if run.verdict in GOING else None, now), width)
    yield fact("loss", f"{real(progress.loss)}, grad norm {real(progress.grad_norm)}", width)
    yield fact("learning rate", real(progress.learning_rate), width)
    yield fact("speed", speed(progress), width)
    if progress.skipped:
        yield fact("skipped", f"{count(progress.skipped)} iterations!", width, "warn")
    if progress.nan_iterations:
        yield fact("nan", f"{count(progress.nan_iterations)} iterations!", width, "crit")


def speed(progress: Progress) -> str:
    """`1.9M tokens/s, 4.1s a step`."""
    parts = [f"{short(progress.tokens_per_s)} tokens/s"] if progress.tokens_per_s is not None else []
    parts += [f"{short(progress.samples_per_s)} samples/s"] if progress.samples_per_s is not None else []
    parts += [f"{duration(progress.step_time_s)} a step"] if progress.step_time_s is not None else []
    return ", ".join(parts) or UNKNOWN


def where(run: Run, now: Instant, width: int) -> Iterator[Line | Linked]:
    """The log: path, age, rate, format."""
    if run.log is None:
        words = "none configured" if run.spec.log is None else f"not read yet: {log_named(run.spec.log)}"
        yield fact("log", words, width, "dim")
        return
    place = shorten_start(clean(f"{run.log.host}:{run.log.path or '?'}"), width - LABEL)
    yield Linked(Link("log", run.name), (*link_label("log"), Span(place, "accent")))
    pace = "" if run.log.lines_per_s is None else f", {run.log.lines_per_s:.1f} lines/s"
    yield fact("last line", since(run.log.at, now) + (" ago" if run.log.at is not None else "") + pace, width)
    yield fact("format", clean(run.progress.format or "?"), width)
    if run.log.error:
        yield from wrapped_fact("error", safe(run.log.error), width, "warn")
