"""The verdict on a run and its reason: from its log, jobs, switches, checkpoints and GPUs. No signal is trusted alone.
Pure."""

from __future__ import annotations

import math
from statistics import median
from typing import Literal

from msgspec.structs import replace

from trainmon.analysis.gpus import IDLE_PCT, gpus_of
from trainmon.analysis.gpus import unread as why_files_are_unread
from trainmon.analysis.runs import wandb_evidence
from trainmon.analysis.runs.context import (
    PATIENCE,
    Judgement,
    RunContext,
    has_reached_target,
    is_new_attempt,
    is_running,
    no_slurm_answer,
    patience,
    position,
    queue_of,
    steps_after,
    stopped,
    where,
)
from trainmon.analysis.runs.loss import non_finite_text
from trainmon.analysis.runs.no_steps import (
    after_its_attempt,
    after_its_log,
    after_its_process,
    is_unread,
    last_line_at,
    short_of_time,
    silent,
    since,
    stopped_or_silent,
    unread,
    weighed,
    without_a_job,
)
from trainmon.analysis.runs.writers import survivor, survivor_text
from trainmon.analysis.wandb import counts
from trainmon.lib import Instant, Seconds, duration, elapsed
from trainmon.model import ALIVE, OVER, WANDB, Checkpoint, Job, Progress, Run, Verdict, says

SKIPS_FOR: Seconds = 60.0
"""A loss scale that settles skips some iterations at a start; for longer than this, and ten of them, it is no start."""

OVERLONG = 3.0
"""After this many times its usual duration, an evaluation or a save no longer explains a silence."""

STILL: dict[str, str] = {"SUSPENDED": "is suspended", "STOPPED": "is stopped by a signal"}

ENDED = frozenset({"dead", "stalled", "data-stall"})
"""Verdicts that become `stopped` if a person ended the run and has removed the switch since."""

GOING = ALIVE | {"diverged"}


def judge(run: Run, context: RunContext, now: Instant) -> Judgement:
    """Combine all signals. Missing data is `unknown`, never `dead`. A run that a person ended stays `stopped`."""
    judged = _judged(run, context, now)
    if run.saved_step is not None:
        judged = judged.also(f"; its last known step is {run.saved_step:,}, that of its newest checkpoint")
    last = context.last_attempts.get(run.name)
    if last is not None and survivor(run, (last,), now) is not None:
        judged = judged.also(f"; {survivor_text(last, now)}")
    is_ended = judged.verdict in ENDED and not is_running(run, context.jobs, context.sources)
    stop = run.memory.stopped_by
    if not is_ended or stop is None or run.memory.stopped != position(run, context):
        return judged
    return stopped(stop, f"no job has run since, last {where(run.progress)}")


def _judged(run: Run, context: RunContext, now: Instant) -> Judgement:
    queue = queue_of(run, context)
    job = queue.present if queue is not None else None
    if run.spec.process is not None and run.spec.ended_at is not None:
        ended = after_its_attempt(run, context, now)
        return ended or after_its_process(run, run.spec.process, run.spec.ended_at, now)
    reached = has_reached_target(run) and not is_new_attempt(run, job)
    last = context.last_attempts.get(run.name)
    is_of_ended = last is not None and last.outlived_by > 0
    if queue is not None and job is None and (is_of_ended or not steps_after(run, queue)):
        ended = without_a_job(run, queue, context, now)
        if ended is not None:
            return wandb_evidence.weigh(run, ended, context, None, now)
    blind = _blind(run, context, job, now)
    is_readable = blind is None or run.spec.log is None
    if job is None and (is_readable or reached) and (ended := after_its_attempt(run, context, now)) is not None:
        return wandb_evidence.weigh(run, ended, context, None, now)
    if blind is not None:
        judged = _without_its_log(run, blind, context, job, now)
    else:
        judged = wandb_evidence.weigh(run, _living(run, context, job, now), context, job, now)
    tail = "" if queue is None else queue.others
    if reached and judged.verdict not in OVER:  # it may evaluate, save, or hang
        running = "job" if job is not None else "process" if run.spec.process is not None else None
        tail = "; target reached" + (f", {running} still runs" if running is not None else "") + tail
    silence = no_slurm_answer(run, context, now)
    if judged.verdict in GOING and silence:
        tail += f"; {silence}"
    elif judged.verdict in GOING and job is not None:
        tail = short_of_time(run, job, now) + tail
    return judged.also(tail)


