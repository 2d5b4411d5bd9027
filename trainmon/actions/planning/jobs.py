"""Plans for jobs: cancel, hold, release, signal, queue another, keep others off a node, read stacks. Pure."""

from __future__ import annotations

import shlex
from dataclasses import replace
from posixpath import dirname

import msgspec

from trainmon.actions.planning.context import (
    PlanContext,
    action,
    check_change,
    retry_facts,
    retry_of,
    retry_warnings,
)
from trainmon.actions.planning.switches import SILENT_VERDICTS
from trainmon.actions.verbs import ask
from trainmon.analysis.attempts import rank_processes, why_no_ranks
from trainmon.analysis.checkpoints import since, steps_at_risk
from trainmon.analysis.runs import jobs_of, saves_on
from trainmon.lib import Sentence, clean, counted, duration, group_by, joined, listed, ranges, spans_text
from trainmon.model import Action, Execute, Expected, Job, JobChain, RankWay, ReadStacks, Refusal, RowPlan, RunSpec
from trainmon.slurm import commands
from trainmon.slurm.batch_script import receiver
from trainmon.slurm.reasons import REASONS, end_reason

# ---- plans for jobs --------------------------------------------------------------------------------------------------

NUMBERS = {"HUP": 1, "INT": 2, "QUIT": 3, "USR1": 10, "USR2": 12, "TERM": 15}
"""The signals that a trainer can catch, by Linux's numbers: our own system may have others."""

ADMIN_HELD = "JobHeldAdmin"


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


def ends_now(context: PlanContext) -> tuple[Sentence, ...]:
    """What the end of a running job costs."""
    if context.run is None or not saves_on(context.run, "TERM", context.now):
        unsaved = (
            "Slurm ends it now: SIGTERM, then SIGKILL after KillWait (30s by default). No checkpoint is saved first"
        )
        has_switch, is_silent = context.switch_path("save"), context.run and context.run.verdict in SILENT_VERDICTS
        way = ask("; to save one, use {}.", "save") if has_switch and not is_silent else "."
        return joined(unsaved, way), lost_steps(context)
    usual = context.usual_save_time()
    return (
        f"Slurm ends it now: SIGTERM, on which its trainer saves{usual}, then SIGKILL after KillWait (30s by default).",
        "A save that takes longer than KillWait is lost.",
    )


def lost_steps(context: PlanContext) -> str:
    """The training that an end without a save loses, in a sentence."""
    run, found = context.run, context.checkpoints
    risk = None if run is None else steps_at_risk(run)
    if risk is None or found is None or run is None:
        return "The training since the last checkpoint is lost; how much is unknown."
    if found.committed is None and risk:
        return f"No committed checkpoint was found: all training ({counted(risk, 'step')}) is lost."
    time = run.progress.step_time_s
    cost = f" ({duration(risk * time)} of training)" if time else ""
    return f"{counted(risk, 'step')}{cost} {since(found, 'the last checkpoint')} {'is' if risk == 1 else 'are'} lost."


def _jobs_behind(context: PlanContext, job: Job) -> tuple[str, ...]:
    """What the waiting jobs of the run, or of the array, do once a running one is cancelled."""
    run, known = context.run, [one for one in context.known_jobs.values() if one.cluster == job.cluster]
    same_array = [one for one in known if job.array is not None and one.array == job.array]
    own = same_array if run is None else jobs_of(run.spec, known)
    others = [one for one in own if one.stage == "waiting" and one.gone_at is None and one.key != job.key]
    behind, whole = sum(other.elements for other in others), "array" if run is None else "run"
    if not behind:
        return ()
    start = f"1 pending job of the {whole} starts" if behind == 1 else f"{behind} pending jobs of the {whole} start"
    return (f"{start} after it: to end the {whole}, cancel or hold {', '.join(other.id for other in others[:4])} too.",)


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
        raise context.refused(f"job {wanted[0].id} is held already", ask("{} releases it", "release"))
    waits_on = ask("It stays in the queue and is not started until it is released ({}).", "release")
    runs_on = ask("It runs on; if it is requeued, it stays pending until it is released ({}).", "release")
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
            ask(f"one of {', '.join(NUMBERS)}; {{}} cancels the job", "cancel"),
        )
    job = context.check_job(context.job)
    if job.stage == "waiting":
        raise context.refused(f"job {job.id} is pending: it has no processes yet", ask("{} cancels it", "cancel"))
    if job.stage == "ended":
        raise context.refused(f"job {job.id} has ended: {end_reason(job)}")
    if job.key in context.readback.errors:
        raise context.refused(f"its steps could not be read: {context.readback.errors[job.key]}")
    return _signal_plan(context, job, name)


