"""Writes attempts, the results of evaluators and GPU hours to the ledger's tables, and reads them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from trainmon.analysis.attempts import SAME_START, is_same_start, merged, missing, named_as
from trainmon.analysis.explanation import AttemptRecords, GpuHour, neighbours, period
from trainmon.analysis.retries import KEPT, USES_AT_MOST, use_of
from trainmon.ledger.actions import as_json, decode_rows, read_actions_on, replace_statement, storable_row
from trainmon.ledger.alerts import LOG_AWAITED, counted, delete_counted, read_alerts_of
from trainmon.ledger.schema import ONE_PER_START, version_of
from trainmon.lib import Instant
from trainmon.model import Attempt, EvalResult, NodeUse

PLAIN = (
    "attempt_id", "run_id", "cluster", "model_family", "job_id", "array_id", "restart", "wandb_id", "pid", "gpus",
    "gpu_seconds", "first_step", "last_step", "target_step", "resumed_from", "resumed_words", "last_committed_step",
    "steps_lost", "command", "config_hash", "config_path", "git_commit", "data_manifest", "retry_decision",
    "budget_spent", "is_reconstructed", "log_host", "log_path", "start_is_estimated",
)  # fmt: skip
"""Columns that have the name of a field of Attempt."""
TIMES = ("submitted_at", "started_at", "first_step_at", "ended_at", "seen_at")
LISTED = ("labels", "nodes", "gpu_uuids", "evaluator_versions", "evidence", "missing")
"""Columns that hold JSON."""
ENDING = ("exit_code", "signal", "scheduler_state")
CAUSE = {
    "termination_reason": "cause", "cause_family": "family", "confidence": "confidence", "fingerprint": "fingerprint",
    "advice": "advice", "retry": "retry",
}  # fmt: skip
"""Columns of the cause, and the fields of Classification that they have."""

COLUMNS = (*PLAIN, *TIMES, *LISTED, "container_digest", *ENDING, *CAUSE, "log_tail", "written_at")
"""All columns but the last one, `attempt`, which is the whole value as JSON."""

WRITE = f"""
    INSERT INTO training_attempts ({", ".join(COLUMNS)}, attempt) VALUES ({", ".join("?" * (len(COLUMNS) + 1))})
    ON CONFLICT (attempt_id) DO UPDATE SET
    {", ".join(f"{name} = excluded.{name}" for name in (*COLUMNS[1:], "attempt"))}
"""
RECENT = "coalesce(ended_at, seen_at) >= ?"

SAME_AT_MOST = 100
"""Rows of one second that are compared with an attempt that is new."""

OF_A_RUN = 200
"""The most attempts, and actions, of a run that are read to explain one attempt."""

EVAL_FACTS = (
    "step", "checkpoint", "evaluator", "image_digest", "task_set", "task_set_version", "decoding", "judge",
    "rubric_version", "results", "raw_outputs", "evaluated_at",
)  # fmt: skip
"""Columns of the table evals that have the name of a field of EvalResult."""
EVAL_LISTED = ("decoding", "results")
"""Columns of the table evals that hold JSON."""
EVAL_COLUMNS = ("run_id", "digest", *EVAL_FACTS, "cluster", "written_at")
"""All columns of the table evals but the last one, `eval`, which is the whole value as JSON."""
WRITE_EVAL = f"""
    INSERT INTO evals ({", ".join(EVAL_COLUMNS)}, eval) VALUES ({", ".join("?" * (len(EVAL_COLUMNS) + 1))})
    ON CONFLICT DO UPDATE SET cluster = excluded.cluster, written_at = excluded.written_at
    WHERE evals.cluster IS NULL AND excluded.cluster IS NOT NULL
