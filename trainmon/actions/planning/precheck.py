"""The last check before an act: what must be read for it, and why it is not done after all. Pure."""

from __future__ import annotations

from trainmon.actions.planning.context import LookAt, Readback
from trainmon.lib import Instant
from trainmon.model import Action, Job, Refusal


def rechecked(action: Action) -> LookAt:
    """What must be read just before an action."""
    expected = action.expected
    number, absent, node = expected.id, expected.switch_absent, expected.undrained
    jobs = () if action.job is None or number is None else ((action.job, number.partition("_[")[0]),)
    return LookAt(
        action.host,
        action.cluster,
        users=None if expected.chain is None else expected.chain.users,
        jobs=jobs,
        switches=() if absent is None else (absent,),
        nodes=() if node is None else (node,),
    )


def recheck(action: Action, fresh: Readback, now: Instant) -> Refusal | None:
    """Why an action is not done after all: what its plan showed is no longer so, or cannot be seen."""
    expected = action.expected
    refusal = _armed_meanwhile(action, fresh) or _drained_meanwhile(action, fresh) or _queued_meanwhile(action, fresh)
    if refusal is not None or expected.id is None or action.job is None:
        return refusal
    if action.job in fresh.gone:
        return _aborted(action, f"Slurm no longer knows job {expected.id}")
    job = fresh.jobs.get(action.job)
    if job is None and not expected.needs_slurm:
        return None
    if job is None:
        error = fresh.errors.get(action.job) or fresh.errors.get(action.cluster)
        why = error or f"job {expected.id} is no longer as it was"
        return _aborted(action, why, "nothing was done; look at the queue, and ask again")
    return _changed(action, job)


def unchecked(action: Action, fresh: Readback) -> str | None:
    """What could not be checked of an action that is done all the same, and why."""
    if action.expected.needs_slurm or action.job is None or action.job in fresh.jobs:
        return None
    why = fresh.errors.get(action.job) or fresh.errors.get(action.cluster)
    return None if why is None else f"whether job {action.expected.id} still runs could not be checked: {why}"


def _armed_meanwhile(action: Action, fresh: Readback) -> Refusal | None:
    path = action.expected.switch_absent
    if path is None:
        return None
    where = f"{action.host}:{path}"
    sight = fresh.switches.get(where)
    if sight is not None and sight.exists:
        by = f" by {sight.by}" if sight.by else ""
        return _aborted(action, f"the kill switch has been armed meanwhile{by}", "take it back first: U")
    if sight is None or sight.exists is None:
        error = fresh.errors.get(where, "it was not looked at")
        return _aborted(action, f"whether the kill switch is armed cannot be told any more: {error}")
    return None


def _drained_meanwhile(action: Action, fresh: Readback) -> Refusal | None:
    name = action.expected.undrained
    if name is None:
        return None
    node, key = fresh.nodes.get(name), f"{action.cluster}/{name}"
    if node is None:
        error = fresh.errors.get(key) or fresh.errors.get(action.cluster) or f"sinfo does not list {name}"
        return _aborted(action, error)
    return _aborted(action, f"{name} is drained already: {node.reason or 'no reason'}") if node.is_drained else None


def _queued_meanwhile(action: Action, fresh: Readback) -> Refusal | None:
    chain = action.expected.chain
    if chain is None:
        return None
    if action.cluster in fresh.errors:
        return _aborted(action, fresh.errors[action.cluster])
    for job in fresh.jobs.values():
        is_of_it = job.cluster == action.cluster and job.name == chain.name and chain.user in (None, job.user)
        if is_of_it and job.stage != "ended" and str(job.array or job.number) not in chain.numbers:
            by = f" by {job.user}" if job.user else ""
            return _aborted(action, f"job {job.id} of it has been queued meanwhile{by}: both would run at once")
    return None


def _changed(action: Action, job: Job) -> Refusal | None:
    expected = action.expected
    if job.id != expected.id:
        return _aborted(action, f"{expected.id} has become {job.id} meanwhile")
    if expected.stages and job.stage not in expected.stages:
        was = " or ".join(expected.stages)
        return _aborted(action, f"job {job.id} is {job.state} now, no longer {was}")
    if expected.user is not None and job.user != expected.user:
        return _aborted(action, f"job {job.id} is {job.user or 'nobody'}'s now: another job has its number")
    if None not in (expected.submitted_at, job.submitted_at) and job.submitted_at != expected.submitted_at:
        again = f" (restart {job.restarts})" if job.restarts and job.restarts != expected.restarts else ""
        what = f"was requeued meanwhile{again}" if again else "is another job now: its number has been used again"
        return _aborted(action, f"job {job.id} {what}")
    excluded = (*job.excluded, *job.excluded_in_part)
    if expected.excluded is not None and excluded != expected.excluded:
        off = ", ".join(excluded) or "no node"
        return _aborted(action, f"job {job.id} keeps off {off} now: its list has been changed meanwhile")
    if expected.restarts is not None and job.restarts is not None and job.restarts != expected.restarts:
        return _aborted(action, f"job {job.id} was requeued meanwhile (restart {job.restarts})")
    return None


def _aborted(action: Action, why: str, hint: str = "nothing was done; look at it again") -> Refusal:
    return Refusal(subject=action.subject, why=why, hint=hint)
