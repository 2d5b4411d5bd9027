"""The simulated metrics of a run, their names in W&B, and its W&B history from before the demo began. Pure.

The metrics depend almost only on the step: attempts at the same step see the same data. So the jumps of two attempts
line up, and the history fits the log.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from random import Random
from typing import NamedTuple

from collectors.demo.stories import Format, Trainer
from trainmon.lib import Instant, Seconds

LEARNING_RATE = 3e-4
WARM_UP = 0.01
"""The warm-up of the learning rate, as a share of all steps."""
SHARED_NOISE = 0.97
"""The share of the noise that comes from the data and is the same in every attempt."""
RISES_IN = 3
"""The number of steps until a spike peaks."""
SPIKE = 1.7
"""The height of a spike, as a multiple of the loss."""
FADES_IN = 2.5


class StepMetrics(NamedTuple):
    """The metrics of one finished step."""

    at: Instant
    step: int
    target: int
    loss: float
    grad_norm: float
    learning_rate: float
    step_time: Seconds


class LossJump(NamedTuple):
    """A step whose data makes the loss jump, in every attempt."""

    step: int
    height: float
    """As a share of the loss."""
    width: float
    """The number of steps in which the jump fades."""


class MetricGenerator:
    """Makes the metrics of one run."""

    def __init__(self, trainer: Trainer, seed: int) -> None:
        self.trainer = trainer
        self._salt = Random(f"{seed} {trainer.run.name} course").uniform(1.0, 100.0)
        self._loss_jumps = loss_jumps(trainer)

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
        """About normal, at most 3. Computed from the step: seeding a generator for each step takes 20 times as long."""
        own, salt = math.sqrt(1 - SHARED_NOISE**2), self._salt + kind
        return SHARED_NOISE * _normal(step, salt) + own * _normal(step, salt + 7.7 * (attempt + 1))


def learning_rate(step: int, target: int) -> float:
    """A warm-up, then a cosine down to a tenth."""
    done = min(1.0, step / target)
    return LEARNING_RATE * min(1.0, done / WARM_UP) * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


def _normal(step: int, salt: float) -> float:
    x, sin = step * 12.9898 + salt * 78.233, math.sin
    thirds = sin(x) * 43_758.5453 % 1.0 + sin(x + 1.7) * 43_758.5453 % 1.0 + sin(x + 3.1) * 43_758.5453 % 1.0
    return 2 * (thirds - 1.5)


# ---- in W&B ---------------------------------------------------------------------------------------------------------


class Names(NamedTuple):
    """The names of a trainer's metrics in W&B. None: it does not log that metric."""

    loss: str
    grad_norm: str
    learning_rate: str
    throughput: str | None
    validation: str


NAMES: dict[Format, Names] = {
    "megatron": Names("lm loss", "grad-norm", "learning-rate", "throughput", "lm loss validation"),
    "torchtitan": Names(
        "loss_metrics/global_avg_loss", "grad_norm", "lr", "throughput(tps)", "validation_metrics/loss"
    ),
    "hf": Names("train/loss", "train/grad_norm", "train/learning_rate", None, "eval/loss"),
    "nanotron": Names("lm_loss", "grad_norm", "lr", "tokens_per_sec", "validation_loss"),
    "kempnerforge": Names("train/loss", "train/grad_norm", "train/lr", "train/tokens_per_sec", "eval/loss"),
}


def wandb_row(trainer: Trainer, now: StepMetrics) -> dict[str, float]:
    """The W&B row of a step."""
    names = NAMES[trainer.format]
    values = {names.loss: now.loss, names.grad_norm: now.grad_norm, names.learning_rate: now.learning_rate}
    if names.throughput is not None:
        tokens = trainer.tokens_per_step / now.step_time
        by_format = {"megatron": 1620.0 / now.step_time, "torchtitan": tokens / trainer.gpus}
        values[names.throughput] = by_format.get(trainer.format, tokens)
    return values


# ---- before the demo began -------------------------------------------------------------------------------------------

EARLIER_STATES: dict[str, tuple[str, ...]] = {
    "video-2b": ("finished", "failed", "crashed"),
    "llm-7b": ("finished", "crashed"),
    "sft-chat": ("failed",),
    "smol-3b": ("crashed", "finished", "failed"),
    "moe-1b": ("killed", "crashed"),
}
"""How the earlier attempts ended, oldest first, as W&B states."""

