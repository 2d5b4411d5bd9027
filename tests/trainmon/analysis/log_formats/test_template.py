"""Templates of step lines, made of an example and read as a format."""

from __future__ import annotations

import time
from functools import cache

import pytest

from tests.trainmon.analysis.log_formats.test_learned import LOGS
from trainmon.analysis.log_formats import StepLine, config_block, custom_format, report
from trainmon.analysis.log_formats.read import plain
from trainmon.analysis.log_formats.template import template
from trainmon.lib import ConfigError


@cache
def last_lines() -> list[str]:
    """The last line of each captured log."""
    return [plain(log["lines"][-1]) for log in LOGS if not log.get("negative")]


def test_a_template_has_names_in_place_of_numbers_and_nothing_that_differs_from_line_to_line() -> None:
    line = "[2026-01-02 03:04:05,678] [rank0] iter 100: loss 3.2145, time 312.45ms, mfu 38.12%"
    assert template(line) == "iter {step}: loss {loss}, time {step_time_ms}ms"
    line = "Train: 3 [ 400/1251 ( 32%)]  Loss: 5.86 (6.13)  Time: 0.602s,  425.3/s  LR: 1.670e-04  Data: 0.012"
    expected = (
        "Train: {epoch} [ {batch}/{batches} ( {})] Loss: {loss} ({}) Time: {step_time_s}s, {}/s LR: {learning_rate}"
    )
    assert template(line) == expected


def test_of_equal_numbers_the_one_with_the_name_is_taken() -> None:
    assert template("epoch 1 | step 1 | loss 1.0") == "step {step} | loss {loss}"
    assert template("10:00:01 [rank 3] >> step 3 loss 3") == "step {step} loss {loss}"


def test_of_a_very_long_line_the_template_has_the_fields_that_fit() -> None:
    line = "step:7 - loss:2.5 - " + " - ".join(f"actor/metric_{n}:{n}.5" for n in range(90)) + " - lr:1e-4"
    assert template(line) == "step:{step} - loss:{loss}"


def test_prose_has_no_template() -> None:
    assert template("resuming from the checkpoint of yesterday") is None


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_a_template_reads_what_the_learned_format_reads(every: int) -> None:
    lines = last_lines()[::every]
    steps = {line for line in lines if report([line, line]).progress.step is not None}
    made = [(line, text) for line in lines if (text := template(line)) is not None and "{step}" in text]
    assert len(steps & {line for line, _ in made}) > 0.7 * len(steps)
    for line, text in made:
        found = custom_format("own", template=text).parse(line)
        assert found is not None, line
        assert report([line, line]).progress.step in (None, found.step), line


def test_nameless_values_end_at_a_space_and_losses_begin_with_a_point() -> None:
    own = custom_format("own", template="iter {step} {} {loss}")
    assert own.parse("iter 7 cuda:0 .25") == StepLine(step=7, loss=0.25)
    assert own.parse("iter 7 12345") is None


def test_a_line_that_does_not_match_takes_no_time() -> None:
    own = custom_format("own", template="{step},{},{},{},{},{},{loss}x")
    started = time.perf_counter()
    assert own.parse(",".join(["123"] * 1_000)) is None
    assert time.perf_counter() - started < 1.0


def test_commas_group_digits_or_separate_values() -> None:
    assert template("step 1,200, loss 3.5") == "step {step}, loss {loss}"
    assert custom_format("own", template="step {step}, loss {loss}").parse("step 1,200, loss 3.5").step == 1200  # type: ignore[union-attr]
    assert custom_format("own", template="{step},{loss}").parse("20,2.1,0.001") == StepLine(step=20, loss=2.1)


def test_milliseconds_are_milliseconds_and_batches_are_steps() -> None:
    own = custom_format("own", template="iter {step}: loss {loss}, time {step_time_ms}ms")
    assert own.parse("x iter 100:  loss 3.5, time 312.5ms") == StepLine(step=100, loss=3.5, step_time_s=0.3125)
    own = custom_format("own", template="epoch {epoch} batch {batch}/{batches} {} loss {loss}")
    assert own.parse("epoch 2 batch 10/500 lr=0.1 loss nan").step == 1010  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("loss {loss}", "the template has no {step}, so it would never advance"),
        ("step {step} {los}", "no group 'los'; did you mean 'loss'?"),
        ("{step} of {step}", "{step} stands twice in the template"),
        ("x" * 1001, "the template is longer than 1000 characters"),
    ],
)
def test_a_wrong_template_says_why(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as error:
        custom_format("own", template=text)
    assert error.value.problems == [f"log format 'own': {problem}"]


def test_a_report_has_every_line_the_format_and_a_block_for_the_config() -> None:
    read = report(["hello", "step 1 loss 2.5", "step 2 loss 2.4"])
    assert [one.found.step if one.found else None for one in read.lines] == [None, 1, 2]
    assert (read.steps, read.template) == (2, "step {step} loss {loss}")


def test_a_loss_without_a_counter_below_its_step_leaves_the_template_of_the_step() -> None:
    bar = "Training: 100%|█████████| 3234/3234 [10:50<00:00, 4.97it/s, loss=0.6161]"
    read = report(["Epoch 1/1", bar, "Training loss: 0.6308"])
    assert (read.steps, read.template) == (2, "{step}/{target_step} [{}<{}, {}it/s, loss={loss}")
    again = ["Epoch 2/2", bar, "Training loss: 0.5308"]
    assert report(["Epoch 1/2", bar, "Training loss: 0.6308", *again]).template is None  # it would read step 3234 again
    assert config_block('a "b"', "step {step}") == '[[log_format]]\nname = "a \\"b\\""\ntemplate = "step {step}"\n'
