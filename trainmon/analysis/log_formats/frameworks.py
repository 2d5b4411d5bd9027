"""The trainers whose lines are known, and all formats in the order in which they are tried. Pure."""

from __future__ import annotations

import math
import re

from trainmon.analysis.log_formats.line import (
    FASTEST,
    TIMES,
    Format,
    StepLine,
    fields,
    headed,
    number,
    positive,
    postfix,
    step_time,
    stripped,
    whole,
)

# ---- Megatron-LM and Megatron-DeepSpeed ------------------------------------------------------------------------------

MEGATRON_HEAD = re.compile(r"iteration\s{1,12}(\d{1,12})/\s{0,12}(\d{1,12})\s{0,4}\|")
MEGATRON_EVAL = re.compile(r"(?:validation|valid|test)\b.{0,60} loss at (?:iteration \d|the end of training)")
MEGATRON_SAVING = re.compile(r"saving checkpoint at iteration\s{1,12}\d")
MEGATRON_SAVED = re.compile(r"successfully saved checkpoint (?:from|at) iteration\s{1,12}\d")

MEGATRON_LOSSES = ("lm loss", "loss", "mlm loss", "lm_loss")
SIDE_LOSSES = re.compile(
    r"loss scale|load_balancing_loss|seq_load_balancing_loss|global_load_balancing_loss|z_loss|mtp_\d+ loss"
)
"""Fields with loss in their name that stay in the line while the loss itself is NaN."""


def parse_megatron(line: str) -> StepLine | None:
    """Read a line of Megatron."""
    if "iteration" not in line:
        return None
    if "elapsed time per iteration (ms):" in line or "number of skipped iterations:" in line:
        return None if is_deepspeed_fork(line) else step_line(line)
    if "loss at" in line:
        return StepLine(kind="eval") if MEGATRON_EVAL.match(stripped(line)) else None
    if "saving checkpoint" in line:
        return StepLine(kind="save") if MEGATRON_SAVING.match(stripped(line)) else None
    is_saved = "successfully saved" in line and MEGATRON_SAVED.match(stripped(line))
    return StepLine(kind="note") if is_saved else None


def is_deepspeed_fork(line: str) -> bool:
    """Whether a step line is Megatron-DeepSpeed's: in seconds, or with its samples per second."""
    return "elapsed time per iteration (s):" in line or "| samples per second:" in line


def step_line(line: str) -> StepLine | None:
    """Read a step line of Megatron or a fork of it."""
    if (found := headed(line, MEGATRON_HEAD)) is None:
        return None
    head, named = found
    skipped, nans = whole(named.get("number of skipped iterations")), whole(named.get("number of nan iterations"))
    step_time, batch = _step_time(named), number(named.get("global batch size"))
    counted = None if step_time is None or batch is None else batch / step_time
    return StepLine(
        step=int(head[1]),
        target_step=int(head[2]) or None,
        loss=math.nan if nans else _megatron_loss(named, skipped),
        grad_norm=number(named.get("grad norm")),
        samples_per_s=positive(number(named.get("samples per second"))) or positive(counted),
        step_time_s=step_time,
        learning_rate=number(named.get("learning rate")),
        skipped=skipped,
        nan_iterations=nans,
        loss_scale=positive(number(named.get("loss scale"))),
    )


def _megatron_loss(named: dict[str, str], skipped: int | None) -> float | None:
    others = (name for name in named if "loss" in name and not SIDE_LOSSES.fullmatch(name))
    name = next((name for name in (*MEGATRON_LOSSES, *others) if name in named), None)
    if name is not None:
        return number(named[name])
    return math.nan if skipped == 0 else None  # the loss stands before that field: a line that has it is complete


def _step_time(named: dict[str, str]) -> float | None:
    """`2701.3/2712.7` is AMD Primus: this one, and the mean."""
    unit, scale = ("ms", 1000) if "elapsed time per iteration (ms)" in named else ("s", 1)
    value = positive(number(named.get(f"elapsed time per iteration ({unit})", "").partition("/")[0]))
    return None if value is None else value / scale


def parse_deepspeed_fork(line: str) -> StepLine | None:
    """Read a step line of Megatron-DeepSpeed."""
    return step_line(line) if is_deepspeed_fork(line) else None


MEGATRON = Format(
    "megatron", r"iteration +\d+/ *\d+ *\||saving checkpoint at iteration|successfully saved checkpoint", parse_megatron
)
"""Megatron-LM's step lines, old and new, and those of its forks that time in milliseconds (AMD Primus, MindSpeed).

The loss is left out of the line when it is NaN (training_log appends it only if it is >= 0), so a NaN shows as an
absence: no loss field, and not every iteration skipped. `number of nan iterations:   0` is not a NaN.
"""
MEGATRON_DEEPSPEED = Format("megatron-deepspeed", r"iteration +\d+/ *\d+ *\|", parse_deepspeed_fork)


