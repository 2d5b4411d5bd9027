"""All log formats: those of the frameworks, and those that a config defines by a regular expression. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from trainmon.analysis.log_formats.frameworks.deepspeed import DEEPSPEED
from trainmon.analysis.log_formats.frameworks.hf_trainer import HF_TRAINER
from trainmon.analysis.log_formats.frameworks.kempnerforge import KEMPNERFORGE
from trainmon.analysis.log_formats.frameworks.lightning import LIGHTNING
from trainmon.analysis.log_formats.frameworks.megatron import MEGATRON, MEGATRON_DEEPSPEED
from trainmon.analysis.log_formats.frameworks.nanotron import NANOTRON
from trainmon.analysis.log_formats.frameworks.nemo import NEMO
from trainmon.analysis.log_formats.frameworks.torchtitan import TORCHTITAN
from trainmon.analysis.log_formats.line import Format, StepLine
from trainmon.lib import last_state, without_sequences

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
