"""A log that is wrapped by launchers, containers or collectors gives the same step, loss and cause as the bare one."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from collectors.probe.files.lines import Lines, decoded, lines_of
from tests.trainmon.analysis.causes.logs import CapturedLog, captured
from tests.trainmon.analysis.wrapped import RECORDS, WRAPPERS, in_parts, wrapped
from trainmon.analysis.causes.classify import classify
from trainmon.analysis.log_formats import report
from trainmon.lib.log_prefix import without_prefix
from trainmon.model import CauseFacts, CauseName, LogExcerpt

STEPS = Path(__file__).parents[2] / "captured" / "steps"
TRAININGS: Sequence[dict[str, Any]] = [
    json.loads(line) for path in sorted(STEPS.glob("*.jsonl")) for line in path.read_text().splitlines()
]
EACH = [92, pytest.param(23, marks=pytest.mark.slow)]
"""Every log of so many is read behind each wrapper; another one for each."""
SOME = [9, pytest.param(1, marks=pytest.mark.slow)]
"""The same of the logs that end badly."""


def read(data: bytes) -> tuple[object, ...]:
    progress = report(lines_of(data)).progress
    return str(progress.loss), progress.step, progress.target_step, progress.epoch


@functools.cache
def bare_cause(log: CapturedLog) -> CauseName:
    return cause("".join(f"{line}\n" for line in log.log.splitlines()).encode(), log.exit_code)


def cause(data: bytes, exit_code: int | None) -> CauseName:
    return classify(CauseFacts(log=(LogExcerpt(text=decoded(data)),), exit_code=exit_code)).cause


@pytest.mark.parametrize("every", EACH)
@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapped_log_gives_the_same_step_and_loss(name: str, every: int) -> None:
    for log in TRAININGS[[*WRAPPERS].index(name) % every :: every]:
        lines = [text for line in log["lines"] for text in line.split("\n")]
        bare = read("".join(f"{line}\n" for line in lines).encode())
        assert read(wrapped(name, lines)) == bare, log["id"]


@pytest.mark.parametrize("every", SOME)
@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapped_log_gives_the_same_cause(name: str, every: int) -> None:
    for log in captured()[[*WRAPPERS].index(name) % every :: every]:
        assert cause(wrapped(name, log.log.splitlines()), log.exit_code) == bare_cause(log), log.id


def test_a_long_line_in_two_records_is_one_line() -> None:
    for log in TRAININGS[::23]:
        lines = [text for line in log["lines"] for text in line.split("\n")]
        assert read(in_parts(lines)) == read("".join(f"{line}\n" for line in lines).encode()), log["id"]


@pytest.mark.parametrize(("line", "message"), [
    ("INFO train: starting", "starting"), ("INFO train: 3 of 5", "train: 3 of 5"),
    ("INFO train: {'loss': 0.5}", "train: {'loss': 0.5}"), ("worker-0 train 0.5 of 1", "worker-0 train 0.5 of 1"),
    ("train-0 loss 2.5", "train-0 loss 2.5"), ("train-1 step 100 loss 2.5", "train-1 step 100 loss 2.5"),
    ("job llama-worker-0 failed with exit code 1", "job llama-worker-0 failed with exit code 1"),
    ("resuming checkpoint-100 from /x", "resuming checkpoint-100 from /x"), ("1000000\t0.5", "1000000\t0.5"),
    ("1000000\ttrain\t0.5", "1000000\ttrain\t0.5"), ("seen {} and more", "seen {} and more"),
])  # fmt: skip
def test_what_a_program_says_is_no_prefix(line: str, message: str) -> None:
    assert without_prefix(line) == message


MEGATRON = (
    " [2026-11-23 10:00:00.123456] iteration    29090/  500000 | consumed samples:  1000 | elapsed time per iteration "
    "(ms): 812.5 | learning rate: 1.0E-04 | global batch size:  1024 | lm loss: 2.131E+00 | loss scale: 1.0 |"
)


@pytest.mark.parametrize("name", WRAPPERS)
def test_megatron_is_at_its_step_behind_each_wrapper(name: str) -> None:
    assert read(wrapped(name, [MEGATRON] * 2))[1:3] == (29090, 500000)


@pytest.mark.parametrize("name", RECORDS)
def test_the_probe_sends_what_a_record_holds(name: str) -> None:
    lines = Lines()
    data = wrapped(name, ["step 1", "Traceback (most recent call last):", '  File "a.py", line 1', "ValueError: no"])
    for at in range(0, len(data), 37):  # as it comes
        lines.feed(data[at : at + 37])
    texts = lines.take()["lines"]
    assert [without_prefix(text) for text in texts][2:] == ['  File "a.py", line 1',
        "ValueError: no"]  # fmt: skip


def test_bars_and_tracebacks_inside_one_record() -> None:
    bar = json.dumps({"log": "\r 1%|▏ | 1/100 [00:01<01:39,  1.0it/s]\r 7%|▋ | 7/100 [00:07<01:33,  1.0it/s]\n"})
    error = json.dumps({
        "message": "training failed", "exc_info": 'Traceback (most recent call last):\n  File "t.py"\nValueError: no',
    })  # fmt: skip
    data = f"{bar}\n{error}\n".encode()
    assert lines_of(data)[-3:] == ["Traceback (most recent call last):", '  File "t.py"', "ValueError: no"]
    assert lines_of(data)[0] == " 7%|▋ | 7/100 [00:07<01:33,  1.0it/s]"
    assert cause(data, 1) == "python-exception"


@pytest.mark.parametrize("line", [
    '{"step": 30, "loss": 2.5, "message": "train"}', 'level=info msg="train" step=30 loss=2.5', '{"loss": NaN}',
    "{'loss': 2.5, 'epoch': 0.1}", '{"a":' * 50_000, '{"log": 3}', "t=0.5 loss=2.5", '{"message": "\x01"}',
    'request failed: {"message": "no"}', '[rank0]: {"step": 30, "loss": 2.5, "message": "train"}',
    "0: {'message': 'no'}", 'INFO server: 400 {"message": "no", "code": 400}', '{"line": "a.py:12", "text": "no"}',
])  # fmt: skip
def test_a_line_that_only_looks_like_a_record_stays_as_it_is(line: str) -> None:
    assert lines_of(f"{line}\n".encode())[0].startswith(line[:100])
