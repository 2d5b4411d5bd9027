"""The verdict on a run and its reason: from its log, jobs, switches, checkpoints and GPUs. No signal is trusted alone.
Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import Literal

from msgspec.structs import replace

from trainmon.analysis.gpus import IDLE_PCT, gpus_of
from trainmon.analysis.gpus import unread as why_files_are_unread
from trainmon.analysis.runs.context import (
    PATIENCE,
    Judgement,
    RunContext,
    has_reached_target,
    is_late,
    is_new_attempt,
    is_running,
    no_slurm_answer,
    patience,
    position,
    queue_of,
    state_of,
    steps_after,
    stopped,
    where,
)
from trainmon.analysis.runs.loss import wandb_trouble
from trainmon.analysis.runs.no_steps import (
    after_its_attempt,
    after_its_log,
    after_its_process,
    ended_by,
    growth,
    if_its_loss_is_a_number,
    is_by_a_person,
    is_unread,
    last_line_at,
    not_finished,
    short_of_time,
    silent,
    since,
    stopped_or_silent,
    unread,
    weighed,
    without_a_job,
)
from trainmon.analysis.runs.writers import survivor, survivor_text
from trainmon.analysis.wandb import active_run, client_file, counts, metric_names
from trainmon.lib import Instant, Seconds, ago, duration, elapsed
from trainmon.model import (
    ALIVE,
    OVER,
    SILENT,
    WANDB,
    Checkpoint,
    Job,
    Progress,
    Record,
    Run,
    Source,
    Stop,
    Verdict,
    Wandb,
    WandbFile,
    WandbRun,
    non_finite_text,
    says,
)

SKIPS_FOR: Seconds = 60.0
"""A loss scale that settles skips some iterations at a start; for longer than this, and ten of them, it is no start."""

OVERLONG = 3.0
"""After this many times its usual duration, an evaluation or a save no longer explains a silence."""

STILL: dict[str, str] = {"SUSPENDED": "is suspended", "STOPPED": "is stopped by a signal"}

ENDED = frozenset({"dead", "stalled", "data-stall"})
"""Verdicts that become `stopped` if a person ended the run and has removed the switch since."""

RUNNING = ALIVE | {"diverged"}


def judge(run: Run, context: RunContext, now: Instant) -> Judgement:
    """Combine all signals. Missing data is `unknown`, never `dead`. A run that a person ended stays `stopped`."""
    judged = _judged(run, context, now)
    if run.saved_step is not None:
        judged = judged.also(f"; its last known step is {run.saved_step:,}, that of its newest checkpoint")
    last = context.last_attempts.get(run.name)
    if last is not None and survivor(run, (last,), now) is not None:
        judged = judged.also(f"; {survivor_text(last, now)}")
    is_killed = judged.verdict == "unknown" and last is not None and is_by_a_person(last.end) is True
    is_dead = (judged.verdict == "dead" or is_killed) and last is not None and last.job_id is None
    if is_dead and (who := stopped_by(run, context.actions, now)) is not None:
        return stopped(Stop(who), judged.why)
    is_ended = judged.verdict in ENDED and not is_running(run, context.jobs, context.sources)
    stop = run.memory.stopped_by
    is_other = last is not None and is_by_a_person(last.end) is False  # its log was read since
    if not is_ended or stop is None or is_other or run.memory.stopped != position(run, context):
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
        return weigh(run, without_a_job(run, queue, context, now), context, None, now)
    blind = _blind(run, context, job, now)
    is_readable = blind is None or run.spec.log is None
    if job is None and (is_readable or reached) and (ended := after_its_attempt(run, context, now)) is not None:
        return weigh(run, ended, context, None, now)
    if blind is not None:
        judged = _without_its_log(run, blind, context, job, now)
    else:
        judged = weigh(run, _living(run, context, job, now), context, job, now)
    tail = "" if queue is None else queue.others
    if reached and judged.verdict not in OVER:  # it may evaluate, save, or hang
        running = "job" if job is not None else "process" if run.spec.process is not None else None
        tail = "; target reached" + (f", {running} still runs" if running is not None else "") + tail
    silence = no_slurm_answer(run, context, now)
    if judged.verdict in RUNNING and silence:
        tail += f"; {silence}"
    elif judged.verdict in RUNNING and job is not None:
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
    quiet, unanswered = now - progress.at, no_answer(run, context.sources, now)
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
    if is_late(run, now):
        usual += f"; stalled only after {duration(patience(run))}; the last was {where(progress)}"
        return Judgement("healthy", f"no step for {ago(quiet)}{usual}{tail}")
    return Judgement("healthy", f"{where(progress)}, {ago(quiet)} ago{usual}{tail}")


def _without_its_log(run: Run, blind: Judgement, context: RunContext, job: Job | None, now: Instant) -> Judgement:
    """Judge a run whose log cannot be read now: by its job and by W&B's steps."""
    is_missing = run.log is not None and says(run.log.error, "missing")
    if job is not None and is_missing and job.started_at is not None and now - job.started_at <= run.spec.stall_after:
        return Judgement("starting", f"job {job.id} {_is_up(job, now)}; {blind.why}")
    judged = without_a_log(run, blind, context, job, now)
    if job is not None and judged.verdict == "unknown" and judged.code != "of-job":
        return judged.also(f"; {state_of(job, context.sources, now)}")
    return judged.also(_armed(run, now) if judged.verdict in RUNNING else "")


