"""What fits at which size."""

from __future__ import annotations

import pytest

from tui.shape import Chosen, shape, what_is_hidden


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
    assert shape(width, height, Chosen()).columns == columns


def test_gpus_disks_and_queue_take_the_lower_half_when_there_is_one_column() -> None:
    for number in "237":
        assert shape(80, 24, Chosen().go_to(number)).columns == (("1", number),)


def test_the_queue_and_the_log_share_a_place_and_other_panes_leave_it_as_it_is() -> None:
    queue = Chosen().go_to("7")

    assert shape(120, 40, queue).columns == (("1", "7"), ("2", "3"))
    assert shape(120, 40, queue.go_to("3").go_to("1")).columns == (("1", "7"), ("2", "3"))
    assert shape(120, 40, queue.go_to("4")).columns == (("1", "4"), ("2", "3"))


def test_a_tall_screen_shows_both_when_there_is_a_queue() -> None:
    assert shape(120, 50, Chosen(), queue=True).columns == (("1", "7", "4"), ("2", "3"))
    assert shape(120, 50, Chosen()).columns == (("1", "4"), ("2", "3"))
    assert shape(120, 50, Chosen().go_to("7")).columns == (("1", "7", "4"), ("2", "3"))


def test_zoom_leaves_one_pane_at_any_size() -> None:
    assert shape(200, 60, Chosen("3"), zoomed=True).panes == ("3",)


def test_a_small_screen_says_what_it_hides() -> None:
    assert what_is_hidden(shape(50, 12, Chosen()).hidden) == "one pane fits here; also: 2 GPUs  3 Disk  4 Log  7 Queue"
