"""What fits at which size."""

from __future__ import annotations

import pytest

from tui.shape import shape, what_is_hidden


@pytest.mark.parametrize(
    ("width", "height", "columns"),
    [
        (59, 40, (("1",),)),
        (120, 15, (("1",),)),
        (60, 24, (("1", "4"),)),
        (80, 24, (("1", "4"),)),
        (119, 40, (("1", "4"),)),
        (120, 40, (("1", "4"), ("2", "3"))),
        (179, 40, (("1", "4"), ("2", "3"))),
        (180, 60, (("1", "4"), ("2", "3"), ("run",))),
    ],
)
def test_each_width_has_its_shape(width: int, height: int, columns: tuple[tuple[str, ...], ...]) -> None:
    assert shape(width, height, "1", "4").columns == columns


def test_gpus_and_disks_take_the_lower_half_when_there_is_one_column() -> None:
    assert shape(80, 24, "2", "2").columns == (("1", "2"),)
    assert shape(80, 24, "1", "3").columns == (("1", "3"),)


def test_zoom_leaves_one_pane_at_any_size() -> None:
    assert shape(200, 60, "3", "4", zoomed=True).panes == ("3",)


def test_a_small_screen_says_what_it_hides() -> None:
    assert what_is_hidden(shape(50, 12, "1", "4").hidden) == "one pane fits here; also: 2 GPUs  3 Disk  4 Log"
