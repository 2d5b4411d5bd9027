"""All log formats: those of the frameworks, and those that a config defines by a regular expression. Pure."""

from __future__ import annotations

import difflib
import re
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
from trainmon.analysis.log_formats.line import Format, StepLine, number, whole
from trainmon.lib import ConfigError, last_state, without_sequences

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
"""The examined characters of a line."""


def keep(formats: Sequence[Format]) -> str:
    """One expression that finds any step line of these formats, for the nodes: what a burst must not drop."""
    return "|".join(dict.fromkeys(a_format.keep for a_format in formats))


KEEP = keep(FORMATS)


def parse_line(
    line: str, formats: Sequence[Format] = FORMATS, prefer: str | None = None
) -> tuple[str, StepLine] | None:
    """The name of the format of a line, and its content. The format `prefer` is tried first."""
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


# ---- formats of a config: the named groups say which number is which -------------------------------------------------

COUNTS = ("step", "target_step", "skipped", "nan_iterations")
NUMBERS = ("loss", "grad_norm", "tokens_per_s", "samples_per_s", "step_time_s", "learning_rate", "loss_scale", "epoch")
LONGEST_PATTERN = 1_000
"""Characters of a pattern."""

CLASSES = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")
LEADING_FLAGS = re.compile(r"\(\?([aimsux]{1,6})\)")


def named_regex(name: str, pattern: str) -> Format:
    """Make a format of a config's regular expression, or say in a sentence why it cannot be one."""
    if len(pattern) > LONGEST_PATTERN:
        raise ConfigError([f"log format {name!r}: the expression is longer than {LONGEST_PATTERN} characters"])
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ConfigError([f"log format {name!r}: not a regular expression: {error}"]) from error
    for group in compiled.groupindex:
        if group not in COUNTS + NUMBERS:
            near = difflib.get_close_matches(group, COUNTS + NUMBERS, 1, 0.5)
            fix = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(COUNTS + NUMBERS)}"
            raise ConfigError([f"log format {name!r}: no group {group!r}; {fix}"])
    if "step" not in compiled.groupindex:
        raise ConfigError([f"log format {name!r}: the expression has no group (?P<step>…), so it would never advance"])
    if compiled.match("") is not None:
        raise ConfigError([f"log format {name!r}: the expression matches an empty line"])

    def parse(line: str) -> StepLine | None:
        found = compiled.search(line)
        groups = {} if found is None else found.groupdict()
        counts = {name: whole(groups.get(name)) for name in COUNTS}
        if counts["step"] is None:
            return None
        return StepLine(**counts, **{name: number(groups.get(name)) for name in NUMBERS})  # type: ignore[arg-type]

    return Format(name, _for_nodes(name, pattern), parse)


def _for_nodes(name: str, pattern: str) -> str:
    """The same expression for the nodes' old Pythons, fit to be joined with others by `|`."""
    bare = CLASSES.sub("x", pattern)
    if re.search(r"\(\?>|[*+?}]\+", bare):
        raise ConfigError([f"log format {name!r}: possessive and atomic groups need Python 3.11, nodes may have 3.6"])
    if "(?P=" in bare or "(?(" in bare or re.search(r"\\[1-9]", pattern):
        raise ConfigError([f"log format {name!r}: the expression may not refer back to a group"])
    unnamed = re.sub(r"\(\?P<\w+>", "(?:", pattern)
    flags = LEADING_FLAGS.match(unnamed)
    scoped = "".join(flag for flag in flags[1] if flag in "imsx") if flags else ""
    return f"(?{scoped}:{unnamed[flags.end() if flags else 0 :]})"
