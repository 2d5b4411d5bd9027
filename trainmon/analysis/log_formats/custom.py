"""A config's own regular expression as a log format: its named groups say which number is which."""

from __future__ import annotations

import difflib
import re

from trainmon.analysis.log_formats.line import Format, StepLine, number, whole
from trainmon.lib import ConfigError

COUNTS = ("step", "target_step", "skipped", "nan_iterations")
NUMBERS = ("loss", "grad_norm", "tokens_per_s", "samples_per_s", "step_time_s", "learning_rate", "loss_scale", "epoch")
LONGEST = 1_000
"""Characters of a pattern."""

CLASSES = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")
LEADING_FLAGS = re.compile(r"\(\?([aimsux]{1,6})\)")


def named_regex(name: str, pattern: str) -> Format:
    """Make a format of a config's regular expression, or say in a sentence why it cannot be one."""
    if len(pattern) > LONGEST:
        raise ConfigError([f"log format {name!r}: the expression is longer than {LONGEST} characters"])
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
    if flags is None:
        return f"(?:{unnamed})"
    scoped = "".join(flag for flag in flags[1] if flag in "imsx")
    return f"(?{scoped}:{unnamed[flags.end() :]})"
