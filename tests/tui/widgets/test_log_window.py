"""The window on a log, as values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.tui.states.states import numbers_in
from tui.widgets.log_view import (
    LogPosition,
    Text,
    View,
    clamped,
    cut,
    end_position,
    find,
    marks,
    moved,
    parts,
    row_marks,
    rows_of,
    shown,
    window,
)


def log(*lines: str) -> Text:
    """These lines, with what the engine reads in them."""
    return Text(lines, 0, numbers_in(lines))


LOG = Text(tuple(f"line {number}" for number in range(100, 120)), 100)


def test_the_end_of_the_log_is_on_the_last_row() -> None:
    view = View(20, 5)

    rows = shown(LOG, end_position(LOG, view), view)

    assert [row.text for row in rows] == [f"line {number}" for number in range(115, 120)]


def test_a_log_shorter_than_the_screen_starts_at_its_top() -> None:
    assert end_position(LOG, View(20, 50)) == LogPosition(100, 0)


def test_the_view_stays_on_its_line_while_old_lines_go() -> None:
    later = Text(LOG.lines[5:], 105)

    assert shown(later, LogPosition(110), View(20, 2))[0].text == "line 110"


def test_a_line_that_is_gone_gives_way_to_the_oldest_that_is_left() -> None:
    assert shown(Text(LOG.lines[5:], 105), LogPosition(101), View(20, 1))[0].text == "line 105"


def test_wrapped_lines_take_several_rows_and_scrolling_goes_by_rows() -> None:
    text = Text(("short", "a" * 25, "end"), 0)
    view = View(10, 2, wrap=True)

    assert [row.text for row in shown(text, LogPosition(1, 1), view)] == ["a" * 10, "a" * 5]
    assert moved(text, LogPosition(0), 2, view) == LogPosition(1, 1)
    assert moved(text, LogPosition(1, 1), -2, view) == LogPosition(0, 0)


def test_scrolling_past_the_end_stops_there_and_follows() -> None:
    assert clamped(LOG, LogPosition(119), View(20, 5)) == (LogPosition(115, 0), True)
    assert clamped(LOG, LogPosition(110), View(20, 5)) == (LogPosition(110, 0), False)


def test_cut_lines_can_be_seen_sideways_and_wide_characters_are_not_halved() -> None:
    assert cut("abcdef", 2, 3) == "cde"
    assert cut("日本語", 1, 4) == " 本 "[:-1]


def test_a_search_goes_round_and_finds_nothing_where_nothing_is() -> None:
    assert find(LOG, "LINE 117", 119, -1) == 117
    assert find(LOG, "line 117", 110, -1) == 117
    assert find(LOG, "absent", 119, -1) is None


def test_errors_and_warnings_are_marked_unless_matches_are() -> None:
    assert marks("CUDA error: out of memory", "") == [(5, 10, "crit"), (12, 25, "crit")]
    assert marks("a warning here", "") == [(2, 9, "warn")]
    assert marks("an error here", "here") == [(9, 13, "match")]
    assert marks("finance information nanny", "") == []


@given(st.text(max_size=60), st.integers(2, 20))
def test_parts_lose_nothing_and_never_exceed_the_width(text: str, width: int) -> None:
    pieces = parts(text, width)

    assert "".join(pieces) == text
    assert all(cell_len(piece) <= width for piece in pieces)


@given(st.lists(st.text(alphabet="ab本", max_size=30), min_size=1, max_size=12), st.integers(-40, 40), st.booleans())
def test_no_move_leaves_the_log(lines: list[str], by: int, wrap: bool) -> None:
    text, view = Text(tuple(lines), 7), View(9, 4, wrap)

    place = moved(text, end_position(text, view), by, view)

    assert text.first <= place.line < text.end
    assert 0 <= place.part < rows_of(text[place.line], view)


TITAN = "[rank0]:[titan] 2026-01-02 03:04:05,678 - root - INFO - step: 12  loss:  2.0  grad_norm:  0.3  tps: 7,900"


def test_a_step_line_too_long_keeps_its_time_step_and_loss_and_left_shows_who_wrote_it() -> None:
    text = log(TITAN, TITAN.replace("INFO - step: 12", "WARNING - watchdog"))
    rows = [row.text for row in shown(text, LogPosition(0), View(40, 2))]
    assert rows[0] == "03:04:05 …step: 12  loss:  2.0  grad_nor"
    assert rows[1] == text[1][:40]
    assert shown(text, LogPosition(0), View(40, 1, left=-80))[0].text == TITAN[:40]
    assert shown(text, LogPosition(0), View(200, 1))[0].text == TITAN
    assert shown(text, LogPosition(0), View(40, 1, whole=True))[0].text == TITAN[:40]


MEGATRON = (
    " iteration       12/     100 | consumed samples:        12288 | elapsed time per iteration (ms): 1234.5 | "
    "learning rate: 3.000E-04 | global batch size:  1024 | lm loss: 2.071234E+00 | grad norm: 0.281 |"
)


@pytest.mark.parametrize(
    ("line", "width", "expected"),
    [
        (MEGATRON, 60, "iteration       12/     100 … lm loss: 2.071234E+00 | grad n"),
        (
            f"[default0]:[2026-01-02 03:04:05] {MEGATRON}",
            56,
            "03:04:05 …iteration       12/     100 … lm loss: 2.07123",
        ),
        ("0: {'step': 7, 'lr': 0.001, 'time': 1.25, 'loss': 2.5, 'x': 1}", 40, "…{'step': 7 … 'loss': 2.5, 'x': 1}"),
        ("Resuming from step 12 after the loss of a node, " * 3, 40, "Resuming from step 12 after the loss of "),
    ],
)
def test_the_loss_of_a_step_line_is_seen_at_any_width(line: str, width: int, expected: str) -> None:
    assert shown(log(line), LogPosition(0), View(width, 1))[0].text == expected


def test_the_step_and_the_loss_stand_out_and_an_error_more() -> None:
    assert [(MEGATRON[start:end], style) for start, end, style in marks(MEGATRON, "", log(MEGATRON).said_in(0))] == [
        ("iteration       12/     100", "accent"),
        ("lm loss: 2.071234E+00", "accent"),
    ]
    assert marks("step 5 loss nan", "")[-1] == (12, 15, "crit")


@pytest.mark.parametrize("width", [80, 110])
def test_a_cut_step_line_stands_out_too(width: int) -> None:
    line = f"[rank0]:[titan] 2026-11-22 18:41:45,406 - root - INFO - {MEGATRON} and much more"
    said = log(line).said_in(0)
    row = window(line, View(width, 10), said)

    assert "…" in row
    assert [row[start:end] for start, end, _ in marks(row, "", said)] == [
        "iteration       12/     100",
        "lm loss: 2.071234E+00",
    ]


def test_a_wrapped_step_line_stands_out_in_each_of_its_rows() -> None:
    view = View(40, 10, wrap=True)
    text = log(MEGATRON)
    rows = shown(text, LogPosition(0), view)
    found = [
        row.text[start:end] for row in rows for start, end, _ in row_marks(row, MEGATRON, view, "", text.said_in(0))
    ]

    assert "".join(found) == "iteration       12/     100lm loss: 2.071234E+00"
