"""Builds an Action with its facts, the sentences that several verbs share, and what is said of retries. Pure."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import blake2s
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from trainmon.actions.planning.context import PlanContext, RowPlan
from trainmon.actions.verbs import VERB
from trainmon.analysis.checkpoints import steps_at_risk
from trainmon.analysis.retries import RetryDecision, by_run, config_to_read, decide, history_of, needs_config_change
from trainmon.analysis.runs import listening, writers
from trainmon.lib import clean, counted, duration
from trainmon.model import Action, Attempt, CreateFile, Execute, Expected, Job, Operation, Verb

# ---- what a plan to start a run again says of its retries ------------------------------------------------------------

LAST_CAUSES = 5

STORED = "Slurm starts the batch script as it was submitted: a change of its file counts only for a new job."


class Retry(NamedTuple):
    """What another attempt of a run would follow."""

    last: Attempt
    """The last attempt that ended."""
    decision: RetryDecision
    config: str | None
    """The config file on which the decision depends."""
    unread: str
    """Why it is not known whether that file has changed, if it could not be read."""


def last_ended(context: PlanContext) -> Attempt | None:
    """The last attempt of the run that ended."""
    own = () if context.run is None else by_run(context.state.attempts.values()).get(context.run.name, ())
    return next((one for one in reversed(own) if not one.is_open), None)


def retry_of(context: PlanContext) -> Retry | None:
    """What to do after the last attempt of the run that ended; None while that is not known."""
    last = last_ended(context)
    if context.run is None or last is None:
        return None
    policy, readback = context.run.spec.retry, context.readback
    path = config_to_read(last, policy)
    location = f"{context.host}:{path}"
    decision = decide(last, context.state.attempts.values(), policy, config=readback.configs.get(location))
    error = None if path is None else readback.errors.get(location)
    unread = "" if error is None else f"it is not known whether the config has changed: {error}"
    return None if decision is None else Retry(last, decision, path, unread)


def check_change(context: PlanContext) -> None:
    """Check that an automatic retry is not one that needs a change first.

    Raises:
        Refused: when nothing has changed, or that is not known.
    """
    retry = retry_of(context)
    if retry is not None and retry.decision.choice in ("after-change", "stop") and retry.decision.budget_text:
        raise context.refused(retry.unread or retry.decision.why)


def second_trainer(context: PlanContext) -> Iterator[RowPlan]:
    """What must be typed to start a run although another trainer writes its checkpoints, or may. A queued job waits for
    those of its own run; a requeue ends its own job.

    Raises:
        Refused: when nobody can type it.
    """
    if context.run is None or "config" not in VERB[context.request.verb].reads:
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
    retry = retry_of(context) if context.request.is_retry else None
    if retry is None or not retry.decision.exclude:
        return ()
    known = () if context.job is None else (*context.job.excluded, *context.job.excluded_in_part)
    return tuple(dict.fromkeys((*known, *retry.decision.exclude)))


def reason(context: PlanContext) -> str:
    """Why the action is requested. That the config has changed is known only now."""
    retry = retry_of(context) if context.request.is_retry else None
    return context.request.why if retry is None or retry.config is None else retry.decision.why


def retry_facts(context: PlanContext) -> tuple[tuple[str, str], ...]:
    """The budget and the last causes, if an attempt of the run has ended."""
    retry = retry_of(context)
    if retry is None:
        return ()
    history = history_of(retry.last, context.state.attempts.values())
    ends = [one.cause.cause for one in history if one.cause is not None]
    counts = Counter(ends[-LAST_CAUSES:][::-1])
    causes = ", ".join(cause if count == 1 else f"{cause} ({count} times)" for cause, count in counts.items())
    budget = [("retry budget", retry.decision.budget_text)] if retry.decision.budget_text else []
    if retry.decision.choice == "now" and retry.config is not None:
        budget.append(("since then", retry.decision.why))
    return (*budget, ("last causes", f"{causes}; the last attempt ended {context.ago(retry.last.ended_at)}"))


def retry_warnings(context: PlanContext) -> tuple[str, ...]:
    """Why another attempt may only repeat the last one."""
    retry = retry_of(context)
    is_useful = retry is None or retry.decision.choice in ("now", "none") or not retry.decision.budget_text
    if context.run is None or retry is None or is_useful:
        return ()
    nodes = ",".join(retry.decision.exclude)
    off = f" X on {nodes} excludes it from the pending job." if nodes else ""
    unread = f" {retry.unread[0].upper()}{retry.unread[1:]}." if retry.unread else ""
    may_help = f"Another attempt may not help: {retry.decision.why}.{off}{unread}"
    # The settings may be in the batch script, which a requeue does not read again.
    is_requeue = (context.request.verb, retry.decision.choice) == ("requeue", "after-change")
    is_of_config = needs_config_change(retry.last, context.run.spec.retry)
    return (may_help, STORED) if is_requeue and is_of_config and retry.config is None else (may_help,)


# ---- an Action with its facts, and the sentences that several verbs share --------------------------------------------

REASON_LENGTH = 300
"""Characters of a person's reason that are written into a switch file: one line that a terminal shows."""