def _signal_plan(context: PlanContext, job: Job, name: str) -> RowPlan:
    """Slurm sends it to the tasks of the steps, not to what they start; without steps, to the batch shell alone."""
    all_steps = context.readback.steps.get(job.key, ())
    steps = [step for step in all_steps if not step.rpartition(".")[2].startswith(("batch", "extern", "interactive"))]
    script = context.readback.scripts.get(job.key, "")
    hears = None if steps else receiver(script, name)
    nodes = [context.state.nodes[node] for node in job.nodes if node in context.state.nodes]
    by_pid = {(node.name, one.pid): one for node in nodes for gpu in node.gpus for one in gpu.processes}
    processes = [one for one in by_pid.values() if not job.user or one.user in (None, job.user)]  # not another user's
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
    follows = "trainmon-tui then reports when a new checkpoint is committed."
    consequences: tuple[str, ...] = (_obeyed(context, name), follows)
    if known and not catch:
        consequences = (f"No process catches {name}: the signal kills them. Nothing is saved.", lost_steps(context))
    if not steps and hears != "trainer":
        trap = f"The script must trap {name} and forward it."
        consequences += (f"{trap} A trap runs only after the command in the foreground has ended.",)
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
    run, at = context.run, f"at its next iteration{context.usual_save_time('a save usually takes about')}"
    if run is None or run.trainer is None or not saves_on(run, name, context.now):
        return f"A trainer that catches {name} writes an emergency checkpoint {at}; many then exit."
    then = "training goes on" if run.trainer.signals[f"SIG{name}"] == "save" else "then it exits"
    return f"The trainer saves {at}; {then}."


# ---- plans for future jobs -------------------------------------------------------------------------------------------

LARGEST_ARRAY = 1_000
"""Tasks of one array: Slurm's own default is 1001 (MaxArraySize)."""


def queue(context: PlanContext) -> RowPlan:
    """Submit the run's script again, to start after all its running and waiting jobs.

    Raises:
        Refused: when the script or the queue is not known, or the job would not be the run's.
    """
    count, run, cluster, name = context.request.count, context.run, context.cluster_info, context.name
    if run is None:
        raise context.refused("it belongs to no run; only a run's script can be queued", "use sbatch")
    if not 1 <= count <= LARGEST_ARRAY:
        raise context.refused(f"{count} is out of range: 1 to {LARGEST_ARRAY}")
    if run.spec.script is None:
        command = context.job.command if context.job is not None else None
        made_from = f"; its job was submitted from {clean(command, 200)}" if command else ""
        raise context.refused(f"no script is configured for {name}", f"set script in the [[run]] of {name}{made_from}")
    if cluster is not None and run.spec.user not in (None, cluster.me):
        why = f"the jobs of {name} are {run.spec.user}'s: a job queued from here would be yours, not the run's"
        raise context.refused(why, f"submit it as {run.spec.user}, or set user in the [[run]] of {name}")
    context.check_unarmed("the queued job would end as soon as it starts")
    if context.request.is_retry:
        check_change(context)
    is_present = any(job.gone_at is None for job in context.jobs)  # nothing needs to wait for a job that left the queue
    context.check_queue(context.job if is_present else None)
    if count > 1 and any(job.components for job in context.jobs):
        why = f"the jobs of {name} are heterogeneous: Slurm makes no array of them"
        raise context.refused(why, "queue one at a time")
    return RowPlan(actions=(_submission(context, run.spec, run.spec.script, count),))


