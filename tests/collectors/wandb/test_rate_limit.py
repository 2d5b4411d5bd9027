"""How often W&B is asked."""

from __future__ import annotations

from collectors.polling_thread import MIN_REFRESH
from collectors.wandb.run import MAX_PAUSE, WandbRateLimit


def test_a_round_is_due_at_once_and_then_once_a_period() -> None:
    pace = WandbRateLimit(60.0)
    assert pace.due_in(0) == 0
    pace.begin(0)
    pace.answered(5)
    assert (pace.due_in(5), pace.interval) == (55, 60)


def test_a_round_that_takes_longer_than_the_period_is_followed_after_a_rest() -> None:
    pace = WandbRateLimit(60.0)
    pace.begin(0)
    pace.answered(200)
    assert pace.due_in(200) == 1


def test_failures_double_the_time_up_to_ten_minutes_and_an_answer_ends_that() -> None:
    pace, now, waits = WandbRateLimit(60.0), 0.0, []
    for _ in range(20):
        pace.begin(now)
        pace.failed(now)
        waits.append(pace.due_in(now))
        now += waits[-1]
    assert waits[:5] == [120, 240, 480, 600, 600]
    assert (set(waits[3:]), pace.is_healthy) == ({MAX_PAUSE}, False)
    pace.begin(now)
    pace.answered(now)
    assert (pace.due_in(now), pace.is_healthy) == (60, True)


def test_w_and_b_that_is_down_is_polled_every_minute_so_that_it_is_seen_to_be_back() -> None:
    for every, expected in ((15.0, [30, 60, 60, 60]), (60.0, [60] * 4), (300.0, [300] * 4)):
        pace, waits = WandbRateLimit(every), []
        for _ in range(4):
            pace.failed(0, is_outage=True)
            waits.append(pace.due_in(0))
        assert waits == expected


def test_a_period_of_more_than_ten_minutes_is_kept() -> None:
    pace = WandbRateLimit(3_600.0)
    pace.failed(0)
    assert pace.due_in(0) == 3_600


def test_a_person_waits_five_seconds_at_most() -> None:
    pace = WandbRateLimit(60.0)
    pace.begin(0)
    pace.failed(1)
    pace.refresh(2)
    assert pace.due_in(2) == MIN_REFRESH - 2
    pace.refresh(50)
    assert pace.due_in(50) == 0


def test_errands_are_a_second_apart_and_come_after_a_round() -> None:
    pace = WandbRateLimit(60.0)
    assert pace.background_due_in(0) == 0
    pace.begin(0)
    pace.answered(3)
    assert pace.background_due_in(3) == 1
    pace.background_done(4)
    assert pace.background_due_in(4.5) == 0.5