def _living(run: Run, context: RunContext, job: Job | None, now: Instant) -> Judgement:
    """Judge a run that has not ended, as far as is known."""
    progress = run.progress
    if job is not None and job.state in STILL:
        return Judgement("stalled", f"job {job.id} {STILL[job.state]}")
    begun = f"; epoch {progress.step} has begun" if progress.at is None and progress.begun_at is not None else ""
    tail = begun + _armed(run, now)
    if job is not None and is_new_attempt(run, job):
        return _starting(run, context, job, now).also(tail)
    if (judged := after_its_log(run, context, now)) is not None:
        return judged
    if progress.at is None:
        return _without_a_step(run, context, now).also(tail)
    quiet, unanswered = now - progress.at, wandb_evidence.no_answer(run, context.sources, now)
    if quiet > patience(run) and unanswered and counts(progress):
        why = f"{unanswered}, and its log shows no step; the last was {where(progress)}"
        return Judgement("unknown", why + tail)
    if quiet > patience(run) and not _is_busy(run, now):
        if is_unread(run, job, now) and not gpus_of(run, context.nodes, context.sources, now).spin:
            return unread(run, context, now).also(f"; W&B shows no step for {duration(quiet)}{tail}")
        return (stopped_or_silent if tail else silent)(run, context, job, quiet, now)
    judged = _diverged(progress, now) or _busy(run, now)
    if judged is not None:
        return judged.also(tail)
    usual = f", usually every {duration(progress.cadence_s)}" if progress.cadence_s else ""
    return Judgement("healthy", f"{where(progress)} {duration(quiet)} ago{usual}{tail}")


def _without_its_log(run: Run, blind: Judgement, context: RunContext, job: Job | None, now: Instant) -> Judgement:
    """Judge a run whose log cannot be read now: by its job and by W&B's steps."""
    is_missing = run.log is not None and says(run.log.error, "missing")
    if job is not None and is_missing and job.started_at is not None and now - job.started_at <= run.spec.stall_after:
        return Judgement("starting", f"job {job.id} {_is_up(job, now)}; {blind.why}")
    judged = wandb_evidence.without_a_log(run, blind, context, job, now)
    if job is not None and judged.verdict == "unknown" and judged.code != "of-job":
        return judged.also(f"; job {job.id} is {job.state}")
    return judged.also(_armed(run, now) if judged.verdict in GOING else "")


def _armed(run: Run, now: Instant) -> str:
    """`; kill switch armed for 60m by ann`."""
    return f"; kill switch armed{since(run, now)}" if run.kill is not None and run.kill.exists else ""


def _is_up(job: Job, now: Instant) -> str:
    """`has been up for 2m, restart 1`; a job whose nodes still boot is not up."""
    again = f", restart {job.restarts}" if job.restarts else ""
    is_up = "has been up" if job.state == "RUNNING" else f"has been {job.state}"
    return f"{is_up} for {duration(max(0.0, now - (job.started_at or now)))}{again}"


def _diverged(progress: Progress, now: Instant) -> Judgement | None:
    """Steps advance without learning: the loss is NaN, or every step is skipped."""
    if progress.loss is not None and not math.isfinite(progress.loss):
        return Judgement("diverged", f"the loss is {non_finite_text(progress.loss)} at {where(progress)}")
    skipping = 0.0 if progress.skipping_since is None else now - progress.skipping_since
    if skipping <= max(SKIPS_FOR, PATIENCE * (progress.cadence_s or 0.0)):
        return None
    return Judgement(
        "diverged", f"no loss: every iteration has been skipped for {duration(skipping)}, {where(progress)}"
    )


def _starting(run: Run, context: RunContext, job: Job, now: Instant) -> Judgement:
    """Its job is up, and no step was logged yet."""
    assert job.started_at is not None
    up, progress = now - job.started_at, run.progress
    reported_at = progress.doing_at if progress.doing != "train" else None
    if reported_at is not None and reported_at >= job.started_at and _is_busy(run, now):
        busy = _busy(replace(run, progress=replace(progress, step=None, epoch=None)), now)
        if busy is not None:
            return busy
    if up <= run.spec.stall_after:
        return Judgement("starting", f"job {job.id} {_is_up(job, now)}, no step yet")
    mean_pct = gpus_of(run, context.nodes, context.sources, now).mean_pct or 0.0
    if run.spec.found and progress.at is None and mean_pct <= IDLE_PCT:
        idle = f"job {job.id} {_is_up(job, now)} and its log shows no known step line: "
        return Judgement("idle", f"{idle}not a training run, or an unknown log format")
    if _saves_on(run, job, now):
        return Judgement("unknown", "its log shows no known step line, but it saves checkpoints")
    if is_unread(run, job, now):
        return unread(run, context, now)
    at = last_line_at(run, job)
    silent_log = "its log shows no known step line and has not grown for"
    no_step = "no step was logged" if at is None else f"{silent_log} {duration(now - at)}"
    return weighed(run, context, job, f"job {job.id} {_is_up(job, now)}, and {no_step}", now)


