"""A config's own expression is a format like the others, or is refused in a sentence."""

import math
import re

import pytest

from trainmon.analysis.log_formats import FORMATS, StepLine, keep, named_regex, parse_line
from trainmon.lib import ConfigError


def test_its_groups_are_what_it_says() -> None:
    verl = named_regex("verl", r"step:(?P<step>\d+) - .*actor/loss:(?P<loss>\S+) .*tps:(?P<tokens_per_s>\S+)")
    line = "\x1b[36m(TaskRunner pid=1)\x1b[0m step:404 - a/b:1 - actor/loss:nan - tps:1,500"
    found = parse_line(line, (verl, *FORMATS))
    assert found is not None
    name, fields = found
    assert (name, fields.step, fields.tokens_per_s, fields.target_step) == ("verl", 404, 1500.0, None)
    assert fields.loss is not None
    assert math.isnan(fields.loss)


def test_a_group_that_took_no_part_is_not_known() -> None:
    own = named_regex("own", r"at (?P<step>[\d,]+)(?: of (?P<target_step>\d+))?")
    assert own.parse("at 12,000") == StepLine(step=12_000)
    assert own.parse("at 12 of 20") == StepLine(step=12, target_step=20)
    assert own.parse("at ,") is None


def test_its_expression_joins_the_nodes_own() -> None:
    one = named_regex("one", r"(?i)STEP (?P<step>\d+)")
    two = named_regex("two", r"^at (?P<step>\d+)|on (?:\d+)")
    joined = re.compile(keep((one, two, *FORMATS)))
    assert joined.search("step 5")
    assert joined.search("at 5")
    assert not joined.search("x AT 5")


@pytest.mark.parametrize(
    ("pattern", "sentence"),
    [
        ("(?P<step>", "log format 'own': not a regular expression: "),
        (r"loss (?P<loss>\d+)", "has no group (?P<step>…), so it would never advance"),
        (r"(?P<step>\d+) (?P<los>\d+)", "no group 'los'; did you mean 'loss'?"),
        (r"(?P<step>\d+) (?P<zzz>\d+)", "no group 'zzz'; known are step, target_step, "),
        (r"(?P<step>\d*)", "the expression matches an empty line"),
        (r"(?P<step>\d++)", "possessive and atomic groups need Python 3.11"),
        (r"(?>(?P<step>\d+))", "possessive and atomic groups need Python 3.11"),
        (r"(?P<step>\d+) (?P=step)", "the expression may not refer back to a group"),
        (r"(?P<step>\d+) \1", "the expression may not refer back to a group"),
        (r"(?P<step>\d+)" + "x" * 1_000, "the expression is longer than 1000 characters"),
    ],
)
def test_what_cannot_be_a_format_is_refused(pattern: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        named_regex("own", pattern)
    assert sentence in str(refused.value)


def test_a_plus_in_a_class_is_not_possessive() -> None:
    assert named_regex("own", r"[*+]+ (?P<step>\d+) \++").parse("*+ 5 +") == StepLine(step=5)
