"""The effect on jobs and nodes: requeued, ended, held, queued, excluded from a node. Pure."""

from __future__ import annotations

from trainmon.actions.planning import is_held
from trainmon.actions.verification.observation import CLOCK_TOLERANCE, Observation, Progress
from trainmon.lib import Seconds
from trainmon.model import Job
from trainmon.slurm import end_reason

KILL_WAIT: Seconds = 180.0
"""Slurm gives processes 30 s between SIGTERM and SIGKILL, and polls are half a minute apart."""

SUBMITTED_WITHIN: Seconds = 180.0
"""Between the ledger's entry and the submission: a check, a login shell, and an sbatch that waits its turn."""

WAITS, STARTS, ENDS = "it waits again", "it starts anew", "it has ended"
HELD, RELEASED, QUEUED = "it is held", "it is released", "it is in the queue"
KEPT_OFF, DRAINED = "it keeps off the node", "the node is drained"


def was_requeued(observed: Observation, job: Job) -> bool:
    before = observed.action.expected.restarts
    return before is not None and job.restarts is not None and job.restarts > before


def requeue(observed: Observation) -> Progress:
    job = observed.job
    if job is None or job.gone_at is not None:
        missed = "the job is no longer in the queue" if observed.polls() else None
        return (observed.milestone(WAITS, None, missed), observed.milestone(STARTS, None)), missed is not None
    again = was_requeued(observed, job) or (job.stage == "waiting" and observed.polls() > 0)
    missed = None
    if job.stage == "ended" and observed.polls() >= 2:
        missed = f"nothing happened: Slurm does not requeue ended jobs ({end_reason(job)})"
    elif job.stage == "running" and observed.is_past(KILL_WAIT) and observed.polls() >= 2:
        missed = "it runs as before: Slurm has not requeued it"
    waits = observed.milestone(WAITS, observed.now if again else None, missed)
    started = job.started_at is not None and job.started_at > observed.since
    is_running = waits.at is not None and job.stage == "running" and (was_requeued(observed, job) or started)
    starts = observed.milestone(STARTS, (job.started_at or observed.now) if is_running else None)
    return (waits, starts), starts.at is not None or (
        waits.at is None and job.stage == "ended" and observed.polls() >= 2
    )


def cancel(observed: Observation) -> Progress:
    job, at = observed.job, None
    if job is None:
        at = observed.now if observed.polls() else None
    elif job.stage == "ended" or job.gone_at is not None:
        at = max(observed.since, (job.ends_at if job.stage == "ended" else job.gone_at) or observed.now)
    late = "Slurm still lists it: it may wait for processes that do not end" if observed.is_past(KILL_WAIT) else None
    ends = observed.milestone(ENDS, at, late if observed.polls() >= 2 else None)
    return (ends,), ends.at is not None


def hold(observed: Observation) -> Progress:
    job, wanted = observed.job, observed.action.verb == "hold"
    name = HELD if wanted else RELEASED
    if observed.polls() == 0:
        return (observed.milestone(name, None),), False
    if job is None or job.gone_at is not None or job.stage == "ended":
        return (observed.milestone(name, None, "the job is no longer in the queue"),), True
    held = observed.milestone(name, observed.now if is_held(job) == wanted else None)
    if held.at is None and observed.polls() >= 2:
        held = observed.milestone(
            name, None, "it is not held" if wanted else f"it is still held ({job.reason or 'priority 0'})"
        )
        return (held,), True
    return (held,), held.at is not None


def submitted_job(observed: Observation) -> str | None:
    """The job of a `queue` whose output was not received: it has the run's job name, was submitted then, and belongs
    to no other action."""
    chain = observed.action.expected.chain
    if observed.action.verb != "queue" or chain is None:
        return None
    cluster = observed.state.clusters.get(observed.action.cluster)
    me = None if cluster is None else cluster.me
    begun = observed.record.written_at or observed.action.asked_at
    taken = {
        *chain.numbers,
        *(record.made for record in observed.state.actions.values() if record is not observed.record),
    }
    for job in observed.state.jobs.values():
        number = str(job.array or job.number)
        is_then = job.submitted_at is not None and -CLOCK_TOLERANCE <= job.submitted_at - begun <= SUBMITTED_WITHIN
        is_ours = job.cluster == observed.action.cluster and job.name == chain.name and me in (None, job.user)
        if is_ours and is_then and number not in taken:
            return number
    return None


def queue(observed: Observation) -> Progress:
    number = observed.record.made
    if number is None:
        return (observed.milestone(QUEUED, None, "which job was made is not known"),), True
    jobs = (job for job in observed.state.jobs.values() if job.cluster == observed.action.cluster)
    is_there = any(number in (str(job.number), str(job.array)) for job in jobs)
    missed = f"the queue does not show job {number}" if observed.polls() >= 2 else None
    queued = observed.milestone(QUEUED, observed.now if is_there else None, missed)
    return (queued,), queued.at is not None or queued.missed is not None


def is_excluded(observed: Observation) -> bool:
    if observed.action.job is None:
        node = observed.state.scheduler_nodes.get(observed.action.subject)
        return node is not None and node.is_drained
    return observed.job is not None and set(observed.action.subject.split(",")) <= set(observed.job.excluded)


def exclude(observed: Observation) -> Progress:
    name = DRAINED if observed.action.job is None else KEPT_OFF
    missed = "its scheduler does not show it" if observed.is_past(KILL_WAIT) and observed.polls() >= 2 else None
    mark = observed.milestone(name, observed.now if is_excluded(observed) else None, missed)
    return (mark,), mark.at is not None or mark.missed is not None