# ---- nanotron --------------------------------------------------------------------------------------------------------

NANOTRON_HEAD = re.compile(r"iteration:\s{0,8}(\d{1,12})\s{0,4}/\s{0,4}(\d{1,12})\s{0,4}\|")


def parse_nanotron(line: str) -> StepLine | None:
    """Read a line of Nanotron."""
    if "Saving checkpoint at " in line:
        return StepLine(kind="save") if stripped(line).startswith("Saving checkpoint at /") else None
    if "iteration:" not in line or "time_per_iteration_ms:" not in line:
        return None
    if (found := headed(line, NANOTRON_HEAD)) is None:
        return None
    head, named = found
    times = (named.get("time_per_iteration_ms"), named.get("elapsed_time_per_iteration_ms"))
    milliseconds = positive(number(times[0] or times[1]))
    return StepLine(
        step=int(head[1]),
        target_step=int(head[2]),
        loss=number(named.get("lm_loss") or named.get("loss")),
        grad_norm=number(named.get("grad_norm")),
        tokens_per_s=positive(number(named.get("tokens_per_sec"))),
        step_time_s=None if milliseconds is None else milliseconds / 1000,
        learning_rate=number(named.get("lr")),
    )


NANOTRON = Format("nanotron", r"iteration: *\d+ */ *\d+ *\|", parse_nanotron)
"""nanotron's step lines. Steps are exact, the rest has three digits and a scale: `182K`, `480B`. Field order varies."""


# ---- NeMo ------------------------------------------------------------------------------------------------------------

NEMO_HEAD = re.compile(r"Training epoch (\d{1,9}), iteration (\d{1,12})/(\d{1,12}) \|")
NEMO_EVAL = re.compile(r"(?:Validation|Testing) (?:epoch \d{1,9}, )?iteration \d{1,12}/\d{1,12}\b")


def parse_nemo(line: str) -> StepLine | None:
    """Read a line of NeMo."""
    if ", iteration " not in line and " iteration " not in line:
        return None
    if "Training epoch " not in line:
        is_eval = "Validation" in line or "Testing" in line
        return StepLine(kind="eval") if is_eval and NEMO_EVAL.match(stripped(line)) else None
    if (found := headed(line, NEMO_HEAD)) is None:
        return None
    head, named = found
    if "global_step" not in named and "lr" not in named:
        return None
    done = int(head[2])
    global_step, times = whole(named.get("global_step")), ("train_step_timing in s", "train_step_timing", "step_time")
    return StepLine(
        step=done if global_step is None else global_step,
        target_step=int(head[3]) if global_step in (None, done) else None,
        loss=number(named.get("reduced_train_loss") or named.get("loss")),
        grad_norm=number(named.get("grad_norm") or named.get("gradient_norm")),
        step_time_s=positive(number(next((named[name] for name in times if name in named), None))),
        learning_rate=number(named.get("lr")),
        epoch=float(head[1]),
    )


NEMO = Format("nemo", r"Training epoch \d+, iteration \d+/\d+|Validation iteration", parse_nemo)
"""NeMo 2's ProgressPrinter. It counts from 0, as the names of its checkpoints do: `iteration 0/99` is the first of 100.

`iteration` starts again in each epoch and after a resume; `global_step` does not, and is what is taken.
"""


# ---- torchtitan ------------------------------------------------------------------------------------------------------

TITAN_STEP = re.compile(
    r"step:\s{0,8}(\d{1,12})(?:\s{0,4}/\s{0,4}(\d{1,12})(?:\s{0,4}=\s{0,4}[\d.]{1,12}%)?)?\s{1,8}"
    r"(?:[\w/]{1,40}:\s{0,8}\S{1,40}\s{1,8}){0,3}?loss:\s{0,8}(\S{1,24})(?=\s|$)"
)
TITAN_EVAL = re.compile(r"validate step:\s{0,8}\d{1,12}\s{1,8}loss:")
NAMED = re.compile(r"\b(grad_norm|tps|lr|time_metrics/end_to_end\(s\)):\s{0,8}([^\s|]{1,24})")
TITAN_SAVING = (
    "Saving the checkpoint",
    "Saving a full checkpoint",
    "Saving a model only checkpoint",
    "Saving a model weights",
)


