"""The trend of a disk, and its forecast: what is written and deleted again is no growth."""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec
import pytest

from tests.trainmon.analysis.disks.sawtooths import HOUR, SERIES, TB, Look, Series, looks, score
from trainmon.analysis.disks import with_trend
from trainmon.analysis.disks.capacity import Point, deletions, forecast, thinned
from trainmon.engine.history import WEEK, History
from trainmon.model import Allowance, Disk, Forecast, Quota

DAY = 86_400.0
BY_NAME = {series.name: series for series in SERIES}


def forecast_of(series: Series, hours: float, lag: float = 0.0) -> Forecast:
    """What is said of a series after so many hours, with all its history."""
    seen = list(looks(series, hours))
    last = seen[-1]
    offsets = [look.at - last.at for look in seen]
    return forecast(offsets, [look.free for look in seen], 0.0, last.free, size=series.total, lag=lag)


def alarms(series: Series, every: float) -> Callable[[Look], bool]:
    """Full in less than 24 h, looked at now and then with the history that the engine keeps."""
    history, trend, due = History(), False, -math.inf

    def alarm(look: Look) -> bool:
        nonlocal trend, due
        free = int(look.free)
        disk = Disk(
            host="n", cluster="c", path="/d", at=look.at, free_bytes=free, usable_free_bytes=free,
            total_bytes=int(series.total),
        )  # fmt: skip
        history.record_disk(disk)
        if look.at >= due:
            due = look.at + every
            full_at = with_trend(disk, lambda metric: history.series(disk.key, metric, WEEK, look.at), look.at).full_at
            trend = full_at is not None and full_at - look.at < DAY
        return trend

    return alarm


# ---- the trend -------------------------------------------------------------------------------------------------------


def test_less_than_ten_minutes_of_history_give_no_trend() -> None:
    assert forecast([-500, -250, 0], [3.0, 2.0, 1.0], 0.0, 1.0) is None


def test_a_steady_writer_fills_the_disk_when_it_says() -> None:
    ages = [-3600.0 + 60 * i for i in range(61)]
    free = [1e12 - 1e6 * (3600 + age) for age in ages]
    trend = forecast(ages, free, now=1000.0, left=free[-1])
    assert trend.per_day == pytest.approx(1e6 * DAY)
    assert trend.full_at == pytest.approx(1000.0 + free[-1] / 1e6)
    assert trend is not None
    assert trend.basis == "nothing-deleted"
    assert trend.description == "assuming nothing is deleted"
    assert trend.fit == pytest.approx(1.0)


def test_a_disk_that_gets_emptier_is_never_full() -> None:
    trend = forecast([-1200, -600, 0], [1.0, 2.0, 3.0], 0.0, 3.0)
    assert trend.full_at is None
    assert trend.per_day == pytest.approx(-2 / 1200 * DAY)


def test_one_deletion_does_not_turn_the_trend() -> None:
    ages = [-3600.0 + 60 * i for i in range(61)]
    free = [1e12 - 1e6 * (3600 + age) for age in ages]
    free[30] += 5e11
    assert forecast(ages, free, 0.0, free[-1]).per_day == pytest.approx(1e6 * DAY, rel=0.01)


def test_gaps_are_left_out() -> None:
    trend = forecast([-1200, -900, -600, 0], [4.0, math.nan, 3.0, 2.0], 0.0, 2.0)
    assert trend.per_day == pytest.approx(2 / 1200 * DAY, rel=0.3)


# ---- the six series --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [2_400.0, pytest.param(600.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", BY_NAME)
def test_every_series_of_the_table_is_forecast_right(name: str, every: float) -> None:
    scores = score(BY_NAME[name], alarms(BY_NAME[name], every), hours=100, since=24 * HOUR)
    assert scores.false in (0.0, None)
    if scores.recall is not None:
        assert scores.recall >= (0.67 if name == "pruner dies" else 1.0)


def test_of_a_sawtooth_the_growth_is_that_of_what_remains() -> None:
    trend = forecast_of(BY_NAME["prune-12 + leak"], 40)
    assert trend is not None
    assert (trend.basis, trend.cycles) == ("cycles", 6)
    assert trend.description == "although files were deleted 6 times: what remains grows"
    assert trend.per_day == pytest.approx(0.04 * TB * 24, rel=0.05)
    assert trend.full_at == pytest.approx((78 - 40) * HOUR, rel=0.2)


def test_a_sawtooth_that_does_not_grow_is_never_full() -> None:
    for name in ("keep-last-3", "prune every 12"):
        trend = forecast_of(BY_NAME[name], 40)
        assert trend is not None
        assert (trend.full_at, trend.basis) == (None, "cycles")


def test_deletions_that_stop_are_reported() -> None:
    trend = forecast_of(BY_NAME["pruner dies"], 30 + 9.5)
    assert trend is not None
    assert (trend.basis, trend.description) == ("stopped", "deletions seem to have stopped")
    assert trend.full_at == pytest.approx((96.6 - 39.5) * HOUR, rel=0.1)


def test_with_too_few_deletions_nothing_is_forecast() -> None:
    trend = forecast_of(BY_NAME["prune every 12"], 13)
    assert trend is not None
    assert (trend.full_at, trend.basis, trend.cycles) == (None, "cycles", 2)


def test_large_steps_hours_apart_are_a_growth() -> None:
    steps = Series("a step every 6 h", total=10 * TB, every=6 * HOUR, begins_with=1 * TB)
    trend = forecast_of(steps, 26)
    assert trend.full_at == pytest.approx((54 - 26) * HOUR, rel=0.25)


