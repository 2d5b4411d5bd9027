"""A run with W&B made by hand: three attempts of a group, their curves in the engine's own store, and its States."""

from __future__ import annotations

import math
import random
from functools import lru_cache

from msgspec.structs import replace

from tests.tui.backend import FakeBackend
from tests.tui.states.states import NOW, calm, iterations, log, run, state
from trainmon.engine.engine import Engine
from trainmon.engine.history import Curves
from trainmon.model import (
    Checkpoint,
    Checkpoints,
    Curve,
    LogChunk,
    NodeReading,
    Points,
    RunsChanged,
    RunSpec,
    Source,
    State,
    Wandb,
    WandbRun,
    WandbSpec,
)

NAME = "video-2b"
KEYS = (
    "train/loss", "train/grad_norm", "perf/tokens_per_second", "train/learning_rate", "val/loss", "val/fvd",
    "perf/mfu", "train/skipped",
)  # fmt: skip
STEP_S = 4.1


class CurveBackend(FakeBackend):
    """With the engine's own curves."""

    def __init__(self, shown: State | None = None) -> None:
        super().__init__(shown)
        self.curves = Curves()
        self.reads: list[tuple[str, str, int]] = []

    def curve(self, path: str, key: str, epoch: int = 0, start: int = 0) -> Curve:
        self.reads.append((path, key, start))
        return self.curves.read(path, key, epoch, start)


def attempt(number: int, **more: object) -> WandbRun:
    """The first attempt began longest ago; the third is the present one."""
    plain: dict[str, object] = {
        "entity": "team", "project": "project", "id": f"id{number}", "name": f"video-2b-try-{number}",
        "state": "running" if number == 3 else "crashed", "group": "video-2b-final", "step": 12_880,
        "url": f"https://wandb.ai/team/project/runs/id{number}", "heartbeat_at": NOW - 12.0, "host": "gpu-001",
        "user": "me", "created_at": NOW - (4 - number) * 20_000.0,
        "summary": {"epoch": 1.5, "note": "words", "_step": 12_880.0},
    }  # fmt: skip
    return WandbRun(**{**plain, **more})  # type: ignore[arg-type]


def watched(points: int = 1, **more: object) -> State:
    """The State of a run whose third attempt runs."""
    found = Wandb(polled_at=NOW - 20.0, runs=(attempt(3), attempt(2), attempt(1)), active=("id3",), phase="active",
                  keys=KEYS, points=points)  # fmt: skip
    spec = RunSpec(name=NAME, cluster="prod", wandb=WandbSpec(project="team/project", group="video-2b-final"))
    saved = tuple(
        Checkpoint(step=step, state="committed", path=f"/ckpt/{step}", layout="dcp", at=NOW - (12_880 - step) * STEP_S)
        for step in range(12_000, 0, -2_000)
    )
    checkpoints = Checkpoints(path="/ckpt", host="login1", listed_at=NOW, list=saved)
    source = Source(name=f"wandb:{NAME}", kind="wandb", cluster="prod", health="ok", answered_at=NOW - 20.0)
    shown = run(NAME, spec=spec, wandb=replace(found, **more), checkpoints=checkpoints)
    return state(runs=(shown,), sources={source.name: source})


def value(key: str, step: int, chance: random.Random) -> float:
    """What a training at that step would log."""
    noise = chance.gauss(0.0, 1.0)
    if key.endswith("loss"):
        return 1.8 + 8.0 * math.exp(-step / 1_500) + noise * (0.06 if key.startswith("train") else 0.01)
    if key == "train/grad_norm":
        return max(0.05, 0.3 + 3.0 * math.exp(-step / 800) + 0.05 * noise)
    if key == "train/learning_rate":
        return 3e-4 * min(1.0, step / 1_000) * (0.5 + 0.5 * math.cos(step / 95_000 * math.pi))
    if key == "perf/tokens_per_second":
        return 412_000.0 + 6_000.0 * noise
    return 40.0 + 200.0 * math.exp(-step / 5_000) + noise


@lru_cache(64)
def points(key: str, first: int, last: int, *, every: int = 1, seed: int = 1) -> Points:
    """What one attempt logged of a metric from one step to another."""
    chance = random.Random(f"{key} {seed}")
    steps = range(first, last, every)
    return Points(
        steps=tuple(float(step) for step in steps),
        times=tuple(NOW - (12_880 - step) * STEP_S for step in steps),
        values=tuple(value(key, step, chance) for step in steps),
    )


SPIKE_AT, NAN_AT = 7_300, 11_800


def filled(shown: State | None = None) -> CurveBackend:
    """A backend with the curves of three attempts: the second spiked and died, the third has a nan."""
    backend = CurveBackend(shown or watched())
    for number, (first, last) in enumerate(((0, 4_400), (4_000, 9_200), (8_000, 12_880)), start=1):
        pieces = {}
        for key in KEYS:
            found = points(key, first, last, every=200 if key.startswith("val/") else 4, seed=number)
            spiked = [9.5 if key == "train/loss" and number == 2 and at == SPIKE_AT else one
                      for at, one in zip(found.steps, found.values, strict=True)]  # fmt: skip
            spiked = [math.nan if key == "train/loss" and number == 3 and at == NAN_AT else one
                      for at, one in zip(found.steps, spiked, strict=True)]  # fmt: skip
            pieces[key] = Points(found.steps, found.times, tuple(spiked))
        backend.curves.grow(f"team/project/id{number}", pieces, fresh=True)
    return backend


def of_log() -> CurveBackend:
    """A backend with a run that has only a log, whose lines the engine has read. A checkpoint was loaded in between."""
    lines = (*iterations(60, 12_840), "loading checkpoint from /ckpt at iteration 12800", *iterations(80))
    spec = RunSpec(name="llm-70b", cluster="prod", log="/scratch/llm-70b/slurm-418190.out")
    chunk = LogChunk(v=1, t=NOW, id=spec.name, path=spec.log, lines=lines, seen=len(lines), mtime=NOW - 6.0)
    engine = Engine()
    engine.step([RunsChanged((spec,)), NodeReading("gpu-001", "prod", NOW, chunk)], NOW)
    logged = engine.state.runs[spec.name].log_metrics
    one = run(spec.name, spec=replace(spec, nodes=("gpu-001", "gpu-002")), log=log(lines), log_metrics=logged)
    backend = CurveBackend(replace(calm(), runs={one.name: one}))
    backend.curves = engine.curves
    return backend
