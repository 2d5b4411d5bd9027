"""What rules about runs share: the sources of a run, when data is missing, and how a finding is made. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from trainmon.alerting.rules.base import Family, Rule, Unknown, Unseen, silent
from trainmon.analysis.runs import Queue, RunContext, queue_of
from trainmon.lib import Instant, Seconds
from trainmon.model import WANDB, Alert, Finding, Job, Run, Severity, State, verdict_text

LIVING = frozenset({"healthy", "evaluating", "saving", "diverged"})
"""Verdicts of a run that makes steps."""

SILENT = frozenset({"stalled", "hung", "data-stall"})
OVER = frozenset({"dead", "stopped", "finished"})
UNKNOWN = frozenset({"unknown", "idle"})
"""Verdicts of a run whose state is not known."""

BETWEEN = UNKNOWN | SILENT | {"starting", "queued"}
"""Verdicts of a run without new numbers."""

LINES = 5
"""Lines of a log that are evidence."""

LINE = 300
"""Characters kept of a line."""


class RunRule(Rule, frozen=True, kw_only=True):
    """A rule that checks one run after the other."""

    family: ClassVar[Family] = "runs"
    by_age: ClassVar[bool] = False
    """Whether its findings depend on how much time has passed."""
    unknown_while: ClassVar[frozenset[str]] = UNKNOWN
    """Verdicts under which a missing finding does not end an alert."""

    def check(self, state: State, now: Instant) -> Iterator[Finding | Unknown]:
        for run in state.runs.values():
            yield from self.check_run(state, run, now)

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding | Unknown]:
        """The findings about one run, or what is not known of it although its sources answer."""
        raise NotImplementedError

    def sources(self, state: State, run: Run) -> tuple[str, ...]:
        """The names of the sources that the rule needs."""
        return (*log_source(state, run), *slurm_source(state, run))

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        """Uses the present sources of the run: its log may be read on another host now."""
        run = state.runs.get(alert.run or "")
        if run is None:
            return Unknown(f"the run {alert.run} is no longer watched")
        is_unknown = run.verdict in self.unknown_while
        unknown = Unknown(f"{run.name} is {verdict_text(run.verdict)}: {run.why}") if is_unknown else None
        return silent(state, self.sources(state, run)) or unknown

    def first_reported(
        self,
        state: State,
        run: Run,
        since: Instant,
        now: Instant,
        within: Seconds,
        is_same: Callable[[Alert], bool] = lambda _: True,
    ) -> Instant:
        """The time of an event as it was first reported. After a start it is read again, and clocks drift. `is_same`:
        whether an alert of about this time is about it, and not about another event soon before or after."""
        at = min(since, now)
        known = (alert for alert in state.alerts.values() if (alert.rule, alert.run) == (self.name, run.name))
        return next((one.since for one in known if abs(one.since - at) <= within and is_same(one)), at)

    def unknown(self, run: Run, why: str) -> Unknown:
        """Why it is not known whether a run is well."""
        return Unknown(why, f"run:{run.name}")

    def finding(self, state: State, run: Run, severity: Severity, summary: str, **more: Any) -> Finding:
        """A finding about a run."""
        known: dict[str, Any] = {
            "rule": self.name,
            "subject": f"run:{run.name}",
            "severity": severity,
            "summary": summary,
            "cluster": run.spec.cluster,
            "run": run.name,
            "sources": self.sources(state, run),
            "by_age": self.by_age,
        }
        return Finding(**known | more)


def log_source(state: State, run: Run) -> tuple[str, ...]:
    """The host where its log is read, else W&B or the host that reads the file of its client."""
    if run.log is None:
        return wandb_source(state, run) or file_source(state, run)
    name = f"wandb:{run.name}" if run.log.host == WANDB else f"node:{run.log.host}"
    return (name,) if name in state.sources else ()


def slurm_source(state: State, run: Run) -> tuple[str, ...]:
    """Its Slurm, if it has one."""
    name = f"slurm:{run.spec.cluster}"
    source = state.sources.get(name)
    return (name,) if source is not None and source.health != "off" and (run.jobs or run.spec.job) else ()


def wandb_source(state: State, run: Run) -> tuple[str, ...]:
    name = f"wandb:{run.name}"
    return (name,) if run.spec.wandb is not None and name in state.sources else ()


def file_source(state: State, run: Run) -> tuple[str, ...]:
    """The host that reads the file of its W&B client, if only that or a trouble in it shows the loss."""
    file = run.wandb_file
    is_needed = file is not None and (run.log is None or file.trouble is not None)
    name = "" if file is None else f"node:{file.host}"
    return (name,) if is_needed and name in state.sources else ()


def all_sources(state: State, run: Run) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*log_source(state, run), *slurm_source(state, run), *wandb_source(state, run))))


def queue_in(state: State, run: Run) -> Queue | None:
    """Its jobs, if Slurm answers."""
    return queue_of(run, RunContext(state.nodes, state.sources, state.jobs, state.actions))


def present_in(state: State, run: Run) -> Job | None:
    """Its running job, if Slurm answers."""
    return None if (queue := queue_in(state, run)) is None else queue.present


def waiting_in(state: State, run: Run) -> Job | None:
    """Its next job, if Slurm answers."""
    return None if (queue := queue_in(state, run)) is None else queue.waiting


def tail(run: Run, count: int = LINES) -> tuple[str, ...]:
    """The last lines of its log."""
    lines = () if run.log is None else run.log.lines[-4 * count :]
    return tuple(line[:LINE] for line in lines if line.strip())[-count:]
