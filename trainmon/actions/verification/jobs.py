"""Jobs and nodes after the act: it waits again, has ended, is held, is in the queue, keeps off a node. Pure."""

from __future__ import annotations

from trainmon.actions.planning import is_held
from trainmon.actions.verification.observed import CLOCKS, Followed, Told
from trainmon.lib import Seconds
from trainmon.model import Job
from trainmon.slurm import ended

KILL_WAIT: Seconds = 180.0
"""Slurm gives processes 30 s between SIGTERM and SIGKILL, and polls are half a minute apart."""

SUBMITTED_WITHIN: Seconds = 180.0
"""Between the word in the ledger and the submission: a check, a login shell, and an sbatch that waits its turn."""

WAITS, STARTS, ENDS = "it waits again", "it starts anew", "it has ended"
HELD, RELEASED, QUEUED = "it is held", "it is released", "it is in the queue"
KEPT_OFF, DRAINED = "it keeps off the node", "the node is drained"


def is_anew(one: Followed, job: Job) -> bool:
    before = one.action.expected.restarts
    if before is not None and job.restarts is not None:
        return job.restarts > before
    return False


def requeue(one: Followed) -> Told:
    job = one.job
    if job is None or job.gone_at is not None:
        missed = "the job is no longer in the queue" if one.polls() else None
        return (one.mark(WAITS, None, missed), one.mark(STARTS, None)), missed is not None
    again = is_anew(one, job) or (job.stage == "waiting" and one.polls() > 0)
    waits = one.mark(WAITS, one.now if again else None, _not_requeued(one, job))
    started = job.started_at is not None and job.started_at > one.since
    is_running = waits.at is not None and job.stage == "running" and (is_anew(one, job) or started)
    starts = one.mark(STARTS, (job.started_at or one.now) if is_running else None)
    return (waits, starts), starts.at is not None or (waits.at is None and job.stage == "ended" and one.polls() >= 2)


def _not_requeued(one: Followed, job: Job) -> str | None:
    if job.stage == "ended" and one.polls() >= 2:
        return f"nothing happened: Slurm requeues no job that has ended ({ended(job)})"
    if job.stage == "running" and one.is_past(KILL_WAIT) and one.polls() >= 2:
        return "it runs as before: Slurm has not requeued it"
    return None


def cancel(one: Followed) -> Told:
    job, at = one.job, None
    if job is None:
        at = one.now if one.polls() else None
    elif job.stage == "ended" or job.gone_at is not None:
        at = max(one.since, (job.ends_at if job.stage == "ended" else job.gone_at) or one.now)
    late = "Slurm still lists it: it may wait for processes that do not end" if one.is_past(KILL_WAIT) else None
    ends = one.mark(ENDS, at, late if one.polls() >= 2 else None)
    return (ends,), ends.at is not None


def hold(one: Followed) -> Told:
    job, wanted = one.job, one.action.verb == "hold"
    name = HELD if wanted else RELEASED
    if one.polls() == 0:
        return (one.mark(name, None),), False
    if job is None or job.gone_at is not None or job.stage == "ended":
        return (one.mark(name, None, "the job is no longer in the queue"),), True
    held = one.mark(name, one.now if is_held(job) == wanted else None)
    if held.at is None and one.polls() >= 2:
        held = one.mark(name, None, "it is not held" if wanted else f"it is still held ({job.reason or 'priority 0'})")
        return (held,), True
    return (held,), held.at is not None


def made(one: Followed) -> str | None:
    """The job that a `queue` made whose answer was not heard: the one of the run's name that was submitted then, and
    that no other act has made."""
    chain = one.action.expected.chain
    if one.action.verb != "queue" or chain is None:
        return None
    cluster = one.state.clusters.get(one.action.cluster)
    me = None if cluster is None else cluster.me
    begun = one.record.written_at or one.action.asked_at
    taken = {*chain.numbers, *(record.made for record in one.state.actions.values() if record is not one.record)}
    for job in one.state.jobs.values():
        number = str(job.array or job.number)
        is_then = job.submitted_at is not None and -CLOCKS <= job.submitted_at - begun <= SUBMITTED_WITHIN
        is_ours = job.cluster == one.action.cluster and job.name == chain.name and me in (None, job.user)
        if is_ours and is_then and number not in taken:
            return number
    return None


def queue(one: Followed) -> Told:
    number = one.record.made
    if number is None:
        return (one.mark(QUEUED, None, "which job was made is not known"),), True
    jobs = (job for job in one.state.jobs.values() if job.cluster == one.action.cluster)
    is_there = any(number in (str(job.number), str(job.array)) for job in jobs)
    missed = f"the queue does not show job {number}" if one.polls() >= 2 else None
    queued = one.mark(QUEUED, one.now if is_there else None, missed)
    return (queued,), queued.at is not None or queued.missed is not None


def keeps_off(one: Followed) -> bool:
    if one.action.job is None:
        node = one.state.scheduler_nodes.get(one.action.subject)
        return node is not None and node.is_drained
    return one.job is not None and set(one.action.subject.split(",")) <= set(one.job.excluded)


def exclude(one: Followed) -> Told:
    name = DRAINED if one.action.job is None else KEPT_OFF
    missed = "its scheduler does not show it" if one.is_past(KILL_WAIT) and one.polls() >= 2 else None
    mark = one.mark(name, one.now if keeps_off(one) else None, missed)
    return (mark,), mark.at is not None or mark.missed is not None
