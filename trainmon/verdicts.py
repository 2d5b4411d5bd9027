"""What a run is really doing, and why in a sentence: from its log, its jobs, its switches, its checkpoints and the
GPUs of its nodes, none believed alone. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import median
from typing import Literal, NamedTuple

from msgspec.structs import replace

from trainmon import endings, witnesses
from trainmon.clock import Instant, Seconds
from trainmon.endings import Around, Queue
from trainmon.joining import present
from trainmon.model import Node, Progress, Run, Source, Verdict
from trainmon.model_actions import Record
from trainmon.model_jobs import Job
from trainmon.text import duration

PATIENCE = 10.0
"""A run is late when no step came for this many times its own usual interval, and for at least `stall_after`."""

SKIPS_FOR: Seconds = 60.0
"""A loss scale that settles skips some iterations at a start; for longer than this, and ten of them, it is no start."""

AFTERGLOW: Seconds = 60.0
"""A step that a log shows within this time after its job's end is still that job's."""

OVERLONG = 3.0
"""An evaluation or a save that takes so many times what it usually takes is none any more."""

SKEWED: Seconds = 5.0
"""Of a cluster's clock against ours, from which on the scheduler's times are put right."""

NO_LOG = ("does not exist", "no file matches")
"""A job's log that is not there yet."""

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
    queue = queue_of(run, scene)
    job = queue.present if queue is not None else None
    if is_finished(run) and not _is_anew(run, job):
        return _finished(run, queue, now)
    if queue is not None and job is None and not _steps_after(run, queue):
        told = endings.without_a_job(run, queue, Around(scene.nodes, scene.jobs, scene.actions, scene.sources), now)
        if told is not None:
            return Judgement(*told)
    judged = _living(run, scene, job, now)
    tail = endings.short_of_time(run, job, now) if job is not None and judged.verdict in GOING else ""
    return Judgement(judged.verdict, judged.why + tail + ("" if queue is None else queue.others))


def queue_of(run: Run, scene: Scene) -> Queue | None:
    """The run's jobs, where its scheduler answers; None where nothing is known of them: then nothing follows."""
    if not _does_answer(run, scene):
        return None
    host = scene.nodes.get(run.log.host) if run.log is not None else None
    skew = 0.0 if host is None else host.clock_skew_s or 0.0
    jobs = tuple(_by_our_clock(scene.jobs[key], skew) for key in run.jobs if key in scene.jobs)
    return Queue(jobs, present(jobs)) if jobs else None


def _does_answer(run: Run, scene: Scene) -> bool:
    source = scene.sources.get(f"slurm:{run.spec.cluster}")
    return source is not None and source.seen_at is not None and source.health not in ("off", "down")


def _by_our_clock(job: Job, skew: Seconds) -> Job:
    """Its times by our clock: a step is no older than its job because the cluster's clock is ahead."""
    if abs(skew) < SKEWED:
        return job
    times = {name: getattr(job, name) for name in ("started_at", "starts_at", "ends_at")}
    return replace(job, **{name: at - skew for name, at in times.items() if at is not None})


def trained_otherwise(run: Run, scene: Scene) -> bool:
    """Whether it goes on though its jobs have ended: by hand, or under another name."""
    queue = queue_of(run, scene)
    return queue is not None and queue.present is None and _steps_after(run, queue)


def is_finished(run: Run) -> bool:
    """Whether the last step that was seen is the one at which it is done."""
    last = target(run)
    return bool(last) and run.progress.step is not None and run.progress.step >= (last or 0)


def _is_anew(run: Run, job: Job | None) -> bool:
    """Whether its job began after the last step that was seen."""
    return job is not None and job.started_at is not None and (run.progress.at or 0.0) < job.started_at


