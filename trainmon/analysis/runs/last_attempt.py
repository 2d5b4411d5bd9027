"""The verdict on a run that has ended: by its log alone, or by what the ledger holds of its last attempt. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import takewhile

from trainmon.analysis.causes.classify import fatal_end, says_it_ended
from trainmon.analysis.gpus import gpus_of, is_empty
from trainmon.analysis.runs.context import (
    AFTERGLOW,
    PATIENCE,
    Judgement,
    RunContext,
    does_answer,
    has_reached_target,
    no_slurm_answer,
    our_time,
    target,
    where,
)
from trainmon.analysis.runs.loss import non_finite_text
from trainmon.lib import Instant, Seconds, clean, duration, scrub
from trainmon.model import LOG_MARK, Attempt, AttemptEnd, Classification, Log, Run, Stop

# ---- the verdict on a run that nothing but its log shows -------------------------------------------------------------

QUIET: Seconds = 60.0
"""What is read of a node's GPU processes is up to half a minute old; a wrapper may start a trainer again in less."""

QUIET_STEPS = 3.0
"""A trainer that goes on after an error writes its next step within so many of its usual intervals."""

QUIET_START: Seconds = 120.0
"""The same before its usual interval is known."""

TAIL_LINES = 400
"""The tracebacks of all ranks of two nodes."""

SHOWN = 120
"""Characters of the last words."""

FINAL_LINES = 3
"""A trainer may say where its last checkpoint is after its last words."""


def after_its_log(run: Run, context: RunContext, now: Instant) -> Judgement | None:
    """The verdict, if the log has ended; None while it may go on."""
    log, progress = run.log, run.progress
    has_jobs = run.jobs or (run.spec.job and does_answer(run, context))
    may_have_jobs = has_jobs or no_slurm_answer(run, context, now)
    is_armed = run.kill is not None and run.kill.exists
    if log is None or log.at is None or may_have_jobs or is_armed:
        return None
    quiet, cadence = now - log.at, progress.cadence_s
    if quiet < (QUIET_START if cadence is None else max(QUIET, QUIET_STEPS * cadence)):
        return None
    gpus = gpus_of(run, context.nodes, context.sources, now)
    is_gone = run.spec.process is None and gpus.are_all_empty
    cause = _fatal_end(_last_lines(log))
    if cause is not None:
        error = cause.cause + (f" ({cause.exception})" if cause.exception else "")
        at = "before its first step" if progress.at is None else f"after {where(progress)}"
        why = f"its log ended {duration(quiet)} ago with an error, {at}: {error}"
        if is_gone:
            return Judgement("dead", f"{why}; no process holds memory on its GPUs")
        if run.spec.process is not None:
            return Judgement("stalled", f"{why}; process {run.spec.process.pid} has not ended")
        if any(gpu.memory_used_mib is not None and not is_empty(gpu) for gpu in gpus.found):
            return Judgement("stalled", f"{why}; memory on its GPUs is still held")
        return Judgement("dead", why)
    is_held = any(not is_empty(gpu) for gpu in gpus.found)
    if run.spec.process is None and not is_held and (words := _last_words(_last_lines(log))):
        return _ended_well(run, f"its log ended {duration(quiet)} ago with: {words}")
    silent = 0.0 if progress.at is None else now - progress.at
    if is_gone and cadence is not None and silent > max(QUIET, PATIENCE * cadence):
        usual = f"no step for {duration(silent)} (usually every {duration(cadence)})"
        return Judgement("dead", f"{usual}, the last was {where(progress)}; no process holds memory on its GPUs")
    return None


def at_its_target(run: Run, how: str) -> Judgement:
    """The verdict on a run that reached its target and does not run any more, if neither a scheduler nor trainmon-run
    knows how it ended (`how`): by the exit code in W&B, else by an error or the last words in its log."""
    lines = () if run.log is None else _last_lines(run.log)
    what, words = f"{how}, at step {run.progress.step:,}, its target", _last_words(lines, len(lines))
    code = None if run.wandb_file is None else run.wandb_file.exit_code
    if code is None and run.wandb is not None and run.wandb.current is not None and not run.wandb.active:
        code = {"finished": 0, "failed": 1}.get(run.wandb.current.state)
    if code:
        return Judgement("dead", f"{what}: W&B recorded that it failed")
    if code is None and not words and _fatal_end(lines) is None:
        return Judgement("unknown", f"{what}; nothing shows whether it ended well")
    return finished(run, what, "; W&B recorded exit code 0" if code == 0 else f"; its log says: {words}")


def finished(run: Run, how: str, tail: str = "") -> Judgement:
    """The verdict on a run that ended well at its target, as far as something else knows: if no error ends its log,
    which a script may ignore, and its loss is a number."""
    cause = None if run.log is None else _fatal_end(_last_lines(run.log))
    if cause is not None:
        return Judgement("dead", f"{how}, with an error: {cause.cause}")
    reached, loss = f"reached step {run.progress.step:,} of {target(run):,}", run.progress.loss
    if loss is not None and not math.isfinite(loss):
        return Judgement("diverged", f"{reached}, but the loss is {non_finite_text(loss)}{tail}")
    return Judgement("finished", reached + tail)


