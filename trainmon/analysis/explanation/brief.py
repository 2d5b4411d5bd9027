"""Why an attempt ended, in a few lines of a message: cause, loss, who did it, and whether a restart helps. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from trainmon.analysis.explanation.explain import meaning, named, requeued_by
from trainmon.analysis.explanation.rows import gpu_time
from trainmon.analysis.retries import decide, suspects
from trainmon.lib import clean, counted, scrub
from trainmon.model import Attempt, Record, RetryPolicy
from trainmon.model.attempts.cause import RetryChoice

LINE = 300
"""Characters of a line."""

HELPS: Mapping[RetryChoice, str] = {
    "now": "a restart may help",
    "after-change": "a restart helps only after a change",
    "after-node-swap": "a restart helps only on other nodes",
    "evaluator": "only the evaluator must run again",
    "stop": "a restart does not help",
    "none": "no restart is needed",
}


def brief(
    attempt: Attempt, attempts: Collection[Attempt], actions: Iterable[Record], policy: RetryPolicy
) -> tuple[str, ...]:
    """The lines about an attempt that ended; none while its cause is not known. `attempts` are all that are known."""
    cause, retry = attempt.cause, decide(attempt, attempts, policy)
    if cause is None or cause.cause == "unknown" or retry is None:
        return ()
    actions = tuple(actions)
    lines = (
        f"cause: {named(cause)}. {meaning(attempt, cause.cause, actions)}",
        f"lost: {_loss(attempt)}",
        f"by: {'; '.join(_by(attempt, actions)) or 'not known'}",
        f"restart: {HELPS[retry.choice]}: {retry.why}",
    )
    return tuple(clean(scrub(line), LINE) for line in lines)


def _loss(attempt: Attempt) -> str:
    """The steps that must be trained again, and their share of the GPU time of the attempt."""
    steps, spent = attempt.steps_lost, attempt.gpu_seconds
    if attempt.last_step is None and not attempt.may_have_gone_on:
        return "no step was made" + ("" if spent is None else f"; {gpu_time(spent)} were used")
    if steps is None:
        return "the steps lost are not known" + ("" if spent is None else f"; {gpu_time(spent)} were used")
    first = attempt.resumed_from or 0 if attempt.first_step is None else attempt.first_step - 1
    share = min(1.0, steps / max(1, (attempt.last_step or 0) - first))
    hours = "GPU hours are not known" if spent is None else f"{gpu_time(share * spent)} of {gpu_time(spent)}"
    return f"{counted(steps, 'step')}, {hours}"


def _by(attempt: Attempt, actions: Iterable[Record]) -> Iterator[str]:
    """Who or what ended it: a person, nodes, a rank with its error."""
    assert attempt.end is not None
    _, _, person = (attempt.end.scheduler_state or "").partition(" by ")
    yield from filter(None, (person, *requeued_by(attempt, actions), *suspects(attempt)))
    if (cause := attempt.end.cause) is not None and cause.evidence:
        rank = "" if cause.rank is None else f"rank {cause.rank}: "
        errors = (one.text for one in cause.evidence if cause.exception and cause.exception in one.text)
        yield f"{rank}{next(errors, cause.evidence[0].text)}"
