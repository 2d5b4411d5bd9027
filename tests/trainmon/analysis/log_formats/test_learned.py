"""Step lines of trainers that no built-in format knows, read by their shape, and lines that are no steps."""

from __future__ import annotations

import functools
import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainmon.analysis.log_formats import LEARNED, advance, parse_line, read_line, report
from trainmon.analysis.log_formats.learned.line import RARE
from trainmon.analysis.log_formats.learned.names import TOKEN
from trainmon.analysis.log_formats.learned.patterns import COLUMNS, ESPNET, FROM_ONE, GLUED
from trainmon.model import LogShape, Progress

CAPTURED = Path(__file__).parents[3] / "captured" / "steps"
LOGS = [json.loads(line) for path in sorted(CAPTURED.glob("*.jsonl")) for line in path.read_text().splitlines()]
FORMS = [
    json.loads(line) for line in (CAPTURED.parents[1] / "written" / "steps" / "forms.jsonl").read_text().splitlines()
]
"""Ways to print a step and a loss, and lines of other programs, written for this test."""
NUMBERS = {"step": "step", "target_step": "target", "loss": "loss", "learning_rate": "lr", "grad_norm": "grad_norm"}
"""Fields of Progress, and how a log's other right answers are called."""

NOTHING_READ, NOTHING_LEARNED = Progress(), LogShape()


def read(
    lines: Iterable[str], progress: Progress = NOTHING_READ, shape: LogShape = NOTHING_LEARNED
) -> tuple[Progress, LogShape]:
    for at, line in enumerate(lines, start=1):
        found, shape = read_line(line, progress, shape, float(at))
        progress = progress if found is None else advance(progress, *found, float(at))
    return progress, shape


def is_same(found: float | None, expected: float | str | None) -> bool:
    if found is None or expected is None:
        return found is expected
    value = float(expected)
    return math.isnan(found) if math.isnan(value) else math.isclose(found, value, rel_tol=1e-6)