"""
HOUR_COLUMNS = ("attempt_id", "node", "ended_at", "written_at", "gpu_hour")
SINCE_EVALS = 4
"""The version of the ledger that first had the tables evals and gpu_hours."""
SINCE_CLUSTERS = 5
"""The version that first had the columns start_is_estimated of attempts and cluster of evals."""


class RunEval(NamedTuple):
    """One result of the evaluators of a run. The digest tells the results of a run apart."""

    run: str
    digest: str
    result: EvalResult
    cluster: str | None = None


class AttemptHour(NamedTuple):
    """The last hour of the GPUs of one node of an attempt."""

    attempt: Attempt
    hour: GpuHour


class AttemptName(NamedTuple):
    """What an attempt may be called."""

    attempt_id: str
    run_id: str
    job_id: str | None
    restart: int | None
    wandb_id: str | None
    pid: int | None
    is_open: bool


def timestamp(at: Instant | None) -> str | None:
    """A time as the ledger stores it: text whose order is that of the times, and that PostgreSQL reads, too."""
    return None if at is None else datetime.fromtimestamp(max(0.0, at), UTC).isoformat(" ", "microseconds")


def columns_of(attempt: Attempt, now: Instant) -> dict[str, Any]:
    """The row of an attempt, by column."""
    end, cause = attempt.end, attempt.cause
    return {
        **{name: getattr(attempt, name) for name in PLAIN},
        **{name: timestamp(getattr(attempt, name)) for name in TIMES},
        **{name: None if end is None else getattr(end, name) for name in ENDING},
        **{name: None if cause is None else getattr(cause, field) for name, field in CAUSE.items()},
        "labels": dict(attempt.labels),
        "nodes": list(attempt.nodes),
        "gpu_uuids": list(attempt.gpu_uuids),
        "evaluator_versions": dict(attempt.evaluators),
        "evidence": [] if cause is None else msgspec.to_builtins(cause.evidence),
        "missing": list(missing(attempt)),
        "container_digest": attempt.container,
        "log_tail": None if end is None else end.log_tail,
        "written_at": timestamp(now),
    }


def write_attempts(connection: sqlite3.Connection, attempts: Iterable[Attempt], now: Instant) -> None:
    """Write attempts. What another program has written of the same start is kept, and so are its names, if that has
    another config: both together count. A decision follows from all attempts of a run, so the newest one counts."""
    for attempt in attempts:
        known = _stored(connection, attempt)
        if known is not None:
            if known.attempt_id != attempt.attempt_id or not known.is_open:
                attempt = named_as(attempt, known)
            decided = known if attempt.retry_decision is None else attempt
            attempt = replace(
                merged(known, attempt), retry_decision=decided.retry_decision, budget_spent=decided.budget_spent
            )
        if known is not None and _tells_the_same(known, attempt):
            continue
        row = columns_of(attempt, now)
        values = [as_json(row[name]) if name in LISTED else row[name] for name in COLUMNS]
        whole = as_json(attempt if attempt.end is None else replace(attempt, end=replace(attempt.end, log_tail=None)))
        with counted(connection, "training_attempts", "attempt_id = ?", (attempt.attempt_id,), now - LOG_AWAITED):
            connection.execute(WRITE, storable_row((*values, whole)))


def _tells_the_same(known: Attempt, attempt: Attempt) -> bool:
    """Whether all that is new is that accounting reports the end that the queue has reported. Each daemon that starts
    asks accounting again: the row of a closed attempt does not change by that."""
    if known.end is not None and attempt.end is not None and attempt.end.source == "accounting":
        attempt = replace(attempt, end=replace(attempt.end, source=known.end.source, noticed_at=known.end.noticed_at))
    return known == attempt


def _stored(connection: sqlite3.Connection, attempt: Attempt) -> Attempt | None:
    """The attempt as the ledger holds it: under its id, else under that which another config has given it."""
    if known := _read(connection, "attempt_id = ?", (attempt.attempt_id,), 1):
        return known[0]
    near, at = "started_at BETWEEN ? AND ? AND job_id IS ? AND pid IS ?", attempt.started_at or 0.0
    values = (timestamp(at - SAME_START), timestamp(at + SAME_START), attempt.job_id, attempt.pid)
    return next((one for one in _read(connection, near, values, SAME_AT_MOST) if is_same_start(one, attempt)), None)


def write_evals(connection: sqlite3.Connection, evals: Iterable[RunEval], now: Instant) -> None:
    """Write results of evaluators, each once, however often it is read."""
    for run, digest, result, cluster in evals:
        facts = {name: getattr(result, name) for name in EVAL_FACTS}
        facts |= {name: as_json(facts[name]) for name in EVAL_LISTED if facts[name] is not None}
        values = (run, digest, *facts.values(), cluster, timestamp(now), as_json(result))
        connection.execute(WRITE_EVAL, storable_row(values))


def write_hours(connection: sqlite3.Connection, hours: Iterable[AttemptHour], now: Instant) -> None:
    """Write the last hours of the GPUs of attempts: one row per attempt and node."""
    for attempt, hour in hours:
        known = _stored(connection, attempt) or attempt
        values = (known.attempt_id, hour.node, timestamp(hour.ended_at), timestamp(now), as_json(hour))
        connection.execute(replace_statement("gpu_hours", HOUR_COLUMNS), values)


def read_evals(connection: sqlite3.Connection, run: str, cluster: str) -> list[EvalResult]:
    """The results of the evaluators of a run, the newest last. Another cluster may have a run of that name."""
    of_cluster = " AND coalesce(cluster, ?) = ?" if version_of(connection) >= SINCE_CLUSTERS else ""
    values = (run, cluster, cluster) if of_cluster else (run,)
    rows = connection.execute(f"SELECT digest, eval FROM evals WHERE run_id = ?{of_cluster} ORDER BY rowid", values)
    return decode_rows(rows, EvalResult, "result")


def read_hours(connection: sqlite3.Connection, attempt_id: str) -> list[GpuHour]:
    """The last hour of the GPUs of each node of an attempt."""
    rows = connection.execute("SELECT node, gpu_hour FROM gpu_hours WHERE attempt_id = ? ORDER BY rowid", (attempt_id,))
    return decode_rows(rows, GpuHour, "GPU hour")


def read_recent(connection: sqlite3.Connection, since: Instant, limit: int) -> list[Attempt]:
    """The open attempts, and those that ended since then; at most `limit`, the newest first."""
    return _read(connection, f"ended_at IS NULL OR {RECENT}", (timestamp(since),), limit, rows=f"({ONE_PER_START})")


def read_attempts(connection: sqlite3.Connection) -> list[Attempt]:
    """All attempts, each start once; of their last lines only whether there are any, where that counts."""
    found = connection.execute(f"SELECT attempt_id, attempt, log_tail IS NOT NULL FROM ({ONE_PER_START})").fetchall()
    has_tail = {name: bool(tail) for name, _, tail in found}
    whole = decode_rows(((name, text) for name, text, _ in found), Attempt, "attempt")
    return [
        replace(one, end=replace(one.end, log_tail="…"))
        if one.end is not None and has_tail[one.attempt_id] and (one.last_step is None or not one.end.was_watched)
        else one
        for one in whole
    ]


def read_uses(connection: sqlite3.Connection, until: Instant) -> list[NodeUse]:
    """The newest attempts until then, as they count for their nodes. One at a time: whole, they are large."""
    rows = connection.execute(
        f"SELECT attempt_id, attempt FROM ({ONE_PER_START}) WHERE coalesce(ended_at, seen_at) BETWEEN ? AND ? "
        "ORDER BY coalesce(ended_at, seen_at) DESC LIMIT ?",
        (timestamp(until - KEPT), timestamp(until), USES_AT_MOST),
    )
    return [use_of(one) for row in rows for one in decode_rows([row], Attempt, "attempt")]


def _read(
    connection: sqlite3.Connection,
    condition: str,
    values: tuple[Any, ...],
    limit: int,
    *,
    rows: str = "training_attempts",
) -> list[Attempt]:
    found = connection.execute(
        f"SELECT attempt_id, attempt, log_tail FROM {rows} WHERE {condition} "
        "ORDER BY coalesce(ended_at, seen_at) DESC LIMIT ?",
        (*values, limit),
    ).fetchall()
    tails = {name: tail for name, _, tail in found}
    whole = decode_rows(((name, text) for name, text, _ in found), Attempt, "attempt")
    return [
        one if one.end is None else replace(one, end=replace(one.end, log_tail=tails[one.attempt_id])) for one in whole
    ]


def read_rows(connection: sqlite3.Connection, since: Instant, run: str | None, limit: int) -> list[dict[str, Any]]:
    """The rows of attempts that ran since then, by column; the newest `limit`, the newest last."""
    of_run = "" if run is None else " AND run_id = ?"
    has_all = version_of(connection) >= SINCE_CLUSTERS
    columns = ["0" if name == "start_is_estimated" and not has_all else name for name in COLUMNS]
    columns += ["ended_at IS NULL AND json_extract(attempt, '$.reported_end') IS NOT NULL"]
    rows = connection.execute(
        f"SELECT {', '.join(columns)} FROM training_attempts WHERE (ended_at IS NULL OR {RECENT}){of_run} "
        "ORDER BY coalesce(started_at, first_step_at, seen_at) DESC, attempt_id DESC LIMIT ?",
        (timestamp(since), *(() if run is None else (run,)), limit),
    )
    return [_decoded(dict(zip((*COLUMNS, "stage"), row, strict=True))) for row in rows][::-1]


def _decoded(row: Mapping[str, Any]) -> dict[str, Any]:
    listed = {name: msgspec.json.decode(row[name]) for name in LISTED}
    stage = "ended" if row["ended_at"] is not None else "ending" if row["stage"] else "running"
    flags = {name: bool(row[name]) for name in ("is_reconstructed", "start_is_estimated")}
    return {**row, **listed, **flags, "stage": stage}


def read_names(connection: sqlite3.Connection, limit: int) -> list[AttemptName]:
    """The names of all attempts, the newest first."""
    rows = connection.execute(
        "SELECT attempt_id, run_id, job_id, restart, wandb_id, pid, ended_at IS NULL FROM training_attempts "
        "ORDER BY coalesce(ended_at, seen_at) DESC, attempt_id DESC LIMIT ?",
        (limit,),
    )
    return [AttemptName(*row) for row in rows]


def read_around(connection: sqlite3.Connection, attempt_id: str) -> tuple[Attempt, AttemptRecords] | None:
    """An attempt and what the ledger knows around it: the newest attempts of its run, alerts and actions of its time.
    None if there is no such attempt."""
    found = _read(connection, "attempt_id = ?", (attempt_id,), 1)
    if not found:
        return None
    (attempt,) = found
    others = _read(connection, "run_id = ? AND attempt_id != ?", (attempt.run_id, attempt_id), OF_A_RUN)
    attempts = (*others, attempt)
    began, until = period(attempt, neighbours(attempt, attempts)[1])
    job = None if attempt.job_id is None else f"{attempt.cluster}/{attempt.job_id}"
    has_evals = version_of(connection) >= SINCE_EVALS
    return attempt, AttemptRecords(
        evals=tuple(read_evals(connection, attempt.run_id, attempt.cluster)) if has_evals else (),
        gpu_hours=tuple(read_hours(connection, attempt_id)) if has_evals else (),
        attempts=attempts,
        alerts=tuple(read_alerts_of(connection, attempt.run_id, attempt.nodes, began, until)),
        actions=tuple(read_actions_on(connection, attempt.run_id, job, began, until, OF_A_RUN)),
    )


def prune_attempts(connection: sqlite3.Connection, before: Instant) -> None:
    """Delete the attempts that ended, or were last seen, before that, and the results and GPU hours of that time."""
    delete_counted(connection, "training_attempts", f"NOT {RECENT}", (timestamp(before),))
    connection.execute("DELETE FROM evals WHERE written_at < ?", (timestamp(before),))
    connection.execute("DELETE FROM gpu_hours WHERE written_at < ?", (timestamp(before),))
