"""What rules about runs share: the sources of a run, when data is missing, how a finding is made, and advice. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from trainmon.alerting.rules.base import NOT_RUNNING, Family, Gone, Rule, Unknown, Unseen, silent
from trainmon.analysis.attempts import places_in, rank_processes, ranks_of_log, with_places
from trainmon.analysis.retries import decide, may_requeue
from trainmon.analysis.runs import Queue, RunContext, last_attempts, queue_of, writers
from trainmon.lib import Instant, Seconds, clean
from trainmon.model import GOING, LOG_MARK, OVER, SILENT, WANDB, Alert, Finding, Job, Run, Severity, State, verdict_text

LIVING = GOING | {"diverged"}
"""Verdicts of a run that makes steps."""

STEPS = frozenset({"healthy", "diverged"})
"""Verdicts of a run whose GPUs all do the same work. A save or an evaluation often uses only some of them."""

UNKNOWN = frozenset({"unknown", "idle"})
"""Verdicts of a run whose state is not known."""

BETWEEN = UNKNOWN | SILENT | {"starting", "queued"}
"""Verdicts of a run without new numbers."""

LINES = 5
"""Lines of a log that are evidence."""

LINE = 300
"""Characters kept of a line."""


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


Sources = tuple[Callable[[State, Run], tuple[str, ...]], ...]
"""Functions that name sources of a run."""

EVERYTHING: Sources = (log_source, slurm_source, wandb_source)
"""For a rule that needs all that tells of a run."""


class RunRule(Rule, frozen=True, kw_only=True):
    """A rule that checks one run after the other."""

    family: ClassVar[Family] = "runs"
    may_flap: ClassVar[bool] = False
    by_age: ClassVar[bool] = False
    """Whether its findings depend on how much time has passed."""
    unknown_while: ClassVar[frozenset[str]] = UNKNOWN
    """Verdicts under which a missing finding does not end an alert."""

    reads: ClassVar[Sources] = (log_source, slurm_source)
    """What finds the sources that the rule needs."""

    def check(self, state: State, now: Instant) -> Iterator[Finding | Unknown]:
        for run in state.runs.values():
            yield from self.check_run(state, run, now)

    def check_run(self, state: State, run: Run, now: Instant) -> Iterator[Finding | Unknown]:
        """The findings about one run, or what is not known of it although its sources answer."""
        raise NotImplementedError

    def sources(self, state: State, run: Run) -> tuple[str, ...]:
        """The names of the sources that the rule needs."""
        return tuple(dict.fromkeys(name for find in self.reads for name in find(state, run)))

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        """Uses the present sources of the run: its log may be read on another host now. What was wrong with its steps
        is not over because the run has ended."""
        run = state.runs.get(alert.run or "")
        if run is None:
            return Unknown(f"{alert.run} is not watched here; the alert ends by itself")
        unseen: Unseen | None = Gone(NOT_RUNNING) if run.verdict in OVER and self.unknown_while >= SILENT else None
        if run.verdict in self.unknown_while:
            unseen = Unknown(f"{run.name} is {verdict_text(run.verdict)}: {run.why}")
        return silent(state, self.sources(state, run)) or unseen

    def present(self, state: State, alert: Alert) -> str:
        run = state.runs.get(alert.run or "")
        return "" if run is None else f"{run.name} now: {verdict_text(run.verdict)}, {run.why}"

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
        """A finding about a run. Of the ranks that its last lines name, the evidence has where they run."""
        last, path = tail(run), None if run.log is None else run.log.path
        lines = [line for line in more.get("evidence", ()) if line in last]
        is_mixed = any(line.startswith(LOG_MARK) for line in last)
        ranks = ranks_of_log((summary, *lines), None if is_mixed else path, run.name, state.attempts.values())
        if places := places_in(lines, ranks):
            more["evidence"] = (*more["evidence"], *map(str, places[-LINES:]))
        known: dict[str, Any] = {
            "rule": self.name,
            "subject": f"run:{run.name}",
            "severity": severity,
            "summary": with_places(summary, ranks),
            "cluster": run.spec.cluster,
            "run": run.name,
            "sources": self.sources(state, run),
            "by_age": self.by_age,
        }
        return Finding(**known | more)


class JobRule(RunRule, frozen=True, kw_only=True):
    """Needs only Slurm, if the run has jobs."""

    unknown_while: ClassVar[frozenset[str]] = frozenset()
    reads: ClassVar[Sources] = (slurm_source,)


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


# ---- advice, with its key or command: only actions that would not be refused -----------------------------------------


def how_to_save(run: Run) -> str:
    """How to save a run now."""
    if run.spec.save_switch is not None:
        return f"S makes it save now: trainmon-tui save {run.name}"
    if run.jobs:
        return f"T signals its trainer, if it saves on a signal: trainmon-tui signal {run.name}"
    return "make it save now; with a save_switch in its [[run]], S does that"


def how_to_cancel(run: Run) -> str:
    """How to end a run that reads no switch, or must not save."""
    return f"C cancels its job: trainmon-tui cancel {run.name}" if run.jobs else "end its processes on its nodes"


def how_to_hold(state: State, run: Run) -> str:
    """How to keep the jobs of a run from starting: then its next attempt waits until a person has found the cause."""
    has_job = present_in(state, run) or waiting_in(state, run)
    return f"H holds its jobs: trainmon-tui hold {run.name}; " if has_job else ""


def how_to_see_stacks(state: State, run: Run) -> str:
    """How to see where its ranks wait: they can be asked if it is known which processes they are."""
    return f"trainmon-tui stacks {run.name}" if rank_processes(run, state) else "py-spy dump of its processes"


def how_to_queue(state: State, run: Run) -> str:
    """How to queue another job of a run, or whose trainer must end first: two would write to the same checkpoints."""
    if (writer := next(writers(run, state, run.jobs), None)) is not None:
        return f"end the trainer of job {writer[0]} first: it still writes to the checkpoints"
    if run.spec.script is not None:
        return f"N queues another: trainmon-tui queue {run.name}"
    commands = (state.jobs[key].command for key in run.jobs if key in state.jobs)
    command = next((clean(command, 200) for command in commands if command), None)
    if command is None and not run.jobs and (run.spec.job is None or run.spec.nodes):  # it has no Slurm job
        return ("end its processes on its nodes, then " if run.verdict in SILENT else "") + "start it again by hand"
    present = present_in(state, run)
    sbatch = "sbatch" if present is None else f"sbatch --dependency=afterany:{present.id}"
    how = f" with {sbatch}" if command is None else f": {sbatch} {command}"
    return f"submit it again{how} (with a script in its [[run]], N does that)"


def how_to_requeue(state: State, run: Run) -> str:
    """How to start a run again: requeue its job, or queue another job if the job has ended: Slurm forgets it within
    minutes (MinJobAge), and advice may be read later. An armed kill switch must go first, because a new attempt would
    end at once."""
    if may_requeue(present_in(state, run)):
        return f"{_disarms(run)}R requeues its job: trainmon-tui requeue {run.name}"
    return _disarms(run) + how_to_queue(state, run)


def _disarms(run: Run) -> str:
    if run.kill is None or not run.kill.exists:
        return ""
    return run.kill.removal(f"U removes the kill switch: trainmon-tui unkill {run.name}") + "; then "


def how_to_restart(state: State, run: Run) -> str:
    """Whether another attempt of a run that has ended helps, and how to start it: by what was decided."""
    attempts = state.attempts.values()
    if any(writers(run, state, run.jobs)):
        return how_to_queue(state, run)
    last = last_attempts(one for one in attempts if one.run_id == run.name).get(run.name)
    decision = None if last is None else decide(last, attempts, run.spec.retry, state.node_records)
    if decision is None:
        return f"{_disarms(run)}see how it ended (key 4) before it starts again: its cause is not known yet"
    if decision.choice == "evaluator":
        by_hand = "start the evaluator again; with command in its [[eval]], R does that"
        return f"R starts it: trainmon-tui requeue {run.name}" if run.spec.eval_commands else by_hand
    if decision.choice in ("stop", "none"):
        return f"{decision.why}; do not start it again without a change"
    return f"{decision.why}; {'then ' if decision.choice == 'after-change' else ''}{how_to_requeue(state, run)}"
