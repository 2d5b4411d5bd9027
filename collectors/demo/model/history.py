"""The W&B history of a run from before the demo began: its attempts and its loss jumps. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from collectors.demo.model.inventory import Trainer
from collectors.demo.model.metrics import NAMES, LossJump, MetricGenerator, row
from trainmon.lib import Instant, Seconds

EARLIER_STATES: dict[str, tuple[str, ...]] = {
    "video-2b": ("finished", "failed", "crashed"),
    "llm-7b": ("finished", "crashed"),
    "sft-chat": ("failed",),
    "smol-3b": ("crashed", "finished", "failed"),
    "moe-1b": ("killed", "crashed"),
}
"""How the earlier attempts ended, oldest first, as W&B states."""

BETWEEN_ATTEMPTS: Seconds = 780.0
"""Between two attempts: queue time, startup, W&B init."""
REPEATED = 0.55
"""Share of the present attempt's steps that the previous attempt had already taken when it was discarded."""
ROWS = 400
"""Rows of an attempt that has ended: the server samples histories, too."""
ROWS_NOW = 900
RECENT_STEPS = 60
"""The present attempt keeps every one of its last steps: those that are in its log."""
VALIDATIONS = 80


class Attempt(NamedTuple):
    """One attempt: its steps, its times and its final state."""

    number: int
    """0 is the present attempt, -1 the previous one."""
    first: int
    last: int
    began: Instant
    ended: Instant
    state: str


Row = tuple[Instant, int, Mapping[str, float]]
"""Time, step and values."""


def first_step(trainer: Trainer) -> int:
    """The step at which the present attempt began."""
    return max(0, trainer.first_step - int(trainer.age / trainer.step_time))


def loss_jumps(trainer: Trainer) -> tuple[LossJump, ...]:
    """Where the loss jumps: twice on data that the last two attempts both saw, and once long before."""
    first = first_step(trainer)
    both = REPEATED * (trainer.first_step - first)
    places = ((int(first * 0.41), 0.2, first / 150 + 1), (int(first + both / 3), 0.22, both / 40),
              (int(first + both * 0.9), 0.5, both / 60))  # fmt: skip
    return tuple(LossJump(*place) for place in places if place[0] > both / 10)


def attempts(trainer: Trainer, now: Instant) -> tuple[Attempt, ...]:
    """All attempts, oldest first. The last one is training."""
    first, last = first_step(trainer), trainer.first_step
    found = [Attempt(0, first, last, now - (last - first) * trainer.step_time, now, "running")]
    ends = EARLIER_STATES[trainer.run.name]
    for back, state in enumerate(reversed(ends), 1):
        reached = int(first + REPEATED * (last - first)) if back == 1 else int(found[0].first * 1.01)
        begins = int(first * (len(ends) - back) / len(ends))
        ended = found[0].began - BETWEEN_ATTEMPTS
        found.insert(0, Attempt(-back, begins, reached, ended - (reached - begins) * trainer.step_time, ended, state))
    return tuple(found)


def rows(trainer: Trainer, generator: MetricGenerator, attempt: Attempt) -> Iterator[Row]:
    """The rows that W&B kept of an attempt, in order."""
    found = {step: dict(_values(trainer, generator, attempt, step)) for step in _steps(trainer, attempt)}
    name = NAMES[trainer.format].validation
    for step in validation_steps(trainer, attempt):
        found.setdefault(step, {})[name] = generator.validation(step, attempt.number)
    for step in sorted(found):
        yield attempt.ended - (attempt.last - step) * trainer.step_time, step, found[step]


def last_row(trainer: Trainer, generator: MetricGenerator, attempt: Attempt) -> Row:
    """The last row of an attempt: its summary."""
    step = attempt.last - attempt.last % trainer.log_every
    values = dict(_values(trainer, generator, attempt, step))
    for validated in list(validation_steps(trainer, attempt))[-1:]:
        values[NAMES[trainer.format].validation] = generator.validation(validated, attempt.number)
    return attempt.ended - (attempt.last - step) * trainer.step_time, step, values


def _values(trainer: Trainer, generator: MetricGenerator, attempt: Attempt, step: int) -> Mapping[str, float]:
    step_time = generator.past_step_time(step, attempt.number)
    return row(trainer, generator.metrics(0.0, step, step_time, attempt=attempt.number))


def _steps(trainer: Trainer, attempt: Attempt) -> Iterator[int]:
    wanted = ROWS_NOW if attempt.number == 0 else ROWS
    apart = max(1, (attempt.last - attempt.first) // (wanted * trainer.log_every)) * trainer.log_every
    begins = attempt.first - attempt.first % trainer.log_every + trainer.log_every
    close = attempt.last - RECENT_STEPS if attempt.number == 0 else attempt.last
    yield from range(begins, close + 1, apart)
    yield from range(close + trainer.log_every - close % trainer.log_every, attempt.last + 1, trainer.log_every)


def validation_steps(trainer: Trainer, attempt: Attempt) -> range:
    """The steps at which an attempt was validated."""
    every = trainer.validate_every
    apart = max(1, (attempt.last - attempt.first) // (VALIDATIONS * every)) * every
    begins = attempt.last - attempt.last % every
    return range(begins, attempt.first, -apart)[::-1]
