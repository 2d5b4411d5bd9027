"""Advice about a run, with its key or command. It suggests only actions that would not be refused. Pure."""

from __future__ import annotations

from trainmon.alerting.rules.runs.base import present_in
from trainmon.lib import clean
from trainmon.model import Run, State


def saves(run: Run) -> str:
    """How to save a run now."""
    if run.spec.save_switch is not None:
        return f"S makes it save now: trainmon-tui save {run.name}"
    if run.jobs:
        return f"T signals its trainer, if it saves by that: trainmon-tui signal {run.name}"
    return "make it save now; with a save_switch in its [[run]], S does that"


def ends(run: Run) -> str:
    """How to end a run that makes steps."""
    if run.spec.kill_switch is not None:
        return f"K ends it: trainmon-tui kill {run.name}"
    return cancels(run)


def cancels(run: Run) -> str:
    """How to end a run that reads no switch."""
    if run.jobs:
        return f"C cancels its job: trainmon-tui cancel {run.name}"
    return "end its processes on its nodes"


def queues(state: State, run: Run) -> str:
    """How to queue another job of a run."""
    if run.spec.script is not None:
        return f"N queues another: trainmon-tui queue {run.name}"
    command = next((state.jobs[key].command for key in run.jobs if key in state.jobs and state.jobs[key].command), None)
    if command is not None:
        return f"submit it again: sbatch {clean(command, 200)} (with a script in its [[run]], N does that)"
    if run.jobs or run.spec.job is not None:
        return "submit it again with sbatch (with a script in its [[run]], N does that)"
    return "start it again by hand; its log (key 4) shows how it ended"


def unkills(run: Run) -> str:
    """The first step if the kill switch is armed: a new attempt would end at once."""
    is_armed = run.kill is not None and run.kill.exists
    return f"U removes the kill switch: trainmon-tui unkill {run.name}; then " if is_armed else ""


def requeues(state: State, run: Run) -> str:
    """How to start a run again: requeue its job, or queue another one if the job has ended."""
    first = unkills(run)
    job = present_in(state, run)
    if job is None or job.requeue is False or job.batch is False:
        return first + queues(state, run)
    return f"{first}R requeues its job: trainmon-tui requeue {run.name}"
