"""The JSON contract, version 1: a State as one object. docs/reference/snapshot-json.md documents it.

Every field is always present; null is "not known". Times are Unix seconds.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from typing import Any

import msgspec

from trainmon.alerting.rules import RULES
from trainmon.analysis.checkpoints import steps_at_risk
from trainmon.analysis.disks import checkpoints_that_fit
from trainmon.analysis.nodes import spares
from trainmon.analysis.runs import last_attempts
from trainmon.lib import Instant
from trainmon.model import (
    SEVERITIES,
    Alert,
    Attempt,
    Channel,
    Checkpoints,
    Disk,
    Job,
    Log,
    Node,
    Run,
    Silence,
    Source,
    State,
    Switch,
    Trainer,
    Wandb,
    WandbFile,
)

VERSION = 1

TAIL = 20
"""Lines of each log in a snapshot."""

EXIT = {"well": 0, "warning": 0, "critical": 1, "blind": 3}
UNANSWERED = 3

NEED_FOR = frozenset(rule.name for rule in RULES if rule.needs_for)
"""Rules whose findings count only after their `for` duration."""


def snapshot(state: State, now: Instant, requested: Container[str] | None = None) -> dict[str, Any]:
    """The whole State as plain values, ready for JSON. `requested`: as for `verdict`."""
    attempts = last_attempts(state.attempts.values())
    return {
        "version": VERSION,
        "at": now,
        "verdict": verdict(state, requested),
        "sources": [_source(state.sources[name], now) for name in sorted(state.sources)],
        "nodes": [_node(state.nodes[name], state, now) for name in sorted(state.nodes)],
        "disks": [_disk(state.disks[key], state) for key in sorted(state.disks)],
        "jobs": [_job(job, now) for _, job in sorted(state.jobs.items()) if job.gone_at is None],
        "spares": [found._asdict() for found in spares(state)],
        "runs": [_run(run, state.jobs, attempts.get(run.name), now) for run in state.runs.values()],
        "alerts": [alert(one) for one in worst_first(one for one in state.alerts.values() if one.is_open)],
    }


def verdict(state: State, requested: Container[str] | None = None) -> str:
    """`blind` if no requested source answers. Otherwise the worst severity of the active alerts, muted or not; at least
    `warning` if a source does not answer. `requested`: the names of the sources; None: all."""
    watched = _watched(state)
    if not any(source.answers for source in watched if requested is None or source.name in requested):
        return "blind"
    found = {one.severity for one in state.alerts.values() if is_active(one)}
    if "critical" in found:
        return "critical"
    return "well" if "warning" not in found and all(source.answers for source in watched) else "warning"


def exit_status(state: State, requested: Container[str] | None = None) -> int:
    """0: well or only warnings. 1: a critical alert. 3: a source does not answer."""
    return EXIT[verdict(state, requested)] or unanswered(state)


def unanswered(state: State) -> int:
    """The exit status of what does not judge: 3 if a source does not answer."""
    return 0 if all(source.answers for source in _watched(state)) else UNANSWERED


def is_active(found: Alert) -> bool:
    """Whether the alert counts: it fires, or it is pending and its rule does not need its `for` duration."""
    return found.is_firing or (found.phase == "pending" and found.data == "ok" and found.rule not in NEED_FOR)


def encode(state: State, now: Instant, requested: Container[str] | None = None) -> bytes:
    """The snapshot as JSON; a number that JSON cannot hold (NaN, infinity) is null."""
    return msgspec.json.encode(snapshot(state, now, requested))


def _watched(state: State) -> list[Source]:
    return [source for source in state.sources.values() if source.health != "off"]


def _age(at: Instant | None, now: Instant) -> float | None:
    return None if at is None else round(max(0.0, now - at), 3)


def _source(source: Source, now: Instant) -> dict[str, Any]:
    fields = _fields(source, "name", "kind", "cluster", "health", "error", "hint")
    return fields | {"age_s": _age(source.answered_at, now)}


def _node(node: Node, state: State, now: Instant) -> dict[str, Any]:
    source, listed = state.sources.get(f"node:{node.name}"), state.scheduler_nodes.get(node.name)
    return plain(node, "gpus_at", "host_at") | {
        "scheduler_state": None if listed is None else listed.full_state,
        "scheduler_reason": None if listed is None else listed.reason,
        "health": "down" if source is None else source.health,
        "age_s": None if source is None else _age(source.answered_at, now),
        "clock_skew_s": None if node.clock_skew_s is None else round(node.clock_skew_s, 3),
    }


def _disk(disk: Disk, state: State) -> dict[str, Any]:
    quota = disk.quota
    return plain(disk, "writable_at", "forecast", "inodes_forecast") | {
        "quota": quota and plain(quota) | {"left_bytes": quota.left_bytes, "left_inodes": quota.left_inodes},
        "checkpoints_that_fit": checkpoints_that_fit(disk, state.disks, state.runs.values()),
    }


def _job(job: Job, now: Instant) -> dict[str, Any]:
    fields = _fields(
        job, "id", "array", "name", "user", "cluster", "state", "reason", "partition", "nodes", "node_count",
        "submitted_at", "started_at", "ends_at", "restarts", "dependency", "comment",
    )  # fmt: skip
    left = None if job.ends_at is None or job.stage != "running" else max(0.0, job.ends_at - now)
    return fields | {"nodes": list(job.nodes), "time_left_s": left}


def _run(run: Run, jobs: Mapping[str, Job], attempt: Attempt | None, now: Instant) -> dict[str, Any]:
    progress, job = run.progress, jobs.get(run.job or "")
    return {
        "name": run.name,
        "cluster": run.spec.cluster,
        "verdict": run.verdict,
        "why": run.why,
        "step": run.step,
        "target_step": run.target_step,
        "loss": finite(run.loss),
        "grad_norm": finite(progress.grad_norm),
        "step_time_s": progress.step_time_s,
        "tokens_per_s": progress.tokens_per_s,
        "last_step_at": progress.at,
        "eta_at": run.eta_at,
        "job": None if job is None else job.id,
        "queued_behind": run.queued_behind,
        "attempt": None,
        "nodes": list(run.spec.nodes),
        "ranks": None if attempt is None or attempt.ranks is None else plain(attempt.ranks),
        "wandb": _wandb(run.wandb),
        "wandb_file": _wandb_file(run.wandb_file),
        "log": _log(run.log, now),
        "switches": {
            "kill": _switch(run.spec.kill_switch, run.kill) | {"why": None if run.kill is None else run.kill.why},
            "save": _switch(run.spec.save_switch, run.save)
            | {"taken_at": None if run.save is None else run.save.taken_at},
        },
        "checkpoints": _checkpoints(run.checkpoints, run),
        "trainer": _trainer(run.trainer),
    }


def _trainer(found: Trainer | None) -> dict[str, Any]:
    asked = None if found is None else found.asked
    names = ("at", "phase", "step", "deadline", "saved_step", "saved_at", "ended_at", "ended")
    fields = dict.fromkeys(names) if found is None else _fields(found, *names)
    return fields | {
        "asked": None if asked is None else asked.what,
        "asked_by": None if asked is None else asked.by,
        "asked_at": None if asked is None else asked.at,
    }


def _checkpoints(found: Checkpoints | None, run: Run) -> dict[str, Any]:
    committed = None if found is None else found.committed
    writing = None if found is None else found.writing
    return {
        "latest_committed_step": None if committed is None else committed.step,
        "latest_committed_at": None if committed is None else committed.at,
        "writing_step": None if writing is None else writing.step,
        "steps_at_risk": steps_at_risk(run),
        "torn": [] if found is None else [one.path for one in found.list if one.state == "torn"],
        "list": []
        if found is None
        else [_fields(one, "step", "state", "path", "bytes", "at", "why") for one in found.list],
        "resumes": None if found is None else found.resumes,
        "problem": None if found is None else found.error or found.problem,
    }


def _wandb(found: Wandb | None) -> dict[str, Any]:
    current = None if found is None else found.current
    before = None if found is None else found.before
    run = ("id", "name", "state", "url", "heartbeat_at", "step", "created_at", "user", "host", "commit")
    latest_run = dict.fromkeys(run) if current is None else _fields(current, *run)
    latest = {} if current is None or found is None else {key: current.summary.get(key) for key in found.keys}
    return latest_run | {
        "active_in_group": None if found is None else len(found.active),
        "active": [] if found is None else list(found.active),
        "phase": None if found is None else found.phase,
        "since": None if found is None else found.since,
        "why": None if found is None else found.why or None,
        "looked_at": None if found is None else found.polled_at,
        "before": None if before is None else before.id,
        "loss_state": None if found is None else found.loss_state,
        "loss_why": None if found is None else found.loss_why or None,
        "latest": {key: finite(value) if isinstance(value, float) else value for key, value in latest.items()},
        "samples": []
        if found is None
        else [_fields(one, "key", "kind", "file", "step", "kept") for one in found.samples],
    }


def _wandb_file(found: WandbFile | None) -> dict[str, Any]:
    file, run = found or WandbFile(), None if found is None or not found.runs else found.runs[0]
    return _fields(
        file,
        "path",
        "format",
        "rows",
        "size",
        "offset",
        "is_behind",
        "damaged",
        "damaged_before",
        "logged_at",
        "exit_code",
        "error",
    ) | {
        "host": file.host or None,
        "looked_at": file.checked_at,
        "loss_state": file.loss_state,
        "loss_why": file.loss_why or None,
        "name": None if run is None else run.name,
        "step": None if run is None else run.step,
        "latest": {}
        if run is None
        else {key: finite(value) if isinstance(value, float) else value for key, value in run.summary.items()},
    }


def _log(log: Log | None, now: Instant) -> dict[str, Any]:
    if log is None:
        return {"host": None, "path": None, "age_s": None, "lines_per_s": None, "tail": []}
    return {
        "host": log.host,
        "path": log.path,
        "age_s": _age(log.at, now),
        "lines_per_s": log.lines_per_s,
        "tail": [*log.shown[-TAIL:]],
    }


def _switch(path: str | None, switch: Switch | None) -> dict[str, Any]:
    armed = switch is not None and bool(switch.exists)
    return {
        "path": path,
        "armed_at": switch.armed_at if switch is not None and armed else None,
        "by": switch.by if switch is not None and armed else None,
        "error": None if switch is None else switch.error,
    }


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _fields(value: msgspec.Struct, *names: str) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


# ---- alerts: in `snapshot --json` and `status --json`, and read back from the latter ---------------------------------


def plain(value: msgspec.Struct, *without: str) -> dict[str, Any]:
    """A value as a JSON object, without some of its fields."""
    return {name: field for name, field in msgspec.to_builtins(value).items() if name not in without}


def alert(found: Alert) -> dict[str, Any]:
    """One alert without its secret, and without what the next notice is computed from."""
    return plain(found, "token", "told", "repeats", "escalated")


def worst_first(alerts: Iterable[Alert]) -> list[Alert]:
    """Firing alerts first, then by severity, then the oldest first."""
    return sorted(alerts, key=lambda one: (not one.is_firing, SEVERITIES.index(one.severity), one.since, one.id))


def alert_status(alerts: Iterable[Alert], silences: Iterable[Silence], channels: Iterable[Channel]) -> dict[str, Any]:
    """The part of `status --json` that another machine shows: open alerts, alerts that ended within a day, silences,
    channels."""
    newest_first = sorted(alerts, key=lambda one: -(one.resolved_at or 0.0))
    return {
        "alerts": [alert(one) for one in worst_first(one for one in newest_first if one.is_open)],
        "ended": [alert(one) for one in newest_first if not one.is_open],
        "silences": [plain(one) for one in silences],
        "channels": [plain(one) for one in channels],
    }


# ---- read back -------------------------------------------------------------------------------------------------------


class LeaderStatus(msgspec.Struct, frozen=True):
    """The leader on another machine, as its status reports it."""

    holder: str = "nobody"
    pid: int | None = None
    host: str | None = None
    started_at: Instant | None = None
    last_tick_at: Instant | None = None
    problem: str | None = msgspec.field(default=None, name="words")


class Status(msgspec.Struct, frozen=True):
    """The output of `trainmon-tui status --json` on another machine."""

    version: int
    at: Instant
    """The time of the status, by the clock of that machine."""
    leader: LeaderStatus = msgspec.field(default=LeaderStatus(), name="duty")
    alerts: tuple[Alert, ...] = ()
    ended: tuple[Alert, ...] = ()
    silences: tuple[Silence, ...] = ()
    channels: tuple[Channel, ...] = ()
    outbox: Mapping[str, float | None] = {}


_STATUS = msgspec.json.Decoder(Status)


def read_status(text: bytes | str) -> Status:
    """Decode the status of another machine.

    Raises:
        msgspec.DecodeError: it is not such a status; the message says why.
    """
    return _STATUS.decode(text)