@pytest.mark.parametrize("saves", [0.0, 1.0 * TB])
@pytest.mark.parametrize("took", [0.5, 1.0, 3.0])
def test_what_is_copied_once_is_no_growth(took: float, saves: float) -> None:
    """A dataset of 50 TB onto a disk of 100, on which others may be saved and deleted again, and nothing after it."""
    ages = [60.0 * i for i in range(int(54 * HOUR / 60))]
    used = [
        20 * TB + 50 * TB * min(1.0, max(0.0, (at / HOUR - 20) / took)) + saves * (at % (HOUR / 2)) / (HOUR / 2)
        for at in ages
    ]
    for hours in range(int(20 + took) + 3, 54):
        count = hours * 60
        left = 100 * TB - used[count - 1]
        offsets = [at - ages[count - 1] for at in ages[:count]]
        trend = forecast(offsets, [-one for one in used[:count]], 0.0, left, size=100 * TB)
        assert trend.full_at is None or trend.full_at > DAY, f"{hours} h: full in {trend.full_at / HOUR:.1f} h"


def test_hourly_deletions_do_not_hide_those_once_a_day() -> None:
    """Kept by number every hour, and something else that a nightly job deletes."""
    ages = [600.0 * i for i in range(int(6 * DAY / 600))]
    free = [20.0 * TB - 1 * TB * (at % HOUR / HOUR) - 6 * TB * (at % DAY / DAY) for at in ages]
    trend = forecast([at - ages[-1] for at in ages], free, 0.0, free[-1] - 12 * TB, size=20 * TB)
    assert trend.full_at is None


def test_a_disk_that_is_made_larger_was_not_emptied() -> None:
    """1 TB an hour is written; after a day the disk grows from 50 to 90 TB."""
    history, size = History(), 50
    for minute in range(0, 36 * 60, 10):
        size = 50 if minute < 24 * 60 else 90
        free = size * TB - minute * TB // 60
        disk = Disk(
            host="n", cluster="c", path="/d", at=minute * 60.0, filesystem="xfs", free_bytes=free,
            usable_free_bytes=free, total_bytes=size * TB,
        )  # fmt: skip
        history.record_disk(disk)
    forecast_of = with_trend(disk, lambda metric: history.series(disk.key, metric, WEEK, disk.at), disk.at)
    assert forecast_of.forecast is not None
    assert forecast_of.forecast.basis == "nothing-deleted"
    assert forecast_of.full_at == pytest.approx(90 * HOUR, rel=0.01)
    zfs = msgspec.structs.replace(disk, filesystem="zfs")
    forecast_of = with_trend(zfs, lambda metric: history.series(disk.key, metric, WEEK, disk.at), disk.at)
    assert forecast_of.forecast is not None
    assert (forecast_of.forecast.basis, forecast_of.full_at) == ("cycles", None)


# ---- statistics that lag ---------------------------------------------------------------------------------------------


def test_of_each_lag_one_point_is_left() -> None:
    points = [Point(float(at), 0.0) for at in range(0, 6000, 60)]
    assert [point.at for point in thinned(points, 1800.0)] == [1740.0, 3540.0, 5340.0, 5940.0]


def test_a_change_that_is_finer_than_the_lag_is_not_judged() -> None:
    ages = [-3600.0 + 60 * i for i in range(61)]
    free = [1e12 - 1e6 * (3600 + age) for age in ages]
    assert forecast(ages, free, 0.0, free[-1], lag=1800.0) is None
    longer = [-7200.0 + 60 * i for i in range(121)]
    cached = [1e12 - 1e6 * (7200 + age - age % 1800) for age in longer]  # looked at every half hour by its servers
    assert forecast(longer, cached, 0.0, cached[-1], lag=1800.0).per_day == pytest.approx(1e6 * DAY, rel=0.02)


def test_a_drop_within_the_lag_is_no_deletion() -> None:
    ages = [-6 * HOUR + 60 * i for i in range(361)]
    free = [1e12 + (5e11 if 100 <= i % 120 < 110 else 0) for i in range(361)]  # a cache that tells nonsense at times
    assert forecast(ages, free, 0.0, 1e12, size=2e12).cycles == 3  # type: ignore[union-attr]
    assert forecast(ages, free, 0.0, 1e12, size=2e12, lag=1800.0).cycles == 0  # type: ignore[union-attr]


# ---- parts -----------------------------------------------------------------------------------------------------------


def test_a_deletion_is_a_fall_below_the_highest_and_its_floor_the_lowest_after_it() -> None:
    used = [1, 5, 4.9, 9, 3, 2, 2, 6, 5.8, 8, 1]
    turns = deletions([Point(float(i), float(n)) for i, n in enumerate(used)], least=1.0)
    assert [(p.at, p.used) for p, _ in turns] == [(3, 9), (9, 8)]
    assert [(p.at, p.used) for _, p in turns] == [(6, 2), (10, 1)]


def test_of_the_disk_and_its_quota_what_ends_first_counts() -> None:
    history = History()
    for minute in range(600):
        at = minute * 60.0
        quota = Quota(
            cluster="c", host="n", path="/d", at=at,
            allowances=(Allowance(owner="user me", used_bytes=minute * 10**9, hard_bytes=10**12),),
        )  # fmt: skip
        disk = Disk(
            host="n", cluster="c", path="/d", at=at, total_bytes=10**15, free_bytes=5 * 10**14,
            usable_free_bytes=5 * 10**14, quota=quota,
        )  # fmt: skip
        history.record_disk(disk)
    found = with_trend(disk, lambda metric: history.series(disk.key, metric, WEEK, at), at)
    assert found.full_at == pytest.approx(at + 401 * 60, rel=0.01)
    assert isinstance(found.forecast, Forecast)
    assert found.forecast.of == "quota"
    assert found.bytes_per_day == pytest.approx(0.0)
