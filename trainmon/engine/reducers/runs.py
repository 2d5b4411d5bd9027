"""Reducers of runs: their memory between two States, and what W&B says of them. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from msgspec.structs import replace

from trainmon.analysis.attempts.steps import began_at, start_of
from trainmon.analysis.gpus import LOW_POWER, all_wait, averages_of, did_work, gpus_of
from trainmon.analysis.runs import (
    BUSY,
    RunContext,
    loss,
    loss_scale,
    patience,
    position,
    stopped_by,
    throughput,
    trainer,
)
from trainmon.analysis.wandb import active_run, client_file, counts, log_curves, metric_names
from trainmon.engine.reducers import files
from trainmon.engine.reducers.batch import EventBatch
from trainmon.lib import Instant
from trainmon.model import (
    RECENT_LOSSES,
    RUNS_AT_MOST,
    WANDB,
    Alert,
    ConsoleRead,
    CurvesGrew,
    Log,
    LossTrouble,
    NodeReading,
    Points,
    RankLook,
    Run,
    RunLooked,
    RunMemory,
    Sample,
    SampleFetched,
    Source,
    State,
    Stop,
    Wandb,
    WandbFile,
    WandbPolled,
    WandbRows,
    WandbRun,
)

# ---- their memory ----------------------------------------------------------------------------------------------------

EXITING = re.compile(
    r"exiting program (?:after|at iteration)|graceful(?:ly)?[ -](?:stop|exit|shut|terminat)"
    r"|(?:received|caught|got|handling) (?:signal )?\(?SIG(?:TERM|USR1|USR2|INT)\b|received signal 1[025]\b"
    r"|sav(?:e|ing) (?:a )?(?:final )?checkpoint (?:before|and) exit|time limit .{0,60}(?:saving|exiting|stopping)",
    re.IGNORECASE,
)
"""What trainers log when they exit by themselves before the time limit: Megatron's exit_duration and signal handler,
DeepSpeed's launcher, the signal handlers of Lightning and TorchTitan, and common phrases of custom trainers."""

FLOOR = re.compile(r"loss scale already at minimum|minimum loss scale reached", re.IGNORECASE)
"""The last lines of DeepSpeed and fairseq before they give up."""

OVERFLOW = re.compile(r"overflow(?:!| detected\.) .{0,20}skipping step", re.IGNORECASE)
"""Lines of DeepSpeed and apex about a skipped step, if another format or a bar counts the steps."""


LINE = 300
"""Characters kept of a line."""


def follow(batch: EventBatch, context: RunContext, now: Instant) -> None:
    """Update the memory of each run."""
    for name, run in batch.current("runs").items():
        memory = _losses(_steps(_lines(run.memory, run.log, now), run), run.progress.at or now)
        memory = _waits(memory, run, batch.current("alerts").values(), context, now)
        memory = _stopped(memory, run, context)
        looks = _current(run, context, batch.so_far(now)) if run.looks else ()
        if memory is not run.memory or looks != run.looks:
            batch.writable("runs")[name] = replace(run, memory=memory, looks=looks)


def _steps(memory: RunMemory, run: Run) -> RunMemory:
    """Update the memory with a new step."""
    progress = run.progress
    at = progress.at
    if at is None or (at == memory.at and progress.step == memory.step):
        return memory
    is_counted = progress.bar is None and progress.counts != "epoch"  # such a bar restarts with every epoch
    is_back = is_counted and progress.step is not None and memory.step is not None and progress.step < memory.step
    wandb = client_file.evidence(run)
    attempt = wandb.current if wandb is not None and counts(progress) else None
    is_other = attempt is not None and memory.wandb not in (None, attempt.id)  # its steps are not those of the other
    # After a wait of all its GPUs, its throughput is as before.
    usually = replace(run, progress=replace(progress, cadence_s=memory.cadence_s), memory=replace(memory, hangs=False))
    is_late = memory.at is not None and at - memory.at > patience(usually)
    is_reset = is_back or is_late or is_other or memory.at is None
    scales = (None if is_reset else memory.scale_peak, loss_scale(run))
    # The losses of a training that begins anew are high, and are no spike among those before its start.
    is_start = any(one.is_start and one.first_at > (memory.at or at) for one in memory.spans[-1:])
    new = replace(
        memory,
        losses=() if is_start and (progress.step or 0) <= len(memory.losses) else memory.losses,
        throughput=throughput.advance(memory.throughput, progress, len(run.spec.nodes), reset=is_reset),
        step=progress.step,
        at=at,
        cadence_s=progress.cadence_s,
        wandb=None if attempt is None else attempt.id,
        scale_peak=max((scale for scale in scales if scale is not None), default=None),
    )
    new = _overflown(new, (progress.step or 0) - (memory.step or 0))
    if is_back and not is_other:
        new = replace(new, back_at=at, back_from=memory.step, exiting_at=None, floor_at=None)
    elif is_late or is_other:
        new = replace(new, exiting_at=None, floor_at=None)
    return new


