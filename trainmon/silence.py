"""What a run is doing that does not step: its GPUs, its queue and its switch are asked, none believed alone. Pure."""

from __future__ import annotations

from trainmon import endings, witnesses
from trainmon.clock import Instant, Seconds
from trainmon.model import Run
from trainmon.model_jobs import Job
from trainmon.scene import Judgement, Scene, does_answer, is_anew, missing_job, patience, where
from trainmon.text import duration


def stopped_or_silent(run: Run, scene: Scene, job: Job | None, quiet: Seconds, now: Instant) -> Judgement:
    """Silent under an armed kill switch: it obeyed, unless its job still runs, its GPUs still spin, or it was silent
    before: a run that hangs reads no switch."""
    judged = silent(run, scene, job, quiet, now)
    kill, progress = run.kill, run.progress
    armed_at = None if kill is None else kill.armed_at
    in_time = armed_at is None or progress.at is None or armed_at <= progress.at + patience(run)
    in_time = in_time and not endings.steps_on_under_it(run)
    if job is None and in_time and judged.verdict != "hung":
        return Judgement("stopped", f"the kill switch is armed{endings.since(run, now)}; last {where(progress)}")
    return judged.also(f"; the kill switch, armed{endings.since(run, now)}, has not ended it")


def silent(run: Run, scene: Scene, job: Job | None, quiet: Seconds, now: Instant) -> Judgement:
    """No step for longer than this run is ever quiet."""
    progress = run.progress
    usual = f" (usually every {duration(progress.cadence_s)})" if progress.cadence_s else ""
    what = f"no step for {duration(quiet)}{usual}, the last was {where(progress)}"
    return weighed(run, scene, job, what, now)


def weighed(run: Run, scene: Scene, job: Job | None, what: str, now: Instant) -> Judgement:
    """What the GPUs and the queue make of a run that does not step."""
    gpus = witnesses.gpus_of(run, scene.nodes, scene.sources, now)
    missing = missing_job(run, scene, now)
    if gpus.are_all_empty:
        why = f"{what}; no process holds memory on its GPUs{missing}"
        if job is not None:
            return Judgement("stalled" if is_anew(run, job) else "dead", f"{why}; job {job.id} is {job.state}")
        is_dark = bool(run.jobs or run.spec.job) and not does_answer(run, scene)
        return Judgement("unknown" if is_dark and missing else "dead", why)
    if gpus.spin:
        return Judgement("hung", f"{what}; {gpus.spin}{gpus.unheard}{missing}")
    mean = gpus.mean_pct
    if mean is None:
        is_gone = bool(missing) and run.spec.job is not None and does_answer(run, scene)
        return Judgement("dead" if is_gone else "stalled", what + missing)
    if mean <= witnesses.IDLE_PCT:
        return Judgement("data-stall", f"{what}; its GPUs are idle ({mean:.0f} %){gpus.unheard}{missing}")
    return Judgement("stalled", f"{what}; its GPUs are at {mean:.0f} %{gpus.unheard}{missing}")
