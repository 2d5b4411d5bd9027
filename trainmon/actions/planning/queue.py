"""Plans for jobs to come: queue another, and keep them off a node. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from posixpath import dirname

import msgspec

from trainmon.actions.planning.builder import action
from trainmon.actions.planning.context import (
    Actor,
    Answer,
    PlanContext,
    Readback,
    as_seen,
    foreign_warning,
    unknown_to_slurm,
)
from trainmon.actions.planning.switches import armed_kill
from trainmon.lib import Instant, clean
from trainmon.model import Action, ActionRequest, Cluster, Execute, Expected, Job, JobChain, Refusal, State
from trainmon.slurm import commands

MOST = 1_000
"""Elements of one array: Slurm's own default is 1001 (MaxArraySize)."""

NODE = re.compile(r"\w[\w.-]{0,200}", re.ASCII)

EXCLUDED_AT_ONCE = 32
"""Waiting jobs that one plan changes: a list that a person can still read."""


def queue(case: PlanContext) -> Answer:
    """Submit the run's script again, to start after all that runs and waits of it."""
    run, count = case.run, case.ask.count
    if run is None:
        return case.refused("it belongs to no run, and only a run's script can be queued", "use sbatch")
    if not 1 <= count <= MOST:
        return case.refused(f"{count} is no count: 1 to {MOST}")
    if run.spec.script is None:
        return case.refused(f"no script is configured for {run.name}", _script_hint(case))
    if case.known is not None and run.spec.user not in (None, case.known.me):
        why = f"the jobs of {run.name} are {run.spec.user}'s: what is queued from here would be yours, and none of them"
        return case.refused(why, f"submit it as {run.spec.user}, or set user in the [[run]] of {run.name}")
    kill = armed_kill(case)
    if kill is not None:
        way = f"first take it back: U, or trainmon-tui unkill {run.name}"
        return case.refused(f"{kill.words(case.now)}: what is queued would end as soon as it starts", way)
    is_there = any(job.gone_at is None for job in case.jobs)  # what has left the queue need not be waited for
    refusal = unknown_to_slurm(case, case.job) if is_there else _silent(case)
    if refusal is not None:
        return refusal
    is_heterogeneous = any(job.components for job in case.jobs)
    if is_heterogeneous and count > 1:
        why = f"the jobs of {run.name} are heterogeneous, and Slurm makes no array of those"
        return case.refused(why, "queue one at a time")
    last = _last(case)
    after = None if last is None else str(last.array if last.is_waiting_array else last.id)
    known = next((job.workdir for job in case.jobs if job.workdir), None)
    workdir = known or dirname(run.spec.script) or None
    argv = commands.submit(None if is_heterogeneous else count, after, workdir, run.spec.script)
    made = action(
        case,
        Execute(argv, login_shell=True, shown=clean(f"bash -l: {shlex.join(argv)}")),
        f"Queue {count} more of {run.name}",
        facts=(("working directory", f"{clean(workdir or '')}{'' if known else ' (the directory of the script)'}"),),
        consequences=_queued(count, last),
        warnings=_queue_warnings(case),
        expected=_as_queued(case),
    )
    return Answer(actions=(made,))


def _as_queued(case: PlanContext) -> Expected:
    """That no kill switch is armed, and no other job of the run was queued: both would run at once."""
    assert case.run is not None
    spec = case.run.spec
    numbers = tuple(dict.fromkeys(str(job.array or job.number) for job in case.jobs))
    users = case.known.queue_users if case.known is not None else ()
    absent = spec.kill_switch if case.unread_kill() is None else None
    return Expected(switch_absent=absent, chain=JobChain(spec.job or spec.name, spec.user, numbers, users))


def _queued(count: int, last: Job | None) -> tuple[str, ...]:
    many = "It is" if count == 1 else f"They are {count} elements of one array, one after another,"
    starts = "It starts as soon as its nodes are free." if last is None else f"It starts when job {last.id} has ended."
    return (
        f"{many} submitted from a login shell there, with its modules, as you.",
        starts if count == 1 else starts.replace("It starts", "The first starts"),
    )


def _queue_warnings(case: PlanContext) -> tuple[str, ...]:
    job, unread = case.job, case.unread_kill()
    unseen = () if unread is None else (f"Whether its kill switch is armed cannot be told: {unread}.",)
    if job is None or case.known is None or case.known.me is None or job.user in ("", case.known.me):
        return unseen
    return (*unseen, f"The jobs of the run so far are {job.user}'s; this one will be yours.")


def _silent(case: PlanContext) -> Answer | None:
    """Refused while the queue is unknown: what it must wait for is not known then."""
    source = case.state.sources.get(f"slurm:{case.cluster}")
    if case.cluster in case.fresh.errors or source is None or source.health in ("off", "down"):
        return unknown_to_slurm(case, case.job)
    return None


def _last(case: PlanContext) -> Job | None:
    """The last of the chain: the new one waits for its end."""
    there = [job for job in case.jobs if job.gone_at is None and job.stage != "ended"]
    return there[-1] if there else None


def _script_hint(case: PlanContext) -> str:
    job = case.job
    told = f"; its job was made from {clean(job.command, 200)}" if job is not None and job.command else ""
    return f"set script in the [[run]] of {case.name}{told}"


def exclude(ask: ActionRequest, state: State, fresh: Readback, actor: Actor, now: Instant) -> Answer:
    """Keep the waiting jobs off some nodes, and drain those where we may."""
    clusters = {name: cluster_of(state, name) for name in dict.fromkeys(ask.subjects)}
    unknown = {name: _unknown(state, fresh, name, of) for name, of in clusters.items()}
    answers = [Answer(refusals=tuple(one for one in unknown.values() if one is not None))]
    for cluster in dict.fromkeys(of for of in clusters.values() if of is not None):
        names = tuple(name for name, of in clusters.items() if of == cluster and unknown[name] is None)
        if names:
            answers.append(_exclude(ask, state, fresh, actor, now, cluster, names))
    return Answer(
        actions=tuple(one for answer in answers for one in answer.actions),
        refusals=tuple(one for answer in answers for one in answer.refusals),
    )


