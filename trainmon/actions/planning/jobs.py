"""Plans for jobs: cancel, hold, release, signal. All are refused while Slurm does not answer. Pure."""

from __future__ import annotations

from trainmon.actions.planning.builder import action, lost_steps
from trainmon.actions.planning.context import PlanContext, RowPlan
from trainmon.analysis.runs import jobs_of, saves_on
from trainmon.lib import clean
from trainmon.model import Execute, Job, Process
from trainmon.slurm import commands
from trainmon.slurm.batch_script import receiver
from trainmon.slurm.reasons import REASONS, end_reason

NUMBERS = {"HUP": 1, "INT": 2, "QUIT": 3, "USR1": 10, "USR2": 12, "TERM": 15}
"""The signals that a trainer can catch, by Linux's numbers: our own system may have others."""

NO_STEPS = ("batch", "extern", "interactive")

TRAP_NEEDED = (
    "The script must trap {name} and forward it. A trap runs only after the command in the foreground has ended."
)

ADMIN_HELD = "JobHeldAdmin"

ENDS_NOW = (
    "Slurm ends it now: SIGTERM, then SIGKILL after KillWait (30s by default). No checkpoint is saved first; to save "
    "one, use S."
)
SAVES_FIRST = "Slurm ends it now: SIGTERM, on which its trainer saves{}, then SIGKILL after KillWait (30s by default)."
SAVES_IN_TIME = "A save that takes longer than KillWait is lost."


def log_files(context: PlanContext, job: Job) -> tuple[str | None, str | None]:
    """The log that a requeue may truncate, and the standard error where that is another file, as `host:path`."""
    host, path = context.host, job.stdout
    log = context.run.log if context.run is not None else None
    if log is not None and log.path is not None and job.stdout in (None, log.path):
        host, path = log.host, log.path
    if host is None:
        return None, None
    has_errors = job.stderr not in (None, job.stdout, path, "/dev/null")
    return None if path is None else f"{host}:{path}", f"{host}:{job.stderr}" if has_errors else None


def split_location(file: str) -> tuple[str, str]:
    """`host:/path` → host and path; a host may be an IPv6 address."""
    host, colon, path = file.partition(":/")
    return (host, f"/{path}") if colon else (file.partition(":")[0], file.partition(":")[2])


def cancel(context: PlanContext) -> RowPlan:
    """End a job for good.

    Raises:
        Refused: when the job has ended or is not known.
    """
    job = context.check_job(context.job)
    if job.stage == "ended":
        raise context.refused(f"job {job.id} has ended already: {end_reason(job)}")
    waits, nodes, because = job.stage == "waiting", job.node_count or len(job.nodes), ""
    log, errors = (None, None) if waits else log_files(context, job)
    if job.elements > 1:
        because = f"job {job.id} is {job.elements} pending array tasks"
    elif nodes > 1 and not waits:
        because = f"job {job.id} holds {nodes} nodes"
    leaves = f"All {job.elements} pending array tasks leave the queue." if job.elements > 1 else "It leaves the queue."
    made = action(
        context,
        Execute(commands.cancel(job.target)),
        f"Cancel job {job.id}{context.of_run}",
        job=job,
        consequences=(leaves,) if waits else (*ends_now(context), *_jobs_behind(context, job)),
        warnings=context.other_owner_warning(job),
        expected=context.expected(job),
        keep_log=log,
        keep_errors=errors,
    )
    return RowPlan(actions=(made,), typed=job.id, because=because)


def ends_now(context: PlanContext) -> tuple[str, ...]:
    """What the end of a running job costs."""
    if context.run is None or not saves_on(context.run, "TERM", context.now):
        return ENDS_NOW, lost_steps(context)
    return SAVES_FIRST.format(context.usual_save_time()), SAVES_IN_TIME


def _jobs_behind(context: PlanContext, job: Job) -> tuple[str, ...]:
    """What the waiting jobs of the run, or of the array, do once a running one is cancelled."""
    run, known = context.run, [one for one in context.known_jobs.values() if one.cluster == job.cluster]
    same_array = [one for one in known if job.array is not None and one.array == job.array]
    own = same_array if run is None else jobs_of(run.spec, known)
    others = [one for one in own if one.stage == "waiting" and one.gone_at is None and one.key != job.key]
    behind, whole = sum(other.elements for other in others), "array" if run is None else "run"
    if not behind:
        return ()
    start = (
        f"1 job of the {whole} is pending behind it and starts"
        if behind == 1
        else f"{behind} are pending behind it and start"
    )
    return (f"{start} then: cancel or hold {', '.join(other.id for other in others[:4])} too, to end the {whole}.",)


def hold(context: PlanContext) -> RowPlan:
    """Keep waiting jobs from starting; where none waits, keep the running job from restarting.

    Raises:
        Refused: when nothing can be held.
    """
    context.check_job(context.job)
    wanted = [job for job in context.waiting or context.jobs[:1] if job.stage != "ended"]
    if not wanted:
        raise context.refused(f"no job of {context.name} is pending or running")
    free = [job for job in wanted if not is_held(job)]
    if not free:
        raise context.refused(f"job {wanted[0].id} is held already", "H releases it")
    waits_on = "It stays in the queue and is not started until it is released (H)."
    runs_on = "It runs on; if it is requeued, it stays pending until it is released (H)."
    made = (
        action(
            context,
            Execute(commands.hold(job.target)),
            f"Hold job {job.id}{context.of_run}",
            job=job,
            consequences=(waits_on if job.stage == "waiting" else runs_on,),
            warnings=context.other_owner_warning(job),
            expected=context.expected(job),
        )
        for job in free
    )
    return RowPlan(actions=tuple(made))


