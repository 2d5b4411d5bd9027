"""What a plan to start a run again says of its retries. Pure."""

from __future__ import annotations

from collections import Counter

from trainmon.actions.planning.context import PlanContext
from trainmon.analysis.retries import RetryDecision, by_run, decide, history_of
from trainmon.model import Attempt

LAST_CAUSES = 5


def last_decision(context: PlanContext) -> tuple[Attempt, RetryDecision] | None:
    """The last attempt of the run that ended, and what to do after it."""
    attempts = context.state.attempts.values()
    own = () if context.run is None else by_run(attempts).get(context.run.name, ())
    last = next((one for one in reversed(own) if not one.is_open), None)
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
    nodes = ",".join(found[1].exclude)
    off = f" X on {nodes} keeps the waiting job off it." if nodes else ""
    return (f"Another attempt may not help: {found[1].why}.{off}",)
