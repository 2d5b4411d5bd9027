"""The files of metrics, of the W&B client and other writers: what new rows mean, when their curves are shown, and when
their steps count. Pure.

Some are written in blocks, so a file that does not grow says for long nothing about whether a run lives.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, starmap
from posixpath import basename, dirname
from typing import Any

import msgspec
from msgspec.structs import replace

from trainmon.analysis.wandb import metric_names
from trainmon.analysis.wandb.active_run import how_it_ended, label
from trainmon.analysis.wandb.metric_names import NAME_LENGTH, NON_FINITE, read_config, read_summary, safe_text
from trainmon.lib import Instant, Seconds, clean
from trainmon.model import (
    OVER,
    WANDB,
    GroupPhase,
    Points,
    Run,
    Verdict,
    Wandb,
    WandbDirectory,
    WandbFile,
    WandbRows,
    WandbRun,
)

ENTITY = "file"
"""The entity in the paths of such runs: their curves are not mixed with those of W&B's server."""

FILES_AT_MOST = 6
"""The current run, and earlier ones to compare it with."""

SETTLED: Seconds = 60.0
"""The client may still write its last rows after its run has ended."""

QUIET: Seconds = 3_600.0
"""A block of 32 KiB takes half an hour at most, with few metrics and slow steps. Lightning writes every 100 rows."""

BLOCKS: Mapping[str, Seconds] = {"TensorBoard": 120.0, "JSON lines": 0.0}
"""How long a writer may keep rows to itself, where it is not QUIET: TensorFlow's flushes every two minutes."""

PART = re.compile(
    r"/(?:checkpoint-\d+|train(?:ing)?|eval(?:uation)?|val(?:id(?:ation)?)?|test|dev)(?=/[^/]*$)", re.IGNORECASE
)
"""Of Hugging Face's Trainer, Keras and others: what files there say is about the run, which is the directory above."""

PATH_LENGTH = 4096
TOO_LONG = "…"


def directory_of(
    run: str, wandb_dir: str, charts: tuple[str, ...], found: tuple[str, ...] = (), since: Instant | None = None
) -> WandbDirectory:
    """What a probe reads for a run."""
    return WandbDirectory(run, wandb_dir, charts, "" if charts else metric_names.KNOWN, found, since)


def path_of(rows: WandbRows) -> str:
    """The path of the curves of a file, as in WandbRun."""
    return f"{ENTITY}/{rows.id}/{_directory(rows)}"


def points_of(rows: WandbRows, known: int = 0) -> Mapping[str, Points]:
    """The points of each metric in the rows after number `known`."""
    curves = ((key, curve_of(rows, key, known)) for key in rows.keys if clean(key, NAME_LENGTH) == key)
    return {key: points for key, points in curves if points is not None}


def curve_of(rows: WandbRows, key: str, known: int = 0) -> Points | None:
    """The points of one metric in the rows after number `known`; None if it has none."""
    if key not in rows.keys:
        return None
    column = 3 + rows.keys.index(key)
    points = [(_number(row[1]), _number(row[2]), _number(row[column])) for row in _rows_with(rows, column, known)]
    return Points(*zip(*points, strict=True)) if points else None


def row_numbers(rows: WandbRows, key: str, known: int = 0) -> Sequence[float]:
    """The numbers of the rows after number `known` that have this metric: of a large file, some are left out."""
    return [_number(row[0]) for row in _rows_with(rows, 3 + rows.keys.index(key), known)]


def attempts_in(points: Points) -> list[Points]:
    """The points between two restarts, at which the steps go back."""
    steps = points.steps
    starts = (index for index, (before, after) in enumerate(pairwise(steps), 1) if after < before)
    columns = steps, points.times, points.values
    return [
        Points(*(column[part] for column in columns)) for part in starmap(slice, pairwise((0, *starts, len(steps))))
    ]


def _rows_with(rows: WandbRows, column: int, known: int) -> Iterator[tuple[float | str | None, ...]]:
    return (row for row in rows.points if len(row) > column and row[column] is not None and _number(row[0]) > known)


