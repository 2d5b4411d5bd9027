"""An Action with all that a person must know before: facts in one order, and the sentences that verbs share. Pure."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from hashlib import blake2s

import msgspec

from trainmon.actions.planning.context import PlanContext
from trainmon.lib import clean, duration
from trainmon.model import Action, CreateFile, Execute, Expected, Job, Operation, Verb

NOTHING = Expected()

KEPT_WORDS = 300
"""Characters of a person's reason that are written into a switch file: one line that a terminal shows."""


def action(
    case: PlanContext,
    operation: Operation,
    title: str,
    *,
    verb: Verb | None = None,
    job: Job | None = None,
    facts: tuple[tuple[str, str], ...] = (),
    consequences: tuple[str, ...] = (),
    warnings: tuple[str, ...] = (),
    expected: Expected = NOTHING,
    keep_log: str | None = None,
    keep_errors: str | None = None,
) -> Action:
    """The action with all that a person must know before, in one order for every verb."""
    verb = verb or case.ask.verb
    run, committed = case.run, None if case.run is None or case.run.checkpoints is None else case.run.checkpoints
    last = None if committed is None or committed.committed is None else committed.committed.step
    made = Action(
        id="",
        verb=verb,
        subject=case.subject,
        cluster=case.cluster,
        host=case.host or "",
        operation=operation,
        title=title,
        run=None if run is None else run.name,
        job=None if job is None else job.key,
        facts=(*_who_and_where(case, job), (_operation_label(operation), shown(operation)), *facts, *_training(case)),
        consequences=consequences,
        warnings=warnings,
        expected=expected,
        keep_log=keep_log,
        keep_errors=keep_errors,
        step=None if run is None else run.progress.step,
        checkpoint=last,
        who=case.actor.who,
        from_host=case.actor.from_host,
        why=clean(case.ask.why, KEPT_WORDS),
        asked_at=case.ask.asked_at,
    )
    named = msgspec.structs.replace(made, id=number_of(case, verb, operation))
    return (
        named
        if not isinstance(operation, CreateFile)
        else msgspec.structs.replace(named, operation=_signed(named, operation))
    )


def number_of(case: PlanContext, verb: Verb, operation: Operation) -> str:
    """Twelve hexadecimal digits that no other plan has: the same plan made twice has the same."""
    what = (verb, case.subject, case.cluster, case.actor, case.ask.asked_at, case.now, msgspec.to_builtins(operation))
    return blake2s(repr(what).encode("utf-8", "backslashreplace"), digest_size=6).hexdigest()


def _signed(made: Action, operation: CreateFile) -> CreateFile:
    """The line that tells who finds the file whose it is."""
    at = datetime.fromtimestamp(made.asked_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    why = f": {made.why}" if made.why else ":"
    who, host = clean(made.who, 100), clean(made.from_host, 100)
    return CreateFile(
        path=operation.path, text=f"trainmon-tui {made.verb} by {who} from {host} at {at}{why} ({made.id})"
    )


def _operation_label(operation: Operation) -> str:
    return "command" if isinstance(operation, Execute) else "file"


def shown(operation: Operation) -> str:
    """The operation as a person would write it, printable."""
    if isinstance(operation, Execute):
        return operation.shown or clean(shlex.join(operation.argv))
    return clean(operation.path)


def _who_and_where(case: PlanContext, job: Job | None) -> tuple[tuple[str, str], ...]:
    facts = [("run", case.run.name)] if case.run is not None else []
    if job is not None:
        many = f" on {job.node_count or len(job.nodes)} nodes" if (job.node_count or len(job.nodes)) > 1 else ""
        facts += [("job", f"{job.id} ({job.state}{many})"), ("row", job.key), ("owner", job.user or "unknown")]
        if job.components:
            parts = ", ".join(map(str, job.components))
            facts.append(("components", f"Slurm's jobs {parts}: the whole is meant, never one of them alone"))
    return (*facts, ("host", case.host or "unknown"))


def _training(case: PlanContext) -> tuple[tuple[str, str], ...]:
    run = case.run
    if run is None:
        return ()
    facts = []
    if run.progress.at is not None:
        step = "" if run.progress.step is None else f"{run.progress.step:,}, "
        facts.append(("last step", f"{step}{case.ago(run.progress.at)}"))
    facts.append(("last checkpoint", checkpoint(case)))
    return tuple(facts)


def checkpoint(case: PlanContext) -> str:
    """The last committed one, its age, and what would be lost without another."""
    found = None if case.run is None else case.run.checkpoints
    if case.run is None or found is None:
        is_watched = case.run is not None and case.run.spec.checkpoints is not None
        return (
            "not known yet: its directory was not listed yet"
            if is_watched
            else ("not known: no checkpoint directory is watched")
        )
    if found.error is not None:
        return f"not known: {found.error}"
    last = found.committed
    if last is None:
        return "none is committed"
    step = "" if last.step is None else f"step {last.step:,}, "
    risk = found.at_risk(case.run.progress.step)
    return f"{step}{case.ago(last.at) or 'of unknown age'}" + (f"; {risk:,} steps since" if risk else "")


def lost_steps(case: PlanContext) -> str:
    """What an end without a save costs, in a sentence."""
    found = None if case.run is None else case.run.checkpoints
    risk = None if case.run is None or found is None else found.at_risk(case.run.progress.step)
    if risk is None or found is None or case.run is None:
        return "What was trained since the last checkpoint is lost; how much is not known."
    if found.committed is None:
        return f"No committed checkpoint was found: all {risk:,} steps are lost."
    time = case.run.progress.step_time_s
    cost = f" ({duration(risk * time)} of training)" if time else ""
    return f"{risk:,} steps{cost} since the last checkpoint are lost."
