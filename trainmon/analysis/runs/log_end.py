"""The verdict on a run that nothing but its log shows: the log ends with a fatal error, or no process is left.
Pure."""

from __future__ import annotations

from functools import lru_cache
from itertools import takewhile

from trainmon.analysis.causes import fatal_end
from trainmon.analysis.gpus import gpus_of, is_empty
from trainmon.analysis.runs.context import PATIENCE, Judgement, RunContext, no_slurm_answer, where
from trainmon.lib import Instant, Seconds, duration
from trainmon.model import LOG_MARK, Classification, Log, Run

QUIET: Seconds = 60.0
"""What is read of a node's GPU processes is up to half a minute old; a wrapper may start a trainer again in less."""

QUIET_STEPS = 3.0
"""A trainer that goes on after an error writes its next step within so many of its usual intervals."""

QUIET_START: Seconds = 120.0
"""The same before its usual interval is known."""

TAIL_LINES = 400
"""The tracebacks of all ranks of two nodes."""


def after_its_log(run: Run, context: RunContext, now: Instant) -> Judgement | None:
    """The verdict, if the log has ended; None while it may go on."""
    log, progress = run.log, run.progress
    may_have_jobs = bool(run.jobs or run.spec.job or (run.spec.process is None and no_slurm_answer(run, context, now)))
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
    silent = 0.0 if progress.at is None else now - progress.at
    if is_gone and cadence is not None and silent > max(QUIET, PATIENCE * cadence):
        usual = f"no step for {duration(silent)} (usually every {duration(cadence)})"
        return Judgement("dead", f"{usual}, the last was {where(progress)}; no process holds memory on its GPUs")
    return None


def _last_lines(log: Log) -> tuple[str, ...]:
    """The last lines of its newest file."""
    lines = takewhile(lambda line: not line.startswith(LOG_MARK), reversed(log.lines[-TAIL_LINES:]))
    return tuple(lines)[::-1]


@lru_cache(256)
def _fatal_end(lines: tuple[str, ...]) -> Classification | None:
    return fatal_end(lines)