BETWEEN_ATTEMPTS: Seconds = 780.0
"""The pause between two attempts: queue time, startup, W&B init."""
REPEATED = 0.55
"""The share of the present attempt's steps that the previous attempt had taken, too."""
ROWS = 400
"""The number of rows of an attempt that has ended: the server samples histories, too."""
ROWS_NOW = 900
RECENT_STEPS = 60
"""The number of last steps of the present attempt that are all kept, like those in its log."""
VALIDATIONS = 80


class Attempt(NamedTuple):
    """One attempt: its steps, its times and its final state."""

    number: int
    """0: the present attempt; -1: the previous one."""
    first: int
    last: int
    began: Instant
    ended: Instant
    state: str


HistoryRow = tuple[Instant, int, Mapping[str, float]]
"""Time, step and values."""


def first_step(trainer: Trainer) -> int:
    """The step at which the present attempt began."""
    return max(0, trainer.first_step - int(trainer.age / trainer.step_time))


def loss_jumps(trainer: Trainer) -> tuple[LossJump, ...]:
    """The jumps of the loss: twice on data of both last attempts, and once long before."""
    first = first_step(trainer)
    both = REPEATED * (trainer.first_step - first)
    jumps = (
        LossJump(int(first * 0.41), 0.2, first / 150 + 1),
        LossJump(int(first + both / 3), 0.22, both / 40),
        LossJump(int(first + both * 0.9), 0.5, both / 60),
    )
    return tuple(jump for jump in jumps if jump.step > both / 10)


def all_attempts(trainer: Trainer, now: Instant) -> tuple[Attempt, ...]:
    """All attempts, oldest first. The last one is training."""
    first, last = first_step(trainer), trainer.first_step
    attempts = [Attempt(0, first, last, now - (last - first) * trainer.step_time, now, "running")]
    ends = EARLIER_STATES[trainer.run.name]
    for back, state in enumerate(reversed(ends), 1):
        reached = int(first + REPEATED * (last - first)) if back == 1 else int(attempts[0].first * 1.01)
        begins = int(first * (len(ends) - back) / len(ends))
        ended = attempts[0].began - BETWEEN_ATTEMPTS
        attempts.insert(
            0, Attempt(-back, begins, reached, ended - (reached - begins) * trainer.step_time, ended, state)
        )
    return tuple(attempts)


def history_rows(trainer: Trainer, generator: MetricGenerator, attempt: Attempt) -> Iterator[HistoryRow]:
    """The rows of an attempt in W&B, in order."""
    every, number = trainer.log_every, attempt.number
    apart = max(1, (attempt.last - attempt.first) // ((ROWS if number else ROWS_NOW) * every)) * every
    close = attempt.last if number else attempt.last - RECENT_STEPS
    sampled = range((attempt.first // every + 1) * every, close + 1, apart)
    recent = range((close // every + 1) * every, attempt.last + 1, every)
    rows = {step: past_row(generator, number, step) for step in (*sampled, *recent)}
    for step in validation_steps(trainer, attempt):
        rows.setdefault(step, {})[NAMES[trainer.format].validation] = generator.validation(step, number)
    for step in sorted(rows):
        yield attempt.ended - (attempt.last - step) * trainer.step_time, step, rows[step]


def summary_row(trainer: Trainer, generator: MetricGenerator, attempt: Attempt) -> HistoryRow:
    """The last row of an attempt: its summary."""
    step = attempt.last // trainer.log_every * trainer.log_every
    values = past_row(generator, attempt.number, step)
    for validated in validation_steps(trainer, attempt)[-1:]:
        values[NAMES[trainer.format].validation] = generator.validation(validated, attempt.number)
    return attempt.ended - (attempt.last - step) * trainer.step_time, step, values


def past_row(generator: MetricGenerator, attempt: int, step: int) -> dict[str, float]:
    """The W&B row of a step from before the demo began."""
    step_time = generator.past_step_time(step, attempt)
    return wandb_row(generator.trainer, generator.metrics(0.0, step, step_time, attempt=attempt))


def validation_steps(trainer: Trainer, attempt: Attempt) -> range:
    """The steps at which an attempt was validated."""
    every = trainer.validate_every
    apart = max(1, (attempt.last - attempt.first) // (VALIDATIONS * every)) * every
    return range(attempt.last // every * every, attempt.first, -apart)[::-1]