def read(run: Run, rows: WandbRows, host: str, at: Instant) -> WandbFile:
    """What is known of a run's files after these rows, which arrived at `at`."""
    before = run.wandb_file or WandbFile()
    if rows.path is None:
        error = None if rows.error is None else clean(rows.error)
        return replace(before, host=host, is_behind=False, checked_at=at, error=error)
    path = clean(rows.path, PATH_LENGTH)
    file = f"{_directory(rows)} {rows.file}"
    is_same = before.file == file
    if rows.format != "W&B" and not run.spec.charts:
        rows = _of_training(rows, before.runs[0].logged_at if is_same and before.runs else None)
    known = before if is_same else replace(
        before, file=file, rows=0, damaged_before=before.damaged_before + before.damaged, damaged=0,
        exit_code=None, logged_at=None, recent=(), recent_step=-math.inf, trouble=None,
    )  # fmt: skip
    points = points_of(rows, known.rows)
    names = tuple(dict.fromkeys((*(known.names if is_same else ()), *points)))
    is_older = rows.rows < known.rows  # another reader has begun at the start of the file
    logged_at = None if rows.logged_at is None else min(at, rows.logged_at - (rows.t - at))
    return replace(
        known,
        host=host,
        path=path,
        format=clean(rows.format, NAME_LENGTH),
        project="/".join(filter(None, (rows.run.entity, rows.run.project))) if rows.run else known.project,
        size=rows.size,
        offset=max(rows.offset, known.offset) if is_older else rows.offset,
        rows=max(rows.rows, known.rows),
        damaged=max(rows.damaged, known.damaged) if is_older else rows.damaged,
        tail=rows.tail,
        written_at=written_at(rows, at),
        logged_at=known.logged_at if is_older or logged_at is None else logged_at,
        is_behind=rows.more,
        checked_at=at,
        exit_code=known.exit_code if rows.exit is None else rows.exit[0],
        names=names,
        keys=metric_names.choose(run.spec.charts, names),
        points=known.points + sum(len(one.values) for one in points.values()),
        runs=_runs(known, rows, points, is_older=is_older),
        error=None if rows.error is None else clean(rows.error),
    )


def _of_training(rows: WandbRows, newest: Instant | None) -> WandbRows:
    """The rows with the newest step of the training: what has only values of a validation may be of another process,
    and does not show that a run trains. `newest`: the time of the newest step that is known; of several writers, each
    keeps its rows for a while."""
    columns = [3 + column for column, key in enumerate(rows.keys) if not metric_names.is_validation(key)]
    if len(columns) == len(rows.keys):
        return rows
    trained = (row for row in rows.points[::-1] if any(row[at] is not None for at in columns if at < len(row)))
    _, step, at, *_ = next(trained, (None, None, None))
    logged_at = None if at is None else min(_number(at), rows.t)
    if logged_at is not None and newest is not None and logged_at < newest:
        step = logged_at = None
    return replace(rows, step=step, logged_at=logged_at)


def written_at(rows: WandbRows, at: Instant) -> Instant | None:
    """When the file was last written, by our clock. `at`: when the rows arrived."""
    return None if rows.mtime is None else min(at, at - (rows.t - rows.mtime))


def ends_incomplete(file: WandbFile, verdict: Verdict) -> bool:
    """Whether the file ends in a record that its client will not complete: nothing has been written since the run has
    ended, or for long. While it trains, a record that is cut at the end of a block is usual."""
    if not file.tail or file.is_behind or file.written_at is None or file.checked_at is None:
        return False
    return file.checked_at - file.written_at >= (SETTLED if verdict in OVER else QUIET)


def shown(run: Run, *, is_failing: bool) -> Wandb | None:
    """The W&B data with the curves to show. W&B's server comes first; the file fills in if there is no server, if it
    fails now (`is_failing`), or if it has sent no curves. The log fills in where there are no others."""
    file, served, log = run.wandb_file, run.wandb, run.log_metrics
    has_curves = served is not None and bool(served.points and served.keys)
    if file is not None and file.points and (is_failing or not has_curves):
        return of_file(file)
    return served if has_curves or log is None else of_file(log)


def file_of(run: Run, wandb: Wandb) -> WandbFile | None:
    """The file, or the log, that these curves come from."""
    return next((one for one in (run.wandb_file, run.log_metrics) if one and one.runs and wandb.current is not None
                 and one.runs[0].path == wandb.current.path), None)  # fmt: skip


