"""What a run is really doing, and why in a sentence: from its log, its jobs, its switches, its checkpoints and the
GPUs of its nodes, none believed alone. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import Literal, NamedTuple

from trainmon import endings
from trainmon.clock import Instant, Seconds
from trainmon.endings import Around, Queue
from trainmon.joining import present
from trainmon.model import Gpu, Node, Progress, Run, Source, Verdict
from trainmon.model_actions import Record
from trainmon.model_jobs import Job
from trainmon.text import duration

PATIENCE = 10.0
"""A run is late when no step came for this many times its own usual interval, and for at least `stall_after`."""

BUSY_PCT = 90.0
IDLE_PCT = 10.0
LOW_POWER = 0.5
"""GPUs that spin in a collective show 100 % at less than half of their power limit; training does not."""

SKIPS_FOR: Seconds = 60.0
"""A loss scale that settles skips some iterations at a start; for longer than this, and ten of them, it is no start."""

AFTERGLOW: Seconds = 60.0
"""A step that a log shows within this time after its job's end is still that job's."""

OVERLONG = 3.0
"""An evaluation or a save that takes so many times what it usually takes is none any more."""

EMPTY_MIB = 1_500
"""The driver's own part of an idle GPU's memory is below this; a training's is not."""

STILL: dict[str, str] = {"SUSPENDED": "is suspended", "STOPPED": "is stopped by a signal"}

GOING = frozenset({"healthy", "starting", "evaluating", "saving", "diverged"})


class Judgement(NamedTuple):
    verdict: Verdict
    why: str


class Scene(NamedTuple):
    """What is known beside the run itself, by name or key."""

    nodes: Mapping[str, Node] = {}
    sources: Mapping[str, Source] = {}
    jobs: Mapping[str, Job] = {}
    actions: Mapping[str, Record] = {}


def judge(run: Run, scene: Scene, now: Instant) -> Judgement:
    """Weigh the witnesses. What cannot be seen is `unknown`, never `dead`."""
    if is_finished(run):
        return Judgement("finished", f"reached step {run.progress.step:,} of {target(run):,}")
    queue = queue_of(run, scene)
    if queue is not None and queue.present is None and not _steps_after(run, queue):
        told = endings.without_a_job(run, queue, Around(scene.nodes, scene.jobs, scene.actions), now)
        if told is not None:
            return Judgement(*told)
    job = queue.present if queue is not None else None
    judged = _living(run, scene, job, now)
    tail = endings.short_of_time(run, job, now) if job is not None and judged.verdict in GOING else ""
    return Judgement(judged.verdict, judged.why + tail)


def queue_of(run: Run, scene: Scene) -> Queue | None:
    """The run's jobs, where its scheduler answers; None where nothing is known of them: then nothing follows."""
    source = scene.sources.get(f"slurm:{run.spec.cluster}")
    if source is None or source.seen_at is None or source.health in ("off", "down"):
        return None
    jobs = tuple(scene.jobs[key] for key in run.jobs if key in scene.jobs)
    return Queue(jobs, present(jobs)) if jobs else None


def is_finished(run: Run) -> bool:
    """Whether the last step that was seen is the one at which it is done."""
    last = target(run)
    return bool(last) and run.progress.step is not None and run.progress.step >= (last or 0)


def target(run: Run) -> int | None:
    return run.spec.target_step or run.progress.target_step


def _steps_after(run: Run, queue: Queue) -> bool:
    """Whether steps came after its last job ended: then something else trains it, and the queue is no witness."""
    ended = queue.ended
    if run.progress.at is None or ended is None:
        return False
    at = ended.ends_at or ended.gone_at
    return at is not None and run.progress.at > at + max(AFTERGLOW, 3 * (run.progress.cadence_s or 0.0))


