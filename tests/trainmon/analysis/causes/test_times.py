"""The first error of several ranks is the first by their clocks, wherever it stands in the log."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.trainmon.analysis.causes.logs import of
from tests.trainmon.analysis.causes.test_classify import CHILD_FAILED, OOM, uncaught
from trainmon.analysis.causes.classify import classify, fatal_end
from trainmon.analysis.causes.lines import read_lines
from trainmon.analysis.causes.signs import in_order
from trainmon.model import CauseFacts, LogExcerpt

LOST = "OSError: [Errno 5] Input/output error: '/mnt/nfs/step.pt'"


def timed(clock: str, text: str, style: str = "2026-11-22 {},123 - root - ERROR - ") -> str:
    """Lines of which the first has a time."""
    return style.format(clock) + text


@pytest.mark.parametrize(
    "style",
    [
        "2026-11-22 {},123 - root - ERROR - ",  # logging
        "[2026-11-22 {}] ",
        "[2026-11-22T{}.123] ",  # Slurm
        "2026-11-22 {}.123 | ERROR    | __main__:main:12 - ",  # loguru
        "[E1122 {}.123456789 ProcessGroupNCCL.cpp:629] ",  # PyTorch
        "E20261122 {}.123456 71 train.py:88] ",
        "11/22 {} ",
        "Nov 22 {} gpu-1 python[71]: ",
        "{} ",
        "2026-11-22T{}Z ",
    ],
)
def test_a_rank_that_writes_late_failed_first_all_the_same(style: str) -> None:
    late = timed("10:05:00", OOM, style) + "\n"
    early = timed("10:06:00", LOST, style) + "\n"
    assert of(early).cause == "storage-io"
    assert of(early + late).cause == of(late + early).cause == "cuda-oom"


def test_lines_without_a_time_have_that_of_the_line_above_of_their_rank() -> None:
    first = timed("10:05:00", "training failed\n") + uncaught(OOM)
    then = timed("10:06:00", "saving failed\n") + uncaught(LOST)
    ranks = [[f"[rank{rank}]: {line}" for line in text.splitlines()] for rank, text in ((5, then), (3, first))]
    interleaved = [line for both in zip(*ranks, strict=True) for line in both]
    for lines in (interleaved, ranks[0] + ranks[1], ranks[1] + ranks[0]):
        found = of("\n".join(lines) + "\n" + CHILD_FAILED)
        assert (found.cause, found.rank) == ("cuda-oom", "3")


@settings(max_examples=40)
@given(data=st.data())
def test_however_the_ranks_mix_the_first_by_the_clock_is_the_cause(data: st.DataObject) -> None:
    ranks = [
        [f"[rank{rank}]: {line}" for line in (timed(clock, "failed\n") + uncaught(error)).splitlines()]
        for rank, clock, error in ((3, "10:05:00", OOM), (5, "10:06:00", LOST), (1, "10:07:00", "KeyError: 'x'"))
    ]
    mixed: list[str] = []
    while any(ranks):
        mixed.append(data.draw(st.sampled_from([rank for rank in ranks if rank])).pop(0))
    assert of("\n".join(mixed) + "\n").cause == "cuda-oom"


def test_steps_that_another_rank_writes_late_do_not_show_that_a_run_went_on() -> None:
    failed = "".join(f"[rank3]: {line}\n" for line in (timed("10:05:00", "failed\n") + uncaught(OOM)).splitlines())
    steps = "".join(
        f"[rank0]: 2026-11-22 10:04:{second:02},0 - root - INFO - step {second} loss 2.1\n" for second in range(20)
    )
    done = "Training completed.\n"
    assert of(failed + steps + done, exit_code=1).cause == "cuda-oom"
    assert of(failed + steps.replace("10:04", "10:06") + done).cause == "completed"


def steps_from(minute: int, prefix: str = "") -> str:
    """Ten minutes of steps, one a second."""
    clock = ((minute + second // 60, second % 60) for second in range(600))
    return "".join(f"{prefix}2026-11-22 10:{m:02}:{s:02},0 - root - INFO - step {s} loss 2.1\n" for m, s in clock)


@pytest.mark.parametrize("rank", ["", "[rank3]: "])
@pytest.mark.parametrize(
    "again",
    [
        timed("10:14:00", "Starting training\n") + uncaught("ValueError: bad mask"),
        steps_from(12)[:2_000] + uncaught("ValueError: bad mask"),
        timed("10:14:00", "failed\n") + uncaught("ValueError: bad mask"),
    ],
)
def test_a_clock_that_goes_back_hides_no_traceback(again: str, rank: str) -> None:
    """A restart on a node whose clock is behind, a clock that was corrected, or a rank with another clock."""
    before = steps_from(10, "[rank0]: " if rank else "")
    log = before + "".join(f"{rank}{line}\n" for line in again.splitlines())
    assert of(log, exit_code=1).cause == "python-exception"
    end = fatal_end(log.splitlines())
    assert end is not None
    assert end.exception == "ValueError"


@pytest.mark.parametrize(
    ("lines", "order"),
    [
        (("23:59:59 a", "00:00:01 b", "23:59:58 c"), (3, 1, 2)),  # midnight, and a line that is late
        (("20:00:00 a", "09:00:00 b"), (1, 2)),  # the next day
        (("2026-12-31 23:59:59 a", "2027-01-01 00:00:01 b", "2026-12-31 23:59:58 c"), (3, 1, 2)),
        (("2026-11-22 10:00:00 a", "2026-11-22 05:00:01 b", "2026-11-22 10:00:02 c"), (1, 2, 3)),  # another time zone
        (("2026-11-22T10:00:00Z a", "2026-11-22 09:59:00 b"), (1, 2)),  # no zone: it is not known which is first
        (("2026-11-22T10:00:00+01:00 a", "2026-11-22T08:59:00Z b"), (2, 1)),
        (("a", "10:00:02 b", "c", "10:00:01 d", "e"), (1, 4, 5, 2, 3)),
        (("2026-99-99 10:00:01 a", "2026-11-22 10:00:00 b"), (1, 2)),
        (("a", "b"), (1, 2)),
    ],
)
def test_the_order_of_lines(lines: tuple[str, ...], order: tuple[int, ...]) -> None:
    assert tuple(line.number for line in in_order(read_lines((LogExcerpt(text="\n".join(lines)),)))) == order


def test_of_several_files_one_without_times_comes_last() -> None:
    steps = "".join(f"2026-11-22 10:04:{second:02},0 - root - INFO - step {second} loss 2.1\n" for second in range(20))
    logs = LogExcerpt(text=uncaught(OOM), file="3/stderr.log"), LogExcerpt(text=steps, file="0/stdout.log")
    found = classify(CauseFacts(log=logs, exit_code=1))
    assert (found.cause, found.evidence[-1].file) == ("cuda-oom", "3/stderr.log")


@settings(max_examples=100)
@given(
    st.lists(
        st.sampled_from(("10:00:01", "2026-11-22 10:00:00", "99:99:99", "11/22 10:00:00", "[rank1]: 10:00:09")),
        max_size=12,
    )
)
def test_no_line_is_lost(clocks: list[str]) -> None:
    lines = [*read_lines((LogExcerpt(text="\n".join(f"{clock} step" for clock in clocks)),))]
    assert sorted(line.number for line in in_order(lines)) == [line.number for line in lines]
