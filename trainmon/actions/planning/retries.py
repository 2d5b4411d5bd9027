"""What a plan to start a run again says of its retries, and the plan to requeue a job that has ended. Pure."""

from __future__ import annotations

from collections import Counter

import msgspec

from trainmon.actions.planning.builder import action
from trainmon.actions.planning.context import PlanContext, RowPlan
from trainmon.analysis.retries import RetryDecision, decide, history_of
from trainmon.model import Attempt, Execute, Job, JobChain
from trainmon.slurm import commands
from trainmon.slurm.reasons import end_reason

LAST_CAUSES = 5

ON_PURPOSE = frozenset({"COMPLETED", "CANCELLED"})
"""States of jobs that are never started again automatically."""


def last_decision(context: PlanContext) -> tuple[Attempt, RetryDecision] | None:
    """The last attempt of the run that ended, and what to do after it."""
    attempts = context.state.attempts.values()
    own = [one for one in attempts if context.run is not None and one.run_id == context.run.name and not one.is_open]
    last = max(own, key=lambda one: one.ended_at or 0.0, default=None)
    if context.run is None or last is None:
        return None
    decision = decide(last, attempts, context.run.spec.retry)
    return None if decision is None else (last, decision)


def retry_facts(context: PlanContext) -> tuple[tuple[str, str], ...]:
    """The budget and the last causes, if an attempt of the run has ended."""
    found = last_decision(context)
    if found is None:
        return ()
    last, decision = found
    history = history_of(last, context.state.attempts.values())
    ends = [one.end.cause.cause for one in history if one.end is not None and one.end.cause is not None]
    counts = Counter(ends[-LAST_CAUSES:][::-1])
    causes = ", ".join(cause if count == 1 else f"{cause} ({count} times)" for cause, count in counts.items())
    budget = (("retry budget", decision.budget_text),) if decision.budget_text else ()
    return (*budget, ("last causes", f"{causes}; the last attempt ended {context.ago(last.ended_at)}"))


def retry_warnings(context: PlanContext) -> tuple[str, ...]:
    """Why another attempt may only repeat the last one."""
    found = last_decision(context)
    if found is None or found[1].choice in ("now", "none") or not found[1].budget_text:
        return ()
    return (f"Another attempt may not help: {found[1].why}.",)


def requeue_ended(context: PlanContext, job: Job) -> RowPlan:
    """Put a job that failed back into the queue, for an automatic retry.

    Raises:
        Refused: when a person, or its success, ended it; when it runs again; when its kill switch is not known.
    """
    if job.stage != "ended":
        raise context.refused(f"job {job.id} is {job.state} again already")
    if job.state in ON_PURPOSE:
        raise context.refused(f"job {job.id} has ended on purpose: {end_reason(job)}")
    if job.requeue is False or job.batch is False:
        raise context.refused(f"Slurm cannot requeue job {job.id}: it is no batch job, or has --no-requeue")
    if error := context.switch_error("kill"):
        raise context.refused(f"it is not known whether its kill switch is armed: {error}")
    spec, cluster = None if context.run is None else context.run.spec, context.cluster_info
    numbers = tuple(dict.fromkeys(str(one.array or one.number) for one in context.jobs if one.stage == "ended"))
    users = () if cluster is None else cluster.queue_users
    chain = None if spec is None else JobChain(spec.job or spec.name, spec.user, numbers, users)
    made = action(
        context,
        Execute(commands.requeue_ended(job.target)),
        f"Requeue job {job.id}{context.of_run}, which has ended",
        job=job,
        facts=(("how it ended", end_reason(job)), *retry_facts(context)),
        consequences=("The job waits again under the same id: 2m for its begin time, then for its nodes.",),
        warnings=context.other_owner_warning(job),
        expected=msgspec.structs.replace(context.expected(job, unarmed=True), chain=chain),
    )
    return RowPlan(actions=(made,))