def _waits(memory: RunMemory, run: Run, alerts: Iterable[Alert], context: RunContext, now: Instant) -> RunMemory:
    """Whether a run hangs because all its GPUs have waited since its last step, at which they worked, for longer than
    ever. That is over with its next step, with what it announces, or when they work again."""
    before, at, usual = run.memory.at, memory.at, memory.throughput
    waiting = replace(memory, hangs=True)
    limit = patience(replace(run, memory=waiting))
    if at is None or not run.spec.may_hang_early or (at == before and now - at <= limit):
        return replace(memory, hangs=False) if memory.hangs else memory
    gpus = averages_of(run, context.nodes, context.sources, now)
    if at != before or run.verdict in BUSY or gpus_of(run, context.nodes, context.sources, now).work:
        is_wait = memory.hangs and all_wait(gpus, before or now, LOW_POWER)  # they may work by now: the average rises
        waited_s = max(memory.waited_s, now - (before or now)) if is_wait else memory.waited_s
        return replace(memory, gpus_worked=did_work(gpus), waited_s=waited_s, hangs=False)
    if run.verdict != "healthy" or run.log is None or counts(run.progress):
        return memory
    if usual.usual_rate is None:  # the run was not watched for long: an alert may be from before that
        own = (one for one in alerts if one.run == run.name and one.rule == "run-hung")
        return waiting if any(one.is_open and one.found_at > at for one in own) else memory
    last, is_quiet = context.last_attempts.get(run.name), now - (run.log.at or 0.0) > limit
    is_training = run.trainer is None or run.trainer.phase not in trainer.BUSY
    is_whole = last is None or last.ranks is None or last.ranks.ranks <= len(gpus)  # else a rank that is not seen saves
    is_known = at >= (usual.warm_at or at) and memory.gpus_worked and is_training and is_quiet and is_whole
    return waiting if is_known and all_wait(gpus, at) else memory


def _overflown(memory: RunMemory, gained: int) -> RunMemory:
    """How many of the last steps were skipped, once so many more were counted."""
    if not memory.overflows and not memory.skipped_in_row:
        return memory
    is_all = 0 < gained <= memory.overflows
    return replace(
        memory,
        skipped_in_row=memory.skipped_in_row + gained if is_all else 0,
        overflows=memory.overflows - gained if is_all else 0,
    )


def _losses(memory: RunMemory, at: Instant) -> RunMemory:
    """The new losses of its log among the recent ones. The first read of a log has many, which make the usual band."""
    if not memory.unjudged:
        return memory
    steps, values, times = zip(*memory.unjudged, strict=True)
    points = Points([float(step or 0) for step in steps], [at if time is None else time for time in times], values)
    trouble = loss.follow(memory.trouble, memory.losses, "loss", points, at)
    losses = (*memory.losses, *(value for value in values if math.isfinite(value)))[-RECENT_LOSSES:]
    return replace(memory, trouble=trouble, losses=losses, unjudged=())


def _lines(memory: RunMemory, log: Log | None, now: Instant) -> RunMemory:
    """Update the memory with new log lines about its end and about skipped steps."""
    if log is None or log.first + len(log.lines) == memory.read_to:
        return memory
    # At the start of this program, the end of an old log is read again: it says nothing new.
    new = log.lines[max(0, memory.read_to - log.first) :] if memory.read_to else ()
    memory = replace(memory, read_to=log.first + len(log.lines))
    for line in new:
        if EXITING.search(line):
            memory = replace(memory, exiting_at=now)
        elif FLOOR.search(line):
            memory = replace(memory, floor_at=now, floor=line[:LINE])
        elif OVERFLOW.search(line):
            memory = replace(memory, overflows=memory.overflows + 1)
    return memory


def _stopped(memory: RunMemory, run: Run, context: RunContext) -> RunMemory:
    """Remember that a person ended the run, and who, for the time after their switch is removed."""
    kill, stop = run.kill, run.stop
    if stop is None:
        return memory
    if kill is not None and kill.exists:
        stop = Stop("the kill switch was armed" + (f" by {kill.by}" if kill.by else ""))
    where = position(run, context)
    if (memory.stopped, memory.stopped_by) == (where, stop):
        return memory
    return replace(memory, stopped=where, stopped_by=stop)


# ---- looks at their ranks --------------------------------------------------------------------------------------------


