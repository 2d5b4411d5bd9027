"""How the numbers of a run of the demo go, and what its trainer calls them in W&B. Pure: a step in, numbers out.

They follow from the step alone, but for a little: attempts that take the same step see the same data, so that their
bumps line up, and what W&B tells of the time before the demo fits the log.
"""

from __future__ import annotations

import math
from random import Random
from typing import NamedTuple

from collectors.demo.model.inventory import Format, Trainer
from trainmon.lib import Instant, Seconds

LEARNING_RATE = 3e-4
WARM_UP = 0.01
"""Of all steps, until the learning rate is whole."""
SHARED = 0.97
"""How much of the noise comes from the data, and is the same in every attempt."""
RISES_IN = 3
"""Steps until a spike is at its highest."""
SPIKE = 1.7
"""How much a spike adds to the loss, as a multiple of it."""
FADES_IN = 2.5


class Moment(NamedTuple):
    """What a trainer knows as it finishes a step. A loss of None is a NaN."""

    at: Instant
    step: int
    target: int
    loss: float | None
    grad_norm: float
    learning_rate: float
    step_time: Seconds


class Bump(NamedTuple):
    """Data at which the loss jumps, in every attempt that comes by."""

    step: int
    height: float
    """As a share of the loss."""
    width: float
    """Steps in which it fades."""


class Course:
    """The numbers of one run."""

    def __init__(self, trainer: Trainer, seed: int, bumps: tuple[Bump, ...] = ()) -> None:
        self.trainer = trainer
        self._salt = Random(f"{seed} {trainer.run.name} course").uniform(1.0, 100.0)
        self._bumps = bumps

    def moment(
        self, at: Instant, step: int, step_time: Seconds, *, attempt: int = 0, spiked: int | None = None
    ) -> Moment:
        """What is known after a step; `spiked`: so many steps after a spike began."""
        target = self.trainer.run.target_step or step
        height = self._height(step, attempt) + (0.0 if spiked is None else SPIKE * spike(spiked))
        return Moment(
            at=at,
            step=step,
            target=target,
            loss=self._calm(step) * (1 + height) + 0.012 * self._noise(step, attempt),
            grad_norm=0.28 * math.exp(0.25 * self._noise(step, attempt, 1)) * (1 + 7 * height) + 3 / (1 + step / 40),
            learning_rate=learning_rate(step, target),
            step_time=step_time,
        )

    def validation(self, step: int, attempt: int = 0) -> float:
        """The loss on data that it does not train on."""
        return 1.02 * self._calm(step) + 0.003 * self._noise(step, attempt, 2)

    def pace(self, step: int, attempt: int = 0) -> Seconds:
        """How long a step took, of the time before the demo."""
        return self.trainer.step_time * (1.01 + 0.013 * self._noise(step, attempt, 3))

    def _calm(self, step: int) -> float:
        """The loss without noise and spikes."""
        return self.trainer.loss_floor + 9.0 * math.pow(step + 30, -0.4)

    def _height(self, step: int, attempt: int) -> float:
        return sum(
            bump.height * (1 + 0.4 * (attempt % 2)) * math.exp(-(step - bump.step) / bump.width)
            for bump in self._bumps
            if 0 <= step - bump.step < 8 * bump.width
        )

    def _noise(self, step: int, attempt: int, kind: int = 0) -> float:
        """About normal, at most 3. Made of the step: a generator that is seeded for each takes twenty times as long."""
        own = math.sqrt(1 - SHARED**2)
        return SHARED * _normal(step, self._salt + kind) + own * _normal(step, self._salt + kind + 7.7 * (attempt + 1))


def spike(steps: int) -> float:
    """The shape of a spike, from 0 to 1, so many steps after it began."""
    return min(1.0, (steps + 1) / RISES_IN) * math.exp(-max(0, steps - RISES_IN) / FADES_IN)


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
    """What a trainer calls its metrics in W&B; None where it does not log one."""

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


def row(trainer: Trainer, now: Moment) -> dict[str, float]:
    """What is logged after a step."""
    names = NAMES[trainer.format]
    is_none = now.loss is None
    values = {
        names.loss: math.nan if now.loss is None else now.loss,
        names.grad_norm: math.nan if is_none else now.grad_norm,
        names.learning_rate: now.learning_rate,
    }
    if names.throughput is not None:
        values[names.throughput] = _speed(trainer, now.step_time)
    return values


def _speed(trainer: Trainer, step_time: Seconds) -> float:
    """As the trainer counts it: TFLOP/s a GPU, tokens a second of one GPU, or of all."""
    tokens = trainer.tokens_per_step / step_time
    return {"megatron": 1620.0 / step_time, "torchtitan": tokens / trainer.gpus}.get(trainer.format, tokens)