def action(
    context: PlanContext,
    operation: Operation,
    title: str,
    *,
    verb: Verb | None = None,
    job: Job | None = None,
    facts: tuple[tuple[str, str], ...] = (),
    consequences: tuple[str, ...] = (),
    warnings: tuple[str, ...] = (),
    expected: Expected | None = None,
    keep_log: str | None = None,
    keep_errors: str | None = None,
) -> Action:
    """An action with its facts in the same order for every verb: what is at stake first, the identifiers last."""
    request, actor, run = context.request, context.actor, context.run
    verb = verb or request.verb
    action_id, why = _id(context, verb, operation), clean(reason(context), REASON_LENGTH)
    if isinstance(operation, CreateFile):
        at = datetime.fromtimestamp(request.requested_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        author = f"{clean(actor.who, 100)} from {clean(actor.from_host, 100)} at {at}"
        line = f"trainmon-tui {verb} by {author}{f': {why}' if why else ':'} ({action_id})"
        operation = CreateFile(path=operation.path, text=line)
    committed = None if context.checkpoints is None else context.checkpoints.committed
    return Action(
        id=action_id,
        verb=verb,
        subject=context.subject,
        cluster=context.cluster,
        host=context.host or "",
        operation=operation,
        title=title,
        run=None if run is None else run.name,
        job=None if job is None else job.key,
        facts=(*facts, *_listening(context, verb, operation), *_training(context), *_target(context, job, operation)),
        consequences=consequences,
        warnings=warnings,
        expected=expected or Expected(),
        keep_log=keep_log,
        keep_errors=keep_errors,
        step=None if run is None else run.progress.step,
        checkpoint=None if committed is None else committed.step,
        who=actor.who,
        from_host=actor.from_host,
        why=why,
        requested_at=request.requested_at,
    )


def _id(context: PlanContext, verb: Verb, operation: Operation) -> str:
    """The same plan made twice has actions with the same ids."""
    request, what = context.request, msgspec.to_builtins(operation)
    key = (verb, context.subject, context.cluster, context.actor, request.requested_at, context.now, what)
    return blake2s(repr(key).encode("utf-8", "backslashreplace"), digest_size=6).hexdigest()


def _target(context: PlanContext, job: Job | None, operation: Operation) -> tuple[tuple[str, str], ...]:
    """The run, the job, the host, and the command or file."""
    facts = [("run", context.run.name)] if context.run is not None else []
    if job is not None:
        nodes = job.node_count or len(job.nodes)
        on_nodes = f" on {nodes} nodes" if nodes > 1 else ""
        facts += [
            ("job", f"{job.id} ({job.state}{on_nodes})"),
            ("cluster", job.cluster),
            ("owner", job.user or "unknown"),
        ]
        if job.components:
            ids = ", ".join(map(str, job.components))
            facts.append(("components", f"Slurm's jobs {ids}: the action affects all of them"))
    if isinstance(operation, Execute):
        command = ("command", operation.shown or clean(shlex.join(operation.argv)))
    else:
        command = ("file", clean(operation.path))
    return (*facts, ("host", context.host or "unknown"), command)


def _listening(context: PlanContext, verb: Verb, operation: Operation) -> tuple[tuple[str, str], ...]:
    """Whether the trainer listens to what the action does."""
    if context.run is None or not (verb == "signal" or isinstance(operation, CreateFile)):
        return ()
    what = context.request.signal.upper().removeprefix("SIG") if verb == "signal" else verb
    found = listening(context.run, context.state, what, context.now)
    return () if found is None else (("trainer listens", found),)


def _training(context: PlanContext) -> tuple[tuple[str, str], ...]:
    """The last step and the last committed checkpoint of the run."""
    run, found = context.run, context.checkpoints
    if run is None:
        return ()
    facts = []
    if run.progress.at is not None:
        step = "" if run.progress.step is None else f"{run.progress.step:,}, "
        facts.append(("last step", f"{step}{context.ago(run.progress.at)}"))
    if found is None:
        is_watched = run.spec.checkpoints is not None
        why = "its directory was not listed yet" if is_watched else "no checkpoint directory is watched"
        checkpoint = f"not known{' yet' if is_watched else ''}: {why}"
    elif found.error is not None:
        checkpoint = f"not known: {found.error}"
    elif found.unrecognised is not None:
        checkpoint = f"not known: the format of {found.unrecognised.title} is not recognised"
    elif found.committed is None:
        checkpoint = "none is committed"
    else:
        step = "" if found.committed.step is None else f"step {found.committed.step:,}, "
        risk = steps_at_risk(run)
        age = context.ago(found.committed.at) or "of unknown age"
        checkpoint = f"{step}{age}" + (f"; {counted(risk, 'step')} since" if risk else "")
    return (*facts, ("last checkpoint", checkpoint))


def lost_steps(context: PlanContext) -> str:
    """The training that an end without a save loses, in a sentence."""
    run, found = context.run, context.checkpoints
    risk = None if run is None else steps_at_risk(run)
    if risk is None or found is None or run is None:
        return "The training since the last checkpoint is lost. It is not known how much that is."
    if found.committed is None and risk:
        return f"No committed checkpoint was found: all training ({counted(risk, 'step')}) is lost."
    time = run.progress.step_time_s
    cost = f" ({duration(risk * time)} of training)" if time else ""
    return f"{counted(risk, 'step')}{cost} since the last checkpoint {'is' if risk == 1 else 'are'} lost."