def parse_torchtitan(line: str) -> StepLine | None:
    """Read a line of TorchTitan."""
    if "step:" not in line or "loss:" not in line:
        return _saving(line) if "checkpoint" in line else None
    body = stripped(line)
    found = TITAN_STEP.match(body)
    if found is None:
        return StepLine(kind="eval") if TITAN_EVAL.match(body) else None
    loss = number(found[3])
    named = dict(NAMED.findall(body, found.end()))
    if loss is None or named.keys() <= {"lr"}:  # others name a loss and a learning rate, too
        return None
    return StepLine(
        step=int(found[1]),
        target_step=int(found[2]) if found[2] else None,
        loss=loss,
        grad_norm=number(named.get("grad_norm")),
        tokens_per_s=positive(number(named.get("tps"))),
        learning_rate=number(named.get("lr")),
    )


def _saving(line: str) -> StepLine | None:
    body = stripped(line)
    if body.startswith("Finished saving the checkpoint"):
        return StepLine(kind="note")
    return StepLine(kind="save") if body.startswith(TITAN_SAVING) else None


TORCHTITAN = Format(
    "torchtitan", r"step:.{1,200}loss:|Saving the checkpoint|Finished saving the checkpoint", parse_torchtitan
)
"""torchtitan's step lines. Every rank may print them; `tps` is tokens per second of one device.

Older lines have no gradient norm, and forks print `step: 640/644 = 99.3789%`.
"""


# ---- KempnerForge ----------------------------------------------------------------------------------------------------

FORGE_STEP = re.compile(r"\[step (\d{1,12})\] (?=loss=|eval/)")
NAN = re.compile(
    r"NaN/Inf (?:loss|detected on another rank) at step (\d{1,12}) \(consecutive=(\d{1,9}), total=\d{1,9}[,)]"
)


def parse_kempnerforge(line: str) -> StepLine | None:
    """Read a line of KempnerForge."""
    if "[step " in line:
        return _metrics(stripped(line))
    found = NAN.match(stripped(line)) if "NaN/Inf " in line else None
    return None if found is None else StepLine(step=int(found[1]), loss=math.nan, nan_iterations=int(found[2]))


def _metrics(body: str) -> StepLine | None:
    found = FORGE_STEP.match(body)
    if found is None:
        return None
    named = fields(body[found.end() :], after="=")
    if "loss" not in named:
        return StepLine(kind="eval")
    return StepLine(
        step=int(found[1]),
        loss=number(named["loss"]),
        grad_norm=number(named.get("grad_norm")),
        tokens_per_s=positive(number(named.get("tok/s"))),
        step_time_s=positive(number(named.get("step_time", "").removesuffix("s"))),
        learning_rate=number(named.get("lr")),
        nan_iterations=0,
    )


KEMPNERFORGE = Format("kempnerforge", r"\[step \d+\]|NaN/Inf ", parse_kempnerforge)
"""KempnerForge's metrics line, and its NaN lines: a step with a NaN prints no metrics, only a warning on rank 0."""


# ---- DeepSpeed -------------------------------------------------------------------------------------------------------

LOG_DIST = re.compile(r"step=(\d{1,12}), skipped=(\d{1,12}), lr=\[([^,\[\]]{1,40})")
TIMER = re.compile(
    r"epoch=\d{1,9}/micro_step=\d{1,12}/global_step=(\d{1,12}), RunningAvgSamplesPerSec=([\d.]{1,20}|nan|inf), "
    r"CurrSamplesPerSec=([\d.]{1,20}|nan|inf)"
)
PIPE = re.compile(
    r"steps: (\d{1,12}) loss: (\S{1,24}) iter time \(s\): ([\d.]{1,16}) samples/sec: ([\d.]{1,16}|nan|inf)"
)
DS_SAVING = re.compile(r"(?:\[Torch\] )?Checkpoint \S{1,200} is about to be saved!")
DS_SAVED = re.compile(r"(?:\[Torch\] )?Checkpoint \S{1,200} is ready now!")


def parse_deepspeed(line: str) -> StepLine | None:
    """Read a line of DeepSpeed."""
    if not (", skipped=" in line or "SamplesPerSec=" in line or " iter time (s): " in line or "Checkpoint " in line):
        return None
    body = stripped(line)
    if (found := LOG_DIST.match(body)) is not None:
        return StepLine(step=int(found[1]), skipped=int(found[2]), learning_rate=number(found[3]))
    if (found := TIMER.match(body)) is not None:
        return StepLine(step=int(found[1]), samples_per_s=positive(number(found[3])))
    if (found := PIPE.match(body)) is not None:
        return StepLine(
            step=int(found[1]),
            loss=number(found[2]),
            step_time_s=positive(number(found[3])),
            samples_per_s=positive(number(found[4])),
        )
    if DS_SAVING.match(body):
        return StepLine(kind="save")
    return StepLine(kind="note") if DS_SAVED.match(body) else None


