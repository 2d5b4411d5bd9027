"""Runs that W&B tells of, with a log beside it or alone, for tests of their verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from trainmon.analysis.runs.context import RunContext
from trainmon.analysis.wandb import read
from trainmon.model import Gpu, Job, Log, LossTrouble, Node, Progress, Run, RunSpec, Source, Wandb, WandbRun, WandbSpec

NOW = 100_000.0
GROUP = WandbSpec(project="t/p", group="g")
SPEC = RunSpec(name="llm", cluster="prod", log="/fsx/llm.out", stall_after=900, nodes=("n1",), wandb=GROUP)
BARE = replace(SPEC, log=None)
BUSY = {"n1": Node(name="n1", cluster="prod", gpus=(Gpu(index=0, utilization_pct=98, power_w=650, power_limit_w=700),))}
SPINS = {
    "n1": Node(name="n1", cluster="prod", gpus=(Gpu(index=0, utilization_pct=100, power_w=140, power_limit_w=700),))
}
EMPTY = {"n1": Node(name="n1", cluster="prod", gpus=(Gpu(index=0, utilization_pct=0, memory_used_mib=4),))}
NAN = LossTrouble(state="nan", key="train/loss", value=math.nan, step=12_870, at=NOW)
SPIKE = LossTrouble(state="spike", key="train/loss", value=9.1, step=12_870, at=NOW, low=2.1, high=2.4)


def wrun(state: str = "running", beat: float = NOW - 20, **more: Any) -> WandbRun:
    fields: dict[str, Any] = {"id": "a1", "name": "llm-r1", "created_at": NOW - 7200, "step": 12_880}
    return WandbRun(entity="t", project="p", state=state, heartbeat_at=beat, **(fields | more))


def summarized(*runs: WandbRun, stepped: float | None = NOW - 40, at: float = NOW, **more: Any) -> Wandb:
    fields: dict[str, Any] = {"polled_at": at, "runs": runs, "stepped_at": stepped}
    return replace(read(GROUP, runs, None, at, False), **(fields | more))


def logged(wandb: Wandb, quiet: float = 6.0, spec: RunSpec = SPEC, **progress: Any) -> Run:
    fields: dict[str, Any] = {"step": 12_880, "loss": 1.9, "at": NOW - quiet, "cadence_s": 4.1, "format": "x"}
    steps = Progress(**(fields | progress))
    return Run(spec=spec, progress=steps, log=Log(host="login", path="/fsx/llm.out", at=NOW - quiet), wandb=wandb)


def bare(wandb: Wandb | None, spec: RunSpec = BARE, **more: Any) -> Run:
    return Run(spec=spec, wandb=wandb, progress=Progress(step=12_880, format="wandb", cadence_s=4.1), **more)


def source(health: Any = "ok", ago: float = 5) -> Source:
    return Source(name="wandb:llm", kind="wandb", cluster="prod", health=health, period=60, answered_at=NOW - ago)


def context(nodes: Mapping[str, Node] | None = None) -> RunContext:
    return RunContext(nodes or {}, {"wandb:llm": source()})


def with_job(state: str = "RUNNING", started: float = NOW - 60, **more: Any) -> RunContext:
    job = Job(cluster="prod", id="88", number=88, name="llm", state=state, started_at=started, **more)
    slurm = Source(name="slurm:prod", kind="slurm", cluster="prod", health="ok", answered_at=NOW)
    return RunContext({}, {"wandb:llm": source(), "slurm:prod": slurm}, {"prod/88": job})
