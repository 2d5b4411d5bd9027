"""Step lines: what a training log says of its step, loss and speed, in every format that FORMATS lists. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from trainmon.analysis.log_formats.custom import named_regex
from trainmon.analysis.log_formats.frameworks.deepspeed import DeepSpeed
from trainmon.analysis.log_formats.frameworks.hf_trainer import HFTrainer
from trainmon.analysis.log_formats.frameworks.idefics import Idefics
from trainmon.analysis.log_formats.frameworks.kempnerforge import KempnerForge
from trainmon.analysis.log_formats.frameworks.lightning import Lightning
from trainmon.analysis.log_formats.frameworks.megatron import Megatron, MegatronDeepSpeed
from trainmon.analysis.log_formats.frameworks.nanotron import Nanotron
from trainmon.analysis.log_formats.frameworks.nemo import NeMo
from trainmon.analysis.log_formats.frameworks.torchtitan import TorchTitan
from trainmon.analysis.log_formats.line import Format, StepLine
from trainmon.analysis.log_formats.progress import advance
from trainmon.lib import last_state, without_sequences

__all__ = ["BARS", "FORMATS", "KEEP", "Format", "StepLine", "advance", "keep", "named_regex", "parse_line"]

FORMATS: tuple[Format, ...] = (
    MegatronDeepSpeed(),
    Megatron(),
    TorchTitan(),
    Nanotron(),
    NeMo(),
    KempnerForge(),
    Idefics(),
    HFTrainer(),
    Lightning(),
    DeepSpeed(),
)

BARS: tuple[Format, ...] = (HFTrainer(), Lightning())
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
    if prefer is not None:
        for a_format in formats:
            if a_format.name == prefer:
                found = a_format.parse(line)
                if found is not None:
                    return prefer, found
    for a_format in formats:
        if a_format.name != prefer:
            found = a_format.parse(line)
            if found is not None:
                return a_format.name, found
    return None
