"""The last check before an action: what must be read for it, and why it is not done after all. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from trainmon.actions.planning.context import Readback, ReadRequest
from trainmon.model import Action, Expected, Job, Refusal

TRY_AGAIN = "nothing was done; check it and try again"


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
    why, hint = next(_changes(action, readback), (None, ""))
    return None if why is None else Refusal(subject=action.subject, why=why, hint=hint)


def unchecked(action: Action, readback: Readback) -> str | None:
    """What could not be checked of an action that runs all the same, and why."""
    if action.expected.needs_slurm or action.job is None or action.job in readback.jobs:
        return None
    why = readback.errors.get(action.job) or readback.errors.get(action.cluster)
    return None if why is None else f"could not check whether job {action.expected.id} still runs: {why}"


def _changes(action: Action, readback: Readback) -> Iterator[tuple[str, str]]:
    """What has changed since the plan, each with a hint; the most important first."""
    expected, errors = action.expected, readback.errors
    if expected.switch_absent is not None:
        location = f"{action.host}:{expected.switch_absent}"
        stat = readback.switches.get(location)
        if stat is None or stat.exists is None:
            error = errors.get(location, "it was not read")
            yield f"it is no longer known whether the kill switch is armed: {error}", TRY_AGAIN
        elif stat.exists:
            by = f" by {stat.by}" if stat.by else ""
            yield f"the kill switch has been armed meanwhile{by}", "take it back first: U"
    if name := expected.undrained:
        node = readback.nodes.get(name)
        if node is None:
            unread = errors.get(f"{action.cluster}/{name}") or errors.get(action.cluster)
            yield unread or f"sinfo does not list {name}", TRY_AGAIN
        elif node.is_drained:
            yield f"{name} is drained already: {node.reason or 'no reason'}", TRY_AGAIN
    if chain := expected.chain:
        if action.cluster in errors:
            yield errors[action.cluster], TRY_AGAIN
        for job in readback.jobs.values():
            is_of_it = job.cluster == action.cluster and job.name == chain.name and chain.user in (None, job.user)
            if is_of_it and job.stage != "ended" and str(job.array or job.number) not in chain.numbers:
                by = f" by {job.user}" if job.user else ""
                yield f"job {job.id} of the run has been queued meanwhile{by}: both would run at once", TRY_AGAIN
    if expected.id is None or action.job is None:
        return
    if action.job in readback.gone:
        yield f"Slurm no longer knows job {expected.id}", TRY_AGAIN
    elif action.job in readback.jobs:
        yield from ((why, TRY_AGAIN) for why in _job_changes(readback.jobs[action.job], expected))
    elif expected.needs_slurm:
        unread = errors.get(action.job) or errors.get(action.cluster)
        hint = "nothing was done; check the queue and try again"
        yield unread or f"job {expected.id} is no longer as it was", hint


def _job_changes(job: Job, expected: Expected) -> Iterator[str]:
    was_requeued = job.restarts is not None and job.restarts != expected.restarts
    requeued = f"job {job.id} was requeued meanwhile (restart {job.restarts})"
    if job.id != expected.id:
        yield f"{expected.id} has become {job.id} meanwhile"
    if expected.stages and job.stage not in expected.stages:
        yield f"job {job.id} is {job.state} now, no longer {' or '.join(expected.stages)}"
    if expected.user is not None and job.user != expected.user:
        yield f"job {job.id} is {job.user or 'nobody'}'s now: another job has its number"
    if None not in (expected.submitted_at, job.submitted_at) and job.submitted_at != expected.submitted_at:
        reused = f"job {job.id} is another job now: its number was reused"
        yield requeued if job.restarts and was_requeued else reused
    excluded = (*job.excluded, *job.excluded_in_part)
    if expected.excluded is not None and excluded != expected.excluded:
        yield f"job {job.id} excludes {', '.join(excluded) or 'no node'} now: somebody changed its list meanwhile"
    if expected.restarts is not None and was_requeued:
        yield requeued