def cluster_of(state: State, node: str) -> str | None:
    """The cluster of a node, watched or only known to its scheduler. One that neither shows, as no job of ours runs
    there now, may still be known to the only scheduler there is: it is asked."""
    known = state.nodes.get(node) or state.scheduler_nodes.get(node)
    if known is not None:
        return known.cluster
    asked = [name for name in state.clusters if f"slurm:{name}" in state.sources]
    return asked[0] if len(asked) == 1 and NODE.fullmatch(node) else None


def _unknown(state: State, fresh: Readback, node: str, cluster: str | None) -> Refusal | None:
    """That no scheduler has it, or that this could not be asked."""
    key = f"{cluster}/{node}"
    if node in state.nodes or node in state.scheduler_nodes:
        return None
    if cluster is None:
        return Refusal(subject=node, why=f"no node is called {clean(node, 100)}")
    if key in fresh.gone:
        return Refusal(subject=node, why=f"Slurm knows no node called {clean(node, 100)}")
    return Refusal(subject=node, why=fresh.errors[key]) if key in fresh.errors else None


def _exclude(
    ask: ActionRequest, state: State, fresh: Readback, actor: Actor, now: Instant, cluster: str, names: tuple[str, ...]
) -> Answer:
    jobs = waiting_jobs(ask, state, fresh, cluster, names)
    subject = ",".join(names)
    case = PlanContext(ask, state, fresh, actor, now, subject, cluster, None, jobs)
    silent = unknown_to_slurm(case, jobs[0]) if jobs else _silent(case)
    if silent is not None:
        return silent
    unread = tuple(Refusal(subject=job.key, why=fresh.errors[job.key]) for job in jobs if job.key in fresh.errors)
    mended = tuple(_kept_off(case, job, names) for job in jobs if job.key not in fresh.errors)
    drained = _drains(case, names)
    made = tuple(one for one in mended if one is not None) + drained
    if not made and not unread:
        why = "every waiting job keeps off it already" if jobs else "no waiting job of yours could get it"
        return case.refused(why, "only an operator may drain it: tell your administrators what is wrong with it")
    return Answer(actions=made, refusals=unread)


def waiting_jobs(
    ask: ActionRequest, state: State, fresh: Readback, cluster: str, names: tuple[str, ...]
) -> tuple[Job, ...]:
    """The waiting jobs of the run that was named, else of the runs that used the nodes, else all that are ours."""
    known = {**state.jobs, **fresh.jobs}
    waiting = [
        job
        for key, job in known.items()
        if job.cluster == cluster and job.stage == "waiting" and job.gone_at is None and key not in fresh.gone
    ]
    runs = [ask.run] if ask.run is not None else _users(state, cluster, names)
    of_runs = {key for name in runs if name in state.runs for key in state.runs[name].jobs}
    if ask.run is not None or any(job.key in of_runs for job in waiting):
        waiting = [job for job in waiting if job.key in of_runs]
    else:
        me = state.clusters.get(cluster, Cluster(name=cluster, login="")).me
        waiting = [job for job in waiting if me is None or job.user == me]
    return tuple(waiting[:EXCLUDED_AT_ONCE])


def _users(state: State, cluster: str, names: tuple[str, ...]) -> list[str]:
    """The runs that train on the nodes, or have trained there."""
    found = []
    for name, run in state.runs.items():
        places = {*run.spec.nodes, *(node for key in run.jobs if key in state.jobs for node in state.jobs[key].nodes)}
        if run.spec.cluster == cluster and places & set(names):
            found.append(name)
    return found


def _kept_off(case: PlanContext, job: Job, names: tuple[str, ...]) -> Action | None:
    missing = [name for name in names if name not in job.excluded]
    if not missing:
        return None
    run = next((one for one in case.state.runs.values() if job.key in one.jobs), None)
    already = (*job.excluded, *job.excluded_in_part)
    every = tuple(dict.fromkeys((*already, *missing)))
    whose = f" of {run.name}" if run is not None else ""
    return action(
        replace(case, run=run),
        Execute(commands.exclude(job.target, every)),
        f"Keep job {job.id}{whose} off {', '.join(missing)}",
        job=job,
        facts=(("kept off already", ", ".join(already) or "none"),),
        consequences=("It waits for other nodes, which may take longer. What runs on the node goes on.",),
        warnings=foreign_warning(case, job),
        expected=msgspec.structs.replace(as_seen(case, job), excluded=already),
    )


def _drains(case: PlanContext, names: tuple[str, ...]) -> tuple[Action, ...]:
    if case.known is None or not case.known.may_operate:
        return ()
    nodes = {**case.state.scheduler_nodes, **case.fresh.nodes}
    open_ones = [name for name in names if name not in nodes or not nodes[name].is_drained]
    return tuple(_drain(case, name) for name in open_ones)


def _drain(case: PlanContext, name: str) -> Action:
    why = clean(case.ask.why, 100) or "excluded"
    reason = f"{why} ({case.actor.who}, trainmon-tui)"
    return action(
        replace(case, subject=name),
        Execute(commands.drain(name, reason)),
        f"Drain {name}",
        consequences=("No job of anybody starts there until an operator resumes it. What runs there goes on.",),
        warnings=("This holds for everybody, not for your runs alone.",),
        expected=Expected(undrained=name),
    )
