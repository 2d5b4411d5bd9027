"""Every format reads its lines, behind every prefix, and nothing else's."""

import math
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainmon.analysis.log_formats.lines import WRITTEN, examples, innocents
from trainmon.analysis.log_formats import BARS, FORMATS, KEEP, StepLine, parse_line

EXAMPLES = [(one.name, line, expected) for one in FORMATS for line, expected in examples(one.name)]

PREFIXES = [
    "",
    "[default7]:",
    "[rank0]:",
    "[lrdn3321:3]:",
    "0: ",
    "15: ",
    "ain_fp8_mx/0 ",
    "[2025-11-20T14:55:23+08:00] ",
    "2025-11-20T14:55:23.123456Z ",
    "\x1b[32m[rank0]:\x1b[0m",
    "\x1b]0;title\x07",
    "node-07: ",
    "(TrainWorker pid=1234, ip=10.0.0.7) ",
    "[2025-11-20 14:55:23] [default7]:[rank7]:",
    "3: [default0]:",
    "old bar\r",
]


def matches(found: StepLine, expected: str) -> None:
    for pair in expected.split():
        name, _, wanted = pair.partition("=")
        value = getattr(found, name)
        if wanted == "None" or name == "kind":
            assert str(value) == wanted, name
        elif wanted == "nan":
            assert value is not None, name
            assert math.isnan(value), name
        else:
            assert value == pytest.approx(float(wanted), rel=1e-4), name


@pytest.mark.parametrize(("name", "line", "expected"), EXAMPLES)
def test_a_line_is_read_for_what_it_says(name: str, line: str, expected: str) -> None:
    found = parse_line(line)
    assert found is not None
    assert found[0] == name
    matches(found[1], expected)


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_changes_nothing(prefix: str) -> None:
    for name, line, expected in EXAMPLES:
        found = parse_line(prefix + line)
        assert found is not None, prefix + line
        assert found[0] == name
        matches(found[1], expected)


@pytest.mark.parametrize("line", innocents())
def test_text_that_is_no_step_line_says_nothing(line: str) -> None:
    for prefix in PREFIXES:
        assert parse_line(prefix + line) is None


def test_every_format_has_written_lines_and_every_file_a_format() -> None:
    assert {path.stem for path in WRITTEN.glob("*.txt")} == {one.name for one in FORMATS} | {"innocent"}
    assert {name for name, _, _ in EXAMPLES} == {one.name for one in FORMATS}


def test_no_format_reads_the_lines_of_another() -> None:
    for name, line, _ in EXAMPLES:
        for one in FORMATS:
            plain = re.sub(r"\x1b\[[\d;]*m", "", line)
            assert (one.parse(plain) is not None) == (one.name == name), (one.name, line)


def test_the_preferred_format_is_tried_first_and_others_still_count() -> None:
    for name, line, _ in EXAMPLES:
        for preferred in ("nanotron", name, "gone"):
            found = parse_line(line, FORMATS, prefer=preferred)
            assert found is not None
            assert found[0] == name


def test_the_nodes_keep_every_step_line() -> None:
    for name, line, expected in EXAMPLES:
        if expected.startswith(("kind=eval", "kind=save", "kind=note")):
            continue
        assert re.search(KEEP, line), (name, line)
        assert re.search(KEEP.encode(), line.encode()), (name, line)


def test_the_nodes_expression_is_fit_for_old_pythons_and_quick_to_fail() -> None:
    assert not re.search(r"\(\?>|[*+?}]\+|\(\?P<|\(\?[a-z]", KEEP)
    for one in FORMATS:
        assert all(fragment[0].isalpha() or fragment[0] in "'\\" for fragment in re.split(r"(?<!\\)\|", one.keep))


def test_only_the_last_state_of_a_rewritten_line_counts() -> None:
    bars = "\r".join(f" {n}%|▏ | {n}/100 [00:0{n}<01:00,  1.00s/it]" for n in range(1, 9))
    found = parse_line(bars)
    assert found is not None
    assert found[1].step == 8


def test_half_a_bar_is_never_another_number() -> None:
    for name, line, expected in EXAMPLES:
        whole = parse_line(line, BARS)
        if name not in ("hf-trainer", "lightning") or whole is None:
            assert whole is None
            continue
        for end in range(len(line)):
            half = parse_line(line[:end], BARS)
            assert half is None or (half[1].step == whole[1].step and half[1].loss in (None, whole[1].loss)), expected


HOSTILE = st.lists(
    st.sampled_from([
        "iteration ", "iteration: ", "5/10 |", "9" * 12, " ", " " * 40, "|", ":", "elapsed time per iteration (ms): ",
        "number of skipped iterations: ", "step: ", "loss: ", "grad_norm: ", "{'", "'loss': ", "'epoch': ", "', '", "}",
        "5%|", "█", "| 5/10 [00:01<00:02, 1.0it/s", "it/s", ", a=b", "]", "[", "[step 1] ", "loss=1 | ", "Epoch 1: ",
        "step=1, skipped=1, lr=[", "[rank0]:", "0: ", "a/0 ", "Training epoch 0, iteration 5/9 | ",
        "time_per_iteration_ms:",
        "| per_token_loss: ", "NaN/Inf loss at step ", "lm loss: ", "nan ", "\x1b[", "\r", "SamplesPerSec=", "\x00",
    ]),
    max_size=400,
).map("".join)  # fmt: skip


@given(HOSTILE)
def test_hostile_lines_never_raise(line: str) -> None:
    found = parse_line(line)
    assert found is None or found[1].step is None or found[1].step >= 0


@pytest.mark.parametrize("piece", [
    "iteration: 5 / 10 | time_per_iteration_ms: 1 | ", "iteration 5/10 | elapsed time per iteration (ms): ", "[rank0]:",
    "'loss': 1, 'epoch': 1, ", "{'loss': ", "5%|█ ", "Epoch 1: it/s ",
    "step: loss: ", "step: 1 a: b a: b loss: ", " ", "- ",
    "a/0 ", "[step 1] loss=", "Training epoch 0, iteration 1/2 | ", ", a=b", "steps: 1 iter time (s): ",
    "Epoch 1: |it/s",
    "'a': ", "{'train_runtime': ", "tps: loss: step: ", "\x1b[3", "5%|5%|it/s",
])  # fmt: skip
def test_no_line_takes_long(piece: str) -> None:
    line = (piece * 4_000)[:4_000]
    for attack in (line, "{'loss': 1, 'epoch': " + line + "}", "0: " + line):
        started = time.process_time()
        for _ in range(3):
            parse_line(attack)
        assert (time.process_time() - started) / 3 < 0.01
