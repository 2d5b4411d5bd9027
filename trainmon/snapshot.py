"""The machine-readable contract, version 1: a State as one object. Fields of parts not built yet are null or empty.

Every field is always present; null is "not known". Times are Unix seconds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from trainmon.clock import Instant
from trainmon.model import Disk, Log, Node, Run, Source, State, Switch

VERSION = 1

TAIL = 20
"""Lines of each log in a snapshot."""


def snapshot(state: State, now: Instant) -> dict[str, Any]:
    """The whole State as plain values, ready for JSON."""
    return {
        "version": VERSION,
        "at": now,
        "verdict": verdict(state),
        "sources": [_source(state.sources[name], now) for name in sorted(state.sources)],
        "nodes": [_node(state.nodes[name], state.sources.get(f"node:{name}"), now) for name in sorted(state.nodes)],
        "disks": [_disk(state.disks[key]) for key in sorted(state.disks)],
        "jobs": [],
        "spares": [],
        "runs": [_run(run, now) for run in state.runs.values()],
        "alerts": [],
    }


def verdict(state: State) -> str:
    """blind when nothing that is watched could be seen, else well: alerts do not exist in this version."""
    watched = [source for source in state.sources.values() if source.health != "off"]
    return "well" if any(source.seen_at is not None and source.health != "down" for source in watched) else "blind"


def encode(state: State, now: Instant) -> bytes:
    """The snapshot as JSON; a number that JSON cannot hold (NaN, infinity) is null."""
    return msgspec.json.encode(snapshot(state, now))


def _age(at: Instant | None, now: Instant) -> float | None:
    return None if at is None else round(max(0.0, now - at), 3)


def _source(source: Source, now: Instant) -> dict[str, Any]:
    return {
        "name": source.name,
        "kind": source.kind,
        "cluster": source.cluster,
        "health": source.health,
        "age_s": _age(source.seen_at, now),
        "error": source.error,
        "hint": source.hint,
    }


def _node(node: Node, source: Source | None, now: Instant) -> dict[str, Any]:
    plain = _plain(node)
    for ours in ("gpus_at", "host_at"):
        del plain[ours]
    return plain | {
        "health": "down" if source is None else source.health,
        "age_s": None if source is None else _age(source.seen_at, now),
        "clock_skew_s": None if node.clock_skew_s is None else round(node.clock_skew_s, 3),
    }


def _disk(disk: Disk) -> dict[str, Any]:
    return _plain(disk) | {"quota": None, "checkpoints_that_fit": None}


def _run(run: Run, now: Instant) -> dict[str, Any]:
    progress = run.progress
    return {
        "name": run.name,
        "cluster": run.spec.cluster,
        "verdict": run.verdict,
        "why": run.why,
        "step": progress.step,
        "target_step": run.spec.target_step or progress.target_step,
        "loss": finite(progress.loss),
        "grad_norm": finite(progress.grad_norm),
        "step_time_s": progress.step_time_s,
        "tokens_per_s": progress.tokens_per_s,
        "last_step_at": progress.at,
        "eta_at": run.eta_at,
        "job": None,
        "queued_behind": None,
        "attempt": None,
        "nodes": list(run.spec.nodes),
        "wandb": {"id": None, "name": None, "state": None, "url": None, "heartbeat_at": None, "active_in_group": None},
        "log": _log(run.log, now),
        "switches": {
            "kill": _switch(run.spec.kill_switch, run.kill) | {"why": None if run.kill is None else run.kill.why},
            "save": _switch(run.spec.save_switch, run.save)
            | {"taken_at": None if run.save is None else run.save.taken_at},
        },
        "checkpoints": {
            "latest_committed_step": None,
            "latest_committed_at": None,
            "writing_step": None,
            "steps_at_risk": None,
            "torn": [],
            "list": [],
        },
    }


def _log(log: Log | None, now: Instant) -> dict[str, Any]:
    if log is None:
        return {"host": None, "path": None, "age_s": None, "lines_per_s": None, "tail": []}
    return {
        "host": log.host,
        "path": log.path,
        "age_s": _age(log.at, now),
        "lines_per_s": log.lines_per_s,
        "tail": list(log.lines[-TAIL:]),
    }


def _switch(path: str | None, switch: Switch | None) -> dict[str, Any]:
    armed = switch is not None and bool(switch.exists)
    return {
        "path": path,
        "armed_at": switch.armed_at if switch is not None and armed else None,
        "by": switch.by if switch is not None and armed else None,
    }


def finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _plain(value: msgspec.Struct) -> dict[str, Any]:
    plain: Mapping[str, Any] = msgspec.to_builtins(value)
    return dict(plain)