DEEPSPEED = Format("deepspeed", r"step=\d+, skipped=\d+|global_step=\d+, RunningAvg|steps: \d+ loss: ", parse_deepspeed)
"""DeepSpeed's own lines: log_dist, the throughput timer, and the pipeline engine. Only the last one has a loss.

`skipped` counts since the start here, unlike Megatron's. An OVERFLOW line is a skipped step, not a failure:
it says no step.
"""


# ---- Hugging Face Trainer --------------------------------------------------------------------------------------------

PAIR = re.compile(r"'([^'{}]{1,80})': ('[^'{}]{0,80}'|[^,'{}\[\]]{1,40})(?=[,}])")
HF_BAR = re.compile(r"(?:Train:\s{1,8})?\d{1,3}%\|[^|]{0,400}\|\s{0,12}(\d{1,12})/(\d{1,12}(?:\.\d{1,6})?) " + TIMES)
HF_SAVING = re.compile(r"Saving (?:model )?checkpoint to \S")
HF_EVAL = re.compile(r"\*{3,8} Running (?:Evaluation|Prediction|Test) ")


def parse_hf(line: str) -> StepLine | None:
    """Read a line of the Hugging Face Trainer."""
    if "': " in line and "{'" in line:
        return _with_dict(line)
    if "%|" in line:
        return _bar(stripped(line))
    if "Saving " in line:
        return StepLine(kind="save") if HF_SAVING.match(stripped(line)) else None
    return StepLine(kind="eval") if "Running " in line and HF_EVAL.match(stripped(line)) else None


def _with_dict(line: str) -> StepLine | None:
    """A dict alone, or glued to the bar that it interrupted."""
    if "loss': " not in line and "_runtime': " not in line:
        return None
    body = stripped(line)
    start = body.find("{'")
    parsed, before = _dict(body[start:]), body[:start]
    if parsed is None or not before:
        return parsed
    bar = _bar(before)
    if bar is None or bar.step is None or not before.endswith("]"):
        return None
    if parsed.kind != "train" or parsed.step is not None:
        return parsed
    return StepLine(
        kind="bar",
        step=bar.step,
        target_step=bar.target_step,
        loss=parsed.loss,
        grad_norm=parsed.grad_norm,
        samples_per_s=parsed.samples_per_s,
        step_time_s=bar.step_time_s,
        learning_rate=parsed.learning_rate,
        epoch=parsed.epoch,
    )


def _dict(text: str) -> StepLine | None:
    if not text.endswith("}") or "{" in text[1:]:
        return None
    named = dict(PAIR.findall(text))
    if "train_runtime" in named and "loss" not in named:
        return StepLine(
            is_last=True,
            samples_per_s=number(named.get("train_samples_per_second")),
            epoch=number(named.get("epoch")),
        )
    own = next((name for name in named if name.lower() in {"loss", "total_loss", "train_loss"}), None)
    if own is None:
        is_result = "eval_runtime" in named or "eval_loss" in named
        return StepLine(kind="eval", evaluation="ends") if is_result else None
    if "epoch" not in named and "learning_rate" not in named:
        return None
    loss, grad_norm = number(named[own]), number(named.get("grad_norm"))
    if loss == 0 and grad_norm is not None and math.isnan(grad_norm):
        loss = math.nan  # the Trainer logs a NaN loss as 0 (logging_nan_inf_filter); its gradient gives it away
    step, _, target = named.get("global_step/max_steps", "").strip("'").partition("/")
    return StepLine(
        step=int(step) if step.isdecimal() else None,
        target_step=int(target) if target.isdecimal() else None,
        loss=loss,
        grad_norm=grad_norm,
        learning_rate=number(named.get("learning_rate")),
        epoch=number(named.get("epoch")),
    )


def _bar(body: str) -> StepLine | None:
    found = HF_BAR.match(body)
    if found is None:
        return None
    seconds = step_time(found[3], found[4])
    if seconds is not None and seconds < 1 / FASTEST:
        return None
    shown = postfix(body, found.end())
    return StepLine(
        kind="bar",
        step=int(found[1]),
        target_step=math.ceil(float(found[2])) or None,  # a batch count that was divided: 312.5 ends with step 313
        loss=number(shown.get("loss")),
        learning_rate=number(shown.get("learning_rate")),
        step_time_s=seconds,
    )