def evidence(run: Run) -> Wandb | None:
    """What W&B says of a run: its server, or, where neither that nor a log counts the steps, the file of its client."""
    file, served = run.wandb_file, run.wandb
    is_served = served is not None and served.current is not None
    is_needed = not is_served and run.progress.format in (None, WANDB)
    return of_file(file) if file is not None and file.shows_steps and is_needed else served


def of_file(file: WandbFile | None) -> Wandb | None:
    """The same as W&B's server would say it: a run is active until its client writes its end."""
    if file is None or not file.runs:
        return None
    loss, newest = metric_names.loss_of(file.keys), file.runs[0]
    by_rows = {loss: file.recent[-1]} if loss is not None and file.recent else {}  # old clients write no summary
    state, summary = newest.state or "running", {**by_rows, **newest.summary}
    run = replace(newest, state=state, heartbeat_at=file.written_at, summary=summary)
    phase: GroupPhase = "active" if file.exit_code is None else "ended" if file.exit_code == 0 else "overdue"
    return Wandb(
        source=file.format,
        polled_at=file.checked_at,
        runs=(run, *file.runs[1:]),
        active=(run.id,) if file.exit_code is None else (),
        attempts=tuple(one.id for one in file.runs),
        phase=phase,
        why=f"{label(run)} {how_it_ended(run)}",
        keys=file.keys,
        names=file.names,
        points=file.points,
        trouble=file.trouble,
        stepped_at=file.logged_at or file.written_at,
    )


def source_of(run: Run) -> str:
    """What shows what its log does not: W&B's server, or the format of its file."""
    is_served = run.wandb is not None and run.wandb.current is not None
    return "W&B" if is_served or run.wandb_file is None else run.wandb_file.format


def is_from_file(wandb: Wandb | None) -> bool:
    """Whether the curves come from a file."""
    return wandb is not None and wandb.current is not None and wandb.current.entity == ENTITY


def target_of(file: WandbFile) -> int | None:
    """The number of steps to train, as the settings in the file name it."""
    text = file.runs[0].config.get("max_steps", "") if file.runs else ""
    return max(0, metric_names.integer(_decoded(text)) or 0) or None


def _runs(known: WandbFile, rows: WandbRows, points: Mapping[str, Points], *, is_older: bool) -> tuple[WandbRun, ...]:
    """The runs of the directories that were followed, the one of these rows first."""
    name = _directory(rows)
    before = next((one for one in known.runs if one.id == name), None)
    run = before if before is not None and known.rows else WandbRun(
        entity=ENTITY, project=rows.id, id=name, name=name, state=""
    )  # fmt: skip
    if rows.run is not None:
        begun = rows.run
        run = replace(
            run,
            name=safe_text(begun.name) or safe_text(begun.id) or run.id,
            group=safe_text(begun.group),
            host=safe_text(begun.host),
            tags=tuple(filter(None, map(safe_text, begun.tags))),
            created_at=begun.started_at,
        )
    if not is_older:
        step = run.step if rows.step is None else int(rows.step)
        state = run.state if rows.exit is None else "failed" if rows.exit[0] else "finished"
        run = replace(run, step=step, logged_at=rows.logged_at or run.logged_at, lines=rows.rows, state=state)
    latest = {} if rows.format == "W&B" else {key: one.values[-1] for key, one in points.items()}
    values = {key: _decoded(text) for key, text in rows.summary.items()}
    config = {key: _decoded(text) for key, text in rows.config.items()}
    run = replace(
        run,
        summary=run.summary if is_older else {**run.summary, **latest, **read_summary(values)},
        config={**run.config, **read_config(config)} if config else run.config,
    )
    return (run, *(one for one in known.runs if one.id != name))[:FILES_AT_MOST]


def _directory(rows: WandbRows) -> str:
    """The name of its run directory."""
    return clean(basename(dirname(PART.sub("", rows.path or ""))), NAME_LENGTH)


def _number(value: float | str | None) -> float:
    return NON_FINITE.get(value, math.nan) if isinstance(value, str) else math.nan if value is None else value


def _decoded(text: str) -> Any:
    """A value of W&B's JSON, which writes what is not finite as a word."""
    if text in NON_FINITE:
        return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:  # it was cut
        return text[1:] if text.startswith('"') else TOO_LONG
