"""What must not change the cause: prefixes, colours, the order of the ranks, repetition, what stands above."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainmon.analysis.causes.logs import captured, of
from tests.trainmon.analysis.causes.test_classify import CHILD_FAILED, OOM, WATCHDOG, uncaught
from trainmon.analysis.causes.classify import classify
from trainmon.cli.logs.classify import HEAD, TAIL
from trainmon.model import CauseFacts, LogExcerpt

LOGS = [log for log in captured() if log.cause not in ("completed", "unknown", "hang")]
WITHOUT_PREFIX = [log for log in LOGS if not log.log.startswith(("[", "  [", " "))]
PREFIXES = ("[rank3]: ", "[default3]:", "3: ", "(RayTrainWorker pid=77, ip=10.0.0.3) ", "[1,3]<stderr>:", "worker-3 | ")

ABOVE = ("loading data", "step 3 | loss: 2.5 | 1.1 it/s", "Saving to out")

some_log = st.sampled_from(LOGS)


@settings(max_examples=60)
@given(log=st.sampled_from(WITHOUT_PREFIX), prefix=st.sampled_from(PREFIXES))
def test_the_prefix_of_a_rank_does_not_change_the_cause(log, prefix) -> None:  # type: ignore[no-untyped-def]
    text = "".join(f"{prefix}{line}\n" for line in log.log.splitlines())
    assert of(text).cause == of(log.log).cause


@settings(max_examples=60)
@given(log=some_log, colour=st.sampled_from(("\x1b[31m", "\x1b[1;38;5;9m", "\x9b33m")))
def test_colours_and_rewritten_lines_do_not_change_the_cause(log, colour) -> None:  # type: ignore[no-untyped-def]
    text = "".join(f"10%|#  | 1/9\r{colour}{line}\x1b[0m\r\n" for line in log.log.splitlines())
    assert of(text).cause == of(log.log).cause


@settings(max_examples=60)
@given(
    log=some_log,
    above=st.lists(st.sampled_from(ABOVE), max_size=40),
)
def test_what_stands_above_does_not_change_the_cause(log, above) -> None:  # type: ignore[no-untyped-def]
    found, cause = of("".join(f"{line}\n" for line in above) + log.log), of(log.log).cause
    assert found.cause in (cause, "evaluator")


@settings(max_examples=40)
@given(log=some_log, times=st.integers(2, 4))
def test_repetition_does_not_change_the_cause(log, times) -> None:  # type: ignore[no-untyped-def]
    assert of(log.log * times).cause == of(log.log).cause


@settings(max_examples=60)
@given(data=st.data())
def test_the_order_of_interleaved_ranks_does_not_change_the_cause(data: st.DataObject) -> None:
    """Each rank's lines keep their order; the ranks mix in any way. The consequences are of other ranks."""
    ranks = [
        uncaught(OOM, "[rank3]: ").splitlines(),
        [f"[rank5]:[E1] {WATCHDOG}"] * 3,
        uncaught("RuntimeError: NCCL communicator was aborted on rank 1.", "[rank1]: ").splitlines(),
    ]
    mixed: list[str] = []
    while any(ranks):
        rank = data.draw(st.sampled_from([rank for rank in ranks if rank]))
        mixed.append(rank.pop(0))
    assert of("\n".join(mixed) + "\n" + CHILD_FAILED).cause == "cuda-oom"


@settings(max_examples=30)
@given(st.text(max_size=2_000), st.text(max_size=2_000))
def test_any_text_has_an_answer(head: str, tail: str) -> None:
    log = (LogExcerpt(text=head), LogExcerpt(text=tail, first_line=-tail.count("\n") - 1))
    assert classify(CauseFacts(log=log)).advice


HOSTILE = (
    "a" * 20_000,
    "Error: " * 3_000,
    "[rank0]: " * 3_000,
    " " * 20_000,
    "loss: nan " * 2_000,
    "\x1b[" * 10_000,
    "File \"" * 3_000,
    "Traceback (most recent call last):\n" * 500,
    "A.b.c.d." * 2_500 + "Error",
    "not enough memory killed out of " * 600,
)  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_takes_linear_time(text: str) -> None:
    def seconds(times: int) -> float:
        started = time.process_time()
        of("\n".join(f"{text}{number:x}" for number in range(times)))
        return time.process_time() - started

    of(text)
    assert seconds(16) < 12 * max(seconds(4), 0.02)


def test_what_the_command_reads_of_a_log_is_answered_in_a_fraction_of_a_second() -> None:
    line = "step %d/9 | loss: 2.5 | lr 1e-4 | tokens/s 17\n"
    text = "".join(line % number for number in range((HEAD + TAIL) // len(line))) + uncaught(OOM)
    of(text)
    started = time.process_time()
    assert of(text).cause == "cuda-oom"
    assert time.process_time() - started < 0.5
