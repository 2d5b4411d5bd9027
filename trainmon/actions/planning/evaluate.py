"""Plans to start an evaluator again that has crashed: on its checkpoint, and without the training. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from msgspec.structs import replace

from trainmon.actions.planning.builder import action
from trainmon.actions.planning.context import PlanContext, RowPlan
from trainmon.actions.planning.readback import LEDGER
from trainmon.actions.planning.retries import last_decision
from trainmon.analysis.checkpoints import PLACEHOLDER
from trainmon.lib import clean
from trainmon.model import Action, Attempt, Checkpoint, Execute, Expected, Record

UNSAFE = re.compile(r"[^\w@%+=:./-]", re.ASCII)
"""What a shell, or a list of options such as --export, may interpret."""


def crashed_evaluator(context: PlanContext) -> Attempt | None:
    """The last attempt of the run, if only its evaluator has crashed, a command can start it again, and the run does
    not run or wait."""
    found = last_decision(context)
    if found is None or found[1].cause != "evaluator" or context.run is None or not context.run.spec.eval_commands:
        return None
    is_over = all(job.stage == "ended" or job.gone_at is not None for job in context.jobs)
    return found[0] if is_over and context.subject == context.run.name else None


def evaluate(context: PlanContext) -> RowPlan:
    """Start the commands of `[[eval]]` on the checkpoint whose evaluation crashed.

    Raises:
        Refused: when no evaluator of the run has crashed, or its checkpoint is not listed; for an automatic start also
            under an armed or unknown kill switch, or after one was started for this checkpoint.
    """
    attempt, run = crashed_evaluator(context), context.run
    if attempt is None or run is None:
        raise context.refused(f"no evaluator of {context.name} has crashed that a command of [[eval]] can start again")
    checkpoint = _checkpoint(context, attempt)
    if context.request.is_retry:
        context.check_unarmed("nothing is started automatically")
        if error := context.switch_error("kill"):
            raise context.refused(f"it is not known whether its kill switch is armed: {error}")
    actions = tuple(_start(context, attempt, checkpoint, command) for command in run.spec.eval_commands)
    return RowPlan(actions=actions)


def _checkpoint(context: PlanContext, attempt: Attempt) -> Checkpoint:
    """The last checkpoint that the attempt committed.

    Raises:
        Refused: when it is not known, or not listed.
    """
    found = context.checkpoints
    if found is None:
        raise context.refused("its checkpoints are not known")
    if found.error is not None:
        raise context.refused(f"its checkpoints cannot be listed: {found.error}")
    step = attempt.last_committed_step
    checkpoint = next((one for one in found.list if one.is_whole and step in (one.step, None)), None)
    if checkpoint is None or checkpoint.step is None:
        why = "no checkpoint is committed" if step is None else f"the checkpoint of step {step:,} is not listed"
        raise context.refused(why)
    return checkpoint


def _start(context: PlanContext, attempt: Attempt, checkpoint: Checkpoint, command: tuple[str, ...]) -> Action:
    found, run = last_decision(context), context.run
    assert found is not None
    assert run is not None
    argv = _filled(context, command, {"checkpoint": checkpoint.path, "step": f"{checkpoint.step}", "run": run.name})
    operation = Execute(argv, login_shell=True, shown=_shown(argv))
    starts = _starts(context, attempt, checkpoint, operation)
    decision = replace(found[1], spent=found[1].spent + len(starts))
    warnings = [] if decision.left else ["Another evaluation may not help: its budget is spent."]
    if context.request.is_retry and not decision.left:
        again = f"the evaluation of {checkpoint.title} was started again already"
        raise context.refused(f"{again}: its budget is spent")
    if error := context.readback.errors.get(LEDGER):
        if context.request.is_retry:
            raise context.refused(f"it is not known how often it was evaluated: {error}")
        warnings.append(f"Evaluations of more than an hour ago are not counted: {error}.")
    if open_one := next((one for one in reversed(starts) if one.is_open), None):
        since = context.ago(open_one.done_at or open_one.written_at)
        warnings.append(f"An evaluation of this checkpoint was started {since} and is not over.")
    known = sum(one.step == checkpoint.step for one in run.evals.results)
    made = action(
        context,
        operation,
        f"Evaluate the checkpoint of {checkpoint.title}{context.of_run}",
        verb="evaluate",
        facts=(
            ("retry budget", decision.budget_text),
            ("results so far", f"{known} of this checkpoint" if known else "none of this checkpoint"),
        ),
        consequences=(
            "It is complete when the file of results has a new result of this checkpoint.",
            "The training is not started: N queues another job, or R on its job requeues it.",
        ),
        warnings=tuple(warnings),
        expected=Expected(switch_absent=context.switch_path("kill") if context.request.is_retry else None),
    )
    return replace(made, checkpoint=checkpoint.step, results=known)


def _starts(context: PlanContext, attempt: Attempt, checkpoint: Checkpoint, operation: Execute) -> tuple[Record, ...]:
    """The starts of this command on this checkpoint since the attempt has ended, whoever requested them. The ledger
    remembers them for longer than the State."""
    known = {**context.readback.evaluations, **context.state.actions}
    what = ("evaluate", attempt.run_id, checkpoint.step, operation)
    return tuple(
        one
        for one in known.values()
        if (one.action.verb, one.action.run, one.action.checkpoint, one.action.operation) == what
        and one.status not in ("failed", "refused")
        and one.action.requested_at >= (attempt.ended_at or 0.0)
    )


def _filled(context: PlanContext, command: tuple[str, ...], values: Mapping[str, str]) -> tuple[str, ...]:
    """The command with its placeholders filled in. A value that is only a part of an argument must be plain: the
    argument may be a script of a shell (`--wrap`), or a list of options.

    Raises:
        Refused: when it is not.
    """
    for one in command:
        for name in PLACEHOLDER.findall(one):
            if one != f"{{{name}}}" and UNSAFE.search(values[name]):
                hint = f'write "{{{name}}}" as an argument of its own in the [[eval]] of {context.name}'
                why = f"{clean(values[name], 200)} has characters that a shell may interpret"
                raise context.refused(why, hint)
    return tuple(PLACEHOLDER.sub(lambda found: values[found[1]], one) for one in command)


def _shown(argv: tuple[str, ...]) -> str:
    return clean(f"bash -l: {shlex.join(argv)}")