def _finished(run: Run, queue: Queue | None, now: Instant) -> Judgement:
    """It has reached its target: with a loss that is a number; and whether a job holds its nodes all the same."""
    progress, job = run.progress, queue.present if queue is not None else None
    reached = f"reached step {progress.step:,} of {target(run):,}"
    if progress.loss is not None and not math.isfinite(progress.loss):
        return Judgement("diverged", f"{reached}, and the loss is {_number(progress.loss)}")
    past = 0.0 if progress.at is None else now - progress.at
    if job is not None and past > AFTERGLOW:
        reached += f"; job {job.id} still runs, {duration(past)} after the last step"
    waiting = queue.waiting if queue is not None else None
    return Judgement("finished", reached + (f"; job {waiting.id} still waits" if waiting is not None else ""))


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
        if job is not None and _is_before_its_log(run, job, now):
            return Judgement("starting", f"job {job.id} {_is_up(job, now)}; {blind.why}")
        return blind if job is None else Judgement(blind.verdict, f"{blind.why}; job {job.id} is {job.state}")
    progress = run.progress
    if job is not None and job.state in STILL:
        return Judgement("stalled", f"job {job.id} {STILL[job.state]}")
    armed = run.kill is not None and run.kill.exists
    tail = f"; kill switch armed{endings.since(run, now)}" if armed else ""
    if job is not None and _is_anew(run, job):
        return _added(_starting(run, scene, job, now), tail)
    if progress.at is None:
        return _added(_without_a_step(run, scene, now), tail)
    silent, patience = now - progress.at, _patience(run)
    if silent > patience and not _is_busy(run, patience, now):
        return _stopped_or_silent(run, scene, job, silent, now) if armed else _silent(run, scene, job, silent, now)
    judged = _astray(progress, now) or _busy(run, now)
    if judged is not None:
        return _added(judged, tail)
    usual = f", usually every {duration(progress.cadence_s)}" if progress.cadence_s else ""
    return Judgement("healthy", f"{where(progress)} {duration(silent)} ago{usual}{tail}")


def _added(judged: Judgement, tail: str) -> Judgement:
    return Judgement(judged.verdict, judged.why + tail)


def _patience(run: Run) -> Seconds:
    """How long it may be silent."""
    return max(run.spec.stall_after, PATIENCE * (run.progress.cadence_s or 0.0))


def _is_up(job: Job, now: Instant) -> str:
    """`is up for 2m, restart 1`; a job whose nodes still boot is not up."""
    again = f", restart {job.restarts}" if job.restarts else ""
    is_up = "is up" if job.state == "RUNNING" else f"is {job.state}"
    return f"{is_up} for {duration(max(0.0, now - (job.started_at or now)))}{again}"


def _is_before_its_log(run: Run, job: Job, now: Instant) -> bool:
    """Whether its job has just begun, and its log is not there yet."""
    error = None if run.log is None else run.log.error
    is_missing = error is not None and any(words in error for words in NO_LOG)
    return is_missing and job.started_at is not None and now - job.started_at <= run.spec.stall_after


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


def _starting(run: Run, scene: Scene, job: Job, now: Instant) -> Judgement:
    """Its job is up, and no step has come from it yet."""
    assert job.started_at is not None
    up, progress = now - job.started_at, run.progress
    said_at = progress.doing_at if progress.doing != "train" else None
    if said_at is not None and said_at >= job.started_at and _is_busy(run, _patience(run), now):
        busy = _busy(replace(run, progress=replace(progress, step=None, epoch=None)), now)
        if busy is not None:
            return busy
    if up <= run.spec.stall_after:
        return Judgement("starting", f"job {job.id} {_is_up(job, now)}, no step yet")
    what = f"job {job.id} {_is_up(job, now)}, and no step has come from it"
    return _weighed(run, scene, job, what, now)


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


