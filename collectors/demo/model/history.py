"""The W&B history of a demo's run from before the demo began: its attempts, and where the loss once jumped. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from collectors.demo.model.inventory import Trainer
from collectors.demo.model.metrics import NAMES, Bump, Course, row
from trainmon.lib import Instant, Seconds

ENDS: dict[str, tuple[str, ...]] = {
    "video-2b": ("finished", "failed", "crashed"),
    "llm-7b": ("finished", "crashed"),
    "sft-chat": ("failed",),
    "smol-3b": ("crashed", "finished", "failed"),
    "moe-1b": ("killed", "crashed"),
}
"""How the attempts before ended, oldest first, in W&B's words."""

PAUSE: Seconds = 780.0
"""Between two attempts: queue, start, and then W&B."""
AGAIN = 0.55
"""How much of the steps of the present attempt the one before had taken, too, when it ended and was thrown away."""
ROWS = 400
"""Of an attempt that has ended; the server thins a history, too."""
ROWS_NOW = 900
CLOSE = 60
"""The last steps of the present attempt are all there: those that are in its log."""
VALIDATIONS = 80


class Stretch(NamedTuple):
    """One attempt: its steps, when they were taken, and how it ended."""

    number: int
    """0 is the present one, -1 the one before."""
    first: int
    last: int
    began: Instant
    ended: Instant
    state: str


Row = tuple[Instant, int, Mapping[str, float]]
"""When, at which step, and what."""


def first_step(trainer: Trainer) -> int:
    """At which step the present attempt began."""
    return max(0, trainer.first_step - int(trainer.age / trainer.step_time))


def bumps(trainer: Trainer) -> tuple[Bump, ...]:
    """Where the loss jumps: twice on what the last two attempts have both seen, and once long before."""
    first = first_step(trainer)
    both = AGAIN * (trainer.first_step - first)
    places = ((int(first * 0.41), 0.2, first / 150 + 1), (int(first + both / 3), 0.22, both / 40),
              (int(first + both * 0.9), 0.5, both / 60))  # fmt: skip
    return tuple(Bump(*place) for place in places if place[0] > both / 10)


def stretches(trainer: Trainer, now: Instant) -> tuple[Stretch, ...]:
    """All attempts, oldest first; the last one trains."""
    first, last = first_step(trainer), trainer.first_step
    found = [Stretch(0, first, last, now - (last - first) * trainer.step_time, now, "running")]
    ends = ENDS[trainer.run.name]
    for back, state in enumerate(reversed(ends), 1):
        reached = int(first + AGAIN * (last - first)) if back == 1 else int(found[0].first * 1.01)
        begins = int(first * (len(ends) - back) / len(ends))
        ended = found[0].began - PAUSE
        found.insert(0, Stretch(-back, begins, reached, ended - (reached - begins) * trainer.step_time, ended, state))
    return tuple(found)


def rows(trainer: Trainer, course: Course, stretch: Stretch) -> Iterator[Row]:
    """What W&B has kept of it, in order."""
    found = {step: dict(_logged(trainer, course, stretch, step)) for step in _steps(trainer, stretch)}
    name = NAMES[trainer.format].validation
    for step in _validated(trainer, stretch):
        found.setdefault(step, {})[name] = course.validation(step, stretch.number)
    for step in sorted(found):
        yield stretch.ended - (stretch.last - step) * trainer.step_time, step, found[step]


def last_row(trainer: Trainer, course: Course, stretch: Stretch) -> Row:
    """The values that its summary ends with."""
    step = stretch.last - stretch.last % trainer.log_every
    values = dict(_logged(trainer, course, stretch, step))
    for validated in list(_validated(trainer, stretch))[-1:]:
        values[NAMES[trainer.format].validation] = course.validation(validated, stretch.number)
    return stretch.ended - (stretch.last - step) * trainer.step_time, step, values


def last_validation(trainer: Trainer, stretch: Stretch) -> int | None:
    """The step at which it was last validated."""
    return max(_validated(trainer, stretch), default=None)


def _logged(trainer: Trainer, course: Course, stretch: Stretch, step: int) -> Mapping[str, float]:
    pace = course.pace(step, stretch.number)
    return row(trainer, course.moment(0.0, step, pace, attempt=stretch.number))


def _steps(trainer: Trainer, stretch: Stretch) -> Iterator[int]:
    wanted = ROWS_NOW if stretch.number == 0 else ROWS
    apart = max(1, (stretch.last - stretch.first) // (wanted * trainer.log_every)) * trainer.log_every
    begins = stretch.first - stretch.first % trainer.log_every + trainer.log_every
    close = stretch.last - CLOSE if stretch.number == 0 else stretch.last
    yield from range(begins, close + 1, apart)
    yield from range(close + trainer.log_every - close % trainer.log_every, stretch.last + 1, trainer.log_every)


def _validated(trainer: Trainer, stretch: Stretch) -> range:
    every = trainer.validate_every
    apart = max(1, (stretch.last - stretch.first) // (VALIDATIONS * every)) * every
    begins = stretch.last - stretch.last % every
    return range(begins, stretch.first, -apart)[::-1]
