"""Plans to start a job again under its id, or only its crashed evaluator. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from trainmon.actions.planning.context import (
    LEDGER,
    PlanContext,
    Retry,
    action,
    check_change,
    last_ended,
    retry_facts,
    retry_of,
    retry_warnings,
)
from trainmon.actions.planning.jobs import ends_now, is_held, log_files, split_location
from trainmon.actions.verbs import ask
from trainmon.analysis.checkpoints import PLACEHOLDER
from trainmon.analysis.retries import ON_PURPOSE
from trainmon.analysis.runs import jobs_of, saves_on
from trainmon.lib import Sentence, clean
from trainmon.model import Action, Attempt, Checkpoint, Execute, Expected, Job, JobChain, Record, RowPlan, Run
from trainmon.slurm import commands
from trainmon.slurm.reasons import end_reason, waiting_reason

# ---- plans to start an evaluator again that has crashed --------------------------------------------------------------

UNSAFE = re.compile(r"[^\w@%+=:./-]", re.ASCII)
"""What a shell, or a list of options such as --export, may interpret."""


def crashed_evaluator(context: PlanContext) -> Retry | None:
    """The last attempt of the run, if only its evaluator has crashed, a command can start it again, and the run does
    not run or wait."""
    retry = retry_of(context)
    if retry is None or retry.decision.cause != "evaluator" or context.run is None:
        return None
    is_over = all(job.stage == "ended" or job.gone_at is not None for job in context.jobs)
    is_possible = bool(context.run.spec.eval_commands) and context.subject == context.run.name
    return retry if is_over and is_possible else None


def evaluate(context: PlanContext) -> RowPlan:
    """Start the commands of `[[eval]]` on the checkpoint whose evaluation crashed.

    Raises:
        Refused: when no evaluator of the run has crashed, or its checkpoint is not listed; for an automatic start also
            under an armed or unknown kill switch, or after one was started for this checkpoint.
    """
    retry, run = crashed_evaluator(context), context.run
    if retry is None or run is None:
        raise context.refused(f"no evaluator of {context.name} has crashed that a command of [[eval]] can start again")
    checkpoint = _checkpoint(context, retry.last)
    if context.request.is_retry:
        context.check_unarmed("nothing is started automatically")
        if error := context.switch_error("kill"):
            raise context.refused(f"it is not known whether its kill switch is armed: {error}")
    return RowPlan(actions=tuple(_start(context, run, retry, checkpoint, one) for one in run.spec.eval_commands))


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


def _start(context: PlanContext, run: Run, retry: Retry, checkpoint: Checkpoint, command: tuple[str, ...]) -> Action:
    argv = _filled(context, command, {"checkpoint": checkpoint.path, "step": f"{checkpoint.step}", "run": run.name})
    operation = Execute(argv, login_shell=True, shown=clean(f"bash -l: {shlex.join(argv)}"))
    starts = _starts(context, retry.last, checkpoint, operation)
    decision = replace(retry.decision, spent=retry.decision.spent + len(starts))
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
            ask(
                "The training is not started: {} queues another job, or {} on its job requeues it.", "queue", "requeue"
            ),
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
                raise context.refused(f"{clean(values[name], 200)} has characters that a shell may interpret", hint)
    return tuple(PLACEHOLDER.sub(lambda found: values[found[1]], one) for one in command)


# ---- plans to start a job again under its id -------------------------------------------------------------------------


def requeue(context: PlanContext) -> RowPlan:
    """End the running attempt, if there is one; the same job waits and starts again. After a crash of its evaluator,
    only that starts again.

    Raises:
        Refused: when Slurm cannot requeue the job, or the next attempt would end at once or disturb another.
    """
    another = ask("queue another: {}", "queue", subject=context.name)
    if crashed_evaluator(context) is not None:
        return evaluate(context)
    job = _known(context, another)
    context.check_unarmed("the next attempt would end at once")
    if context.request.is_retry:
        _check_retry(context, job)
    _check_job(context, job, another)
    is_over = job.stage == "ended"
    log, errors = log_files(context, job)
    ended = "" if job.ends_at is None else f" {context.ago(job.ends_at)}"
    made = action(
        context,
        Execute(commands.requeue_ended(job.target) if is_over else commands.requeue(job.target)),
        f"Requeue job {job.id}{context.of_run}{', which has ended' if is_over else ''}",
        job=job,
        facts=(
            *((("how it ended", end_reason(job)),) if is_over else ()),
            ("restarts so far", "unknown" if job.restarts is None else str(job.restarts)),
            *retry_facts(context),
        ),
        consequences=(
            *((f"It ended {job.state}{ended}; Slurm starts the same job again.",) if is_over else ends_now(context)),
            "The job keeps its id and is pending again: 2m until its BeginTime, then until nodes are free.",
            *_overtaken(context, job),
            _resumes(context),
            *_copied(log, errors),
        ),
        warnings=(
            *((f"It ended on purpose: {end_reason(job)}.",) if job.state in ON_PURPOSE else ()),
            *retry_warnings(context),
            *context.kill_switch_warnings,
            *context.other_owner_warning(job),
        ),
        expected=_expected(context, job) if is_over else context.expected(job, unarmed=True),
        keep_log=log,
        keep_errors=errors,
    )
    return RowPlan(actions=(made,), typed=job.id, because=_needs_no_start(context, job))


def _needs_no_start(context: PlanContext, job: Job) -> str:
    """Why another start of the job does no good: it has succeeded, or its run has reached its target. Else empty."""
    run = context.run
    if job.state == "COMPLETED":
        return f"job {job.id} is COMPLETED"
    goal, last = None if run is None else run.target_step, last_ended(context)
    steps = (None if run is None else run.progress.step, None if last is None else last.last_step)
    step = max((one for one in steps if one is not None), default=0)
    return f"{context.name} has reached its target: step {step:,} of {goal:,}" if goal and step >= goal else ""


def _check_job(context: PlanContext, job: Job, another: Sentence) -> None:
    """Raises: Refused: when Slurm cannot start the job again."""
    if job.stage == "waiting":
        why = f"job {job.id} is already pending: {waiting_reason(job, context.now)}"
        raise context.refused(why, ask("{} releases it", "release") if is_held(job) else "")
    if job.requeue is False:
        raise context.refused(f"job {job.id} cannot be requeued: it was submitted with --no-requeue", another)
    if job.batch is False:
        raise context.refused(f"job {job.id} is not a batch job (salloc or srun): Slurm cannot restart it")


def _copied(*files: str | None) -> tuple[str, ...]:
    """That the ends of these files are copied before, if there are any."""
    paths = [clean(split_location(file)[1]) for file in files if file is not None]
    which = f"The end of {paths[0]} is" if len(paths) == 1 else f"The ends of {' and '.join(paths)} are"
    return (
        (f"{which} copied first: a new attempt may overwrite {'it' if len(paths) == 1 else 'them'}.",) if paths else ()
    )


def _known(context: PlanContext, another: Sentence) -> Job:
    """The job that is meant.

    Raises:
        Refused: when its state is not known, or Slurm has forgotten it.
    """
    job, run, readback = context.job, context.run, context.readback
    is_left = job is None or (job.gone_at is not None and job.key not in readback.jobs)
    if is_left and context.cluster not in readback.errors and not context.is_silent:
        gone = [key.rpartition("/")[2] for key in (() if run is None else run.jobs) if key in readback.gone]
        number = gone[-1] if gone else None if job is None else job.id
        who = f"no job of {context.name} is known" if number is None else f"Slurm no longer knows job {number}"
        raise context.refused(f"{who}: Slurm forgets a job some minutes after its end (MinJobAge)", another)
    return context.check_job(job)


def _check_retry(context: PlanContext, job: Job) -> None:
    """Check what an automatic retry needs: it ends nothing, and starts nothing that a person ended.

    Raises:
        Refused: when a person, or its success, ended it; when it runs again; when its kill switch is not known.
    """
    if job.stage != "ended":
        raise context.refused(f"job {job.id} is {job.state} again already")
    if job.state in ON_PURPOSE:
        raise context.refused(f"job {job.id} has ended on purpose: {end_reason(job)}")
    check_change(context)
    if error := context.switch_error("kill"):
        raise context.refused(f"it is not known whether its kill switch is armed: {error}")


def _expected(context: PlanContext, job: Job) -> Expected:
    """What must still hold when a job that has ended is started again: also that no other job of its run was queued."""
    spec, cluster = None if context.run is None else context.run.spec, context.cluster_info
    own = context.jobs if spec is None else jobs_of(spec, context.known_jobs.values())
    numbers = tuple(dict.fromkeys(str(one.array or one.number) for one in own if one.gone_at is None))
    users = () if cluster is None else cluster.queue_users
    chain = None if spec is None else JobChain(spec.job or spec.name, spec.user, numbers, users)
    return msgspec.structs.replace(context.expected(job, unarmed=True), chain=chain)


def _overtaken(context: PlanContext, job: Job) -> tuple[str, ...]:
    """A note that the waiting tasks of the same array run before a requeued task."""
    waiting = (one for one in context.state.jobs.values() if one.is_waiting_array and one.array == job.array)
    rest = next(waiting, None)
    if job.array is None or rest is None or rest.cluster != job.cluster or rest.gone_at is not None:
        return ()
    return (f"The pending array tasks ({rest.id}) run first: the requeued task runs after them.",)


def _resumes(context: PlanContext) -> str:
    found = context.checkpoints
    if found is None or found.error is not None:
        return "It is not known from which checkpoint it resumes."
    if found.problem is not None:
        return f"What it would resume from: {found.problem}."
    last, saves_now = found.next_start, context.run is not None and saves_on(context.run, "TERM", context.now)
    step = "" if saves_now or last is None or last.step is None else f" of step {last.step:,}"
    return f"It resumes from the checkpoint{step}, if its trainer loads the last one."
