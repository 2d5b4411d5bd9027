"""Steps that a restart computes again: equal, within noise, or from where on they differ."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence

import pytest

from trainmon.analysis.attempts.recomputed import Pair, judge
from trainmon.model import Recomputed

SEEDS = 12
OTHER = "differ from the first ones on: other data, random numbers, averages, config or code"
FIRST, STEPS = 1_000, 120


class Training:
    """A linear model of 8 weights by stochastic gradient descent: the same numbers at each run on one machine."""

    def __init__(self) -> None:
        self.weights = [0.0] * 8
        self.truth = random.Random("truth").choices((-1.0, 0.5, 2.0), k=8)

    def step(self, number: int, *, data: str = "data", order: random.Random | None = None) -> tuple[float, float]:
        """One batch: its loss and gradient norm. With `order`, what is added up has another order, as on a GPU; single
        precision is 1e9 times as coarse, so each sum is off by so much."""
        batch = random.Random(f"{data} {number}")
        rows = [[batch.gauss(0.0, 1.0) for _ in self.weights] for _ in range(16)]
        errors = [
            sum((w - t) * x for w, t, x in zip(self.weights, self.truth, row, strict=True)) + batch.gauss(0.0, 0.3)
            for row in rows
        ]
        off = (lambda: 1.0) if order is None else (lambda: 1.0 + order.gauss(0.0, 1e-6))
        slopes = [off() * sum(e * row[at] for e, row in zip(errors, rows, strict=True)) / 16 for at in range(8)]
        self.weights = [w - 0.05 * slope for w, slope in zip(self.weights, slopes, strict=True)]
        return off() * sum(e * e for e in errors) / 16, math.hypot(*slopes)


Change = Callable[[Training, int], tuple[float, float]]


def trained(change: Change) -> list[tuple[float, float]]:
    """The losses and gradient norms from a checkpoint on, at which the training had settled."""
    made = Training()
    for number in range(FIRST - 60, FIRST):
        made.step(number)
    return [change(made, number) for number in range(FIRST, FIRST + STEPS)]


def as_before(training: Training, number: int) -> tuple[float, float]:
    return training.step(number)


def compared(change: Change, *, digits: str = ".6E", steps: int = STEPS) -> Recomputed:
    """The verdict on what a log prints of both attempts."""
    both = zip(trained(as_before), trained(change), strict=True)
    rows = [(FIRST + at, was, now) for at, (was, now) in enumerate(both)][:steps]
    series: Iterator[Sequence[Pair]] = (
        [(step, float(format(was[of], digits)), float(format(now[of], digits))) for step, was, now in rows]
        for of in (0, 1)
    )
    return judge(len(rows), FIRST + STEPS, series)


def flipped(training: Training, number: int) -> tuple[float, float]:
    """One weight of the model is another value from the 41st step on: a flipped bit of its exponent."""
    if number == FIRST + 40:
        training.weights[3] *= 4.0
    return training.step(number)


@pytest.mark.parametrize("digits", [".17g", ".6E", ".3f"])
def test_the_same_training_gives_equal_values(digits: str) -> None:
    assert compared(as_before, digits=digits) == Recomputed(STEPS, "equal", "equal", FIRST + STEPS)


@pytest.mark.parametrize("digits", [".17g", ".6E", ".3f"])
def test_a_flipped_value_differs_from_its_step_on(digits: str) -> None:
    found = compared(flipped, digits=digits)
    assert (found.verdict, found.text) == (
        "differs",
        f"differ from step {FIRST + 40:,} on: other data, config or code, or a corrupt value",
    )


@pytest.mark.parametrize("seed", range(SEEDS))
def test_other_data_differ_from_the_first_step_on(seed: int) -> None:
    found = compared(lambda training, number: training.step(number, data=f"shuffled {seed}"))
    assert (found.verdict, found.text) == ("other", OTHER), "it proves nothing"


@pytest.mark.parametrize("seed", range(SEEDS))
def test_additions_in_another_order_are_within_noise(seed: int) -> None:
    order = random.Random(seed)
    found = compared(lambda training, number: training.step(number, order=order))
    assert found.verdict == "noise"
    assert found.text == "different within the usual noise"
    coarse = compared(lambda training, number: training.step(number, order=order), digits=".3f")
    assert coarse.verdict in ("equal", "noise"), "what is printed hides it"


def test_a_value_that_is_flipped_in_noise_is_found_within_a_few_steps() -> None:
    for seed in range(SEEDS):
        order = random.Random(seed)

        def change(training: Training, number: int, order: random.Random = order) -> tuple[float, float]:
            if number == FIRST + 40:
                training.weights[3] += 8.0
            return training.step(number, order=order)

        found = compared(change)
        assert found.text.startswith(f"differ from step {FIRST + 40:,} on")


def test_one_odd_value_is_named_and_is_no_departure() -> None:
    def odd(training: Training, number: int) -> tuple[float, float]:
        loss, norm = training.step(number)
        return (loss * 50 if number == FIRST + 7 else loss), norm

    assert compared(odd)[1:3] == ("equal", f"equal, but for step {FIRST + 7:,}")


def test_of_a_handful_of_steps_nothing_is_said() -> None:
    assert compared(flipped, steps=4)[:3] == (4, "unknown", "too few to say")
    assert compared(as_before, steps=5)[:3] == (5, "equal", "equal")


def test_a_nan_is_equal_to_a_nan_and_to_nothing_else() -> None:
    before = [(float(step), 2.0 + step % 3 / 10, 2.0 + step % 3 / 10) for step in range(20)]
    both = [*before, *((float(step), math.nan, math.nan) for step in range(20, 30))]
    assert judge(30, 30, [both]).verdict == "equal"
    now = [*before, *((float(step), 2.0, math.nan) for step in range(20, 30))]
    assert judge(30, 30, [now]).text.startswith("differ from step 20 on")


def at_any_time(was: Sequence[float], now: Sequence[float], digits: str = ".6E") -> set[str]:
    """The verdicts while the steps of the restart come in."""
    both = enumerate(zip(was, now, strict=True))
    pairs = [(float(step), float(format(one, digits)), float(format(two, digits))) for step, (one, two) in both]
    return {judge(end, end, [pairs[:end]]).verdict for end in range(1, len(pairs) + 1)}


@pytest.mark.parametrize("growth", [1.05, 1.5, 3.0, 30.0])
@pytest.mark.parametrize("reached", [0.1, 0.5, 1.0])
def test_noise_that_grows_from_line_to_line_is_never_a_departure(growth: float, reached: float) -> None:
    """Of the usual change, a large part: few trainings are so chaotic."""
    for seed in range(SEEDS):
        noise = random.Random(seed)
        was = [2.5 + noise.gauss(0.0, 0.05) for _ in range(90)]
        parts = [min(reached, 1e-8 * min(growth**at, 1e9)) for at in range(90)]
        now = [one + noise.gauss(0.0, 0.05 * part) for one, part in zip(was, parts, strict=True)]
        assert "differs" not in at_any_time(was, now)


def test_averages_that_begin_again_after_a_restart_are_never_a_departure() -> None:
    noise = random.Random(3)
    losses = [2.5 + noise.gauss(0.0, 0.05) for _ in range(600)]

    def smoothed(part: float, values: Sequence[float]) -> list[float]:
        found = [values[0]]
        for value in values[1:]:
            found.append((1 - part) * found[-1] + part * value)
        return found

    for part in (0.1, 0.02, 0.01):
        assert "differs" not in at_any_time(smoothed(part, losses)[500:], smoothed(part, losses[500:]), ".4f")
    means = [sum(losses[at : at + 10]) / 10 for at in range(0, 600, 10)]
    assert at_any_time(means, [sum(losses[5:10]) / 5, *means[1:]]) <= {"unknown", "noise"}, "a mean of the last five"
