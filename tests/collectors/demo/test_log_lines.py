"""The demo's log lines, read by the parser that reads real logs."""

from __future__ import annotations

import math
import re

import pytest

from collectors.demo.stories import TRAINERS, Trainer
from collectors.demo.trainers import LINES, StepMetrics, message, tqdm_bar
from trainmon.analysis.log_formats import KEEP, StepLine, parse_line

NOW = 1_760_000_000.25
NAMES = {"hf": "hf-trainer"}
ALL = pytest.mark.parametrize("trainer", TRAINERS, ids=lambda trainer: trainer.format)


def metrics(trainer: Trainer, loss: float) -> StepMetrics:
    target = trainer.run.target_step or 0
    return StepMetrics(NOW, trainer.first_step, target, loss, 0.25, 2e-4, trainer.step_time)


def step_text(trainer: Trainer, loss: float) -> str:
    return LINES[trainer.format](trainer, metrics(trainer, loss))


def parsed(trainer: Trainer, text: str) -> list[StepLine]:
    """Every line that is a step line, all of the trainer's own format."""
    found = [parse_line(line) for line in text.split("\n")]
    assert {name for name, _ in filter(None, found)} <= {NAMES.get(trainer.format, trainer.format)}
    return [line for _, line in filter(None, found)]


@ALL
def test_step_and_loss_are_read_back(trainer: Trainer) -> None:
    found = parsed(trainer, step_text(trainer, 1.5))
    assert [line.step for line in found if line.step is not None] == [trainer.first_step]
    assert [line.loss for line in found if line.loss is not None] == [1.5]
    assert [line.grad_norm for line in found if line.grad_norm is not None] == [0.25]


@ALL
def test_a_nan_is_read_back_as_nan_though_no_line_of_megatron_says_so(trainer: Trainer) -> None:
    text = step_text(trainer, math.nan)
    losses = [line.loss for line in parsed(trainer, text) if line.loss is not None]
    assert len(losses) == 1
    assert math.isnan(losses[0])
    assert "lm loss" not in text


@ALL
def test_a_speed_is_read_back(trainer: Trainer) -> None:
    found = parsed(trainer, step_text(trainer, 1.5))
    rates = [line.tokens_per_s or line.samples_per_s or line.step_time_s for line in found]
    assert any(rate and rate > 0 for rate in rates)


@ALL
def test_a_burst_keeps_its_step_lines(trainer: Trainer) -> None:
    step_lines = step_text(trainer, 1.5).rstrip("\n").split("\n")
    assert re.search(KEEP, step_lines[-1])


@ALL
def test_the_other_sentences_are_no_steps(trainer: Trainer) -> None:
    text = "".join(
        (
            message(trainer, "saving", NOW, step=5, path="/fsx/run/5"),
            message(trainer, "saved", NOW, step=5, path="/fsx/run/5", took=3.2),
            message(trainer, "kill_switch", NOW, path="/fsx/run/kill-switch"),
            message(trainer, "save_switch", NOW),
            message(trainer, "signalled", NOW),
            message(trainer, "started", NOW, step=5, job=418190, restarts=1),
            message(trainer, "finished", NOW, step=5),
        )
    )
    assert all(line.step is None for line in parsed(trainer, text))


def test_megatron_writes_the_line_of_megatron_lm() -> None:
    trainer = next(trainer for trainer in TRAINERS if trainer.format == "megatron")
    assert step_text(trainer, 2.5) == (
        " [2025-10-09 08:53:20.250000] iteration    81204/  150000 | consumed samples:     83152896 |"
        " elapsed time per iteration (ms): 4000.0 | throughput per GPU (TFLOP/s/GPU): 405.0 |"
        " learning rate: 2.000000E-04 | global batch size:  1024 | lm loss: 2.500000E+00 | loss scale: 1.0 |"
        " grad norm: 0.250 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


def test_the_tqdm_bar_is_drawn_like_tqdm_does() -> None:
    trainer = next(trainer for trainer in TRAINERS if trainer.format == "hf")
    assert tqdm_bar(trainer, metrics(trainer, math.nan)) == ("\r 86%|████████▋ | 3892/4500 [1:37:18<15:12,  1.50s/it]")
