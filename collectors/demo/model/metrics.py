"""Simulated metrics of a run, and their names in W&B. Pure: a step in, numbers out.

They depend almost only on the step: attempts at the same step see the same data. So the jumps of two attempts line up,
and the W&B history from before the demo fits the log.
"""

from __future__ import annotations

import math
from random import Random
from typing import NamedTuple

from collectors.demo.model.inventory import Format, Trainer
from trainmon.lib import Instant, Seconds

LEARNING_RATE = 3e-4
WARM_UP = 0.01
"""Share of all steps in which the learning rate warms up."""
SHARED_NOISE = 0.97
"""Share of the noise that comes from the data, the same in every attempt."""
RISES_IN = 3
"""Steps until a spike peaks."""
SPIKE = 1.7
"""Height of a spike, as a multiple of the loss."""
FADES_IN = 2.5


class StepMetrics(NamedTuple):
    """The metrics of one finished step. A loss of None is a NaN."""

    at: Instant
    step: int
    target: int
    loss: float | None
    grad_norm: float
    learning_rate: float
    step_time: Seconds


class LossJump(NamedTuple):
    """A step whose data makes the loss jump, in every attempt."""

    step: int
    height: float
    """As a share of the loss."""
    width: float
    """Steps in which the jump fades."""


class MetricGenerator:
    """Makes the metrics of one run."""

    def __init__(self, trainer: Trainer, seed: int, loss_jumps: tuple[LossJump, ...] = ()) -> None:
        self.trainer = trainer
        self._salt = Random(f"{seed} {trainer.run.name} course").uniform(1.0, 100.0)
        self._loss_jumps = loss_jumps

    def metrics(
        self, at: Instant, step: int, step_time: Seconds, *, attempt: int = 0, spike_age: int | None = None
    ) -> StepMetrics:
        """The metrics of a step. `spike_age`: steps since a spike began."""
        target = self.trainer.run.target_step or step
        height = sum(
            jump.height * (1 + 0.4 * (attempt % 2)) * math.exp(-(step - jump.step) / jump.width)
            for jump in self._loss_jumps
            if 0 <= step - jump.step < 8 * jump.width
        )
        if spike_age is not None:  # it rises, then fades
            rise = min(1.0, (spike_age + 1) / RISES_IN)
            height += SPIKE * (rise * math.exp(-max(0, spike_age - RISES_IN) / FADES_IN))
        return StepMetrics(
            at=at,
            step=step,
            target=target,
            loss=self._base_loss(step) * (1 + height) + 0.012 * self._noise(step, attempt),
            grad_norm=0.28 * math.exp(0.25 * self._noise(step, attempt, 1)) * (1 + 7 * height) + 3 / (1 + step / 40),
            learning_rate=learning_rate(step, target),
            step_time=step_time,
        )

    def validation(self, step: int, attempt: int = 0) -> float:
        """The validation loss."""
        return 1.02 * self._base_loss(step) + 0.003 * self._noise(step, attempt, 2)

    def past_step_time(self, step: int, attempt: int = 0) -> Seconds:
        """The step time of a step before the demo began."""
        return self.trainer.step_time * (1.01 + 0.013 * self._noise(step, attempt, 3))

    def _base_loss(self, step: int) -> float:
        """The loss without noise, jumps and spikes."""
        return self.trainer.loss_floor + 9.0 * math.pow(step + 30, -0.4)

    def _noise(self, step: int, attempt: int, kind: int = 0) -> float:
        """About normal, at most 3. Computed from the step: seeding a generator for each takes 20 times as long."""
        own, salt = math.sqrt(1 - SHARED_NOISE**2), self._salt + kind
        return SHARED_NOISE * _normal(step, salt) + own * _normal(step, salt + 7.7 * (attempt + 1))


def learning_rate(step: int, target: int) -> float:
    """A warm-up, then a cosine down to a tenth."""
    done = min(1.0, step / target)
    return LEARNING_RATE * min(1.0, done / WARM_UP) * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def _normal(step: int, salt: float) -> float:
    x = step * 12.9898 + salt * 78.233
    three = (math.sin(x + turn) * 43_758.5453 % 1.0 for turn in (0.0, 1.7, 3.1))
    return 2 * (sum(three) - 1.5)


# ---- in W&B ---------------------------------------------------------------------------------------------------------


class Names(NamedTuple):
    """The names of a trainer's metrics in W&B. None: it does not log that metric."""

    loss: str
    grad_norm: str
    learning_rate: str
    throughput: str | None
    validation: str

    @property
    def charted(self) -> tuple[str, ...]:
        return tuple(name for name in self if name is not None)


NAMES: dict[Format, Names] = {
    "megatron": Names("lm loss", "grad-norm", "learning-rate", "throughput", "lm loss validation"),
    "torchtitan": Names(
        "loss_metrics/global_avg_loss", "grad_norm", "lr", "throughput(tps)", "validation_metrics/loss"
    ),
    "hf": Names("train/loss", "train/grad_norm", "train/learning_rate", None, "eval/loss"),
    "nanotron": Names("lm_loss", "grad_norm", "lr", "tokens_per_sec", "validation_loss"),
    "kempnerforge": Names("train/loss", "train/grad_norm", "train/lr", "train/tokens_per_sec", "eval/loss"),
}


def row(trainer: Trainer, now: StepMetrics) -> dict[str, float]:
    """The W&B row of a step."""
    names = NAMES[trainer.format]
    values = {
        names.loss: math.nan if now.loss is None else now.loss,
        names.grad_norm: math.nan if now.loss is None else now.grad_norm,
        names.learning_rate: now.learning_rate,
    }
    if names.throughput is not None:
        tokens = trainer.tokens_per_step / now.step_time
        by_format = {"megatron": 1620.0 / now.step_time, "torchtitan": tokens / trainer.gpus}
        values[names.throughput] = by_format.get(trainer.format, tokens)
    return values
