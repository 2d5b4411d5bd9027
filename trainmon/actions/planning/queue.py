"""Plans for future jobs: queue another job, and keep waiting jobs off a node. Pure."""

from __future__ import annotations

import shlex
from dataclasses import replace
from posixpath import dirname

import msgspec

from trainmon.actions.planning.builder import action, check_change, nodes_to_avoid, retry_facts, retry_warnings
from trainmon.actions.planning.context import PlanContext, RowPlan
from trainmon.lib import clean
from trainmon.model import Action, Execute, Expected, Job, JobChain, Refusal, RunSpec
from trainmon.slurm import commands

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
        f"Queue {count} more of {spec.name}",
        facts=(
            ("working directory", f"{clean(workdir or '')}{'' if known else ' (the directory of the script)'}"),
            *(retry_facts(context) if last is None else ()),
        ),
        consequences=(
            f"{many} submitted from a login shell there, with its modules, as you.",
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
        facts=(("excluded already", ", ".join(already) or "none"),),
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