def looked(batch: EventBatch, event: RunLooked) -> None:
    """Keep a look at the ranks of a run, in place of the last one of the same source. One that could not look takes no
    answer away: the alert has it."""
    run, look = batch.current("runs").get(event.run), event.look
    same = () if run is None else [one for one in run.looks if one.source == look.source]
    if run is not None and all(one.at <= look.at and one.is_answer <= look.is_answer for one in same):
        looks = (*(one for one in run.looks if one not in same), look)
        batch.writable("runs")[event.run] = replace(run, looks=looks)


def _current(run: Run, context: RunContext, state: State) -> tuple[RankLook, ...]:
    """The looks since its last step, since the start of its job, and since its newest attempt began."""
    job, attempt = state.jobs.get(run.job or ""), context.last_attempts.get(run.name)
    since = (
        run.progress.at,
        None if job is None else began_at(job.started_at, run, state),
        None if attempt is None else start_of(attempt, run, state),
    )
    return tuple(one for one in run.looks if one.at >= max(filter(None, since), default=0.0))


# ---- what W&B says of them -------------------------------------------------------------------------------------------

SAMPLES_AT_MOST = 50


def wandb_polled(batch: EventBatch, event: WandbPolled) -> None:
    """Apply the list of the W&B runs that belong to a run."""
    run = batch.current("runs").get(event.run)
    if run is None or run.spec.wandb is None:
        return
    before: Wandb | None = run.wandb
    is_stopped = _is_stopped(run, batch, event.at)
    wandb = active_run.read(run.spec.wandb, event.runs[:RUNS_AT_MOST], before, event.at, is_stopped)
    keys, names = event.keys or wandb.keys, event.names or wandb.names
    wandb = replace(wandb, polled_at=event.at, keys=keys, names=names)
    current = wandb.current
    old = None if before is None else before.current
    if old is None or current is None or old.path != current.path:
        wandb = replace(wandb, recent=(), trouble=None, samples=())
    if current is not None:
        wandb = replace(
            wandb,
            stepped_at=active_run.stepped_at(before, current, event.at),
            samples=_samples(wandb.samples, event.samples),
            trouble=_by_summary(wandb, current, event.at),
        )
    progress = active_run.polled(run.progress, before, wandb, event.at)
    batch.writable("runs")[event.run] = replace(run, wandb=wandb, progress=progress)


def curves_grew(batch: EventBatch, event: CurvesGrew) -> None:
    """Apply new points of one attempt. Points of the loss of the current attempt update the state of its loss."""
    run = batch.current("runs").get(event.run)
    if run is not None and event.is_older and run.log_metrics is not None:
        metrics = log_curves.with_points(run, event, run.log_metrics.host)
        batch.writable("runs")[event.run] = replace(run, log_metrics=metrics)
    if run is None or run.wandb is None or event.is_older:
        return
    wandb: Wandb = run.wandb
    wandb = replace(wandb, points=wandb.points + sum(len(points.values) for points in event.points.values()))
    current, progress = wandb.current, run.progress
    if current is not None and current.path == event.path:
        key = metric_names.loss_of(wandb.keys) or next(iter(wandb.keys), "")
        points = event.points.get(key)
        if points is not None and points.values:
            recent = () if event.fresh else wandb.recent
            if not recent and wandb.stepped_at is not None and math.isfinite(points.times[-1]):
                # A heartbeat shows that it lives, and its last row when it made a step.
                wandb = replace(wandb, stepped_at=min(wandb.stepped_at, points.times[-1]))
            trouble = loss.follow(None if event.fresh else wandb.trouble, recent, key, points, event.at)
            seen = (*recent, *points.values[-RECENT_LOSSES:])[-RECENT_LOSSES:]
            wandb = replace(wandb, recent=seen, trouble=trouble)
            progress = active_run.grew(progress, current, points, wandb.stepped_at, first=not recent)
    batch.writable("runs")[event.run] = replace(run, wandb=wandb, progress=progress)


def wandb_file_read(batch: EventBatch, event: NodeReading, rows: WandbRows) -> None:
    """Apply new rows of files of metrics. A host that stands in for another may not see them."""
    run = batch.current("runs").get(rows.id)
    if run is None or not (run.spec.wandb_dir or run.spec.metrics_found) or (event.is_stand_in and rows.path is None):
        return
    before, file = run.wandb_file, client_file.read(run, rows, event.node, event.received_at)
    key = metric_names.loss_of(file.keys) or next(iter(file.keys), "")
    known = before.rows if before is not None and before.file == file.file else 0
    points = client_file.curve_of(rows, key, known) if rows.path is not None else None
    numbers = client_file.row_numbers(rows, key, known) if points is not None else ()
    if points is not None:
        file = _judged(file, key, points, rows.t)
    run = replace(run, wandb_file=file)
    wandb, is_served = client_file.of_file(file), run.wandb is not None and run.wandb.current is not None
    current = None if wandb is None else wandb.current
    if wandb is not None and current is not None and file.shows_steps and not is_served:
        if file.format == "CSV" and run.progress.format not in (None, WANDB):
            wandb = replace(wandb, stepped_at=None)  # it is an hour late: the steps of the log show a hang
        progress = active_run.polled(run.progress, client_file.of_file(before), wandb, event.received_at)
        if points is not None:
            if before is not None and known and before.logged_at is not None:  # one row alone shows no pace
                last_at, step = before.logged_at + rows.t - event.received_at, before.runs[0].step or 0
                points = replace(points, steps=(step, *points.steps), times=(last_at, *points.times))
                numbers = (known, *numbers)
            progress = active_run.grew(progress, current, points, wandb.stepped_at, first=not known, numbers=numbers)
        run = replace(run, progress=progress)
    if run.progress.target_step is None and (target := client_file.target_of(file)) is not None:
        run = replace(run, progress=replace(run.progress, target_step=target))
    batch.writable("runs")[rows.id] = run