def _armed(run: Run, now: Instant) -> str:
    """`; kill switch armed for 1h by ann`."""
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
    is_busy = reported_at is not None and reported_at >= job.started_at and _is_busy(run, now)
    busy = _busy(replace(run, progress=replace(progress, step=None, epoch=None)), now) if is_busy else None
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
        return _busy(run, now) or Judgement("starting", f"{growth(run, now)} but shows no step yet")
    silence = no_slurm_answer(run, context, now)
    if silence:
        return Judgement("unknown", f"its log shows no step yet; {silence}: whether its job runs is not known")
    if not is_unread(run, None, now):
        return Judgement("idle", f"its log shows no step and has not grown for {duration(now - log.at)}")
    is_new = log.began_at is None or now - log.began_at <= run.spec.stall_after
    return Judgement("starting", f"{growth(run, now)} but shows no step yet") if is_new else unread(run, context, now)


def _is_busy(run: Run, now: Instant) -> bool:
    """Whether it said so lately that it evaluates or saves, or is seen to write a checkpoint: that takes the time of
    many steps, and for the slow ones what three of them usually take."""
    progress, within = run.progress, patience(run)
    if progress.doing != "train" and progress.doing_at is not None:
        return now - progress.doing_at <= max(within, OVERLONG * _usual(run, progress.doing))
    writing = _writing(run)
    return writing is not None and writing.at is not None and now - writing.at <= within


# ---- the evidence of W&B for or against a verdict, and the verdict of a run without a readable log -------------------
#
# It is one witness: its "crashed" is a lost heartbeat, its "running" is believed for ten minutes, and while it does not
# answer us nothing follows from it.

GOES_ON: Seconds = 60.0
"""A step in the log this long after W&B's last heartbeat shows that the training continues."""

QUIET = SILENT | {"dead", "unknown", "idle"}


def no_answer(run: Run, sources: Mapping[str, Source], now: Instant) -> str:
    """`no data from W&B for 20m`, of a run that is watched there; nothing while it does."""
    source, file = sources.get(f"wandb:{run.name}"), run.wandb_file
    if file is not None and client_file.is_from_file(client_file.evidence(run)):
        return _unread(run, file, sources.get(f"node:{file.host}"), now)
    if run.spec.wandb is None or (run.wandb is not None and (source is None or source.health == "ok")):
        return ""
    return f"no data from W&B {elapsed(None if source is None else source.answered_at, now)}"


def _unread(run: Run, file: WandbFile, host: Source | None, now: Instant) -> str:
    """Why nothing follows now from the file of its W&B client; nothing if it is read to its end."""
    if file.error is not None or file.is_behind:
        return file.error or f"its {file.format} file is still being read"
    if host is not None and host.health != "ok":
        return f"{file.host}, which reads its {file.format} file, is late or unreachable"
    quiet = now - (file.logged_at or now)
    if file.exit_code is not None or not patience(run) < quiet <= client_file.BLOCKS.get(
        file.format, client_file.QUIET
    ):
        return ""
    row = f"the newest row of its {file.format} file is {duration(quiet)} old"
    return f"{row}: its client may not have written newer ones yet"


def stopped_by(run: Run, actions: Mapping[str, Record], now: Instant) -> str | None:
    """Who ended a run that W&B no longer receives: by an armed kill switch, or by an action of ours."""
    last = None if run.wandb is None else run.wandb.current
    began, ended = (None, None) if last is None else (last.created_at, last.heartbeat_at)
    return ended_by(run, None, actions, began or 0.0, ended or now, now)


