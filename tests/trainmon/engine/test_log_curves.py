"""The curves of a run that has only a log."""

from __future__ import annotations

import math
import re
from typing import Any

from tests.trainmon.analysis.log_formats.test_learned import LOGS
from tests.trainmon.engine.reducers.test_reduce import RUN, chunk, reading_of
from tests.trainmon.engine.test_engine import FakeClock
from trainmon.analysis.wandb.client_file import shown
from trainmon.engine.engine import Engine
from trainmon.engine.history import LOG_POINTS_AT_MOST, Curves
from trainmon.model import Points, Run, RunsChanged, Wandb

MEGATRON = (
    " [2025-08-01 07:19:{:02d}] iteration {:8d}/    5000 | consumed samples:  128 | elapsed time per iteration (ms): "
    "1000.0 | learning rate: 1.0E-04 | global batch size:   128 | lm loss: {:.6E} | loss scale: 1.0 | grad norm: 1.500 "
    "| num zeros: 7.0 | number of skipped iterations:   0 | number of nan iterations:   {:d} |"
)
TITAN = "[rank{}]:[titan] 2025-10-30 14:32:58,897 - root - INFO - step: {:2d}  loss:  {:.4f}  tps: 3,502  mfu: 0.19%"


def engine() -> Engine:
    made = Engine(FakeClock())
    made.step([RunsChanged((RUN,))], 1000.0)
    return made


def read(made: Engine, *lines: str, at: float = 1000.0, **more: Any) -> tuple[Run, Wandb]:
    run = made.step([reading_of(chunk(*lines, t=at, mtime=at, **more), at=at)], at).runs["llm"]
    found = shown(run, is_failing=False)
    assert found is not None
    return run, found


def points(made: Engine, path: str, key: str) -> dict[float, float]:
    curve = made.curve(path, key)
    assert len(curve.steps) == len({*curve.steps}), "one point a step"
    return dict(zip(curve.steps, curve.values, strict=True))


def test_every_number_of_the_step_lines_is_a_curve() -> None:
    made = engine()
    read(made, *(MEGATRON.format(step, step, 3.0 - step / 100, 0) for step in range(1, 4)))
    run, found = read(made, MEGATRON.format(4, 4, 2.5, 1), at=1001.0)

    assert run.has_charts
    assert found.keys == ("loss", "grad_norm", "samples_per_s", "learning_rate")
    assert found.runs[0].path == "log/llm/0"
    losses = points(made, "log/llm/0", "loss")
    assert [*losses] == [1.0, 2.0, 3.0, 4.0]
    assert math.isnan(losses.pop(4.0)), "Megatron leaves a NaN out"
    assert [*losses.values()] == [2.99, 2.98, 2.97]
    assert points(made, "log/llm/0", "num zeros") == dict.fromkeys((1.0, 2.0, 3.0, 4.0), 7.0)
    assert points(made, "log/llm/0", "samples_per_s")[3] == 128.0
    assert run.log_metrics is not None
    assert not {*run.log_metrics.names} & {"consumed samples", "iteration", "global batch size", "lm loss"}


def test_lines_that_were_there_before_have_the_times_that_they_show() -> None:
    made = engine()
    read(made, *(MEGATRON.format(step, step, 3.0, 0) for step in (1, 2, 3)))
    assert [*made.curve("log/llm/0", "loss").times] == [998.0, 999.0, 1000.0]


def test_a_step_that_several_ranks_print_is_one_point() -> None:
    made = engine()
    read(made, TITAN.format(0, 1, 3.0), TITAN.format(1, 1, 3.0))
    _, found = read(made, TITAN.format(2, 1, 3.0), TITAN.format(0, 2, 2.5), at=1001.0)
    assert points(made, found.runs[0].path, "loss") == {1.0: 3.0, 2.0: 2.5}
    assert points(made, found.runs[0].path, "mfu") == {1.0: 0.19, 2.0: 0.19}


def test_each_start_of_the_trainer_has_its_own_curves() -> None:
    made = engine()
    read(made, *(TITAN.format(0, step, 3.0) for step in (1, 2, 3)))
    read(made, "Loading the checkpoint at step 1.", at=1001.0)
    _, found = read(made, TITAN.format(0, 2, 2.9), TITAN.format(0, 3, 2.8), at=1002.0)
    assert [run.name for run in found.runs] == ["from step 2", "from step 1"]
    _, found = read(made, TITAN.format(0, 1, 2.7), at=1003.0, path="/fsx/2.out", restarted="newer")
    assert found.current is not None
    assert found.before is not None
    curves = [points(made, run.path, "loss") for run in found.runs]
    assert curves == [{1.0: 2.7}, {2.0: 2.9, 3.0: 2.8}, {1.0: 3.0, 2.0: 3.0, 3.0: 3.0}]
    assert [found.current.step, found.before.step] == [1, 3]
    _, found = read(made, TITAN.format(0, 2, 2.6), at=1004.0, path="/fsx/2.out")
    assert points(made, found.runs[0].path, "loss") == {1.0: 2.7, 2.0: 2.6}


def test_all_curves_of_a_log_take_two_mebibytes_and_the_old_part_of_the_longest_gets_thinner() -> None:
    curves, count = Curves(), 50_000
    steps = [float(step) for step in range(count)]
    for path in ("log/llm/0", "log/llm/9", "log/other/0"):
        curves.grow(path, {"loss": Points(steps, steps, steps)}, fresh=False)
    kept = [curves.read(path, "loss") for path in ("log/llm/0", "log/llm/9", "log/other/0")]

    assert sum(len(curve.steps) for curve in kept[:2]) * 24 <= 2 * 1024 * 1024
    assert len(kept[0].steps) + len(kept[1].steps) > 0.7 * LOG_POINTS_AT_MOST
    assert len(kept[2].steps) == count, "another run has its own"
    assert [curve.steps[-1000:].tolist() for curve in kept] == [steps[-1000:]] * 3
    assert [curve.steps[1] for curve in kept] == [2.0, 2.0, 1.0]


def test_what_a_line_names_itself_is_a_curve_and_what_stands_around_it_is_none() -> None:
    known: set[str] = set()
    for log in LOGS[::9]:
        run = engine().step([reading_of(chunk(*log["lines"], t=1000.0, mtime=1000.0))], 1000.0).runs["llm"]
        known |= {*(() if run.log_metrics is None else run.log_metrics.names)}

    assert {"loss_cls", "accuracy", "acc"} <= known
    assert not {"train.py", "v_num", "wall", "elapsed time", "epoch", "step", "iter", "lr"} & known
    assert not [name for name in known if not re.fullmatch(r"[A-Za-z][\w./()-]*( [A-Za-z][\w./()-]*)*", name)]
