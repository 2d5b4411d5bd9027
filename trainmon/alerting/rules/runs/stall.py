"""Rules about a run from which no step comes. Progress is believed, never a file's age: a watchdog may write into a
log while the training hangs, as it did for three hours at BLOOM's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from msgspec.structs import replace

from trainmon.alerting.rules.base import Duration, ago
from trainmon.alerting.rules.runs import advice
from trainmon.alerting.rules.runs.base import SILENT, UNKNOWN, RunRule, present_in, tail
from trainmon.analysis.gpus import gpus_of
from trainmon.analysis.runs import STILL, UNREAD, is_anew, last_line_at
from trainmon.lib import Instant, Seconds
from trainmon.model import Alert, Finding, Job, Run, Severity, State

RULES_OF_SILENCE = frozenset({"run-hung", "run-stalled", "data-stall"})


class StallRule(RunRule, frozen=True, kw_only=True):
    """One kind of silence. How long a run may be silent is its own: `stall_after` of its [[run]], and ten of its usual
    intervals."""

    verdict: ClassVar[str]
    words: ClassVar[str]
    by_age: ClassVar[bool] = True
    unseen_while: ClassVar[frozenset[str]] = UNKNOWN | SILENT
    """Another kind of silence is no end of this one."""

    for_: Duration = 60.0
    """How long the condition must hold before the alert fires, in addition to the time without a step. The GPUs are
    checked meanwhile."""

    def look(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        if run.verdict != self.verdict or self._is_told(state, run):
            return
        job = present_in(state, run)
        told = () if job is None else (f"job {job.id} is {job.state}",)
        fell = last_line_at(run, job)
        began = job.started_at if job is not None and is_anew(run, job) and fell is None else None
        yield self.found(
            state,
            run,
            "critical" if began is None else self.at_start(now - began),
            f"{run.name} {self.words}: {run.why}",
            evidence=(*told, *tail(run)),
            advice=self.mend(state, run),
            since=began or fell or run.progress.at,
        )

    def at_start(self, up: Seconds) -> Severity:
        """How bad it is where its job is up for so long and has made no step yet."""
        return "critical"

    def mend(self, state: State, run: Run) -> str:
        """What to do."""
        raise NotImplementedError

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        """Where no step is known its log is the only witness: that it grows again ends the silence."""
        run = state.runs.get(alert.run or "")
        return None if run is not None and _is_unread(run) else super().blind(state, alert, now)

    def _is_told(self, state: State, run: Run) -> bool:
        """Whether this silence is an alert already, of another kind: one silence is one alert. What was a warning may
        have become worse."""
        return any(
            alert.run == run.name and alert.is_firing and alert.rule != self.name and alert.rule in RULES_OF_SILENCE
            and alert.severity == "critical"
            for alert in state.alerts.values()
        )  # fmt: skip


class RunHung(StallRule, frozen=True, kw_only=True):
    """The run makes no step. Its GPUs are 100 % busy at low power: probably a stuck collective."""

    name: ClassVar[str] = "run-hung"
    origin: ClassVar[str] = "BLOOM: stuck for hours at 100 % GPU and RUNNING for Slurm; 18 h were lost"
    verdict: ClassVar[str] = "hung"
    words: ClassVar[str] = "hangs"

    def mend(self, state: State, run: Run) -> str:
        return (
            "py-spy dump of its processes shows where they wait; a trainer that hangs reads no switch, so "
            f"{advice.cancels(run)}; or {advice.requeues(state, run)}"
        )


class QuietRule(StallRule, frozen=True, kw_only=True):
    """A silence that may be the start of a large job: it loads terabytes, and compiles."""

    first_step: Duration = 2_700.0
    """A job that runs this long without its first step is critical. It is a warning from `stall_after` on."""

    def at_start(self, up: Seconds) -> Severity:
        return "warning" if up < self.first_step else "critical"


class RunStalled(QuietRule, frozen=True, kw_only=True):
    """The run makes no step for longer than any of its usual pauses."""

    name: ClassVar[str] = "run-stalled"
    origin: ClassVar[str] = "ten of its own step intervals, and at least stall_after (15m)"
    verdict: ClassVar[str] = "stalled"
    words: ClassVar[str] = "has stalled"

    at_work: Duration = 3_600.0
    """While its GPUs draw the power of real work, it is only a warning for this long: its log may not mention an
    evaluation."""

    def look(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        for finding in super().look(state, run, now):
            job = present_in(state, run)
            if job is not None and job.state in STILL:
                yield self._stopped_there(run, job, finding, now)
            elif self._works(state, run, now):
                words = f"{finding.summary}, with the power of work: it may do what its log does not name"
                yield replace(finding, summary=words, severity="warning")
            else:
                yield finding
        if not _stands_still(state, run, now):
            return
        assert run.log is not None
        yield self.found(
            state,
            run,
            "warning",
            f"{run.name} may have ended: {run.why}; no job and no W&B run tells of it",
            evidence=tail(run),
            advice="look at the end of its log (key 4); steps that are not recognised can be taught: [[log_format]]",
            since=run.log.at,
        )

    def _works(self, state: State, run: Run, now: Instant) -> bool:
        quiet = 0.0 if run.progress.at is None else now - run.progress.at
        return quiet <= self.at_work and gpus_of(run, state.nodes, state.sources, now).work

    def _stopped_there(self, run: Run, job: Job, finding: Finding, now: Instant) -> Finding:
        """Slurm, or whoever may, has stopped its job: it holds its nodes, and waits to be let go on."""
        quiet = "" if run.progress.at is None else f", its last step was {ago(now - run.progress.at)} ago"
        goes_on = f"scontrol resume {job.id}" if job.state == "SUSPENDED" else f"scancel --signal=CONT {job.id}"
        return replace(
            finding,
            severity="warning",
            summary=f"{run.name} stands still: job {job.id} {STILL[job.state]}{quiet}",
            advice=f"ask who did it, or what took its place; who may lets it go on: {goes_on}",
            by_age=False,
        )

    def mend(self, state: State, run: Run) -> str:
        taught = "; steps that are not recognised can be taught: [[log_format]]" if run.progress.at is None else ""
        return f"look at the end of its log (key 4) and its GPUs (key 2); {advice.requeues(state, run)}{taught}"


class DataStall(QuietRule, frozen=True, kw_only=True):
    """The run makes no step and its GPUs are idle: it waits for data, storage or its host."""

    name: ClassVar[str] = "data-stall"
    origin: ClassVar[str] = "idle GPUs while a step is due: data, storage or the host"
    verdict: ClassVar[str] = "data-stall"
    words: ClassVar[str] = "waits, and its GPUs have nothing to do"

    def mend(self, state: State, run: Run) -> str:
        return (
            "look at its disks (key 3) and its data loaders' processes on its nodes; "
            f"to start it anew, {advice.requeues(state, run)}"
        )


class LogUnread(RunRule, frozen=True, kw_only=True):
    """The log of a run grows, but no line is a known step: its progress is unknown."""

    name: ClassVar[str] = "log-unread"
    origin: ClassVar[str] = "our choice: an unknown log format is no fault of the run"

    for_: Duration = 10.0
    """How long it must be so: W&B may tell its steps, and is asked meanwhile."""

    def look(self, state: State, run: Run, now: Instant) -> Iterator[Finding]:
        if not _is_unread(run):
            return
        assert run.log is not None
        job = present_in(state, run)
        began = run.log.began_at if job is None or job.started_at is None else job.started_at
        yield self.found(
            state,
            run,
            "info",
            f"whether {run.name} trains cannot be told: {run.why}",
            evidence=tail(run),
            advice="look at its log (key 4); its lines can be taught: [[log_format]]",
            since=self.steady(state, run, now if began is None else began, now, 30.0),
            event=True,
        )


def _is_unread(run: Run) -> bool:
    return run.verdict == "unknown" and run.why.startswith(UNREAD)


def _stands_still(state: State, run: Run, now: Instant) -> bool:
    """Whether its log grew while it was watched, and does not any more, where nothing else tells of the run."""
    log = run.log
    if run.verdict != "idle" or run.spec.found or run.jobs or run.wandb is not None or log is None or log.at is None:
        return False
    return log.at > state.started_at and now - log.at > run.spec.stall_after
