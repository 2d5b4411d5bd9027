"""Advice about a run, with its key or command. It suggests only actions that would not be refused. Pure."""

from __future__ import annotations

from trainmon.alerting.rules.runs.base import present_in
from trainmon.analysis.retries import decide
from trainmon.analysis.runs import last_attempts, writers
from trainmon.lib import clean
from trainmon.model import Run, State


def saves(run: Run) -> str:
    """How to save a run now."""
    if run.spec.save_switch is not None:
        return f"S makes it save now: trainmon-tui save {run.name}"
    if run.jobs:
        return f"T signals its trainer, if it saves on a signal: trainmon-tui signal {run.name}"
    return "make it save now; with a save_switch in its [[run]], S does that"


def ends(run: Run) -> str:
    """How to end a run that makes steps."""
    return cancels(run) if run.spec.kill_switch is None else f"K ends it: trainmon-tui kill {run.name}"


def cancels(run: Run) -> str:
    """How to end a run that reads no switch."""
    return f"C cancels its job: trainmon-tui cancel {run.name}" if run.jobs else "end its processes on its nodes"


def queues(state: State, run: Run) -> str:
    """How to queue another job of a run."""
    if run.spec.script is not None:
        return f"N queues another: trainmon-tui queue {run.name}"
    commands = (state.jobs[key].command for key in run.jobs if key in state.jobs)
    command = next((clean(command, 200) for command in commands if command), None)
    if command is None and not run.jobs and run.spec.job is None:
        return "start it again by hand; its log (key 4) shows how it ended"
    how = " with sbatch" if command is None else f": sbatch {command}"
    return f"submit it again{how} (with a script in its [[run]], N does that)"


def requeues(state: State, run: Run) -> str:
    """How to start a run again: requeue its job, or queue another job if the job has ended: Slurm forgets it within
    minutes (MinJobAge), and advice may be read later. An armed kill switch must go first, because a new attempt would
    end at once."""
    job = present_in(state, run)
    can_requeue = job is not None and job.requeue is not False and job.batch is not False
    if can_requeue:
        return f"{_disarms(run)}R requeues its job: trainmon-tui requeue {run.name}"
    return _disarms(run) + queues(state, run)


def _disarms(run: Run) -> str:
    if run.kill is None or not run.kill.exists:
        return ""
    return run.kill.removal(f"U removes the kill switch: trainmon-tui unkill {run.name}") + "; then "


def restarts(state: State, run: Run) -> str:
    """Whether another attempt of a run that has ended helps, and how to start it: by what was decided."""
    attempts = state.attempts.values()
    if (writer := next(writers(run, state, run.jobs), None)) is not None:
        return f"end the trainer of job {writer[0]} first: it still writes to the checkpoints"
    last = last_attempts(one for one in attempts if one.run_id == run.name).get(run.name)
    decision = None if last is None else decide(last, attempts, run.spec.retry)
    if decision is None:
        return f"{_disarms(run)}see how it ended (key 4) before it starts again: its cause is not known yet"
    if decision.choice == "evaluator":
        by_hand = "start the evaluator again; with command in its [[eval]], R does that"
        return f"R starts it: trainmon-tui requeue {run.name}" if run.spec.eval_commands else by_hand
    if decision.choice in ("stop", "none"):
        return f"{decision.why}: another attempt does not help as it is"
    return f"{decision.why}; {'then ' if decision.choice == 'after-change' else ''}{requeues(state, run)}"