def _judged(file: WandbFile, key: str, points: Points, t: Instant) -> WandbFile:
    """The file with what is odd about its new losses. They have the time of its newest row. A step back is a restart:
    the losses before it are not those that are usual now."""
    *earlier, points = client_file.attempts_in(points)
    if earlier or points.steps[0] < file.recent_step:
        file = replace(file, recent=())
    at = t if file.logged_at is None else file.logged_at
    trouble = loss.follow(file.trouble, file.recent, key, points, at)
    finite = (value for value in points.values if math.isfinite(value))
    recent = (*file.recent, *finite)[-RECENT_LOSSES:]
    return replace(file, recent=recent, recent_step=points.steps[-1], trouble=trouble)


def sample_fetched(batch: EventBatch, event: SampleFetched) -> None:
    """A sample was downloaded to this machine."""
    run = batch.current("runs").get(event.run)
    if run is None or run.wandb is None:
        return
    samples = tuple(replace(one, kept=event.kept) if one.file == event.file else one for one in run.wandb.samples)
    batch.writable("runs")[event.run] = replace(run, wandb=replace(run.wandb, samples=samples))


def console_read(batch: EventBatch, event: ConsoleRead) -> None:
    """Apply lines of its console log, like lines of a log file on the host WANDB."""
    run = batch.current("runs").get(event.run)
    if run is not None:
        files.read(batch, NodeReading(WANDB, run.spec.cluster, event.received_at, replace(event.chunk, id=event.run)))


def pass_time(batch: EventBatch, now: Instant) -> None:
    """Update phases as time passes: waiting becomes overdue, heartbeats expire. Nothing changes while W&B is silent."""
    for name, run in batch.current("runs").items():
        wandb, spec, file = run.wandb, run.spec.wandb, run.wandb_file
        if file is not None and (passed := loss.passed(file.trouble, now)) is not file.trouble:
            run = replace(run, wandb_file=replace(file, trouble=passed))
            batch.writable("runs")[name] = run
        source: Source | None = batch.current("sources").get(f"wandb:{name}")
        if wandb is None or spec is None or (source is not None and source.health != "ok"):
            continue
        again = active_run.read(spec, wandb.runs, wandb, now, _is_stopped(run, batch, now))
        trouble = loss.passed(wandb.trouble, now)
        if again != wandb or trouble is not wandb.trouble:
            batch.writable("runs")[name] = replace(run, wandb=replace(again, trouble=trouble))


def _is_stopped(run: Run, batch: EventBatch, now: Instant) -> bool:
    """Whether a person ended the run, or it is finished. Then no restart is expected."""
    return run.verdict in ("stopped", "finished") or stopped_by(run, batch.current("actions"), now) is not None


def _samples(before: tuple[Sample, ...], new: tuple[Sample, ...]) -> tuple[Sample, ...]:
    """The newest sample of each metric. One that was downloaded keeps its path."""
    paths = {sample.file: sample.kept for sample in before if sample.kept is not None}
    known = {sample.key: sample for sample in (*before, *new)}
    samples = [sample if sample.kept else replace(sample, kept=paths.get(sample.file)) for sample in known.values()]
    return tuple(samples[-SAMPLES_AT_MOST:])


def _by_summary(wandb: Wandb, current: WandbRun, at: Instant) -> LossTrouble | None:
    """A loss in the latest values that is not finite. They come with every poll."""
    key, trouble = metric_names.loss_of(wandb.keys or current.summary), wandb.trouble
    value = None if key is None else current.summary.get(key)
    if key is None or not isinstance(value, float):
        return trouble
    step = float(current.step or 0)
    if not math.isfinite(value):
        is_known = trouble is not None and trouble.state == "nan"
        return trouble if is_known else LossTrouble(state="nan", key=key, value=value, step=step, at=at)
    return None if trouble is not None and trouble.state == "nan" and step > trouble.step else trouble
