"""The last check before an action: what must be read for it, and why it is not done after all. Pure."""

from __future__ import annotations

from trainmon.actions.planning.context import Readback, ReadRequest
from trainmon.model import Action, Expected, Job, Refusal


def reads_before(action: Action) -> ReadRequest:
    """What must be read just before an action."""
    expected = action.expected
    return ReadRequest(
        action.host,
        action.cluster,
        users=None if expected.chain is None else expected.chain.users,
        jobs=() if action.job is None or expected.id is None else ((action.job, expected.id.partition("_[")[0]),),
        switches=() if expected.switch_absent is None else (expected.switch_absent,),
        nodes=() if expected.undrained is None else (expected.undrained,),
    )


def recheck(action: Action, readback: Readback) -> Refusal | None:
    """Why an action is not done after all: what its plan showed has changed, or cannot be read."""
    expected, hint = action.expected, "nothing was done; check it and try again"
    location = f"{action.host}:{expected.switch_absent}"
    stat = readback.switches.get(location)
    why: str | None = None
    if expected.switch_absent is not None and stat is not None and stat.exists:
        why = "the kill switch has been armed meanwhile" + (f" by {stat.by}" if stat.by else "")
        hint = "take it back first: U"
    elif expected.switch_absent is not None and (stat is None or stat.exists is None):
        error = readback.errors.get(location, "it was not read")
        why = f"it is no longer known whether the kill switch is armed: {error}"
    why = why or _drained(action, readback) or _queued(action, readback)
    if why is None and expected.id is not None and action.job is not None:
        job = readback.jobs.get(action.job)
        if action.job in readback.gone:
            why = f"Slurm no longer knows job {expected.id}"
        elif job is not None:
            why = _changed(job, expected)
        elif expected.needs_slurm:
            unread = readback.errors.get(action.job) or readback.errors.get(action.cluster)
            why = unread or f"job {expected.id} is no longer as it was"
            hint = "nothing was done; check the queue and try again"
    return None if why is None else Refusal(subject=action.subject, why=why, hint=hint)


def unchecked(action: Action, readback: Readback) -> str | None:
    """What could not be checked of an action that runs all the same, and why."""
    if action.expected.needs_slurm or action.job is None or action.job in readback.jobs:
        return None
    why = readback.errors.get(action.job) or readback.errors.get(action.cluster)
    return None if why is None else f"could not check whether job {action.expected.id} still runs: {why}"


def _drained(action: Action, readback: Readback) -> str | None:
    name, errors = action.expected.undrained, readback.errors
    if name is None:
        return None
    node = readback.nodes.get(name)
    if node is None:
        return errors.get(f"{action.cluster}/{name}") or errors.get(action.cluster) or f"sinfo does not list {name}"
    return f"{name} is drained already: {node.reason or 'no reason'}" if node.is_drained else None


def _queued(action: Action, readback: Readback) -> str | None:
    chain = action.expected.chain
    if chain is None:
        return None
    if action.cluster in readback.errors:
        return readback.errors[action.cluster]
    for job in readback.jobs.values():
        is_of_it = job.cluster == action.cluster and job.name == chain.name and chain.user in (None, job.user)
        if is_of_it and job.stage != "ended" and str(job.array or job.number) not in chain.numbers:
            by = f" by {job.user}" if job.user else ""
            return f"job {job.id} of the run has been queued meanwhile{by}: both would run at once"
    return None


def _changed(job: Job, expected: Expected) -> str | None:
    if job.id != expected.id:
        return f"{expected.id} has become {job.id} meanwhile"
    if expected.stages and job.stage not in expected.stages:
        return f"job {job.id} is {job.state} now, no longer {' or '.join(expected.stages)}"
    if expected.user is not None and job.user != expected.user:
        return f"job {job.id} is {job.user or 'nobody'}'s now: another job has its number"
    if None not in (expected.submitted_at, job.submitted_at) and job.submitted_at != expected.submitted_at:
        if job.restarts and job.restarts != expected.restarts:
            return f"job {job.id} was requeued meanwhile (restart {job.restarts})"
        return f"job {job.id} is another job now: its number was reused"
    excluded = (*job.excluded, *job.excluded_in_part)
    if expected.excluded is not None and excluded != expected.excluded:
        return f"job {job.id} excludes {', '.join(excluded) or 'no node'} now: somebody changed its list meanwhile"
    if expected.restarts is not None and job.restarts is not None and job.restarts != expected.restarts:
        return f"job {job.id} was requeued meanwhile (restart {job.restarts})"
    return None
