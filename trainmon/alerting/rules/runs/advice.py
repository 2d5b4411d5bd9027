"""What a person can do about a run, with the key or command for it: only what would not be refused. Pure."""

from __future__ import annotations

from trainmon.alerting.rules.runs.base import present_in
from trainmon.lib import clean
from trainmon.model import Run, State


def saves(run: Run) -> str:
    """How it saves now."""
    if run.spec.save_switch is not None:
        return f"S has it save now: trainmon-tui save {run.name}"
    if run.jobs:
        return f"T signals its trainer, if it saves by that: trainmon-tui signal {run.name}"
    return "have it save now; a save_switch in its [[run]] has S do that"


def ends(run: Run) -> str:
    """How a run that steps is ended."""
    if run.spec.kill_switch is not None:
        return f"K ends it: trainmon-tui kill {run.name}"
    return cancels(run)


def cancels(run: Run) -> str:
    """How a run is ended that reads no switch."""
    if run.jobs:
        return f"C cancels its job: trainmon-tui cancel {run.name}"
    return "end its processes on its nodes"


def queues(state: State, run: Run) -> str:
    """How another job of it is queued."""
    if run.spec.script is not None:
        return f"N queues another: trainmon-tui queue {run.name}"
    command = next((state.jobs[key].command for key in run.jobs if key in state.jobs and state.jobs[key].command), None)
    if command is not None:
        return f"submit it again: sbatch {clean(command, 200)} (a script in its [[run]] has N do that)"
    if run.jobs or run.spec.job is not None:
        return "submit it again with sbatch (a script in its [[run]] has N do that)"
    return "start it as it was started before; its log (key 4) shows how it ended"


def unkills(run: Run) -> str:
    """What comes first where its kill switch is armed: what is started would end at once."""
    is_armed = run.kill is not None and run.kill.exists
    return f"U takes the kill switch back: trainmon-tui unkill {run.name}; then " if is_armed else ""


def requeues(state: State, run: Run) -> str:
    """How it is started again: its job is requeued while it is there, and another queued once it has ended."""
    first = unkills(run)
    job = present_in(state, run)
    if job is None or job.requeue is False or job.batch is False:
        return first + queues(state, run)
    return f"{first}R requeues its job: trainmon-tui requeue {run.name}"
