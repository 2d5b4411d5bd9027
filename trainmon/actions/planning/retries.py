"""What a plan to start a run again says of its retries. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from msgspec.structs import replace

from trainmon.actions.planning.context import PlanContext, RowPlan
from trainmon.analysis.retries import RetryDecision, by_run, config_to_read, decide, history_of, needs_config_change
from trainmon.analysis.runs import writers
from trainmon.model import Attempt

LAST_CAUSES = 5

STORED = "Slurm starts the batch script as it was submitted: a change of its file counts only for a new job."


def last_ended(context: PlanContext) -> Attempt | None:
    """The last attempt of the run that ended."""
    attempts = context.state.attempts.values()
    own = () if context.run is None else by_run(attempts).get(context.run.name, ())
    return next((one for one in reversed(own) if not one.is_open), None)


def last_decision(context: PlanContext) -> tuple[Attempt, RetryDecision] | None:
    """The last attempt of the run that ended, and what to do after it."""
    last = last_ended(context)
    if context.run is None or last is None:
        return None
    config = context.readback.configs.get(f"{context.host}:{config_of_retry(context)}")
    decision = decide(last, context.state.attempts.values(), context.run.spec.retry, config=config)
    return None if decision is None else (last, decision)


def config_of_retry(context: PlanContext) -> str | None:
    """The config file that must be read before it is known whether a retry can help."""
    last = last_ended(context)
    return None if context.run is None or last is None else config_to_read(last, context.run.spec.retry)


def check_change(context: PlanContext) -> None:
    """Check that an automatic retry is not one that needs a change first.

    Raises:
        Refused: when nothing has changed, or that is not known.
    """
    found = last_decision(context)
    if found is not None and found[1].choice in ("after-change", "stop") and found[1].budget_text:
        raise context.refused(_unread(context) or found[1].why)


def second_trainer(context: PlanContext) -> Iterator[RowPlan]:
    """What must be typed to start a run although another trainer writes its checkpoints, or may. A queued job waits for
    those of its own run; a requeue ends its own job.

    Raises:
        Refused: when nobody can type it.
    """
    if context.run is None or context.request.verb not in ("requeue", "queue"):
        return
    state = replace(context.state, jobs=context.known_jobs, at=context.now)
    own = context.jobs if context.request.verb == "queue" else context.jobs[:1]
    for job_id, why in writers(context.run, state, [job.key for job in own]):
        if context.request.is_retry:
            raise context.refused(why)
        yield RowPlan(typed=job_id, because=why)


def nodes_to_avoid(context: PlanContext) -> tuple[str, ...]:
    """The nodes that a new job of an automatic retry must not get: it may start before it can be changed. With those
    that the jobs of the run exclude already."""
    found = last_decision(context) if context.request.is_retry else None
    if found is None or not found[1].exclude:
        return ()
    known = () if context.job is None else (*context.job.excluded, *context.job.excluded_in_part)
    return tuple(dict.fromkeys((*known, *found[1].exclude)))


def reason(context: PlanContext) -> str:
    """Why the action is requested. That the config has changed is known only now."""
    is_read = context.request.is_retry and config_of_retry(context) is not None
    found = last_decision(context) if is_read else None
    return context.request.why if found is None else found[1].why


def _unread(context: PlanContext) -> str | None:
    """Why it is not known whether the config has changed, if it had to be read."""
    path = config_of_retry(context)
    error = context.readback.errors.get(f"{context.host}:{path}")
    return None if path is None or error is None else f"it is not known whether the config has changed: {error}"


def retry_facts(context: PlanContext) -> tuple[tuple[str, str], ...]:
    """The budget and the last causes, if an attempt of the run has ended."""
    found = last_decision(context)
    if found is None:
        return ()
    last, decision = found
    history = history_of(last, context.state.attempts.values())
    ends = [one.cause.cause for one in history if one.cause is not None]
    counts = Counter(ends[-LAST_CAUSES:][::-1])
    causes = ", ".join(cause if count == 1 else f"{cause} ({count} times)" for cause, count in counts.items())
    budget = [("retry budget", decision.budget_text)] if decision.budget_text else []
    if decision.choice == "now" and config_of_retry(context) is not None:
        budget.append(("since then", decision.why))
    return (*budget, ("last causes", f"{causes}; the last attempt ended {context.ago(last.ended_at)}"))


def retry_warnings(context: PlanContext) -> tuple[str, ...]:
    """Why another attempt may only repeat the last one."""
    found = last_decision(context)
    if found is None or found[1].choice in ("now", "none") or not found[1].budget_text:
        return ()
    nodes = ",".join(found[1].exclude)
    off = f" X on {nodes} excludes it from the pending job." if nodes else ""
    unread = "" if (why := _unread(context)) is None else f" {why[0].upper()}{why[1:]}."
    may_help = f"Another attempt may not help: {found[1].why}.{off}{unread}"
    return (may_help, STORED) if _may_be_in_script(context, *found) else (may_help,)


def _may_be_in_script(context: PlanContext, last: Attempt, decision: RetryDecision) -> bool:
    """Whether a person may have changed the settings in the batch script, which a requeue does not read again."""
    is_requeue = (context.request.verb, decision.choice) == ("requeue", "after-change")
    has_no_config = is_requeue and config_of_retry(context) is None
    return has_no_config and context.run is not None and needs_config_change(last, context.run.spec.retry)