def release(context: PlanContext) -> RowPlan:
    """Let held jobs start.

    Raises:
        Refused: when no job is held.
    """
    context.check_job(context.job)
    held = [job for job in context.jobs if job.stage != "ended" and job.gone_at is None and is_held(job)]
    if not held:
        one = f"job {context.jobs[0].id} is not held"
        raise context.refused(one if len(context.jobs) == 1 else f"no job of {context.name} is held")
    may_operate = context.cluster_info is not None and context.cluster_info.may_operate
    ours = [job for job in held if job.reason != ADMIN_HELD or may_operate]
    if not ours:
        raise context.refused(f"job {held[0].id} is {REASONS[ADMIN_HELD]}", "ask the administrators why")
    kill = context.armed("kill")
    exits = (f"{kill}: it will exit as soon as it starts.",) if kill else ()
    made = (
        action(
            context,
            Execute(commands.release(job.target)),
            f"Release job {job.id}{context.of_run}",
            job=job,
            consequences=("It starts when its turn comes.",),
            warnings=(*exits, *context.other_owner_warning(job)),
            expected=context.expected(job),
        )
        for job in ours
    )
    return RowPlan(actions=tuple(made))


def is_held(job: Job) -> bool:
    """Whether it must be released before it can start."""
    return job.priority == 0 or (job.reason or "").startswith("JobHeld") or (job.reason or "").endswith("held")


def signal(context: PlanContext) -> RowPlan:
    """Send a signal; many trainers save on it.

    Raises:
        Refused: when the job does not run, or the signal is not allowed.
    """
    name = context.request.signal.upper().removeprefix("SIG")
    if name not in NUMBERS:
        raise context.refused(
            f"{clean(context.request.signal, 20)} is not a signal that a trainer can catch",
            f"one of {', '.join(NUMBERS)}; C cancels the job",
        )
    job = context.check_job(context.job)
    if job.stage == "waiting":
        raise context.refused(f"job {job.id} is pending: none of its processes runs", "C cancels it")
    if job.stage == "ended":
        raise context.refused(f"job {job.id} has ended: {end_reason(job)}")
    if job.key in context.readback.errors:
        raise context.refused(f"its steps could not be read: {context.readback.errors[job.key]}")
    return _signal_plan(context, job, name)


def _signal_plan(context: PlanContext, job: Job, name: str) -> RowPlan:
    """Slurm sends it to the tasks of the steps, not to what they start; without steps, to the batch shell alone."""
    all_steps = context.readback.steps.get(job.key, ())
    steps = [step for step in all_steps if not step.rpartition(".")[2].startswith(NO_STEPS)]
    script = context.readback.scripts.get(job.key, "")
    hears = None if steps else receiver(script, name)
    processes = _gpu_processes(context, job)
    known = [one.caught for one in processes if one.caught is not None]
    catch = sum(mask >> (NUMBERS[name] - 1) & 1 for mask in known)
    are_tasks = all(one.environment.get("SLURM_TASK_PID") == str(one.pid) for one in processes)
    is_reported = context.run is not None and saves_on(context.run, name, context.now)
    is_caught = hears == "shell" or is_reported or (are_tasks and 0 < catch == len(processes))
    who = f"its {'step' if len(steps) == 1 else 'steps'}" if steps else "the batch script"
    doubt = "" if is_caught else f"it is not known whether {who} catches {name}: an uncaught signal kills"
    if not steps and script and hears is None:
        doubt = f"{name} ends the batch shell of job {job.id}: its script has no trap"
    if catch < len(known):
        doubt = f"{name} ends {len(known) - catch} of {len(known)} GPU processes of job {job.id}"
    follows = "Then trainmon-tui watches for a new committed checkpoint."
    consequences: tuple[str, ...] = (_obeyed(context, name), follows)
    if known and not catch:
        consequences = (f"No process catches {name}: the signal kills them. Nothing is saved.", lost_steps(context))
    if not steps and hears != "trainer":
        consequences += (TRAP_NEEDED.format(name=name),)
    named = ", ".join(steps[:4]) + (" …" if len(steps) > 4 else "")
    shell = "only the batch shell: the job has no steps (no srun)"
    made = action(
        context,
        Execute(commands.signal(job.target, name, batch=not steps)),
        f"Send {name} to job {job.id}{context.of_run}",
        job=job,
        facts=(
            ("receivers", f"the tasks of {who} {named}, not the batch shell" if steps else shell),
            ("caught", f"by {catch} of {len(processes)} GPU processes" if known else "not known"),
        ),
        consequences=consequences,
        warnings=(*((f"{doubt[0].upper()}{doubt[1:]}.",) if doubt else ()), *context.other_owner_warning(job)),
        expected=context.expected(job),
    )
    return RowPlan(actions=(made,), typed=job.id, because=doubt)


def _obeyed(context: PlanContext, name: str) -> str:
    """What a trainer does that catches the signal."""
    run, at = context.run, f"at its next iteration{context.usual_save_time('a save takes ')}"
    if run is None or run.trainer is None or not saves_on(run, name, context.now):
        return f"A trainer that catches {name} writes an emergency checkpoint {at}; many then exit."
    then = "training goes on" if run.trainer.signals[f"SIG{name}"] == "save" else "then it exits"
    return f"The trainer saves {at}; {then}."


def _gpu_processes(context: PlanContext, job: Job) -> list[Process]:
    """The processes on the GPUs of its nodes, without those known to be another user's."""
    nodes = [context.state.nodes[name] for name in job.nodes if name in context.state.nodes]
    processes = {(node.name, one.pid): one for node in nodes for gpu in node.gpus for one in gpu.processes}
    return [one for one in processes.values() if not job.user or one.user in (None, job.user)]