def _living(run: Run, scene: Scene, job: Job | None, now: Instant) -> Judgement:
    """Judge a run of which nothing says that it has ended."""
    blind = _blind(run, scene.sources, now)
    if blind is not None:
        return blind if job is None else Judgement(blind.verdict, f"{blind.why}; job {job.id} is {job.state}")
    progress = run.progress
    if job is not None and job.state in STILL:
        return Judgement("stalled", f"job {job.id} {STILL[job.state]}")
    if job is not None and job.started_at is not None and (progress.at or 0.0) < job.started_at:
        return _starting(run, job, job.started_at, now)
    if progress.at is None:
        return _without_a_step(run, now)
    silent, patience = now - progress.at, max(run.spec.stall_after, PATIENCE * (progress.cadence_s or 0.0))
    armed = run.kill is not None and run.kill.exists
    if silent > patience and not _is_busy(run, patience, now):
        if armed:
            return Judgement("stopped", f"the kill switch is armed{endings.since(run, now)}; last {where(progress)}")
        return _silent(run, scene, silent)
    astray = _astray(progress, now)
    if astray is not None:
        return astray
    tail = f"; kill switch armed{endings.since(run, now)}" if armed else ""
    busy = _busy(run, now)
    if busy is not None:
        return Judgement(busy.verdict, busy.why + tail)
    usual = f", usually every {duration(progress.cadence_s)}" if progress.cadence_s else ""
    return Judgement("healthy", f"{where(progress)} {duration(silent)} ago{usual}{tail}")


def _astray(progress: Progress, now: Instant) -> Judgement | None:
    """Steps come, and teach nothing: NaN, or every one of them skipped."""
    if progress.loss is not None and not math.isfinite(progress.loss):
        return Judgement("diverged", f"the loss is {_number(progress.loss)} at {where(progress)}")
    if progress.skipping_since is not None:
        skipping = now - progress.skipping_since
        if skipping > max(SKIPS_FOR, PATIENCE * (progress.cadence_s or 0.0)):
            return Judgement(
                "diverged",
                f"the loss has vanished: every iteration is skipped for {duration(skipping)}, {where(progress)}",
            )
    return None


def _starting(run: Run, job: Job, started_at: Instant, now: Instant) -> Judgement:
    """Its job is up, and no step has come from it yet."""
    up = now - started_at
    again = f", restart {job.restarts}" if job.restarts else ""
    if up <= run.spec.stall_after:
        return Judgement("starting", f"job {job.id} is up for {duration(up)}{again}, no step yet")
    return Judgement("stalled", f"job {job.id} is up for {duration(up)}{again}, and no step has come from it")


def _busy(run: Run, now: Instant) -> Judgement | None:
    """What it does in place of stepping: its log says so, or a checkpoint is being written."""
    progress = run.progress
    if progress.doing != "train" and progress.doing_at is not None:
        doing: Verdict = "evaluating" if progress.doing == "eval" else "saving"
        spent = duration(now - (progress.busy_since or progress.doing_at))
        return Judgement(doing, f"{doing} for {spent} after {where(progress)}{_usually(run, progress.doing)}")
    writing = run.checkpoints.writing if run.checkpoints is not None else None
    late = progress.at is not None and now - progress.at > 2 * (progress.cadence_s or now)
    if writing is not None and writing.began_at is not None and late:
        spent = duration(max(0.0, now - writing.began_at))
        return Judgement(
            "saving", f"a checkpoint is written for {spent}, after {where(progress)}{_usually(run, 'save')}"
        )
    return None


def _usual(run: Run, doing: Literal["eval", "save"]) -> Seconds | None:
    """What an evaluation or a save of this run usually takes: from its checkpoints, else from its log."""
    if doing == "save" and run.checkpoints is not None and run.checkpoints.save_s:
        return run.checkpoints.save_s
    known = run.progress.saves if doing == "save" else run.progress.evals
    return median(known) if known else None


def _usually(run: Run, doing: Literal["eval", "save"]) -> str:
    usual = _usual(run, doing)
    return f" (usually {duration(usual)})" if usual else ""


