"""How often a scheduler is asked."""

from __future__ import annotations

from collectors.slurm.poll import RateLimit


def looked(pace: RateLimit, at: float, *, took: float = 0.1, has_jobs: bool = True) -> float:
    """One look at a time; returns when the next is due."""
    assert pace.due_in(at) == 0
    pace.begin(at)
    pace.answered(at, took, has_jobs=has_jobs)
    return at + pace.due_in(at)


def failed(pace: RateLimit, at: float) -> float:
    assert pace.due_in(at) == 0
    pace.begin(at)
    pace.failed(at)
    return at + pace.due_in(at)


def test_the_first_look_is_at_once_and_then_every_period() -> None:
    pace = RateLimit(30)
    assert looked(pace, 0) == 30
    assert looked(pace, 30) == 60
    assert pace.interval == 30


def test_a_period_below_the_floor_is_the_floor() -> None:
    assert looked(RateLimit(1), 0) == 15


def test_for_a_minute_after_an_action_it_looks_every_15_s() -> None:
    pace = RateLimit(30)
    looked(pace, 0)
    pace.poll_often(5)
    assert pace.due_in(5) == 10  # 15 s after the last look
    due = looked(pace, 15)
    times = [15.0]
    while due < 100:
        times.append(due)
        due = looked(pace, due)
    assert times == [15, 30, 45, 60, 75]
    assert due == 105


def test_an_action_long_after_the_last_look_is_followed_at_once() -> None:
    pace = RateLimit(120)
    looked(pace, 0)
    pace.poll_often(50)
    assert pace.due_in(50) == 0


def test_a_person_gets_a_look_at_most_every_5_s() -> None:
    pace = RateLimit(30)
    looked(pace, 0)
    pace.refresh(1)
    assert pace.due_in(1) == 4
    assert looked(pace, 5) == 35
    pace.refresh(20)
    assert pace.due_in(20) == 0


def test_a_slow_controller_is_queried_half_as_often_each_time_up_to_10_min() -> None:
    pace, at, gaps = RateLimit(30), 0.0, []
    for _ in range(7):
        due = looked(pace, at, took=3.5)
        gaps.append(due - at)
        at = due
    assert gaps == [60, 120, 240, 480, 600, 600, 600]
    assert looked(pace, at) == at + 30


def test_a_period_above_10_min_stays_what_was_requested() -> None:
    pace = RateLimit(1800)
    assert looked(pace, 0) == 1800
    assert looked(pace, 1800, took=3.5) == 3600


def test_errors_back_off_the_same_way_and_a_person_may_still_look() -> None:
    pace, at, gaps = RateLimit(30), 0.0, []
    for _ in range(6):
        due = failed(pace, at)
        gaps.append(due - at)
        at = due
    assert gaps == [60, 120, 240, 480, 600, 600]
    failed(pace, at)
    pace.refresh(at + 6)
    assert pace.due_in(at + 6) == 0
    assert looked(pace, at + 6) == at + 36


def test_a_long_outage_ends_nothing() -> None:
    pace, at = RateLimit(30), 0.0
    for _ in range(5_000):
        at = failed(pace, at)
    assert looked(pace, at) == at + 30


def test_with_no_jobs_it_looks_every_5_min_and_an_action_wakes_it() -> None:
    pace = RateLimit(30)
    assert looked(pace, 0, has_jobs=False) == 300
    pace.poll_often(100)
    assert pace.due_in(100) == 0
    assert looked(pace, 100, has_jobs=False) == 115


def test_where_there_is_no_slurm_it_is_looked_for_every_10_min() -> None:
    pace = RateLimit(30)
    pace.begin(0)
    pace.absent(0)
    assert (pace.due_in(0), pace.interval) == (600, 600)


def test_a_host_that_is_not_connected_costs_no_back_off() -> None:
    pace = RateLimit(30)
    for at in range(0, 100, 2):
        pace.begin(at)
        pace.unreached(at)
    assert pace.due_in(98) == 2
    assert looked(pace, 100) == 130


def test_after_the_last_job_has_ended_the_next_one_is_looked_for_as_often_as_before_for_an_hour() -> None:
    pace = RateLimit(30.0)
    assert looked(pace, 0) == 30
    assert looked(pace, 1_800, has_jobs=False) == 1_830
    assert looked(pace, 3_600, has_jobs=False) == 3_900
