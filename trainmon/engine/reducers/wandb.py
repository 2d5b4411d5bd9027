"""Reducers of W&B events: State.runs. Pure."""

from __future__ import annotations

import math

from msgspec.structs import replace

from trainmon.analysis.runs import loss
from trainmon.analysis.runs.wandb_evidence import stopped_by
from trainmon.analysis.wandb import active_run, client_file, metric_names
from trainmon.engine.reducers import files
from trainmon.engine.reducers.batch import EventBatch
from trainmon.lib import Instant
from trainmon.model import (
    RECENT_LOSSES,
    RUNS_AT_MOST,
    WANDB,
    ConsoleRead,
    CurvesGrew,
    LossTrouble,
    NodeReading,
    Points,
    Run,
    Sample,
    SampleFetched,
    Source,
    Wandb,
    WandbFile,
    WandbPolled,
    WandbRows,
    WandbRun,
)

SAMPLES_AT_MOST = 50


def polled(batch: EventBatch, event: WandbPolled) -> None:
    """Apply the list of the W&B runs that belong to a run."""
    run = batch.current("runs").get(event.run)
    if run is None or run.spec.wandb is None:
        return
    before: Wandb | None = run.wandb
    is_stopped = _is_stopped(run, batch, event.at)
    wandb = active_run.read(run.spec.wandb, event.runs[:RUNS_AT_MOST], before, event.at, is_stopped)
    wandb = replace(wandb, polled_at=event.at, keys=event.keys or wandb.keys)
    current = wandb.current
    old = None if before is None else before.current
    if old is None or current is None or old.path != current.path:
        wandb = replace(wandb, recent=(), trouble=None, samples=())
    if current is not None:
        stepped_at = active_run.stepped_at(before, current, event.at)
        wandb = replace(wandb, stepped_at=stepped_at, samples=_samples(wandb.samples, event.samples))
        wandb = _troubled(wandb, _by_summary(wandb, current, event.at))
    progress = active_run.polled(run.progress, before, wandb, event.at)
    batch.writable("runs")[event.run] = replace(run, wandb=wandb, progress=progress)


def curves_grew(batch: EventBatch, event: CurvesGrew) -> None:
    """Apply new points of one attempt. Points of the loss of the current attempt update the state of its loss."""
    run = batch.current("runs").get(event.run)
    if run is None or run.wandb is None:
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
            wandb = replace(wandb, recent=(*recent, *points.values[-RECENT_LOSSES:])[-RECENT_LOSSES:])
            wandb = _troubled(wandb, trouble)
            progress = active_run.grew(progress, current, points, wandb.stepped_at, first=not recent)
    batch.writable("runs")[event.run] = replace(run, wandb=wandb, progress=progress)


def file_read(batch: EventBatch, event: NodeReading, rows: WandbRows) -> None:
    """Apply new rows of the file of a W&B client. A host that stands in for another may not see it."""
    run = batch.current("runs").get(rows.id)
    if run is not None and run.spec.wandb_dir is not None and not (event.is_stand_in and rows.path is None):
        before, file = run.wandb_file, client_file.read(run, rows, event.node, event.received_at)
        is_same = before is not None and (before.file, before.path) == (file.file, file.path)
        key = metric_names.loss_of(file.keys) or next(iter(file.keys), "")
        known = before.rows if before is not None and is_same else 0
        points = client_file.curve_of(rows, key, known) if rows.path is not None else None
        file = file if points is None else _judged(file, key, points, rows.t)
        run = replace(run, wandb_file=file)
        wandb, is_served = client_file.of_file(file), run.wandb is not None and run.wandb.current is not None
        if wandb is not None and wandb.current is not None and not is_served:
            progress = active_run.polled(run.progress, client_file.of_file(before), wandb, event.received_at)
            if points is not None:
                numbers = client_file.row_numbers(rows, key, known)
                progress = active_run.grew(
                    progress, wandb.current, points, wandb.stepped_at, first=not known, numbers=numbers
                )
            run = replace(run, progress=progress)
        batch.writable("runs")[rows.id] = run


def _judged(file: WandbFile, key: str, points: Points, t: Instant) -> WandbFile:
    """The file with what is odd about its new losses. They have the time of its newest row."""
    at = t if file.logged_at is None else file.logged_at
    trouble = loss.follow(file.trouble, file.recent, key, points, at)
    finite = (value for value in points.values if math.isfinite(value))
    recent = (*file.recent, *finite)[-RECENT_LOSSES:]
    return replace(file, recent=recent, trouble=trouble, loss_why=loss.describe(trouble))


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
            run = replace(run, wandb_file=replace(file, trouble=passed, loss_why=loss.describe(passed)))
            batch.writable("runs")[name] = run
        source: Source | None = batch.current("sources").get(f"wandb:{name}")
        if wandb is None or spec is None or (source is not None and source.health != "ok"):
            continue
        again = active_run.read(spec, wandb.runs, wandb, now, _is_stopped(run, batch, now))
        trouble = loss.passed(wandb.trouble, now)
        if again != wandb or trouble is not wandb.trouble:
            batch.writable("runs")[name] = replace(run, wandb=_troubled(again, trouble))


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


def _troubled(wandb: Wandb, trouble: LossTrouble | None) -> Wandb:
    why = loss.describe(trouble)
    return replace(wandb, trouble=trouble, loss_state="fine" if trouble is None else trouble.state, loss_why=why)