def _saves_on(run: Run, job: Job, now: Instant) -> bool:
    """Whether its job saved its last checkpoint within twice the usual interval: it trains, however silent its log is.
    The interval of the first one is the time since the start."""
    found, began = run.checkpoints, job.started_at
    last = None if found is None or found.committed is None else found.committed.at
    if found is None or last is None or began is None or last < began:
        return False
    return now - last <= max(run.spec.stall_after, 2 * (found.every_s or last - began))


def _busy(run: Run, now: Instant) -> Judgement | None:
    """Evaluating or saving, if the log says so or a checkpoint is being written."""
    progress, writing = run.progress, _writing(run)
    is_first = progress.step is None and progress.epoch is None
    after = "before its first step" if is_first else f"after {where(progress)}"
    is_late = progress.at is not None and now - progress.at > 2 * (progress.cadence_s or now)
    doing: Verdict = "evaluating" if progress.doing == "eval" else "saving"
    if progress.doing != "train" and progress.doing_at is not None:
        why = f"{doing} for {duration(now - (progress.busy_since or progress.doing_at))} {after}"
    elif writing is not None and writing.began_at is not None and is_late:
        why = f"writing a checkpoint for {duration(max(0.0, now - writing.began_at))}, {after}"
    else:
        return None
    usual = _usual(run, "eval" if doing == "evaluating" else "save")
    return Judgement(doing, why + (f" (usually {duration(usual)})" if usual else ""))


def _writing(run: Run) -> Checkpoint | None:
    return run.checkpoints.writing if run.checkpoints is not None else None


def _usual(run: Run, doing: Literal["eval", "save"]) -> Seconds:
    """The usual duration of an evaluation or a save of this run: from its checkpoints, else from its log; else 0."""
    if doing == "save" and run.checkpoints is not None and run.checkpoints.save_s:
        return run.checkpoints.save_s
    return median((run.progress.saves if doing == "save" else run.progress.evals) or [0.0])


def _blind(run: Run, context: RunContext, job: Job | None, now: Instant) -> Judgement | None:
    """Unknown, when the log cannot be read now."""
    log = run.log
    is_console = run.spec.wandb is not None and run.spec.wandb.console
    if run.spec.log is None and not is_console:
        return _without_a_path(run, context, job, now)
    if log is None:
        mute = "" if is_console else why_files_are_unread(run.spec.cluster, context.nodes)
        return Judgement("unknown", f"its log is {mute}" if mute else "its log has not been read yet")
    source = context.sources.get(f"wandb:{run.name}" if log.host == WANDB else f"node:{log.host}")
    if source is not None and source.health in ("late", "down"):
        host = "W&B" if log.host == WANDB else log.host
        return Judgement("unknown", f"no data {elapsed(source.answered_at, now)} from {host}, which has its log")
    return None if log.error is None else Judgement("unknown", log.error)


def _without_a_path(run: Run, context: RunContext, job: Job | None, now: Instant) -> Judgement:
    """Why no log of it is known: the config names none, and neither does its job."""
    silence = no_slurm_answer(run, context, now)
    if silence:
        return Judgement("unknown", f"{silence}: its jobs are not known, and no log is configured for it")
    if job is None:
        error = None if run.wandb_file is None else run.wandb_file.error
        return Judgement("unknown", error or "no log is configured for it")
    if job.detail_at is None:
        return Judgement("unknown", f"Slurm has not shown the log of job {job.id} yet", "of-job")
    return Judgement("unknown", f"no log is configured for it, and job {job.id} has none", "of-job")


def _without_a_step(run: Run, context: RunContext, now: Instant) -> Judgement:
    """Judge a run without any known step and without a job that has just begun."""
    log = run.log
    assert log is not None
    if log.at is None:
        return Judgement("idle", "its log is empty")
    if _is_busy(run, now):
        return _busy(run, now) or Judgement("starting", "its log grows but shows no step yet")
    silence = no_slurm_answer(run, context, now)
    if silence:
        return Judgement("unknown", f"its log shows no step yet; {silence}: whether its job runs is not known")
    if not is_unread(run, None, now):
        return Judgement("idle", f"its log shows no step and has not grown for {duration(now - log.at)}")
    is_new = log.began_at is None or now - log.began_at <= run.spec.stall_after
    return Judgement("starting", "its log grows but shows no step yet") if is_new else unread(run, context, now)


def _is_busy(run: Run, now: Instant) -> bool:
    """Whether it said so lately that it evaluates or saves, or is seen to write a checkpoint: that takes the time of
    many steps, and for the slow ones what three of them usually take."""
    progress, within = run.progress, patience(run)
    if progress.doing != "train" and progress.doing_at is not None:
        return now - progress.doing_at <= max(within, OVERLONG * _usual(run, progress.doing))
    writing = _writing(run)
    return writing is not None and writing.at is not None and now - writing.at <= within
