"""What a run is doing that does not step: its GPUs, its queue and its switch are asked, none believed alone. Pure."""

from __future__ import annotations

from trainmon.analysis.gpus import IDLE_PCT, gpus_of
from trainmon.analysis.runs.context import Judgement, RunContext, does_answer, is_anew, missing_job, patience, where
from trainmon.analysis.runs.exit_status import since, steps_on_under_it
from trainmon.analysis.wandb import counts
from trainmon.lib import Instant, Seconds, duration
from trainmon.model import Job, Run

UNREAD = "its log grows, but shows no known step line"

PAUSES = 1.5
"""A log is silent when it has not grown for so many times its longest pause, and for at least `stall_after` …"""

PAUSES_AT_MOST = 4.0
"""… but never for more than so many times `stall_after`: a pause between two attempts is none of its usual ones."""


def is_unread(run: Run, job: Job | None, now: Instant) -> bool:
    """Whether its log grows at its usual pace, and no line of it was ever a known step: nothing follows from that."""
    log, floor = run.log, run.spec.stall_after
    if log is None or log.at is None or _has_shown_steps(run):
        return False
    is_of_job = job is None or log.at > (job.started_at or 0.0)
    return is_of_job and now - log.at <= max(floor, min(PAUSES * log.pause_s, PAUSES_AT_MOST * floor))


def unread(run: Run, context: RunContext, now: Instant) -> Judgement:
    """The verdict on such a run. GPUs that spin without power are told: small models look the same as a hang there."""
    spin = gpus_of(run, context.nodes, context.sources, now).spin
    return Judgement("unknown", UNREAD + (f"; {spin}" if spin else "") + missing_job(run, context, now))


def last_line_at(run: Run, job: Job | None) -> Instant | None:
    """When a log in which no step is known grew last, where that was after the start of its job: it fell silent then.
    None where it may be starting still, or steps were seen."""
    log, began = run.log, None if job is None else job.started_at
    if log is None or log.at is None or began is None or _has_shown_steps(run):
        return None
    return log.at if log.at - began > run.spec.stall_after else None


def _has_shown_steps(run: Run) -> bool:
    return run.progress.at is not None and not counts(run.progress)


def stopped_or_silent(run: Run, context: RunContext, job: Job | None, quiet: Seconds, now: Instant) -> Judgement:
    """Silent under an armed kill switch: it obeyed, unless its job still runs, its GPUs still spin, or it was silent
    before: a run that hangs reads no switch."""
    judged = silent(run, context, job, quiet, now)
    armed_at, at = None if run.kill is None else run.kill.armed_at, run.progress.at
    is_in_time = armed_at is None or at is None or armed_at <= at + patience(run)
    if job is None and is_in_time and not steps_on_under_it(run) and judged.verdict != "hung":
        return Judgement("stopped", f"the kill switch is armed{since(run, now)}; last {where(run.progress)}")
    return judged.also(f"; the kill switch, armed{since(run, now)}, has not ended it")


def silent(run: Run, context: RunContext, job: Job | None, quiet: Seconds, now: Instant) -> Judgement:
    """No step for longer than this run is ever quiet."""
    progress = run.progress
    usual = f" (usually every {duration(progress.cadence_s)})" if progress.cadence_s else ""
    what = f"no step for {duration(quiet)}{usual}, the last was {where(progress)}"
    return weighed(run, context, job, what, now)


def weighed(run: Run, context: RunContext, job: Job | None, what: str, now: Instant) -> Judgement:
    """What the GPUs and the queue make of a run that does not step."""
    gpus = gpus_of(run, context.nodes, context.sources, now)
    missing = missing_job(run, context, now)
    if gpus.are_all_empty:
        why = f"{what}; no process holds memory on its GPUs{missing}"
        if job is not None:
            return Judgement("stalled" if is_anew(run, job) else "dead", f"{why}; job {job.id} is {job.state}")
        is_dark = bool(run.jobs or run.spec.job) and not does_answer(run, context)
        return Judgement("unknown" if is_dark and missing else "dead", why)
    if gpus.spin:
        return Judgement("hung", f"{what}; {gpus.spin}: probably a stuck collective{gpus.silent_nodes}{missing}")
    mean = gpus.mean_pct
    if mean is None:
        is_gone = bool(missing) and run.spec.job is not None and does_answer(run, context)
        return Judgement("dead" if is_gone else "stalled", what + missing)
    if mean <= IDLE_PCT:
        return Judgement("data-stall", f"{what}; its GPUs are idle ({mean:.0f} %){gpus.silent_nodes}{missing}")
    return Judgement("stalled", f"{what}; its GPUs are at {mean:.0f} %{gpus.silent_nodes}{missing}")