def weigh(run: Run, judged: Judgement, context: RunContext, job: Job | None, now: Instant) -> Judgement:
    """A verdict of other evidence, combined with that of W&B."""
    wandb = client_file.evidence(run)
    if wandb is None or no_answer(run, context.sources, now):
        return _beside_a_file(run, judged)
    if judged.verdict in ALIVE and counts(run.progress):
        judged = judged.also(f"; steps from {wandb.source}")
    if wandb.phase in ("active", "several"):
        return _beside_an_active_one(run, wandb, judged, now)
    last = wandb.current
    if last is None or wandb.phase == "none" or judged.verdict not in ALIVE | QUIET:
        return judged
    if judged.verdict in ALIVE and _goes_on(run, last):
        goes_on = "its log still grows" if counts(run.progress) else "training goes on"
        return judged.also(f"; W&B heartbeat lost ({last.name} {active_run.how_it_ended(last)}), {goes_on}")
    if judged.verdict == "starting" and wandb.phase != "overdue":
        return judged
    if wandb.phase == "ended" and last.state != "finished" and job is None and judged.verdict in ("healthy", "stalled"):
        return _stopped(run, last, context, now)
    if _is_over(run, last, context, job, judged, now):
        over = _finished(run, last) if last.state == "finished" else Judgement("dead", _ended(last))
        return over.also(f"; {judged.why}")
    return judged.also(f"; {wandb.source}: {wandb.why}")


def _beside_an_active_one(run: Run, wandb: Wandb, judged: Judgement, now: Instant) -> Judgement:
    if wandb.loss_state == "nan" and judged.verdict == "diverged" and "loss" in run.progress.borrowed:
        return Judgement("diverged", f"{wandb.source}: {wandb.loss_why}")
    if wandb.loss_state == "nan" and judged.verdict in ("healthy", "evaluating", "saving"):
        return Judgement("diverged", f"{wandb.source}: {wandb.loss_why}; {judged.why}")
    detail = "" if wandb.loss_state != "spike" or judged.verdict == "diverged" else f"; {wandb.loss_why}"
    if wandb.phase == "several":
        detail += f"; W&B: {wandb.why}"
    elif judged.verdict in ("stalled", "hung", "data-stall", "dead"):
        beat = wandb.beats.get(wandb.active[0])
        detail += "" if beat is None else f"; W&B received its heartbeat {ago(active_run.age(beat, now))} ago"
    return judged.also(detail if judged.verdict in ALIVE | QUIET | {"diverged"} else "")


def _beside_a_file(run: Run, judged: Judgement) -> Judgement:
    """The file of its W&B client proves no life, but a loss in it that is no number is one."""
    trouble = wandb_trouble(run)
    if trouble is None or trouble.state != "nan" or judged.verdict not in ("healthy", "evaluating", "saving"):
        return judged
    return Judgement("diverged", f"{trouble.source}: {trouble.text}; {judged.why}")


def _goes_on(run: Run, last: WandbRun) -> bool:
    """Whether its log goes on after W&B lost it; one that shows no steps at least grows."""
    source = run.log if counts(run.progress) else run.progress
    at = None if source is None else source.at
    return at is not None and last.heartbeat_at is not None and at > last.heartbeat_at + GOES_ON


def _is_over(run: Run, last: WandbRun, context: RunContext, job: Job | None, judged: Judgement, now: Instant) -> bool:
    """Whether W&B's word ends it: its own script said how it ended, or it crashed and is silent; and neither a job nor
    its GPUs say otherwise."""
    states = frozenset({"finished", "failed"}) if judged.verdict in ALIVE else active_run.ENDED
    may_end = judged.verdict in ("healthy", "evaluating", "saving", "stalled") and last.state in states
    return may_end and job is None and not _goes_on(run, last) and not _gpus_work(run, context, now)


def _gpus_work(run: Run, context: RunContext, now: Instant) -> bool:
    return (gpus_of(run, context.nodes, context.sources, now).mean_pct or 0.0) > IDLE_PCT


# ---- no log can be read --------------------------------------------------------------------------------------------


