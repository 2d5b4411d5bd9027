"""Plans with jobs: requeue, cancel, hold, release. None of them while Slurm does not say what is true now. Pure."""

from __future__ import annotations

from trainmon.actions.planning.builder import action, lost_steps
from trainmon.actions.planning.context import Answer, PlanContext, as_seen, foreign_warning, unknown_to_slurm
from trainmon.actions.planning.switches import armed_kill
from trainmon.lib import clean
from trainmon.model import Action, Execute, Job
from trainmon.slurm import commands
from trainmon.slurm import reasons as words

NOWHERE = "/dev/null"

ADMIN_HELD = "JobHeldAdmin"


def requeue(case: PlanContext) -> Answer:
    """End the attempt that runs, and let the same job wait and start anew."""
    job = case.job
    refusal = unknown_to_slurm(case, job) or _not_requeueable(case)
    if refusal is not None:
        return refusal
    assert job is not None
    unread = case.unread_kill()
    unseen = () if unread is None else (f"Whether its kill switch is armed cannot be told: {unread}.",)
    made = action(
        case,
        Execute(commands.requeue(job.target)),
        f"Requeue job {job.id}{_of(case)}",
        job=job,
        facts=(("restarts so far", "unknown" if job.restarts is None else str(job.restarts)),),
        consequences=(
            "Slurm ends it now: SIGTERM, and SIGKILL to what is left 30 s later. Nothing is saved first (S would).",
            lost_steps(case),
            "The same job id waits again: its begin time (BeginTime) holds it for 2 min, then it waits for its nodes.",
            *_overtaken(case, job),
            _resumes(case),
            *_log_words(case, job),
        ),
        warnings=(*unseen, *foreign_warning(case, job)),
        expected=as_seen(case, job, absent=True),
        keep_log=_log(case, job),
        keep_errors=_errors(case, job),
    )
    return Answer(actions=(made,))


def _not_requeueable(case: PlanContext) -> Answer | None:
    job = case.job
    assert job is not None
    kill = armed_kill(case)
    if kill is not None:
        way = f"first take it back: U, or trainmon-tui unkill {case.name}"
        return case.refused(f"{kill.words(case.now)}: the next attempt would end at once", way)
    if job.stage == "waiting":
        held = "H releases it" if is_held(job) else ""
        return case.refused(f"job {job.id} waits already: {words.waits(job, case.now)}", held)
    another = f"queue another: N, or trainmon-tui queue {case.name}"
    if job.stage == "ended":
        why = f"job {job.id} has ended ({words.ended(job)}): Slurm requeues nothing that has ended"
        return case.refused(why, another)
    if job.requeue is False:
        return case.refused(f"job {job.id} may not be requeued (it was submitted so: --no-requeue)", another)
    if job.batch is False:
        return case.refused(f"job {job.id} is no batch job (salloc or srun): Slurm cannot start it anew")
    return None


def cancel(case: PlanContext) -> Answer:
    """End a job for good."""
    job = case.job
    refusal = unknown_to_slurm(case, job)
    if refusal is not None:
        return refusal
    assert job is not None
    if job.stage == "ended":
        return case.refused(f"job {job.id} has ended already: {words.ended(job)}")
    runs = job.stage != "waiting"
    ends = (
        "Slurm ends it now: SIGTERM, and SIGKILL to what is left 30 s later. Nothing is saved first (S would).",
        lost_steps(case),
    )
    leaves = "It leaves the queue." if job.elements == 1 else f"All {job.elements} elements that wait leave the queue."
    made = action(
        case,
        Execute(commands.cancel(job.target)),
        f"Cancel job {job.id}{_of(case)}",
        job=job,
        consequences=(*(ends if runs else (leaves,)), *_those_behind(case, job)),
        warnings=foreign_warning(case, job),
        expected=as_seen(case, job),
        keep_log=_log(case, job) if runs else None,
        keep_errors=_errors(case, job) if runs else None,
    )
    because = _much_at_stake(job)
    return Answer(actions=(made,), typed=job.id if because else None, because=because)


def _much_at_stake(job: Job) -> str:
    nodes = job.node_count or len(job.nodes)
    if job.elements > 1:
        return f"job {job.id} stands for {job.elements} elements of an array"
    return f"job {job.id} holds {nodes} nodes" if nodes > 1 and job.stage != "waiting" else ""


def hold(case: PlanContext) -> Answer:
    """Keep waiting jobs from starting; of a run that has none waiting, the job that runs from starting anew."""
    refusal = unknown_to_slurm(case, case.job)
    if refusal is not None:
        return refusal
    wanted = [job for job in case.waiting or case.jobs[:1] if job.stage != "ended"]
    if not wanted:
        return case.refused(f"no job of {case.name} waits or runs")
    free = [job for job in wanted if not is_held(job)]
    if not free:
        return case.refused(f"job {wanted[0].id} is held already", "H releases it")
    return Answer(actions=tuple(_hold(case, job) for job in free))


