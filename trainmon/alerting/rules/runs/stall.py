"""Rules about a run that makes no steps. They use progress, never a file's age: a watchdog may write into a log while
the training hangs, as it did for three hours at BLOOM's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from msgspec.structs import replace

from trainmon.alerting.rules.base import Duration, ago
from trainmon.alerting.rules.runs.advice import cancels, requeues
from trainmon.alerting.rules.runs.base import SILENT, UNKNOWN, RunRule, present_in, tail
from trainmon.analysis.gpus import gpus_of
from trainmon.analysis.runs import STILL, UNREAD, is_new_attempt, last_line_at
from trainmon.lib import Instant, Seconds
from trainmon.model import Alert, Finding, Run, Severity, State

TEACH = "if its steps are not recognised, describe them in [[log_format]]"

STALL_RULES = frozenset({"run-hung", "run-stalled", "data-stall"})


class StallRule(RunRule, frozen=True, kw_only=True):
    """One kind of stall. The limit without a step is `stall_after` of its [[run]], and ten of its usual intervals."""

    verdict: ClassVar[str]
    text: ClassVar[str]
    by_age: ClassVar[bool] = True
    unknown_while: ClassVar[frozenset[str]] = UNKNOWN | SILENT
    """Another kind of stall does not end this one."""

    for_: Duration = 60.0
    """How long the condition must hold before the alert fires, in addition to the time without a step. The GPUs are
    checked meanwhile."""

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        if run.verdict != self.verdict or self._is_known(state, run):
            return
        job = present_in(state, run)
        last = last_line_at(run, job)
        began = job.started_at if job is not None and is_new_attempt(run, job) and last is None else None
        yield self.finding(
            state,
            run,
            "critical" if began is None else self.start_severity(now - began),
            f"{run.name} {self.text}: {run.why}",
            evidence=(*(() if job is None else (f"job {job.id} is {job.state}",)), *tail(run)),
            advice=self.advice(state, run),
            since=began or last or run.progress.at,
        )

    def start_severity(self, elapsed: Seconds) -> Severity:
        """The severity if the job has run for this long without its first step."""
        return "critical"

    def advice(self, state: State, run: Run) -> str:
        """What to do."""
        raise NotImplementedError

    def why_unknown(self, state: State, alert: Alert, now: Instant) -> str | None:
        """If no step is known, only the log shows that the run goes on: the stall ends when the log grows again."""
        run = state.runs.get(alert.run or "")
        return None if run is not None and _is_unread(run) else super().why_unknown(state, alert, now)

    def _is_known(self, state: State, run: Run) -> bool:
        """Whether another rule already reports this stall: one stall is one alert. A warning may have become worse."""
        return any(
            alert.run == run.name and alert.is_firing and alert.rule in STALL_RULES - {self.name}
            and alert.severity == "critical"
            for alert in state.alerts.values()
        )  # fmt: skip


class RunHung(StallRule, frozen=True, kw_only=True):
    """The run has stopped stepping. Its GPUs are 100% busy at low power: probably a stuck collective."""

    name: ClassVar[str] = "run-hung"
    origin: ClassVar[str] = "BLOOM: stuck for hours at 100 % GPU and RUNNING for Slurm; 18h were lost"
    verdict: ClassVar[str] = "hung"
    text: ClassVar[str] = "hangs"

    def advice(self, state: State, run: Run) -> str:
        return (
            "py-spy dump of its processes shows where they wait; a hung trainer ignores the switch: "
            f"{cancels(run)}; or {requeues(state, run)}"
        )


class QuietRule(StallRule, frozen=True, kw_only=True):
    """A stall that may be the start of a large job: it loads terabytes, and compiles."""

    first_step: Duration = 2_700.0
    """Critical after a job has run this long without its first step. Before that, a warning after `stall_after`."""

    def start_severity(self, elapsed: Seconds) -> Severity:
        return "warning" if elapsed < self.first_step else "critical"


class RunStalled(QuietRule, frozen=True, kw_only=True):
    """The run has not stepped for longer than any of its usual pauses."""

    name: ClassVar[str] = "run-stalled"
    origin: ClassVar[str] = "ten of its own step intervals, but at least stall_after (15m)"
    verdict: ClassVar[str] = "stalled"
    text: ClassVar[str] = "has stalled"

    at_work: Duration = 3_600.0
    """For this long, the alert is only a warning while the GPUs are busy at high power: the run may be in an evaluation
    that its log does not mention."""

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        for finding in super().check_run(state, run, now):
            job, progress = present_in(state, run), run.progress
            quiet = 0.0 if progress.at is None else now - progress.at
            if job is not None and job.state in STILL:
                last = "" if progress.at is None else f", its last step was {ago(quiet)} ago"
                resume = f"scontrol resume {job.id}" if job.state == "SUSPENDED" else f"scancel --signal=CONT {job.id}"
                yield replace(
                    finding,
                    severity="warning",
                    summary=f"{run.name} is paused: job {job.id} {STILL[job.state]}{last}",
                    advice=f"ask who stopped or preempted it; to resume it, if you are allowed to: {resume}",
                    by_age=False,
                )
            elif quiet <= self.at_work and gpus_of(run, state.nodes, state.sources, now).work:
                text = "its GPUs draw as much power as in training: its log may not mention what it does"
                yield replace(finding, summary=f"{finding.summary}; {text}", severity="warning")
            else:
                yield finding
        log, is_alone = run.log, not run.spec.found and not run.jobs and run.wandb is None
        if run.verdict != "idle" or not is_alone or log is None or log.at is None:
            return
        if log.at > state.started_at and now - log.at > run.spec.stall_after:  # it grew while it was watched
            yield self.finding(
                state,
                run,
                "warning",
                f"{run.name} may have ended: {run.why}; it has no job and no W&B run",
                evidence=tail(run),
                advice=f"look at the end of its log (key 4); {TEACH}",
                since=log.at,
            )

    def advice(self, state: State, run: Run) -> str:
        teach = f"; {TEACH}" if run.progress.at is None else ""
        return f"look at the end of its log (key 4) and its GPUs (key 2); {requeues(state, run)}{teach}"


class DataStall(QuietRule, frozen=True, kw_only=True):
    """The run has stopped stepping and its GPUs are idle: it waits for data, storage or its host."""

    name: ClassVar[str] = "data-stall"
    origin: ClassVar[str] = "idle GPUs while a step is due: data, storage or the host"
    verdict: ClassVar[str] = "data-stall"
    text: ClassVar[str] = "has stopped stepping, and its GPUs are idle"

    def advice(self, state: State, run: Run) -> str:
        return (
            "look at its disks (key 3) and its data loaders' processes on its nodes; "
            f"to restart it, {requeues(state, run)}"
        )


class LogUnread(RunRule, frozen=True, kw_only=True):
    """The log of a run grows, but no line is a known step: its progress is unknown."""

    name: ClassVar[str] = "log-unread"
    origin: ClassVar[str] = "our choice: an unknown log format is not a fault of the run"

    for_: Duration = 10.0
    """How long the condition must hold before the alert fires: W&B may know the steps, and is polled meanwhile."""

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        if run.log is None or not _is_unread(run):
            return
        job = present_in(state, run)
        began = run.log.began_at if job is None or job.started_at is None else job.started_at
        yield self.finding(
            state,
            run,
            "info",
            f"the progress of {run.name} is unknown: {run.why}",
            evidence=tail(run),
            advice="look at its log (key 4), and describe its lines in [[log_format]]",
            since=self.first_reported(state, run, now if began is None else began, now, 30.0),
            event=True,
        )


def _is_unread(run: Run) -> bool:
    return run.verdict == "unknown" and run.why.startswith(UNREAD)