def _submission(context: PlanContext, spec: RunSpec, script: str, count: int) -> Action:
    cluster = context.cluster_info
    there = [job for job in context.jobs if job.gone_at is None and job.stage != "ended"]
    last = there[-1] if there else None
    after = None if last is None else str(last.array if last.is_waiting_array else last.id)
    known = next((job.workdir for job in context.jobs if job.workdir), None)
    workdir = known or dirname(script) or None
    is_heterogeneous = any(job.components for job in context.jobs)
    off = nodes_to_avoid(context)
    argv = commands.submit(None if is_heterogeneous else count, after, workdir, script, off)
    many = "It is" if count == 1 else f"{count} tasks of one array, one after another, are"
    first = "It" if count == 1 else "The first"
    when = "as soon as its nodes are free" if last is None else f"when job {last.id} has ended"
    warnings = (*retry_warnings(context), *context.kill_switch_warnings)
    me = None if cluster is None else cluster.me
    if context.job is not None and me is not None and context.job.user not in ("", me):
        warnings += (f"The jobs of the run so far are {context.job.user}'s; this one will be yours.",)
    numbers = tuple(dict.fromkeys(str(job.array or job.number) for job in context.jobs))
    return action(
        context,
        Execute(argv, login_shell=True, shown=clean(f"bash -l: {shlex.join(argv)}")),
        f"Queue {counted(count, 'more job')} of {spec.name}",
        facts=(
            ("working directory", f"{clean(workdir or '')}{'' if known else ' (the directory of the script)'}"),
            *(retry_facts(context) if last is None else ()),
        ),
        consequences=(
            f"{many} submitted as you, from a login shell with its modules.",
            f"{first} starts {when}.",
            *((f"It is kept off {', '.join(off)}.",) if off else ()),
        ),
        warnings=warnings,
        expected=Expected(
            switch_absent=spec.kill_switch if context.switch_error("kill") is None else None,
            chain=JobChain(
                spec.job or spec.name, spec.user, numbers, cluster.queue_users if cluster is not None else ()
            ),
        ),
    )


def nodes_to_avoid(context: PlanContext) -> tuple[str, ...]:
    """The nodes that the next start avoids: those that its job excludes, and those that an automatic retry will. Of a
    new job, the script says what it excludes; what must be added replaces that, and so has what the jobs excluded."""
    retry = retry_of(context) if context.request.is_retry else None
    more = () if retry is None else retry.decision.exclude
    known = () if context.job is None else (*context.job.excluded, *context.job.excluded_in_part)
    return tuple(dict.fromkeys((*known, *more))) if more or context.request.verb != "queue" else ()


def exclude(context: PlanContext) -> RowPlan:
    """Keep the waiting jobs off some nodes of a cluster, and drain the nodes where we may.

    Raises:
        Refused: when there is nothing to do, or the queue is unknown.
    """
    jobs, names, unread = context.jobs, context.nodes, context.readback.errors
    context.check_queue(jobs[0] if jobs else None)
    read = [job for job in jobs if job.key not in unread]
    actions = [_exclude_nodes(context, job, names) for job in read if not set(names) <= set(job.excluded)]
    if context.cluster_info is not None and context.cluster_info.may_operate:
        nodes = {**context.state.scheduler_nodes, **context.readback.nodes}
        actions += [_drain(context, name) for name in names if name not in nodes or not nodes[name].is_drained]
    if not actions and len(read) == len(jobs):
        why = "every pending job excludes it already" if jobs else "none of your pending jobs could run on it"
        raise context.refused(why, "only an operator may drain it: tell your administrators what is wrong with it")
    refusals = (Refusal(subject=job.key, why=unread[job.key]) for job in jobs if job.key in unread)
    return RowPlan(actions=tuple(actions), refusals=tuple(refusals))