def _last_lines(log: Log) -> tuple[str, ...]:
    """The last lines of its newest file."""
    lines = takewhile(lambda line: not line.startswith(LOG_MARK), reversed(log.lines[-TAIL_LINES:]))
    return tuple(lines)[::-1]


@lru_cache(256)
def _fatal_end(lines: tuple[str, ...]) -> Classification | None:
    return fatal_end(lines)


def _last_words(lines: tuple[str, ...], within: int = FINAL_LINES) -> str:
    """The line among its last ones that says that the training has ended."""
    last = [line.strip() for line in lines if line.strip()][-within:]
    return clean(scrub(next(filter(says_it_ended, last), "")), SHOWN)


def _ended_well(run: Run, how: str) -> Judgement:
    """It says that it has ended: whether that is before its target."""
    goal, step = target(run), run.progress.step
    if goal is None or step is None:
        return Judgement("finished", f"{how}; no target step is known" if goal is None else how)
    if step >= goal:
        return finished(run, how, f"; {how}")
    return Judgement("dead", f"{how}, at step {step:,} of {goal:,}: not finished")


# ---- the verdict on a run whose last attempt has ended by the ledger, and of which nothing newer is seen -------------

REPORTED = frozenset({"receipt", "queue", "accounting"})
"""Sources that state an end. The others conclude it from what the run itself still shows."""

BY_A_PERSON = frozenset({"cancelled-by-user", "kill-switch"})


def last_attempts(attempts: Iterable[Attempt]) -> Mapping[str, Attempt]:
    """The newest attempt of each run, by the name of the run."""
    return {one.run_id: one for one in sorted(attempts, key=lambda one: one.start)}


def after_its_attempt(run: Run, context: RunContext, now: Instant) -> Judgement | None:
    """The verdict on a run without a job; None if its last attempt has not ended, or something newer is seen of it."""
    attempt = context.last_attempts.get(run.name)
    is_going = run.spec.process is not None and run.spec.ended_at is None
    if is_going or attempt is None or attempt.end is None or attempt.end.source not in REPORTED:
        return None
    host = context.nodes.get(run.log.host) if run.log is not None and attempt.job_id is not None else None
    ended_at = our_time(attempt.end.at, (host.clock_skew_s or 0.0) if host is not None else 0.0) or 0.0
    if _goes_on(run, ended_at) and not attempt.outlived_by:
        return None
    what = "its command" if attempt.job_id is None else f"job {attempt.job_id}"
    cause = "" if attempt.end.cause is None else f": {_cause(attempt.end)}"
    at = "" if run.progress.at is None else f", at {where(run.progress)}"
    how = f"{what} ended {duration(max(0.0, now - ended_at))} ago{cause}{at}"
    silence = no_slurm_answer(run, context, now)
    if attempt.job_id is not None and silence:
        return Judgement("unknown", f"{how}; {silence}: whether another job runs is not known")
    return _by_its_cause(run, attempt, attempt.end, how)


def _by_its_cause(run: Run, attempt: Attempt, end: AttemptEnd, how: str) -> Judgement:
    cause, goal = None if end.cause is None else end.cause.cause, target(run)
    is_well = (end.exit_code == 0 and not end.signal) or end.scheduler_state == "COMPLETED"
    is_said = cause == "completed" and (end.exit_code, end.signal, end.scheduler_state) == (None, None, None)
    if (is_well or is_said) and has_reached_target(run):
        return finished(run, how)
    if end.cause is not None and cause in BY_A_PERSON and end.cause.confidence == "high":
        return Judgement("stopped", how, stop=Stop(how))
    if cause != "completed":
        return Judgement("dead", how)
    if goal is not None:
        return Judgement("dead", f"{how} of {goal:,}: not finished")
    return Judgement("finished" if attempt.job_id is None else "unknown", f"{how}; no target step is known")


def _cause(end: AttemptEnd) -> str:
    """`python-exception (ValueError)`, and who cancelled it."""
    assert end.cause is not None
    exception = f" ({end.cause.exception})" if end.cause.exception else ""
    _, by, who = (end.scheduler_state or "").partition(" by ")
    return end.cause.cause + exception + (by + who if end.cause.cause in BY_A_PERSON else "")


def _goes_on(run: Run, ended_at: Instant) -> bool:
    """Whether a step, a line of its log or a heartbeat of W&B came after the end."""
    margin = max(AFTERGLOW, 3 * (run.progress.cadence_s or 0.0))
    current = None if run.wandb is None or not run.wandb.active else run.wandb.current
    logged_at = None if run.log is None else run.log.at
    signs = (run.progress.at, logged_at, None if current is None else current.heartbeat_at)
    return any(at is not None and at > ended_at + margin for at in signs)
