"""Which metrics of a W&B run are what."""

from __future__ import annotations

import pytest

from trainmon.analysis.wandb.metric_names import Role, choose, loss_of, role_of, step_of, value_of
from trainmon.model import WandbRun

MEGATRON = (
    "lm loss", "grad-norm", "learning-rate", "batch-size", "loss-scale", "num-zeros", "params-norm", "throughput",
    "iteration-time", "samples vs steps", "lm loss validation", "lm loss validation ppl", "load_balancing_loss",
)  # fmt: skip
HF = (
    "train/loss", "train/grad_norm", "train/learning_rate", "train/epoch", "train/global_step", "eval/loss",
    "eval/runtime", "eval/samples_per_second", "eval/steps_per_second", "train/train_runtime",
)  # fmt: skip
LIGHTNING = ("epoch", "trainer/global_step", "train_loss", "val_loss", "val_acc", "lr-AdamW")
NANOTRON = (
    "consumed_tokens", "tokens_per_sec_per_gpu", "tokens_per_sec", "lm_loss", "lr", "model_tflops_per_gpu", "grad_norm",
    "iteration_step", "global_batch_size",
)  # fmt: skip
TORCHTITAN = (
    "loss_metrics/global_max_loss", "loss_metrics/global_avg_loss", "grad_norm", "throughput(tps)", "tflops", "mfu(%)",
    "lr", "memory/max_active(GiB)", "validation_metrics/loss",
)  # fmt: skip
OLMO = (
    "train/CrossEntropyLoss", "train/Perplexity", "optim/total_grad_norm", "optim/learning_rate_group0",
    "throughput/device/tokens_per_second", "eval/pile-validation/CrossEntropyLoss", "throughput/total_tokens",
)  # fmt: skip
COMPOSER = (
    "loss/train/total", "metrics/train/LanguageCrossEntropy", "lr-DecoupledAdamW/group0", "l2_norm/grad/global",
    "throughput/tokens_per_sec", "throughput/device/tokens_per_sec", "metrics/eval/LanguageCrossEntropy",
)  # fmt: skip
DEEPSPEED = ("Train/Samples/train_loss", "Train/Samples/lr", "Train/Samples/loss_scale")
NEMO = ("reduced_train_loss", "lr", "grad_norm", "global_step", "train_step_timing in s", "val_loss")


@pytest.mark.parametrize(
    ("logged", "charted"),
    [
        (MEGATRON, ("lm loss", "grad-norm", "throughput", "learning-rate", "lm loss validation")),
        (HF, ("train/loss", "train/grad_norm", "train/learning_rate", "eval/loss")),
        (LIGHTNING, ("train_loss", "lr-AdamW", "val_loss", "val_acc")),
        (NANOTRON, ("lm_loss", "grad_norm", "tokens_per_sec", "lr")),
        (TORCHTITAN, ("loss_metrics/global_avg_loss", "grad_norm", "throughput(tps)", "lr", "validation_metrics/loss")),
        (
            OLMO,
            (
                "train/CrossEntropyLoss", "optim/total_grad_norm", "throughput/device/tokens_per_second",
                "optim/learning_rate_group0", "eval/pile-validation/CrossEntropyLoss",
            ),
        ),
        (
            COMPOSER,
            (
                "loss/train/total", "l2_norm/grad/global", "throughput/tokens_per_sec", "lr-DecoupledAdamW/group0",
                "metrics/eval/LanguageCrossEntropy",
            ),
        ),
        (DEEPSPEED, ("Train/Samples/train_loss", "Train/Samples/lr")),
        (NEMO, ("reduced_train_loss", "grad_norm", "lr", "val_loss")),
    ],
)  # fmt: skip
def test_the_metrics_of_the_usual_trainers_are_found_the_loss_first(
    logged: tuple[str, ...], charted: tuple[str, ...]
) -> None:
    chosen = choose((), logged)
    assert chosen[: len(charted)] == charted


@pytest.mark.parametrize(
    ("key", "role"),
    [
        ("loss", "loss"),
        ("train/mse_loss", "loss"),
        ("loss_scale", "other"),
        ("train/loss-scale", "other"),
        ("z_loss", "other"),
        ("aux_loss", "other"),
        ("Grad Norm", "grad_norm"),
        ("train/tokens/s", "throughput"),
        ("tok/s", "throughput"),
        ("tokens_seen", "other"),
        ("consumed_tokens", "other"),
        ("lr", "learning_rate"),
        ("lrelu_alpha", "other"),
        ("val/loss", "validation"),
        ("test_acc", "validation"),
        ("latest_value", "other"),
        ("interval", "other"),
        ("glossary", "other"),
        ("flops", "other"),
        ("", "other"),
    ],
)
def test_a_name_reveals_what_a_metric_is(key: str, role: Role) -> None:
    assert role_of(key) == role


def test_what_the_config_names_is_charted_in_its_order_after_the_loss() -> None:
    assert choose(("gpu_mem", "val/psnr", "train/loss", "gpu_mem"), HF) == ("train/loss", "gpu_mem", "val/psnr")
    assert choose(("gpu_mem",), HF) == ("gpu_mem",)


def test_an_evaluation_with_a_hundred_numbers_fills_no_screen_and_its_means_come_first() -> None:
    parts = tuple(f"eval/downstream/task_{i}_acc" for i in range(100))
    chosen = choose((), ("loss", *parts, "eval/loss"))
    assert chosen[:2] == ("loss", "eval/loss")
    assert len(chosen) == 5


def test_where_no_name_is_known_the_first_metrics_are_charted() -> None:
    assert choose((), ("_step", "system/gpu.0.temp", "alpha", "beta")) == ("alpha", "beta")
    assert choose((), ()) == ()


def test_the_usual_name_of_a_loss_wins_over_a_rare_one() -> None:
    assert loss_of(("train/style_loss", "train/content_loss", "train/loss")) == "train/loss"
    assert loss_of(("train/style_loss", "g_loss")) == "g_loss"
    assert loss_of(("val_loss", "loss_scale")) is None


def run(**summary: float | str) -> WandbRun:
    return WandbRun(entity="t", project="p", id="a", name="a", state="running", step=77, summary=summary)


def test_the_trainers_own_step_is_the_step_and_w_and_bs_counter_stands_in() -> None:
    assert step_of(run()) == 77
    assert step_of(run(**{"train/global_step": 12_000.0})) == 12_000
    assert step_of(run(global_step=float("nan"), iteration="12")) == 77


def test_latest_values_are_found_by_what_they_are() -> None:
    known = run(**{"train/loss": 2.1, "eval/loss": 2.0, "lr": 3e-4, "grad_norm": "NaN"})
    assert value_of(known, "loss") == 2.1
    assert value_of(known, "learning_rate") == 3e-4
    assert value_of(known, "grad_norm") is None
    assert value_of(known, "throughput") is None


def test_the_tokens_of_one_gpu_are_not_those_of_all() -> None:
    assert value_of(run(tokens_per_sec_per_gpu=8e3, tokens_per_sec=5e5), "throughput") == 5e5
    assert (
        value_of(run(**{"throughput/device/tokens_per_second": 8e3, "samples_per_second": 3.0}), "throughput") is None
    )
