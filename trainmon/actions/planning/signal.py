"""The plan of a signal: who gets it, and whether anybody catches it; one that nobody catches kills. Pure."""

from __future__ import annotations

from typing import NamedTuple

from trainmon.actions.planning.builder import action, lost_steps
from trainmon.actions.planning.context import Answer, PlanContext, as_seen, foreign_warning, unknown_to_slurm
from trainmon.lib import clean, duration
from trainmon.model import Execute, Job
from trainmon.slurm import commands, ended

NUMBERS = {"HUP": 1, "INT": 2, "QUIT": 3, "USR1": 10, "USR2": 12, "TERM": 15}
"""Those that a trainer can catch, by Linux's numbers: our own system may have others."""

NO_STEPS = ("batch", "extern", "interactive")


class Catchers(NamedTuple):
    """How many of a job's GPU processes catch a signal, of how many whose masks are known."""

    catch: int
    known: int
    unknown: int


def signal(case: PlanContext) -> Answer:
    """Ask the trainer to save and end, or whatever it does on that signal."""
    job, name = case.job, case.ask.signal.upper().removeprefix("SIG")
    if name not in NUMBERS:
        return case.refused(
            f"{clean(case.ask.signal, 20)} is no signal that a trainer can catch",
            f"one of {', '.join(NUMBERS)}; C cancels the job",
        )
    refusal = unknown_to_slurm(case, job)
    if refusal is not None:
        return refusal
    assert job is not None
    if job.stage == "waiting":
        return case.refused(f"job {job.id} waits: nothing of it runs that could get a signal", "C takes it away")
    if job.stage == "ended":
        return case.refused(f"job {job.id} has ended: {ended(job)}")
    if job.key in case.fresh.errors:
        return case.refused(f"its steps could not be read: {case.fresh.errors[job.key]}")
    steps = _steps(case, job)
    caught = catchers(case, job, NUMBERS[name])
    batch = not steps
    made = action(
        case,
        Execute(commands.signal(job.target, name, batch=batch)),
        f"Send {name} to job {job.id}" + (f" of {case.run.name}" if case.run is not None else ""),
        job=job,
        facts=(("who gets it", _receivers(steps)), ("caught", _caught_words(name, caught, batch=batch))),
        consequences=(*_follows(case, name, caught), *_shell_words(name, batch=batch)),
        warnings=(*_warnings(name, caught, batch=batch), *foreign_warning(case, job)),
        expected=as_seen(case, job),
    )
    kills = caught.known > caught.catch
    because = f"{name} ends {_some(caught)} of job {job.id}" if kills else ""
    return Answer(actions=(made,), typed=job.id if kills else None, because=because)


def _steps(case: PlanContext, job: Job) -> tuple[str, ...]:
    return tuple(step for step in case.fresh.steps.get(job.key, ()) if not step.rpartition(".")[2].startswith(NO_STEPS))


def catchers(case: PlanContext, job: Job, number: int) -> Catchers:
    """From the masks of the processes on its nodes' GPUs; those that are known to be another's do not count."""
    masks: dict[tuple[str, int], int | None] = {}
    for name in job.nodes:
        node = case.state.nodes.get(name)
        for gpu in node.gpus if node is not None else ():
            for process in gpu.processes:
                if process.user is None or not job.user or process.user == job.user:
                    masks[name, process.pid] = process.caught
    known = [mask for mask in masks.values() if mask is not None]
    return Catchers(sum(mask >> (number - 1) & 1 for mask in known), len(known), len(masks) - len(known))


def _receivers(steps: tuple[str, ...]) -> str:
    if not steps:
        return "the batch shell alone, as it runs no steps (no srun)"
    named = ", ".join(steps[:4]) + (" …" if len(steps) > 4 else "")
    return f"its {'step' if len(steps) == 1 else 'steps'} {named}, and not the batch shell"


def _caught_words(name: str, caught: Catchers, *, batch: bool) -> str:
    if not caught.known:
        return f"not known: no GPU process of the job shows whether it catches {name}"
    told = ", which the shell must hand it on to" if batch else ""
    return f"by {caught.catch} of {caught.known} GPU processes{told}"


def _some(caught: Catchers) -> str:
    if caught.catch == 0:
        return f"all {caught.known} GPU processes" if caught.known > 1 else "the GPU process"
    return f"{caught.known - caught.catch} of {caught.known} GPU processes"


def _follows(case: PlanContext, name: str, caught: Catchers) -> tuple[str, ...]:
    if caught.known and not caught.catch:
        return (f"Nobody catches {name}: it kills. Nothing is saved.", lost_steps(case))
    saves = None if case.run is None or case.run.checkpoints is None else case.run.checkpoints.save_s
    about = f" (a save takes about {duration(saves)}, as usual)" if saves else ""
    return (
        f"A trainer that catches {name} writes an emergency checkpoint at its next iteration{about}; many then exit.",
        "Then it is watched for: a new checkpoint is committed.",
    )


def _shell_words(name: str, *, batch: bool) -> tuple[str, ...]:
    if not batch:
        return ()
    return (
        f"The script must trap {name} and hand it on. A trap runs only after the command in the foreground has ended.",
    )


def _warnings(name: str, caught: Catchers, *, batch: bool) -> tuple[str, ...]:
    """What may end by it. Of the batch shell nobody reads the mask: it holds no GPU."""
    shell = f"Whether the batch script traps {name} is not known: a shell without a trap is ended, and its job with it."
    return ((shell,) if batch else ()) + _processes(name, caught)


def _processes(name: str, caught: Catchers) -> tuple[str, ...]:
    if not caught.known:
        return (f"Whether anybody catches {name} is not known: a signal that nobody catches kills.",)
    if caught.catch < caught.known:
        return (f"{name} ends {_some(caught)}: they do not catch it.",)
    return (f"Of {caught.unknown} more GPU processes it is not known.",) if caught.unknown else ()