def _hold(case: PlanContext, job: Job) -> Action:
    waits = "It stays in the queue and is not started until it is released (H)."
    runs = "It runs on; if it is requeued, it waits until it is released (H)."
    return action(
        case,
        Execute(commands.hold(job.target)),
        f"Hold job {job.id}{_of(case)}",
        job=job,
        consequences=(waits if job.stage == "waiting" else runs,),
        warnings=foreign_warning(case, job),
        expected=as_seen(case, job),
    )


def release(case: PlanContext) -> Answer:
    """Let held jobs start."""
    refusal = unknown_to_slurm(case, case.job)
    if refusal is not None:
        return refusal
    held = [job for job in case.jobs if job.stage != "ended" and job.gone_at is None and is_held(job)]
    if not held:
        is_one = len(case.jobs) == 1
        return case.refused(f"job {case.jobs[0].id} is not held" if is_one else f"no job of {case.name} is held")
    ours = [job for job in held if job.reason != ADMIN_HELD or (case.known is not None and case.known.may_operate)]
    if not ours:
        return case.refused(f"job {held[0].id} is {words.REASONS[ADMIN_HELD]}", "ask the administrators why")
    return Answer(actions=tuple(_release(case, job) for job in ours))


def _release(case: PlanContext, job: Job) -> Action:
    kill = armed_kill(case)
    burnt = () if kill is None else (f"{kill.words(case.now)}: it will exit as soon as it starts.",)
    return action(
        case,
        Execute(commands.release(job.target)),
        f"Release job {job.id}{_of(case)}",
        job=job,
        consequences=("It starts when its turn comes.",),
        warnings=(*burnt, *foreign_warning(case, job)),
        expected=as_seen(case, job),
    )


def is_held(job: Job) -> bool:
    """Whether somebody must release it before it can start."""
    return job.priority == 0 or (job.reason or "").startswith("JobHeld") or (job.reason or "").endswith("held")


def _of(case: PlanContext) -> str:
    return f" of {case.run.name}" if case.run is not None else ""


def _overtaken(case: PlanContext, job: Job) -> tuple[str, ...]:
    """That the place of an element goes to the next one of its array meanwhile."""
    rest = next((one for one in case.state.jobs.values() if one.is_waiting_array and one.array == job.array), None)
    if job.array is None or rest is None or rest.cluster != job.cluster or rest.gone_at is not None:
        return ()
    return (f"The elements that wait ({rest.id}) take its place meanwhile: it goes to the end of its array.",)


def _log(case: PlanContext, job: Job) -> str | None:
    """Where the log is that a requeue may truncate."""
    log = case.run.log if case.run is not None else None
    if log is not None and log.path is not None and (job.stdout is None or log.path == job.stdout):
        return f"{log.host}:{log.path}"
    return None if job.stdout is None or case.host is None else f"{case.host}:{job.stdout}"


def place_of(log: str) -> tuple[str, str]:
    """`host:/path` → host and path; a host may be an IPv6 address."""
    host, colon, path = log.partition(":/")
    return (host, f"/{path}") if colon else (log.partition(":")[0], log.partition(":")[2])


def _errors(case: PlanContext, job: Job) -> str | None:
    """Where its standard error is, if that is a file of its own."""
    log = _log(case, job)
    host = case.host if log is None else place_of(log)[0]
    known = (None, job.stdout, NOWHERE, None if log is None else place_of(log)[1])
    return None if job.stderr in known or host is None else f"{host}:{job.stderr}"


def _log_words(case: PlanContext, job: Job) -> tuple[str, ...]:
    paths = [clean(place_of(log)[1]) for log in (_log(case, job), _errors(case, job)) if log is not None]
    if not paths:
        return ()
    which = f"The end of {paths[0]} is" if len(paths) == 1 else f"The ends of {' and '.join(paths)} are"
    return (f"{which} copied first: a new attempt may begin {'it' if len(paths) == 1 else 'them'} anew.",)


def _resumes(case: PlanContext) -> str:
    found = None if case.run is None else case.run.checkpoints
    if found is None or found.error is not None:
        return "From which checkpoint it resumes is not known."
    if found.problem is not None:
        return f"What it would resume from: {found.problem}."
    last = found.committed
    step = "" if last is None or last.step is None else f" of step {last.step:,}"
    return f"It resumes from the checkpoint{step}, if its trainer takes the last one."


def _those_behind(case: PlanContext, job: Job) -> tuple[str, ...]:
    """What the jobs behind it do then."""
    others = [other for other in case.waiting if other.key != job.key]
    behind = sum(other.elements for other in others)
    if not behind or job.stage == "waiting":
        return ()
    wait = "1 job of the run waits behind it and starts" if behind == 1 else f"{behind} wait behind it and start"
    return (f"{wait} then: cancel or hold {', '.join(other.id for other in others[:4])} too, if the run is to end.",)