def _without_a_step(run: Run, scene: Scene, now: Instant) -> Judgement:
    """No step was ever seen, and no job says that it has just begun."""
    log = run.log
    assert log is not None
    if log.at is None:
        return Judgement("idle", "its log is empty")
    if _is_busy(run, _patience(run), now):
        return _busy(run, now) or Judgement("starting", "its log grows, and shows no step yet")
    quiet = now - log.at
    if quiet > run.spec.stall_after:
        return Judgement("idle", f"its log shows no step, and has not grown for {duration(quiet)}")
    read_for = 0.0 if log.began_at is None else now - log.began_at
    if read_for <= run.spec.stall_after:
        return Judgement("starting", "its log grows, and shows no step yet")
    weighed = _weighed(run, scene, None, f"its log grows, and has shown no step for {duration(read_for)}", now)
    return weighed if weighed.verdict == "hung" else Judgement("unknown", weighed.why)


def _stopped_or_silent(run: Run, scene: Scene, job: Job | None, silent: Seconds, now: Instant) -> Judgement:
    """Silent under an armed kill switch: it obeyed, unless its job still runs, its GPUs still spin, or it was silent
    before: a run that hangs reads no switch."""
    judged = _silent(run, scene, job, silent, now)
    kill, progress = run.kill, run.progress
    armed_at = None if kill is None else kill.armed_at
    in_time = armed_at is None or progress.at is None or armed_at <= progress.at + _patience(run)
    if job is None and in_time and judged.verdict != "hung":
        return Judgement("stopped", f"the kill switch is armed{endings.since(run, now)}; last {where(progress)}")
    return _added(judged, f"; the kill switch, armed{endings.since(run, now)}, has not ended it")


def _silent(run: Run, scene: Scene, job: Job | None, silent: Seconds, now: Instant) -> Judgement:
    progress = run.progress
    usual = f" (usually every {duration(progress.cadence_s)})" if progress.cadence_s else ""
    what = f"no step for {duration(silent)}{usual}, the last was {where(progress)}"
    return _weighed(run, scene, job, what, now)


def _weighed(run: Run, scene: Scene, job: Job | None, what: str, now: Instant) -> Judgement:
    """What the GPUs and the queue make of a run that does not step."""
    gpus = witnesses.gpus_of(run, scene.nodes, scene.sources, now)
    missing = _missing_job(run, scene, now)
    if gpus.are_all_empty:
        why = f"{what}; no process holds memory on its GPUs{missing}"
        if job is not None:
            return Judgement("stalled" if _is_anew(run, job) else "dead", f"{why}; job {job.id} is {job.state}")
        is_dark = bool(run.jobs or run.spec.job) and not _does_answer(run, scene)
        return Judgement("unknown" if is_dark and missing else "dead", why)
    if gpus.spin:
        return Judgement("hung", f"{what}; {gpus.spin}{gpus.unheard}{missing}")
    mean = gpus.mean_pct
    if mean is None:
        is_gone = bool(missing) and run.spec.job is not None and _does_answer(run, scene)
        return Judgement("dead" if is_gone else "stalled", what + missing)
    if mean <= witnesses.IDLE_PCT:
        return Judgement("data-stall", f"{what}; its GPUs are idle ({mean:.0f} %){gpus.unheard}{missing}")
    return Judgement("stalled", f"{what}; its GPUs are at {mean:.0f} %{gpus.unheard}{missing}")


def _missing_job(run: Run, scene: Scene, now: Instant) -> str:
    """What its scheduler says where it lists no job of it, or says nothing."""
    source = scene.sources.get(f"slurm:{run.spec.cluster}")
    if source is None or source.seen_at is None or source.health == "off":
        return ""
    if source.health == "down":
        return f"; Slurm has not answered for {duration(now - source.seen_at)}" if run.jobs or run.spec.job else ""
    return "" if run.jobs else f"; Slurm lists no job {run.spec.job or run.name}"


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
    if progress.step is None:
        return "no step yet" if progress.epoch is None else f"epoch {progress.epoch:.2f}"
    return f"step {progress.step:,}"


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else "infinite"
