"""The evidence of W&B for or against a verdict, and the verdict of a run without a readable log. Pure.

It is one witness: its "crashed" is a lost heartbeat, its "running" is believed for ten minutes, and while it does not
answer us nothing follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainmon.analysis.gpus import IDLE_PCT, gpus_of
from trainmon.analysis.runs import loss
from trainmon.analysis.runs.context import Judgement, RunContext, is_new_attempt, patience, stopped, target
from trainmon.analysis.runs.no_steps import not_finished, requested_by, since, steps_on_under_it, weighed
from trainmon.analysis.wandb import active_run, client_file, counts, metric_names
from trainmon.lib import Instant, Seconds, duration, elapsed
from trainmon.model import ALIVE, SILENT, WANDB, Job, Record, Run, Source, Stop, Wandb, WandbFile, WandbRun

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
    if run.kill is not None and run.kill.exists and not steps_on_under_it(run):
        return f"the kill switch has been armed{since(run, now)}"
    last = None if run.wandb is None else run.wandb.current
    ended = now if last is None or last.heartbeat_at is None else last.heartbeat_at
    return requested_by(actions, ended, lambda action: action.run == run.name)


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
        detail += "" if beat is None else f"; W&B received its heartbeat {duration(active_run.age(beat, now))} ago"
    return judged.also(detail if judged.verdict in ALIVE | QUIET | {"diverged"} else "")


def _beside_a_file(run: Run, judged: Judgement) -> Judgement:
    """The file of its W&B client proves no life, but a loss in it that is no number is one."""
    trouble = loss.wandb_trouble(run)
    if trouble is None or trouble.state != "nan" or judged.verdict not in ("healthy", "evaluating", "saving"):
        return judged
    return Judgement("diverged", f"{trouble.source}: {loss.describe(trouble)}; {judged.why}")


def _goes_on(run: Run, last: WandbRun) -> bool:
    """Whether its log goes on after W&B lost it; one that shows no steps at least grows."""
    source = run.log if counts(run.progress) else run.progress
    at = None if source is None else source.at
    return at is not None and last.heartbeat_at is not None and at > last.heartbeat_at + GOES_ON


def _is_over(run: Run, last: WandbRun, context: RunContext, job: Job | None, judged: Judgement, now: Instant) -> bool:
    """Whether W&B's word ends it: its own script said how it ended, or it crashed and is silent; and neither a job nor
    its GPUs say otherwise."""
    states = ("finished", "failed") if judged.verdict in ALIVE else ("finished", "failed", "crashed", "killed")
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
        return Judgement("healthy", f"{wandb.source} says: step {step:,} {duration(quiet)} ago{usual}")
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
        return Judgement("unknown", f"job {job.id} is {job.state}, and {ended}", "of-job")
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
    goal = target(run)
    if goal is not None and max(metric_names.step_of(last) or 0, run.progress.step or 0) >= goal:
        return Judgement("finished", f"{_ended(last)} of {goal:,}")
    return not_finished(run, _ended(last), "finished")


def _ended(last: WandbRun) -> str:
    return f"W&B says that {last.name} {active_run.how_it_ended(last)}"
