"""Lines out of bytes: whole characters, collapsed bars, bounded memory, and nothing dropped uncounted."""

from __future__ import annotations

import json
import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.probe.files.lines import CHUNK_BYTES, ERRORS, KEPT_BYTES, LINES, Lines
from trainmon.analysis.causes.classify import classify
from trainmon.model import CauseFacts, LogExcerpt


def fed(*blocks: bytes) -> Lines:
    lines = Lines(re.compile("step"))
    for block in blocks:
        lines.feed(block)
    return lines


def taken(*blocks: bytes) -> list[str]:
    return fed(*blocks).take().get("lines", [])


def test_lines_are_put_together_over_block_borders():
    assert taken(b"a", b"b\nc", b"\n", b"d") == ["ab", "c"]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_character_is_never_cut_by_a_block_border(size: int):
    data = "schön 🚀 步\n".encode()
    assert taken(*(data[i : i + size] for i in range(0, len(data), size))) == ["schön 🚀 步"]


def test_bytes_that_are_no_utf8_are_replaced():
    assert taken(b"ok \xff\xfe ok\n") == ["ok \ufffd\ufffd ok"]


def test_crlf_is_a_line_end_also_when_a_block_border_cuts_it():
    assert taken(b"a\r\nb\r", b"\nc\r\n") == ["a", "b", "c"]


def test_a_progress_bar_is_its_last_state():
    assert taken(b"\r 1%|a\r 2%|b\r 3%|c\n") == [" 3%|c"]
    assert taken(b" 1%\r 2%\r 3%\r\n") == [" 3%"]


def test_text_written_over_an_erased_bar_is_the_line():
    assert taken(b"\r 50%|###   |\r              \r{'loss': 0.5}\n\r 50%|###") == ["{'loss': 0.5}"]
    assert taken(b"\r 50%|###   |\r     ", b"\rdone\n") == ["done"]
    assert taken(b"bar\r   ", b"done\n") == ["done"]


def test_the_partial_line_is_the_bar_as_it_now_stands():
    lines = fed(b"start\n\r 1%")
    assert lines.partial() == " 1%"
    lines.feed(b"|#\r 2%")
    lines.feed(b"|##")
    assert lines.partial() == " 2%|##"
    lines.feed(b"\r")
    assert lines.partial() == " 2%|##\r"
    lines.feed(b"\n")
    assert lines.partial() is None
    assert lines.take()["lines"] == ["start", " 2%|##"]


def test_spaces_at_a_block_border_are_not_lost():
    assert taken(b"\rabc  ", b"def\n") == ["abc  def"]


def test_a_character_that_is_still_incomplete_is_left_out_of_the_partial_line():
    assert fed("10%|█".encode()[:-1]).partial() == "10%|"


def test_an_hour_of_one_bar_costs_no_memory():
    lines = fed()
    for percent in range(20_000):
        lines.feed(b"\r%5d/20000 [00:01<00:02, 3.21it/s]" % percent)
    assert (lines.partial() or "").split("\r")[-1] == "19999/20000 [00:01<00:02, 3.21it/s]"
    assert len(lines._rest) < 100


def test_a_line_of_10_mb_is_cut_and_costs_little_memory():
    lines = fed()
    block = b"x" * 262_144
    tracemalloc.start()
    for _ in range(40):
        lines.feed(block)
    partial = lines.partial()
    lines.feed(b"end\nnext\n")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert partial == "x" * 4000 + "…"
    assert lines.take() == {"lines": ["x" * 4000 + "…", "next"], "seen": 2}
    assert peak < 2_000_000


def test_many_long_lines_cost_little_memory():
    lines = fed()
    tracemalloc.start()
    for _ in range(400):
        lines.feed(b"y" * 262_143 + b"\n")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8_000_000
    assert lines.take()["seen"] == 400


def test_nul_bytes_are_not_text():
    assert taken(b"\0" * 100_000, b"\0\0a\0b\n\0\0") == ["ab"]


def test_of_a_burst_the_newest_are_sent_and_the_rest_is_counted():
    taken = fed(b"".join(b"line %d\n" % i for i in range(1000))).take()
    assert taken["lines"] == [f"line {i}" for i in range(1000 - LINES, 1000)]
    assert (taken["seen"], taken["dropped"]) == (1000, 1000 - LINES)
    assert "kept" not in taken


def test_of_the_dropped_lines_the_last_eight_step_lines_are_kept_in_order():
    blocks = [b"".join(b"noise\n" * 50 + b"step %d\n" % (10 * block + i) for i in range(10)) for block in range(5)]
    taken = fed(*blocks, b"noise\n" * LINES).take()
    assert taken["kept"] == [f"step {i}" for i in range(42, 50)]
    assert taken["seen"] == 5 * 510 + LINES == taken["dropped"] + LINES


def test_a_chunk_is_bounded_in_bytes_of_json_too():
    taken = fed(b"step 1\n" + "█\x1b".encode() * 500 + b"\n" + ("é" * 3000 + "\n").encode() * 100).take()
    assert len(json.dumps(taken["lines"])) <= CHUNK_BYTES + 2
    assert taken["dropped"] + len(taken["lines"]) == taken["seen"] == 102
    assert taken["kept"] == ["step 1"]


