"""Builds an Action with its facts, and the sentences that several verbs share. Pure."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from hashlib import blake2s

import msgspec

from trainmon.actions.planning.context import PlanContext
from trainmon.actions.planning.retries import reason
from trainmon.analysis.checkpoints import steps_at_risk
from trainmon.analysis.runs import listening
from trainmon.lib import clean, counted, duration
from trainmon.model import Action, CreateFile, Execute, Expected, Job, Operation, Verb

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