def without_a_log(run: Run, blind: Judgement, context: RunContext, job: Job | None, now: Instant) -> Judgement:
    """The verdict by W&B's own steps, where its log cannot be read; else what that alone says."""
    wandb = client_file.evidence(run)
    if unanswered := no_answer(run, context.sources, now):
        may_end = run.log is not None and run.log.host == WANDB
        return blind if may_end else blind.also(f"; {unanswered}")
    last = None if wandb is None else wandb.current
    if wandb is None or last is None or wandb.phase == "none":
        return blind.also(f"; {wandb.why}" if wandb is not None and wandb.why else "")
    is_older = client_file.is_from_file(wandb) and is_new_attempt(run, job)  # its client was killed
    if last.id in wandb.active and not is_older:
        return _beside_an_active_one(run, wandb, _by_its_steps(run, wandb, last, context, job, now), now)
    return _by_its_end(run, wandb, last, context, job, now)


def _by_its_steps(
    run: Run, wandb: Wandb, current: WandbRun, context: RunContext, job: Job | None, now: Instant
) -> Judgement:
    """The verdict while W&B receives heartbeats: the step shows whether it trains."""
    step = metric_names.step_of(current)
    if step is None or wandb.stepped_at is None:
        up = now - (current.created_at or wandb.since or now)
        if up <= run.spec.stall_after:
            return Judgement(
                "starting", f"{current.name} has been up for {duration(up)} in {wandb.source}, no step yet"
            )
        return weighed(
            run,
            context,
            job,
            f"{current.name} has been up for {duration(up)} in {wandb.source}, and logged no step",
            now,
        )
    quiet = max(0.0, now - wandb.stepped_at)
    cadence = run.progress.cadence_s if counts(run.progress) else None
    usual = f", usually every {duration(cadence)}" if cadence else ""
    if quiet <= patience(run):
        return Judgement("healthy", f"{wandb.source} shows step {step:,}, {ago(quiet)} ago{usual}")
    no_step = f"{wandb.source} shows no step for {duration(quiet)}{usual}, the last was {step:,}"
    return weighed(run, context, job, no_step, now)


def _by_its_end(
    run: Run, wandb: Wandb, last: WandbRun, context: RunContext, job: Job | None, now: Instant
) -> Judgement:
    """The verdict while W&B receives no heartbeat, or the file is of an earlier attempt."""
    ended = _ended(last) if wandb.source == "W&B" else f"the last step in its {wandb.source} file is {last.step or 0:,}"
    if wandb.phase == "ended" and last.state != "finished" and job is None:
        return _stopped(run, last, context, now)
    if job is not None:  # W&B starts late: up to restart_grace after the job
        up = now - (job.started_at or now)
        grace = 0.0 if run.spec.wandb is None else run.spec.wandb.restart_grace
        if up <= max(run.spec.stall_after, grace) and (last.heartbeat_at or 0.0) < (job.started_at or 0.0) + GOES_ON:
            ended = f"{wandb.source} has no run of it yet; {ended}"
            return Judgement("starting", f"job {job.id} has been up for {duration(up)}, but {ended}")
        return Judgement("unknown", f"{state_of(job, context.sources, now)}, and {ended}", "of-job")
    if last.state == "finished":
        return _finished(run, last)
    if last.state == "pending":
        return Judgement("starting", ended)
    if last.state in active_run.ALIVE or _gpus_work(run, context, now):
        return weighed(run, context, job, ended, now)
    follows = f"; no new run has started for {duration(now - wandb.since)}" if wandb.since is not None else ""
    return Judgement("dead", ended + (follows if wandb.phase == "overdue" else "; waiting for the next W&B run"))


def _stopped(run: Run, last: WandbRun, context: RunContext, now: Instant) -> Judgement:
    who = stopped_by(run, context.actions, now)
    if who is None and run.verdict == "finished" and last.state != "failed":
        return Judgement("finished", f"it had finished; {_ended(last)}")
    return stopped(Stop(who or "a person ended it"), _ended(last))


def _finished(run: Run, last: WandbRun) -> Judgement:
    """The verdict after a regular end: the target step decides whether the run is complete."""
    goal = run.target_step
    if goal is not None and max(metric_names.step_of(last) or 0, run.progress.step or 0) >= goal:
        return if_its_loss_is_a_number(run, f"{_ended(last)} of {goal:,}")
    return not_finished(run, _ended(last), "finished")


def _ended(last: WandbRun) -> str:
    return f"W&B reports that {last.name} {active_run.how_it_ended(last)}"