HF_TRAINER = Format("hf-trainer", r"it/s|s/it|'loss': |'train_runtime': |'eval_runtime': ", parse_hf)
"""Hugging Face Trainer (and TRL, LLaMA-Factory, axolotl, ms-swift on it): a dict of numbers, and a nameless bar.

The dict has the loss and no step; the bar, on standard error, has the step and no loss; `advance` joins them. Version
4 prints numbers, version 5 strings. Evaluation draws a nameless bar too: its kind is `bar` until a dict confirms it.
"""


# ---- Lightning -------------------------------------------------------------------------------------------------------

LIGHTNING_BAR = re.compile(
    r"Epoch (\d{1,9})(?:/(\d{1,9}))?:\s{0,8}(?:\d{1,3}%)?(?:\|[^|]{0,400}\|)?\s{0,12}(\d{1,12})(?:/(\d{1,12}|\?)|it) "
    + TIMES
)
LIGHTNING_EVAL = re.compile(
    r"(?:Validation|Validating|Sanity Checking|Testing)(?: DataLoader \d{1,4})?:\s{0,8}\d{0,3}%?\|"
)
OWN_LOSSES = (
    *("train_loss_step", "train_loss", "loss", "train/loss_step", "train/loss", "loss_step", "training_loss"),
    *("train_total_loss_step", "train_total_loss", "train/total_loss", "total_loss"),
)
ELSEWHERE = ("val", "eval", "test")


def parse_lightning(line: str) -> StepLine | None:
    """Read a line of Lightning."""
    if "Epoch " not in line:
        is_eval = "|" in line and ("Validat" in line or "Sanity" in line or "Testing" in line)
        return StepLine(kind="eval") if is_eval and LIGHTNING_EVAL.match(stripped(line)) else None
    if "it/s" not in line and "s/it" not in line:
        return None
    body = stripped(line)
    found = LIGHTNING_BAR.match(body)
    seconds = None if found is None else step_time(found[5], found[6])
    if found is None or (seconds is not None and seconds < 1 / FASTEST):
        return None
    epoch, epochs, count = int(found[1]), whole(found[2]), int(found[3])
    counts_epochs = epochs is not None and whole(found[4]) == epochs and count in (epoch - 1, epoch)
    batches = 0 if counts_epochs else whole(found[4]) or 0
    before = epoch if epochs is None else max(0, epoch - 1)
    named = postfix(body, found.end())
    loss = _lightning_loss(named, is_whole="]" in body[found.end() :])
    return StepLine(
        kind="train" if loss is None else "rest",
        step=whole(named.get("global_step")) or before * batches + count,
        target_step=epochs if counts_epochs else epochs * batches if epochs and batches else None,
        loss=loss,
        grad_norm=number(named.get("grad_norm")),
        step_time_s=seconds,
        learning_rate=number(named.get("lr")),
        epoch=float(epoch),
    )


def _lightning_loss(named: dict[str, str], *, is_whole: bool) -> float | None:
    """Its own loss, or the first of several unless the bar is cut off: their total may be behind the cut."""
    others = (name for name in named if is_whole and "loss" in name.lower() and not name.lower().startswith(ELSEWHERE))
    return number(next((named[name] for name in (*OWN_LOSSES, *others) if name in named), None))


LIGHTNING = Format("lightning", r"Epoch \d+[/:]", parse_lightning)
"""Lightning's progress bar: `Epoch 1:   4%|▍  | 350/8000 [00:09<03:23, 37.56it/s, v_num=0, train_loss=1.46]`.

Its counter starts again in every epoch. The step here is the number of batches since the start of fit: epoch times
batches an epoch, plus the counter; it grows over epochs and is not the optimizer's step when gradients are accumulated.
Where the bar does not know its total (`350/?`), the step is the counter itself, and goes back at a new epoch.
`Epoch 1/1000:`, as other tqdm loops write it, counts epochs from 1; `Epoch 2/30: 7%|▋| 2/30` counts nothing else.
"""


# ---- all formats -----------------------------------------------------------------------------------------------------

FORMATS: tuple[Format, ...] = (
    MEGATRON_DEEPSPEED,
    MEGATRON,
    TORCHTITAN,
    NANOTRON,
    NEMO,
    KEMPNERFORGE,
    HF_TRAINER,
    LIGHTNING,
    DEEPSPEED,
)

BARS: tuple[Format, ...] = (HF_TRAINER, LIGHTNING)
"""The formats that may be read from an unfinished line: a bar has no line end, and half of one is not taken for one.
Half of `lm loss: 1.04E+01` would be another number."""