def _exclude_nodes(context: PlanContext, job: Job, names: tuple[str, ...]) -> Action:
    context = replace(context, run=next((run for run in context.state.runs.values() if job.key in run.jobs), None))
    already = (*job.excluded, *job.excluded_in_part)
    missing = [name for name in names if name not in job.excluded]
    return action(
        context,
        Execute(commands.exclude(job.target, tuple(dict.fromkeys((*already, *missing))))),
        f"Keep job {job.id}{context.of_run} off {', '.join(missing)}",
        job=job,
        facts=(("already excluded", ", ".join(already) or "none"),),
        consequences=("The job needs other nodes, so it may start later. Running jobs continue.",),
        warnings=context.other_owner_warning(job),
        expected=msgspec.structs.replace(context.expected(job), excluded=already),
    )


def _drain(context: PlanContext, name: str) -> Action:
    reason = f"{clean(context.request.why, 100) or 'excluded'} ({context.actor.who}, trainmon-tui)"
    return action(
        replace(context, subject=name),
        Execute(commands.drain(name, reason)),
        f"Drain {name}",
        consequences=("No job of any user starts there until an operator resumes it. Running jobs continue.",),
        warnings=("This affects all users, not only your runs.",),
        expected=Expected(undrained=name),
    )


# ---- a plan to read the stacks of the ranks of a run -----------------------------------------------------------------

WAYS = {
    "py-spy": "the py-spy of their environment: `py-spy dump --nonblocking`, at most 10s each",
    "signal": "a signal on which trainmon_hooks writes the stack of the main thread into memory",
}

WARNINGS = {
    "py-spy": "py-spy does not stop the process and reads its memory: a stack may be inconsistent. A process that is "
    "stopped afterwards, and was not before, is continued.",
    "signal": "A signal may end a system call of the trainer early, such as a sleep. It is sent only to a process that "
    "catches it.",
}


def stacks(context: PlanContext) -> RowPlan:
    """Read the stacks of all ranks that can be asked.

    Raises:
        Refused: when no rank can be asked.
    """
    run = context.run
    if run is None or not rank_processes(run, context.state):
        raise context.refused(why_no_ranks(context.name, context.state))
    if run.name in context.readback.errors:
        raise context.refused(context.readback.errors[run.name])
    found = context.readback.stacks.get(run.name)
    ready, silent = [one for one in found or () if one.way], [one for one in found or () if not one.way]
    whys = [f"{_ranks(ones)}: {why}" for why, ones in group_by(silent, lambda one: one.why).items()]
    if found is not None and not ready:
        raise context.refused(
            f"no rank can be asked: {listed(whys)}",
            "install py-spy in the environment of the trainer, or use trainmon_hooks",
        )
    ways = group_by(ready, lambda one: one.way)
    asked = (
        (node, f"{_ranks(ones)}, pids {spans_text(ranges(sorted(one.pid for one in ones)))}")
        for node, ones in group_by(ready, lambda one: one.node).items()
    )
    made = action(
        context,
        ReadStacks(
            (), shown="; ".join(f"{_ranks(ones)} by {WAYS[way]}" for way, ones in ways.items()), ranks=tuple(ready)
        ),
        f"Read the stacks of {counted(len(ready), 'rank')} of {run.name}",
        facts=(*asked, *(("not read", why) for why in whys)),
        consequences=(
            "Three times in 6s. Names of files and functions leave the node, but no arguments and no values.",
            "The page of the run shows the result.",
        ),
        warnings=tuple(WARNINGS[way] for way in ways),
    )
    return RowPlan(actions=(made,))


def _ranks(ones: list[RankWay]) -> str:
    return f"{'ranks' if len(ones) > 1 else 'rank'} {spans_text(ranges(sorted(one.rank for one in ones)))}"
