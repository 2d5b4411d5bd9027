"""The plan of a signal: which processes get it, and which of them catch it. An uncaught signal kills. Pure."""

from __future__ import annotations

from trainmon.actions.planning.builder import action, lost_steps
from trainmon.actions.planning.context import PlanContext, RowPlan
from trainmon.lib import clean
from trainmon.model import Execute, Job
from trainmon.slurm import commands, end_reason

NUMBERS = {"HUP": 1, "INT": 2, "QUIT": 3, "USR1": 10, "USR2": 12, "TERM": 15}
"""The signals that a trainer can catch, by Linux's numbers: our own system may have others."""

NO_STEPS = ("batch", "extern", "interactive")

TRAP_NEEDED = (
    "The script must trap {name} and forward it. A trap runs only after the command in the foreground has ended."
)
TRAP_UNKNOWN = "It is not known whether the batch script traps {name}: without a trap, the shell and its job end."


def signal(context: PlanContext) -> RowPlan:
    """Send a signal on which the trainer saves, or does whatever it does on that signal."""
    job, name = context.job, context.request.signal.upper().removeprefix("SIG")
    if name not in NUMBERS:
        return context.refused(
            f"{clean(context.request.signal, 20)} is not a signal that a trainer can catch",
            f"one of {', '.join(NUMBERS)}; C cancels the job",
        )
    refusal = context.unknown_to_slurm(job)
    if refusal is not None:
        return refusal
    assert job is not None
    if job.stage == "waiting":
        return context.refused(f"job {job.id} waits: none of its processes runs", "C cancels it")
    if job.stage == "ended":
        return context.refused(f"job {job.id} has ended: {end_reason(job)}")
    if job.key in context.readback.errors:
        return context.refused(f"its steps could not be read: {context.readback.errors[job.key]}")
    return _planned(context, job, name)


def _planned(context: PlanContext, job: Job, name: str) -> RowPlan:
    all_steps = context.readback.steps.get(job.key, ())
    steps = [step for step in all_steps if not step.rpartition(".")[2].startswith(NO_STEPS)]
    batch = not steps
    masks = _signal_masks(context, job)
    known = [mask for mask in masks if mask is not None]
    catch = sum(mask >> (NUMBERS[name] - 1) & 1 for mask in known)
    if catch:
        uncaught = f"{len(known) - catch} of {len(known)} GPU processes"
    else:
        uncaught = f"all {len(known)} GPU processes" if len(known) > 1 else "the GPU process"
    receivers = "only the batch shell: the job has no steps (no srun)"
    if steps:
        named = ", ".join(steps[:4]) + (" …" if len(steps) > 4 else "")
        receivers = f"its {'step' if len(steps) == 1 else 'steps'} {named}, not the batch shell"
    caught = f"not known: no GPU process of the job shows whether it catches {name}"
    consequences: tuple[str, ...] = (
        f"A trainer that catches {name} writes an emergency checkpoint at its next iteration"
        f"{context.usual_save_time('a save takes ')}; many then exit.",
        "Then trainmon-tui watches for a new committed checkpoint.",
    )
    if known:
        caught = f"by {catch} of {len(known)} GPU processes{', if the shell forwards it' if batch else ''}"
        if not catch:
            consequences = (f"No process catches {name}: it kills them. Nothing is saved.", lost_steps(context))
    warnings: tuple[str, ...] = ()
    if not known:
        warnings = (f"It is not known whether a process catches {name}: an uncaught signal kills.",)
    elif catch < len(known):
        warnings = (f"{name} ends {uncaught}: they do not catch it.",)
    elif len(masks) > len(known):
        warnings = (f"It is not known of {len(masks) - len(known)} more GPU processes.",)
    if batch:  # nobody reads the mask of the batch shell: it holds no GPU
        consequences += (TRAP_NEEDED.format(name=name),)
        warnings = (TRAP_UNKNOWN.format(name=name), *warnings)
    made = action(
        context,
        Execute(commands.signal(job.target, name, batch=batch)),
        f"Send {name} to job {job.id}{context.of_run}",
        job=job,
        facts=(("who gets it", receivers), ("caught", caught)),
        consequences=consequences,
        warnings=(*warnings, *context.other_owner_warning(job)),
        expected=context.expected(job),
    )
    kills = len(known) > catch
    because = f"{name} ends {uncaught} of job {job.id}" if kills else ""
    return RowPlan(actions=(made,), typed=job.id if kills else None, because=because)


def _signal_masks(context: PlanContext, job: Job) -> list[int | None]:
    """The masks of caught signals of the processes on its nodes' GPUs, without those known to be another user's."""
    masks: dict[tuple[str, int], int | None] = {}
    for name in job.nodes:
        node = context.state.nodes.get(name)
        for gpu in node.gpus if node is not None else ():
            for process in gpu.processes:
                if process.user is None or not job.user or process.user == job.user:
                    masks[name, process.pid] = process.caught
    return list(masks.values())
