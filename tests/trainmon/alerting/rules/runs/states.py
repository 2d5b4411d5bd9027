"""States of one run, as a rule sees them: everything is well until a test says otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from tests.trainmon.alerting.rules.asked import findings, why_unknown
from trainmon.alerting.rules.base import Rule
from trainmon.engine.reducers.reduce import reduce
from trainmon.model import (
    Alert,
    Checkpoint,
    Checkpoints,
    Event,
    Finding,
    Job,
    Log,
    LogChunk,
    NodeReading,
    Problem,
    Progress,
    Run,
    RunsChanged,
    RunSpec,
    Source,
    SourceChanged,
    State,
    Wandb,
    WandbRun,
    WandbSpec,
)

NOW = 1_000_000.0
SPEC = RunSpec(
    name="llm", cluster="prod", job="llm", log="/fsx/llm.out", target_step=20_000, stall_after=900, nodes=("n1", "n2"),
    kill_switch="/fsx/kill", save_switch="/fsx/save", checkpoints="/fsx/ckpt",
    script="/fsx/train.slurm",
)  # fmt: skip
PROGRESS = Progress(step=12_880, loss=1.87, at=NOW - 6, cadence_s=4.0, step_time_s=4.0)
LOG = Log(host="login", path="/fsx/llm.out", at=NOW - 6, began_at=NOW - 9_000, lines=("step 12880", "loss 1.87"))

SLURM = "slurm:prod"
READER = "node:login"
WANDB = "wandb:llm"
STEP = " [2025-08-01 07:19:37] iteration {:8d}/    5000 | elapsed time per iteration (ms): 4100.0 | lm loss: 2.0E+00 |"
"""A line of its log."""

KINDS = {"slurm": "slurm", "wandb": "wandb", "node": "node"}


def source(name: str, **changes: Any) -> Source:
    kind: Any = KINDS[name.partition(":")[0]]
    return Source(**{"name": name, "kind": kind, "cluster": "prod", "health": "ok", "answered_at": NOW} | changes)


def job(number: int = 88, **changes: Any) -> Job:
    usual: dict[str, Any] = {
        "cluster": "prod",
        "id": str(number),
        "number": number,
        "name": "llm",
        "user": "ana",
        "state": "RUNNING",
    }
    return Job(**usual | {"started_at": NOW - 40_000, "nodes": ("n1", "n2")} | changes)


def ended(state: str = "FAILED", number: int = 88, **changes: Any) -> Job:
    return job(number, **{"state": state, "ends_at": NOW - 720, "exit_code": "1:0"} | changes)


def state(*jobs: Job, **changes: Any) -> State:
    """A run of this verdict, with these jobs; what is of the State and not of the run is told apart by its name."""
    whole = {name: changes.pop(name) for name in ("nodes", "sources", "alerts", "actions") if name in changes}
    usual: dict[str, Any] = {"spec": SPEC, "progress": PROGRESS, "log": LOG, "verdict": "healthy", "why": "it steps"}
    run = Run(**usual | {"jobs": tuple(one.key for one in jobs)} | changes)
    sources = {name: source(name) for name in (SLURM, READER, WANDB, "node:n1", "node:n2")}
    known: dict[str, Any] = {"sources": sources, "jobs": {one.key: one for one in jobs}, "runs": {run.name: run}}
    return State(at=NOW, **known | whole)


def wandb(phase: Any = "active", **changes: Any) -> Wandb:
    run = WandbRun(entity="e", project="p", id="a1", name="llm-1", state="running", url="https://wandb.ai/e/p/a1")
    usual: dict[str, Any] = {
        "polled_at": NOW,
        "runs": (run,),
        "active": ("a1",),
        "attempts": ("a1",),
        "since": NOW - 60,
        "why": "told",
    }
    return Wandb(**usual | {"phase": phase} | changes)


WITH_WANDB = replace(SPEC, wandb=WandbSpec(project="e/p", group="g"))


def checkpoint(step: int | None, age: float, **changes: Any) -> Checkpoint:
    path = f"/fsx/ckpt/iter_{step or 0:07d}"
    usual: dict[str, Any] = {"step": step, "state": "committed", "path": path, "layout": "megatron"}
    return Checkpoint(**usual | {"at": NOW - age} | changes)


def checkpoints(*known: Checkpoint, **changes: Any) -> Checkpoints:
    usual: dict[str, Any] = {
        "path": "/fsx/ckpt",
        "host": "login",
        "listed_at": NOW,
        "list": known,
        "save_s": 60.0,
        "every_s": 2_000.0,
    }
    return Checkpoints(**usual | {"every_steps": 500} | changes)


def found(rule: Rule, seen: State, now: float = NOW) -> Finding | None:
    """The only finding, if there is one; it names its rule, its run and what it rests on."""
    all_found = findings(rule, seen, now)
    assert len(all_found) <= 1, all_found
    for one in all_found:
        assert (one.rule, one.cluster) == (rule.name, "prod")
        assert one.run == "llm"
        assert one.sources
        assert one.advice or one.event
        assert one.summary == " ".join(one.summary.split())
    return all_found[0] if all_found else None


def summary(rule: Rule, seen: State, now: float = NOW) -> str:
    one = found(rule, seen, now)
    return "" if one is None else one.summary


def alert(finding: Finding) -> Alert:
    """The alert that a finding became."""
    known: dict[str, Any] = {name: getattr(finding, name) for name in Problem.__struct_fields__}
    return Alert(id="a1b2c3d4", phase="firing", since=NOW, found_at=NOW, **known)


def blind(rule: Rule, before: State, after: State, now: float = NOW) -> str | None:
    """What the rule says of an alert of before that is not found after."""
    finding = found(rule, before)
    assert finding is not None, "there is no alert to be blind for"
    assert found(rule, after, now) is None, "it is found still"
    return why_unknown(rule, after, alert(finding), now)


def without(seen: State, name: str) -> State:
    """The same, and one of its sources does not answer."""
    return replace(seen, sources={**seen.sources, name: source(name, health="down", error="no answer in 10s")})


def changed(seen: State, **changes: Any) -> State:
    """The same, and something else of the run."""
    return replace(seen, runs={"llm": replace(seen.runs["llm"], **changes)})


# ---- through the fold, as a log tells it ----


def watched(spec: RunSpec = SPEC) -> State:
    """A run of which nothing is read yet."""
    up = [SourceChanged(source(name, phase="up")) for name in (READER,)]
    return reduce(State(), [RunsChanged((spec,)), *up], NOW)


def lines(at: float, *text: str) -> Event:
    """New lines of its log."""
    chunk = LogChunk(v=1, t=at, id="llm", path="/fsx/llm.out", size=None, mtime=at, lines=text, seen=len(text))
    return NodeReading("login", "prod", at, chunk)


def after(seen: State, events: Sequence[Event], now: float) -> State:
    return reduce(seen, events, now)
