"""Log formats of the config: a template of a step line, or a regular expression whose groups say what is what. Pure."""

from __future__ import annotations

import difflib
import re

from trainmon.analysis.log_formats.line import Format, StepLine, number, whole
from trainmon.analysis.log_formats.template import BATCHES, FIELD, LONGEST, expression
from trainmon.lib import ConfigError

COUNTS = ("step", "target_step", "skipped", "nan_iterations")
NUMBERS = ("loss", "grad_norm", "tokens_per_s", "samples_per_s", "step_time_s", "learning_rate", "loss_scale", "epoch")
NAMES = (*COUNTS, *NUMBERS, "step_time_ms", "batch", "batches", "epochs")
"""What a format may read."""

CLASSES = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]")
LEADING_FLAGS = re.compile(r"\(\?([aimsux]{1,6})\)")


def custom_format(name: str, *, pattern: str | None = None, template: str | None = None) -> Format:
    """A format from one of the two.

    Raises:
        ConfigError: it can be none; the sentence says why.
    """
    if (pattern is None) == (template is None):
        raise ConfigError([f"log format {name!r}: it needs either a template or a pattern"])
    return named_regex(name, pattern) if pattern is not None else from_template(name, template or "")


def from_template(name: str, template: str) -> Format:
    """A format from a template of a step line: `iter {step}: loss {loss}, time {step_time_ms}ms`.

    Raises:
        ConfigError: it can be none; the sentence says why.
    """
    if len(template) > LONGEST:
        raise ConfigError([f"log format {name!r}: the template is longer than {LONGEST} characters"])
    fields = [field for field in FIELD.findall(template) if field]
    _check_names(name, fields, "{%s}")
    for field in fields:
        if fields.count(field) > 1:
            raise ConfigError([f"log format {name!r}: {{{field}}} stands twice in the template"])
    return _format(name, expression(template))


def named_regex(name: str, pattern: str) -> Format:
    """A format from a regular expression with named groups.

    Raises:
        ConfigError: it can be none; the sentence says why.
    """
    if len(pattern) > LONGEST:
        raise ConfigError([f"log format {name!r}: the expression is longer than {LONGEST} characters"])
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        raise ConfigError([f"log format {name!r}: not a regular expression: {error}"]) from error
    _check_names(name, list(groups), "(?P<%s>…)")
    return _format(name, pattern)


def _check_names(name: str, fields: list[str], shown: str) -> None:
    for field in fields:
        if field not in NAMES:
            near = difflib.get_close_matches(field, NAMES, 1, 0.5)
            fix = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(NAMES)}"
            raise ConfigError([f"log format {name!r}: no group {field!r}; {fix}"])
    if "step" not in fields and not set(BATCHES) <= set(fields):
        what = "expression has no group" if "P<" in shown else "template has no"
        raise ConfigError([f"log format {name!r}: the {what} {shown % 'step'}, so it would never advance"])


def _format(name: str, pattern: str) -> Format:
    compiled = re.compile(pattern)
    if compiled.match("") is not None:
        raise ConfigError([f"log format {name!r}: the expression matches an empty line"])

    def parse(line: str) -> StepLine | None:
        found = compiled.search(line)
        groups = {} if found is None else found.groupdict()
        counts = {name: whole(groups.get(name)) for name in COUNTS}
        epoch, batches, batch = (whole(groups.get(name)) for name in BATCHES)
        if counts["step"] is None and epoch is not None and batches is not None and batch is not None:
            counts["step"] = epoch * batches + batch
        if counts["step"] is None:
            return None
        numbers = {name: number(groups.get(name)) for name in NUMBERS}
        if (milliseconds := number(groups.get("step_time_ms"))) is not None:
            numbers["step_time_s"] = milliseconds / 1000
        return StepLine(**counts, **numbers)  # type: ignore[arg-type]

    return Format(name, _for_nodes(name, pattern), parse, pattern)


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