def test_kept_lines_are_bounded_in_bytes_too():
    taken = fed(b"".join(b"step %d " % i + b"z" * 3900 + b"\n" for i in range(8)) + b"noise\n" * LINES).take()
    assert len(json.dumps(taken["kept"])) <= KEPT_BYTES + 2
    assert taken["kept"][-1].startswith("step 7 ")


def test_of_a_burst_the_first_error_is_sent_too():
    """All ranks fail within a second; the newest lines only show that they lost the first one."""
    first = ["Traceback (most recent call last):", '  File "train.py", line 9, in <module>', "    main()"]
    first.append("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    lost = "[rank{}]: torch.distributed.DistBackendError: NCCL error: remote process exited"
    burst = "\n".join(["step 9 loss: 2.1", *first, *(lost.format(i % 64) for i in range(1000)), ""]).encode()
    taken = fed(burst).take()
    assert taken["lines"][:4] == first
    assert len(taken["lines"]) == ERRORS + LINES
    assert taken["dropped"] + len(taken["lines"]) == taken["seen"] == 1005
    assert classify(CauseFacts(log=(LogExcerpt(text="\n".join(taken["lines"])),))).cause == "cuda-oom"
    before = fed()
    before.is_history = True
    before.feed(burst)
    assert len(before.take()["lines"]) == LINES, "an error of long ago is none of this end"
    long = fed(b"Error: " + b"z" * 3900 + b"\n" + (b"z" * 3900 + b"\n") * 400).take()
    assert sum(map(len, long["lines"])) <= CHUNK_BYTES + KEPT_BYTES


def test_of_a_burst_the_first_traceback_is_sent_although_warnings_about_errors_come_first():
    warned = ["FutureWarning: ErrorHandler is deprecated"] * 64
    first = ["Traceback (most recent call last):", '  File "train.py", line 9, in <module>', "    main()"]
    first.append("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    lost = ["torch.distributed.DistBackendError: NCCL error: remote process exited"] * 400
    lines = fed("\n".join([*warned, *first, *lost, ""]).encode()).take()["lines"]
    assert classify(CauseFacts(log=(LogExcerpt(text="\n".join(lines)),))).cause == "cuda-oom"
    crash = fed(b"Fatal Python error: Segmentation fault\n" + b'  File "x", line 1 in f\n' * 400).take()["lines"]
    assert classify(CauseFacts(log=(LogExcerpt(text="\n".join(crash)),))).cause == "segfault"


def test_steps_behind_an_error_of_a_burst_are_sent_once_and_in_their_order():
    """The last dropped steps were sent before the older ones that follow an error: the run seemed to start again."""
    lines = Lines(re.compile(r"step \d+"))
    lines.feed(b"Traceback (most recent call last):\n" + b"".join(b"step %d\n" % i for i in range(1000)))
    taken = lines.take()
    sent = [*taken.get("kept", ()), *taken["lines"]]
    assert sent[1:] == [f"step {i}" for i in (*range(ERRORS - 1), *range(792, 1000))]
    lines.feed(b"Error: x\n" + b"".join(b"step %d\n" % i for i in range(203)))
    assert lines.take()["lines"] == ["Error: x", *(f"step {i}" for i in range(203))]


def test_inside_a_line_its_end_is_thrown_away():
    lines = fed()
    lines.begin(inside=True)
    lines.feed(b"no newline yet")
    lines.feed(b"half a line\nwhole\n")
    assert lines.take() == {"lines": ["whole"], "seen": 1}


def test_inside_a_bar_its_present_state_is_found():
    lines = fed()
    lines.begin(inside=True)
    lines.feed(b"0/100\r 51/100\r 52/100")
    assert lines.partial() == " 52/100"


def test_inside_a_bar_that_a_traceback_follows_its_last_state_is_kept():
    lines = fed()
    lines.begin(inside=True)
    lines.feed(b"97/30000 [00:01<\r 29998/30000 [09:01<00:01]\r 29999/30000 [09:02<00:01]\nTraceback\n")
    assert lines.take()["lines"] == [" 29999/30000 [09:02<00:01]", "Traceback"]


def test_inside_a_line_that_ends_in_crlf_nothing_is_left_of_it():
    lines = fed()
    lines.skip(3)
    lines.feed(b"half a line\r\nwhole\r\n")
    assert lines.take() == {"lines": ["whole"], "seen": 5, "dropped": 4}


def test_counting_begins_anew_after_taking():
    lines = fed(b"a\n")
    assert lines.take() == {"lines": ["a"], "seen": 1}
    assert lines.take() == {}


@given(st.lists(st.text("ab \r\n\té█", max_size=8).map(str.encode)), st.integers(1, 5))
def test_where_the_blocks_are_cut_makes_no_difference(parts: list[bytes], size: int):
    data = b"".join(parts)
    whole, cut = fed(data), fed(*(data[i : i + size] for i in range(0, len(data), size)))
    assert (cut.partial() or "").strip() == (whole.partial() or "").strip()
    assert [line.strip() for line in cut.take().get("lines", [])] == [
        line.strip() for line in whole.take().get("lines", [])
    ]