def _blind(run: Run, sources: Mapping[str, Source], now: Instant) -> Judgement | None:
    """Unknown, when the log cannot be read now."""
    log = run.log
    if run.spec.log is None:
        return Judgement("unknown", "no log is configured for it")
    if log is None:
        return Judgement("unknown", "its log has not been read yet")
    source = sources.get(f"node:{log.host}")
    if source is not None and source.health in ("late", "down"):
        seen = "" if source.seen_at is None else f" for {duration(now - source.seen_at)}"
        return Judgement("unknown", f"{log.host}, where its log is read, has not answered{seen}")
    if log.error is not None:
        return Judgement("unknown", log.error)
    return None


def _without_a_step(run: Run, now: Instant) -> Judgement:
    log = run.log
    assert log is not None
    if log.at is None:
        return Judgement("idle", "its log is empty")
    quiet = now - log.at
    if quiet > run.spec.stall_after:
        return Judgement("idle", f"its log shows no step, and has not grown for {duration(quiet)}")
    return Judgement("starting", "its log grows, and shows no step yet")


def _silent(run: Run, scene: Scene, silent: Seconds) -> Judgement:
    progress, gpus = run.progress, _gpus(run, scene.nodes)
    usual = f" (usually every {duration(progress.cadence_s)})" if progress.cadence_s else ""
    what = f"no step for {duration(silent)}{usual}, the last was {where(progress)}"
    utilization = [gpu.utilization_pct for gpu in gpus if gpu.utilization_pct is not None]
    if not utilization:
        return Judgement("stalled", what)
    mean = sum(utilization) / len(utilization)
    if _are_empty(run, scene):
        return Judgement("dead", f"{what}; no process holds memory on its GPUs")
    if mean <= IDLE_PCT:
        return Judgement("data-stall", f"{what}; its GPUs are idle ({mean:.0f} %)")
    shares = [gpu.power_w / gpu.power_limit_w for gpu in gpus if gpu.power_w is not None and gpu.power_limit_w]
    if mean >= BUSY_PCT and shares and sum(shares) / len(shares) < LOW_POWER:
        power = 100 * sum(shares) / len(shares)
        return Judgement("hung", f"{what}; its GPUs spin at {mean:.0f} % with {power:.0f} % of their power")
    return Judgement("stalled", f"{what}; its GPUs are at {mean:.0f} %")


def _gpus(run: Run, nodes: Mapping[str, Node]) -> list[Gpu]:
    return [gpu for name in run.spec.nodes if name in nodes for gpu in nodes[name].gpus]


def _are_empty(run: Run, scene: Scene) -> bool:
    """Whether all its nodes answer, and no GPU of them has a process or memory in use: a container hides processes."""
    heard = all(_answers(name, scene) and scene.nodes[name].gpus for name in run.spec.nodes)
    gpus = _gpus(run, scene.nodes)
    return heard and all(
        not gpu.processes and gpu.memory_used_mib is not None and gpu.memory_used_mib < EMPTY_MIB for gpu in gpus
    )


def _answers(node: str, scene: Scene) -> bool:
    source = scene.sources.get(f"node:{node}")
    return node in scene.nodes and source is not None and source.health == "ok"


def _is_busy(run: Run, patience: Seconds, now: Instant) -> bool:
    """Whether it said within patience that it evaluates or saves, or is seen to write a checkpoint: that takes the
    time of many steps, and for the slow ones what three of them usually take."""
    progress = run.progress
    if progress.doing != "train" and progress.doing_at is not None:
        return now - progress.doing_at <= max(patience, OVERLONG * (_usual(run, progress.doing) or 0.0))
    writing = run.checkpoints.writing if run.checkpoints is not None else None
    return writing is not None and writing.at is not None and now - writing.at <= patience


def where(progress: Progress) -> str:
    """How far it is; some trainers print no step, but an epoch that grows."""
    return f"step {progress.step:,}" if progress.step is not None else f"epoch {progress.epoch or 0:.2f}"


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else "infinite"
