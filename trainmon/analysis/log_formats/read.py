"""Reads one line of a run's log: by the formats of config and frameworks, else by the shape that was learned. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from trainmon.analysis.log_formats.frameworks.deepspeed import DEEPSPEED
from trainmon.analysis.log_formats.frameworks.hf_trainer import HF_TRAINER
from trainmon.analysis.log_formats.frameworks.kempnerforge import KEMPNERFORGE
from trainmon.analysis.log_formats.frameworks.lightning import LIGHTNING
from trainmon.analysis.log_formats.frameworks.megatron import MEGATRON, MEGATRON_DEEPSPEED
from trainmon.analysis.log_formats.frameworks.nanotron import NANOTRON
from trainmon.analysis.log_formats.frameworks.nemo import NEMO
from trainmon.analysis.log_formats.frameworks.torchtitan import TORCHTITAN
from trainmon.analysis.log_formats.learned.learn import learn, learn_from_bar
from trainmon.analysis.log_formats.line import Format, StepLine
from trainmon.analysis.log_formats.progress import is_quiet
from trainmon.lib import Instant, last_state, without_sequences
from trainmon.model import LogShape, Progress

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

LONGEST = 4_000
"""The examined characters of a line."""


NESTED = "\x1b[A"
"""One line up: the end of a bar that is drawn below another one, as the probe sends it."""
OF_TRAINING = re.compile(
    r"(?:train|epoch|step|iter|batch)[^|]{0,80}%?\||(?<!val_)(?<!eval_)(?<!test_)loss=", re.IGNORECASE
)

SHOWN_LOSS = re.compile(r"loss=|(?i:mse|bce|nll|elbo)=")

LOSS_FOLLOWS = r".{0,40}?(?:\d|nan|inf)"
KEEP_LOSS = (
    rf"loss{LOSS_FOLLOWS}|Loss{LOSS_FOLLOWS}|LOSS|xent: |Cost |rmse|learn: |l_[a-z_]{{1,20}}: |G_GAN|Err_G"
    "| avg, |L1: |Avg L: | Le [0-9]|Score at |global.?step|Cross entropy|Mean Reward: |verage reward|_train: | Speed: "
    r"|At iteration |cost[:=]|[Pp]erplexity |ppl[: ]|train accuracy: | objf| \|\| |[Ee]poch.{1,3}\d|accuracy="
    r"|[Rr]eward[ :=]|Iteration:\d|损失|손실|損失|[Пп]отер"
)
"""Finds most step lines of other trainers. Words only: they cost a node nothing."""


def keep(formats: Sequence[Format]) -> str:
    """One expression that finds any step line of these formats, for the nodes: what a burst must not drop."""
    return "|".join(dict.fromkeys((*(a_format.keep for a_format in formats), KEEP_LOSS)))


KEEP = keep(FORMATS)


def parse_line(
    line: str, formats: Sequence[Format] = FORMATS, prefer: str | None = None
) -> tuple[str, StepLine] | None:
    """The name of the format of a line, and its content. The format `prefer` is tried first."""
    line = plain(line)[:LONGEST]
    preferred = [a_format for a_format in formats if a_format.name == prefer]
    for a_format in (*preferred, *formats):
        found = a_format.parse(line)
        if found is not None:
            return a_format.name, found
    return None


def plain(line: str) -> str:
    """The line without escape sequences, as a terminal shows it after the last carriage return. A dict that overwrites
    a progress bar is put behind the bar, which has the step."""
    if "\x1b" in line or "\x9b" in line:
        line = without_sequences(line)
    if "\r" not in line:
        return line
    last = last_state(line)
    bar = next((state for state in reversed(line.split("\r")) if "%|" in state), "") if last.startswith("{") else ""
    return bar.rstrip() + last


def above_an_evaluation(line: str) -> str | None:
    """What stands above the bar of an evaluation, which is nested in that of the training; None if none is drawn last.
    A nested bar that shows a loss, or names a part of the training, is the training's."""
    above, _, last = line.rpartition("\r")
    return above if NESTED in last and OF_TRAINING.search(last) is None else None


# ---- one line --------------------------------------------------------------------------------------------------------

LEARNED = "learned"
"""The name of the format that was learned."""


def read_line(
    line: str,
    progress: Progress,
    shape: LogShape,
    at: Instant,
    own: Sequence[Format] = (),
    *,
    is_finished: bool = True,
) -> tuple[tuple[str, StepLine] | None, LogShape]:
    """What a line says of the training, with its format's name, and what is known of the log's shape after it.

    The formats of the config (`own`) and the built-in ones come first. The shape is learned only while none of them
    counts the steps. Of an unfinished line, only a progress bar is read: half a line may show half a number.
    """
    if NESTED in line:
        above = above_an_evaluation(line)
        whole = line.replace(NESTED, "") if above is None else above
        found, shape = read_line(whole, progress, shape, at, own, is_finished=is_finished)
        if above is None:  # a bar inside another one, as in each epoch
            return found and (found[0], replace(found[1], target_step=None, is_inner=True)), shape
        name, step = found or (HF_TRAINER.name, StepLine(kind="eval"))
        return (name, replace(step, evaluation="begins")), shape
    found = parse_line(line, (*own, *(FORMATS if is_finished else BARS)), prefer=progress.format)
    if (
        found is not None
        and (found[1].kind != "train" or found[1].step is not None)
        and not _is_of_another(found[1], line, shape)
    ):
        return found, shape
    is_read = progress.format not in (None, LEARNED) and progress.step is not None and progress.loss is not None
    if is_read and not is_quiet(progress, at):
        return found, shape
    shape, learned = (learn if is_finished else learn_from_bar)(shape, plain(line))
    if learned is None or (found is not None and learned.step is None):
        return found, shape
    is_known = found is not None and found[1].epoch is not None and shape.counter == "epoch"
    return (found if is_known else (LEARNED, learned)), shape


def _is_of_another(line: StepLine, text: str, shape: LogShape) -> bool:
    """Whether it is a nameless bar with a loss that its format does not know, or that of an epoch whose number stands
    above it: `10/1000 […, train_loss=3.1]`."""
    return line.kind == "bar" and (line.loss is None or shape.epoch is not None) and SHOWN_LOSS.search(text) is not None
