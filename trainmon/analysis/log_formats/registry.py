"""Step lines: what a training log says of its step, loss and speed, in every format that FORMATS lists. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainmon.analysis.log_formats.frameworks.deepspeed import DEEPSPEED
from trainmon.analysis.log_formats.frameworks.hf_trainer import HF_TRAINER
from trainmon.analysis.log_formats.frameworks.idefics import IDEFICS
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
    IDEFICS,
    HF_TRAINER,
    LIGHTNING,
    DEEPSPEED,
)

BARS: tuple[Format, ...] = (HF_TRAINER, LIGHTNING)
"""The formats that may be read from an unfinished line: a bar has no line end, and half of one is not taken for one.
Half of `lm loss: 1.04E+01` would be another number."""

LONGEST = 4_000
"""Characters of a line that are looked at."""


def keep(formats: Sequence[Format]) -> str:
    """One expression that finds any step line of these formats, for the nodes: what a burst must not drop."""
    return "|".join(dict.fromkeys(a_format.keep for a_format in formats))


KEEP = keep(FORMATS)


def parse_line(
    line: str, formats: Sequence[Format] = FORMATS, prefer: str | None = None
) -> tuple[str, StepLine] | None:
    """What a line says of the training, and the name of the format that knows it; `prefer` is tried first."""
    if len(line) > LONGEST:
        line = line[-LONGEST:] if "\r" in line[-LONGEST:] else line[:LONGEST]
    if "\x1b" in line or "\x9b" in line:
        line = without_sequences(line)
    if "\r" in line:
        line = last_state(line)
    preferred = [a_format for a_format in formats if a_format.name == prefer]
    for a_format in (*preferred, *formats):
        found = a_format.parse(line)
        if found is not None:
            return a_format.name, found
    return None