def misread(log: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    """The fields that are not as its label says: what was read, and the right answers."""
    progress, _ = read(log["lines"])
    expect = log["expect"]
    for field, name in NUMBERS.items():
        answers = [expect.get(field), *expect.get(f"{name}_ok", ())]
        is_free = answers == [None] and field in ("learning_rate", "grad_norm")
        if not is_free and not any(is_same(getattr(progress, field), one) for one in answers):
            yield log["id"], field, getattr(progress, field), answers


def test_each_log_is_read_as_its_label_says() -> None:
    assert len(LOGS) > 1_600
    assert [wrong for log in LOGS for wrong in misread(log)] == []


def test_each_form_is_read_for_its_step_and_loss() -> None:
    assert len(FORMS) > 500
    for form in FORMS:
        progress, _ = read(form["lines"])
        shown = form["lines"][-1]
        assert progress.step == form["step"], shown
        assert form["loss"] is None or is_same(progress.loss, form["loss"]), shown
        assert progress.target_step == form.get("target_step", progress.target_step), shown


PREFIXES = (
    "0: ", "[default0]:", "[rank3]: ", "[RANK 3] ", "(RayTrainWorker pid=1234, ip=10.0.0.1) ", "[1,0]<stdout>:",
    "\x1b[36m(TaskRunner pid=1)\x1b[0m ", "2024-01-01 10:00:00,123 - __main__ - INFO - ", "node-1: ", "worker-0  | ",
    "[2024-01-01 10:00:00] [INFO] [trainer.py:123:train] [Rank 0] ", "gpu07.cluster.local: ", "INFO:root:",
    "2024-01-01 10:00:00.123 | INFO     | __main__:train:123 - ", "[10:00:00] INFO     ", "2024-01-01T10:00:00.000Z ",
    "I0101 10:00:00.123456 140 train.py:22] ", "Jan 01 10:00:00 node17 python[1234]: ", "1704103200.123 ",
    "[INFO|trainer.py:2140] 2024-01-01 10:00:00,123 >> ", "2024-01-01 10:00:00 INFO train:123 ",
    "\x1b[2m2024-01-01 10:00:00\x1b[0m [\x1b[32minfo\x1b[0m] ", "[NeMo I 2024-01-01 10:00:00 nemo_logging:393] ",
)  # fmt: skip


OF_STEP_0 = {"kaggle-epochs", "cleanrl-again", "stepgan", "long-context-block"}
"""Logs with a line that begins with its loss: behind `0: ` it may be the loss of step 0."""


@functools.cache
def learned_logs() -> list[tuple[dict[str, Any], Progress]]:
    """The logs of which no built-in format reads a line, and what is read from them."""
    logs = [log for log in LOGS if not any(parse_line(line) for line in log["lines"])]
    return [(log, plain) for log in logs if (plain := read(log["lines"])[0]).format == LEARNED]


@pytest.mark.parametrize("every", [24, pytest.param(6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_learned_log_is_read_the_same_behind_a_prefix(prefix: str, every: int) -> None:
    for log, plain in learned_logs():
        is_of_another = zlib.crc32(log["id"].encode()) % every != PREFIXES.index(prefix) % every
        if is_of_another or (prefix == "0: " and log["id"] in OF_STEP_0):
            continue
        found, _ = read(f"{prefix}{line}" if line.strip() else line for line in log["lines"])
        assert (found.step, found.target_step) == (plain.step, plain.target_step), log["id"]
        assert is_same(found.loss, plain.loss), log["id"]


def test_no_prefix_makes_a_step_of_a_log_that_has_none() -> None:
    for number, log in enumerate(LOGS):
        if log.get("negative") and read(log["lines"])[0].step is None:
            for prefix in PREFIXES[number % 4 :: 4]:
                assert read(f"{prefix}{line}" for line in log["lines"])[0].step is None, (log["id"], prefix)


def test_a_counter_without_a_name_needs_two_similar_lines_and_growth() -> None:
    one, _ = read(["[10] lr=0.1, loss=5.1"])
    still, _ = read(["[10] lr=0.1, loss=5.1", "[10] lr=0.1, loss=5.0"])
    two, shape = read(["[10] lr=0.1, loss=5.1", "[20] lr=0.1, loss=5.0"])
    assert (one.step, still.step, two.step) == (None, None, 20)
    assert (two.format, shape.counter, shape.steps) == (LEARNED, "unnamed", 1)


def test_a_built_in_format_comes_first_and_then_nothing_is_learned() -> None:
    line = " iteration       10/     100 | elapsed time per iteration (ms): 1234.5 | lm loss: 9.1E+00 |"
    progress, shape = read([line, "step 12: loss 4.0"])
    assert (progress.step, progress.format, shape) == (10, "megatron", NOTHING_LEARNED)


def test_another_counter_in_the_same_log_does_not_move_the_step() -> None:
    lines = [text for n in range(1, 9) for text in (f"step {n}: loss 2.{n}", f"iter {n * 8}: loss 2.{n}")]
    progress, shape = read(lines)
    assert (progress.step, shape.counter) == (8, "step")


def test_a_trainer_that_was_replaced_is_followed_after_some_steps() -> None:
    progress, shape = read([f"step {n}: loss 2.0" for n in range(100, 103)])
    progress, shape = read([f"iter {n}: loss 1.0" for n in range(1, 40)], progress, shape)
    assert (progress.step, shape.counter) == (39, "iter")


def test_batches_of_an_epoch_go_on_over_the_epochs() -> None:
    def epoch(number: int) -> list[str]:
        return [f"Epoch: [{number}][{batch}/500]  Loss 2.0" for batch in (100, 400)]

    from_zero, _ = read([*epoch(0), *epoch(1), *epoch(2)])
    from_one, _ = read([*epoch(1), *epoch(2)])
    assert (from_zero.step, from_one.step) == (2 * 500 + 400, 500 + 400)
    assert (from_zero.epoch, from_zero.target_step) == (2.0, None)


def test_fewer_batches_of_the_same_epoch_are_a_validation_until_they_are_many() -> None:
    training = [f"Epoch: [1][{batch}/500]  loss 2.0" for batch in range(0, 500, 10)]
    fewer = [f"Epoch: [1][{batch}/40]  loss 9.0" for batch in range(40)]
    validated, _ = read([*training, *fewer[:10]])
    restarted, _ = read([*training, *fewer])
    assert (validated.step, validated.loss) == (490, 2.0)
    assert (restarted.step, restarted.loss) == (39, 9.0)


def test_a_reward_beside_a_step_is_training_and_one_of_an_evaluation_is_not() -> None:
    steps = [f"Step: {n}000. Mean Reward: 0.4. Std of Reward: 0.1." for n in (1, 2)]
    assert (read(steps)[0].step, read(steps[:1])[0].step) == (2000, None)
    assert read(f"Eval step: {n}000, mean reward: 0.4" for n in (1, 2))[0].step is None
    episodes = [f"Episode {n} finished, average reward 20.0" for n in (1, 2)]
    assert (read(episodes)[0].step, read(episodes[:1])[0].step) == (2, None)


@pytest.mark.parametrize(
    "line",
    [
        "step: {}00     epe: 2.692",
        "Epoch {}, acc: 0.52; ppl: 9.31",
        "E {}/400 PSNR:22.18dB epoch:49.7s best:25.10dB 159.",
        "Epoch {}: train=0.128 valid=0.204",
        "Accuracy of model trained at epoch {} : 0.9412",
        "2020-05-27 17:48:15,237 - root - INFO - CF + KG Training: Epoch 000{} | Total Time 446.3s",
        "epoch, 005{}, 17.5, 0.13, 0.004",
    ],
)
def test_what_counts_beside_an_accuracy_or_a_time_is_a_step_where_it_grows(line: str) -> None:
    grown, _ = read(line.format(n) for n in (1, 2))
    assert grown.step in (2, 200, 52)
    assert read([line.format(1)])[0].step is None
    assert read(f"Validation: {line.format(n)}" for n in (1, 2))[0].step is None


@pytest.mark.parametrize(
    ("line", "step", "target"),
    [
        ("\t{}번째 스텝의 손실: 0.5", 2, None),
        ("에폭 {}/10 || 훈련 손실: 0.5 || 검증 손실: 0.7", 2, 10),
        ("エポック {}/10 - 損失: 0.5", 2, 10),
        ("{}エポック目 損失: 0.5", 2, None),
        ("ЭПОХА {}/10 | Потери: 0.5 | Точность: 0.9", 2, 10),
        ("Обучение {} - Потери: 0.5 Точность: 0.66, эпоха {}/10", 2, 10),
        ("第 {} 轮 | 已训练 30/50 | 在线平均损失: 0.5", 80, None),
    ],
)
def test_the_words_of_training_are_read_in_other_languages(line: str, step: int, target: int | None) -> None:
    progress, _ = read(line.format(n, n) for n in (1, 2))
    assert (progress.step, progress.target_step, progress.loss) == (step, target, 0.5)


@pytest.mark.parametrize(
    "line",
    [
        "After {} iterations, loss = 0.5",
        "{}-th epoch, loss 0.5",
        "trained {} batches, loss 0.5",
        "epoch-{} loss: 0.5",
        "mini-batch {}, loss 0.5",
        "t={} loss=0.5",
        "Step, {}, Loss, 0.5, PSNR, 9.6",
        "Progress: {}/1000 loss 0.5",
        "Communication round {}: loss 0.5",
        "{} train loss: 0.5",
        "('epoch:', 21, 'step:', {}, 'loss:', 0.5)",
        "num_batches: 500 | batch: {} | loss: 0.5",
        "{} iterations, 24.3 s, loss 0.5",
        "Loss after {} steps: 0.5",
        "{}) loss=0.5",
        "[epoch{}] loss=0.5",
        "niter {} loss 0.5/0.6",
        "[2026-01-02 03:04:05,678][agent.train][INFO] - {}: train loss   0.5 | t: 51.0",
    ],
)
def test_a_counter_is_read_wherever_its_name_stands(line: str) -> None:
    progress, _ = read(line.format(n) for n in (3, 4))
    assert (progress.step, progress.loss) == (4, 0.5)


@pytest.mark.parametrize(
    "lines",
    [
        ["Namespace(dry_run=False, epochs=12, loss_part=1.0, lr=20.0)"],
        ["config: epoch 100, learning rate 0.001, loss 0.5"],
        ["iter 1 residual 0.5", "iter 2 residual 0.4"],
        ["t=1 temp=55.5", "t=2 temp=56.5"],
        ["Validation step 100, accuracy 0.5", "Validation step 200, accuracy 0.5"],
        ["sample 1: score 0.51", "sample 2: score 0.52"],
        ["train: started 2026-01-02 some_loss.cc:144] nothing was found"] * 2,
        ["第 1 轮 测试 准确率: 0.5", "第 2 轮 测试 准确率: 0.6"],
    ],
)
def test_settings_solvers_and_evaluations_are_no_steps(lines: list[str]) -> None:
    assert read(lines)[0].step is None


def test_what_follows_the_end_of_an_epoch_is_of_the_next_one() -> None:
    lines = [
        line
        for epoch in (1, 2, 3)
        for line in (
            "--- 100/100 batches finished ---",
            "Train loss: 0.5",
            f"************ Epoch={epoch} end ************",
        )
    ]
    progress, _ = read(["************ Epoch=1 start ************", *lines])
    assert (progress.step, progress.loss) == (300, 0.5)


def test_a_count_alone_is_the_header_of_the_loss_below_it() -> None:
    progress, _ = read(["1 / 20", "Avg_train_loss: 0.62", "2 / 20", "Avg_train_loss: 0.5", "Avg_val_loss: 0.59"])
    assert (progress.step, progress.target_step, progress.loss) == (2, 20, 0.5)
    assert read(["[195/200]", "files were copied"])[0].step is None


def test_the_first_part_of_a_loss_replaces_that_of_the_last_step_and_their_total_replaces_it() -> None:
    lines = ["Iteration: 3, train auc : 0.9", "Iteration: 3, box_loss : 0.4", "Iteration: 3, mask_loss : 0.3"]
    progress, shape = read([*(line.replace("3", "2", 1) for line in lines), *lines])
    assert (progress.step, progress.loss) == (3, 0.4)
    assert read(["Iteration: 3, loss : 0.7"], progress, shape)[0].loss == 0.7


def test_the_target_of_batches_is_that_of_all_epochs() -> None:
    rest = "375/375 [====] - 5s 3ms/step - loss: 0.2"  # of epoch 2, whose heading was not seen
    progress, _ = read([rest, "Epoch 3/10", "100/375 [=>..] - ETA: 3s - loss: 0.1"])
    assert (progress.step, progress.target_step, progress.loss) == (2 * 375 + 100, 3750, 0.1)


def test_a_step_that_begins_again_in_each_epoch_is_found_out() -> None:
    lines = [f"epoch {epoch} | lr 0.1 | step {step}/50 | loss 2.0" for epoch in (0, 1, 2) for step in (10, 40)]
    progress, shape = read(lines)
    assert (progress.step, shape.restarts) == (2 * 50 + 40, True)


def test_values_under_a_header_belong_to_its_step_until_something_else_begins() -> None:
    lines = ["[step=7/100]", "    train/loss=2.5", "    optim/lr=0.1", "saved in 3.1 s", "    train/loss=9.9"]
    progress, _ = read(lines)
    assert (progress.step, progress.loss, progress.learning_rate) == (7, 2.5, 0.1)


def test_the_header_of_a_bar_of_a_validation_is_no_step() -> None:
    lines = next(log["lines"] for log in LOGS if log["id"] == "ultralytics-hub")
    of_validation = [one for one in report(lines).lines if "mAP50" in one.text]
    assert len(of_validation) == 3
    assert [one.found for one in of_validation] == [None] * 3


@pytest.mark.parametrize("count", ["375", "1,000"])
def test_the_number_of_steps_over_the_dicts_of_a_trainer_is_not_their_step(count: str) -> None:
    head = ["***** Running training *****", "  Num Epochs = 3", f"  Total optimization steps = {count}"]
    dicts = [f"{{'loss': {loss}, 'learning_rate': 5e-05, 'epoch': {loss}}}" for loss in (3.2, 3.1)]
    progress, _ = read([*head, *dicts])
    assert (progress.step, progress.format) == (None, "hf-trainer")
    progress, _ = read([*head, dicts[0], " 50%|███  | 190/375 [00:10<03:12,  1.8it/s]", dicts[1]])
    assert (progress.step, progress.target_step, progress.loss) == (190, 375, 3.1)


def test_an_evaluation_under_a_header_is_none_of_its_losses() -> None:
    lines = ["==== Step 7/100 ====", "Training Results:", "  • Loss: 2.5", "Validation Results:", "  • Loss: 9.9"]
    progress, _ = read(lines)
    assert progress.loss == 2.5


def test_a_box_is_read_before_its_end_once_the_updates_are_known() -> None:
    rows = ["| fps | 1641 |", "| n_updates | 1362 |", "| policy_loss | -2.5 |", "| total_timesteps | 54480 |"]
    progress, _ = read(["| iterations | 7 |", "| loss | 1.5 |"])
    assert progress.step is None  # n_updates may follow
    progress, _ = read(rows)
    assert (progress.step, progress.loss) == (1362, -2.5)


def test_an_epoch_that_repeats_with_another_loss_is_training_and_another_counter_is_not() -> None:
    progress, _ = read(["Epoch[1] Loss=0.5, F1=0.1", "Epoch[1] Loss=0.4, F1=0.1", "Epoch[1] Loss=0.3, F1=0.1"])
    assert (progress.step, progress.loss) == (1, 0.3)
    progress, _ = read(["[10] lr=0.1, loss=5.1", "[10] lr=0.1, loss=5.0"])
    assert progress.step is None


def test_an_unfinished_line_counts_only_as_a_bar() -> None:
    def unfinished(line: str) -> int | None:
        found, _ = read_line(line, Progress(), LogShape(), 1.0, is_finished=False)
        return None if found is None else found[1].step

    assert unfinished("Steps:  10%|█         | 103/1000 [05:03<44:00,  2.94s/it, step_loss=0.227]") == 103
    assert unfinished("Steps:  10%|█         | 103/1000 [05:03<44:00,  2.94s/it, step_los") is None
    assert unfinished("step 103 loss 0.2") is None


@pytest.mark.parametrize("pattern", RARE)
def test_no_rare_pattern_tells_one_digit_from_another_but_a_zero(pattern: re.Pattern[str]) -> None:
    """A line is not searched for them if they are not in the same line with zeros."""
    without_counts = re.sub(r"\{\d+(?:,\d*)?\}", "", pattern.pattern)
    assert re.search(r"[1-9]|\(\?<?![^)]*0", without_counts) is None


def test_what_is_skipped_of_a_line_finds_nothing() -> None:
    """Patterns of epochs in a line without that word, and tokens where their first characters are not."""
    every = re.compile(TOKEN.pattern.removeprefix(r"(?=[-+.~/\dhnNiI])"))
    lines = {line for log in (*LOGS, *FORMS) for line in log["lines"][-2:]}
    assert every.pattern != TOKEN.pattern
    assert all(
        [one.span() for one in every.finditer(line)] == [one.span() for one in TOKEN.finditer(line)] for line in lines
    )
    named = [line for line in lines if any(one.search(line) for one in (FROM_ONE, COLUMNS, ESPNET, GLUED))]
    assert named
    assert all("epoch" in line.lower() for line in named)


HOSTILE = (
    "1", "a=1 ", "loss ", "loss 1 ", "step 1 ", "epoch 1 ", "epoch", " ", "1%", "[", "1/2 ", "1:", "_", "1,", "1.",
    "1e", "train ", "aA", "10%|", "'", "-", "2020-01-01 ", "{'", "| ", "| loss | 1 |\n", "step 1/2 loss 1 ", "\r1%|",
    "\x1b[1m",
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_read_to_an_end(text: str) -> None:
    line = text * (1_000_000 // len(text))
    _, shape = read([line, line])
    assert shape.steps <= 2
    assert len(shape.example) + len(shape.text) < 20_000
