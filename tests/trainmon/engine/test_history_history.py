"""Ring buffers of compact numbers."""

from __future__ import annotations

import math
from array import array

import pytest

from trainmon.engine.history import UNKNOWN, WEEK, History, Ring
from trainmon.lib import DAY
from trainmon.model import Allowance, Disk, DiskHistoryRead, Gpu, GpuHistoryRead, Quota, Series


def gpus(temperature: int | None) -> list[Gpu]:
    return [
        Gpu(index=0, temperature_c=temperature, memory_used_mib=81_559, utilization_pct=98, power_w=688.4),
        Gpu(index=1),
    ]


def test_a_ring_keeps_the_newest_rows_in_order() -> None:
    ring = Ring("H", 1, 3)
    for at in range(5):
        ring.append(at, array("H", [at]))
    times, values = ring.column(0, since=0)
    assert list(times) == [2, 3, 4]
    assert list(values) == [2, 3, 4]


def test_numbers_come_back_within_their_unit() -> None:
    history = History()
    history.record_gpus("n1", 100.0, gpus(61), period=2.0)
    assert history.series("n1/0", "temperature", 60, 102.0).values == (61.0,)
    assert history.series("n1/0", "memory", 60, 102.0).values == pytest.approx((81_559,), abs=4)
    assert history.series("n1/0", "power", 60, 102.0).values == pytest.approx((688.4,), abs=0.05)
    assert history.series("n1/0", "power", 60, 102.0).offsets == (-2.0,)


def test_a_gap_in_the_numbers_of_gpus_moves_no_column() -> None:
    history = History()
    history.record_gpus("n1", 100.0, [Gpu(index=0, temperature_c=50), Gpu(index=3, temperature_c=63)], period=2.0)
    assert history.series("n1/3", "temperature", 60, 100.0).values == (63.0,)
    assert math.isnan(history.series("n1/1", "temperature", 60, 100.0).values[0])
    history.record_gpus("n2", 100.0, [Gpu(index=10**9)], period=2.0)
    assert history.series("n2/0", "temperature", 60, 100.0).values == ()


def test_what_is_not_known_is_nan_and_never_zero() -> None:
    history = History()
    history.record_gpus("n1", 100.0, gpus(None), period=2.0)
    assert math.isnan(history.series("n1/0", "temperature", 60, 100.0).values[0])
    assert math.isnan(history.series("n1/1", "utilization", 60, 100.0).values[0])
    assert UNKNOWN == 0xFFFF


def test_unknown_subjects_and_metrics_are_empty() -> None:
    history = History()
    history.record_gpus("n1", 100.0, gpus(61), period=2.0)
    for subject, metric in (("n2/0", "temperature"), ("n1/7", "temperature"), ("n1/x", "power"), ("n1/0", "beauty")):
        assert history.series(subject, metric, 60, 100.0).values == ()


def test_an_hour_is_all_that_is_kept_at_the_sample_period() -> None:
    history = History()
    for i in range(4000):
        history.record_gpus("n1", i * 2.0, gpus(i % 100), period=2.0)
    series = history.series("n1/0", "temperature", 3600, 8000.0)
    assert len(series.values) == 1800
    assert series.values[-1] == 3999 % 100
    assert series.offsets[0] >= -3600


def test_a_day_is_kept_at_one_a_minute() -> None:
    history = History()
    for i in range(0, 2 * 86_400, 30):
        history.record_gpus("n1", float(i), gpus(50), period=30.0)
    series = history.series("n1/0", "temperature", 86_400, 2 * 86_400.0)
    assert 1430 <= len(series.values) <= 1440


def test_an_hour_of_2048_gpus_costs_what_the_docstring_says() -> None:
    history = History()
    eight = [Gpu(index=i, temperature_c=60, memory_used_mib=70_000, utilization_pct=99, power_w=650) for i in range(8)]
    for i in range(1800):
        history.record_gpus("n1", i * 2.0, eight, period=2.0)
    rings = [*history._hour.values(), *history._day.values()]
    assert sum(len(ring.times) * 8 + len(ring.values) * ring.values.itemsize for ring in rings) * 256 / 2**20 < 35


def test_disks_keep_bytes_and_inodes_and_are_forgotten_with_their_node() -> None:
    history = History()
    disk = Disk(host="n1", cluster="c", path="/fsx", at=100.0, free_bytes=10**12, free_inodes=None)
    history.record_disk(disk)
    assert history.series("n1:/fsx", "free_bytes", 60, 100.0).values == (1e12,)
    assert math.isnan(history.series("n1:/fsx", "free_inodes", 60, 100.0).values[0])
    history.forget("n1")
    assert history.series("n1:/fsx", "free_bytes", 60, 100.0).values == ()


def test_a_disk_is_known_for_a_week_and_its_last_day_by_the_minute() -> None:
    history = History()
    for i in range(0, 8 * 86_400, 60):
        history.record_disk(Disk(host="n1", cluster="c", path="/fsx", at=float(i), free_bytes=i))
    now = 8 * 86_400.0
    series = history.series("n1:/fsx", "free_bytes", WEEK, now)
    assert list(series.offsets) == sorted(set(series.offsets))
    assert series.offsets[0] == pytest.approx(-WEEK, abs=600)
    assert sum(offset >= -DAY for offset in series.offsets) == 1440
    assert len(series.offsets) == pytest.approx(1440 + 6 * 144, abs=2)


def test_what_a_quota_leaves_is_history_too() -> None:
    history = History()
    mine = Allowance(owner="user me", used_bytes=4, hard_bytes=10)
    quota = Quota(cluster="c", host="n1", path="/fsx", at=90.0, allowances=(mine,))
    history.record_disk(Disk(host="n1", cluster="c", path="/fsx", at=100.0, free_bytes=7, quota=quota))
    assert history.series("n1:/fsx", "quota_left_bytes", 60, 100.0).values == (6.0,)
    assert math.isnan(history.series("n1:/fsx", "quota_left_inodes", 60, 100.0).values[0])


def test_a_clock_that_is_set_back_begins_a_disk_anew() -> None:
    history = History()
    for at in (10_000.0, 10_060.0, 3_000.0, 3_060.0):
        history.record_disk(Disk(host="n1", cluster="c", path="/fsx", at=at, free_bytes=1))
    assert history.series("n1:/fsx", "free_bytes", WEEK, 3_060.0).offsets == (-60.0, 0.0)


def test_the_past_of_a_disk_comes_before_what_was_recorded_here() -> None:
    history = History()
    now = 100_000.0
    history.record_disk(Disk(host="n1", cluster="c", path="/fsx", at=now, free_bytes=5, free_inodes=7, total_bytes=100))
    free = array("d", [50, math.nan, *range(40, 20, -1)])
    sizes = array("d", [60.0] * 10 + [100.0] * 12)
    columns = {"free_bytes": free, "total_bytes": sizes}
    history.restore_disks(
        DiskHistoryRead(node="n1", start=now - 6_300.0, step=300.0, columns={"/fsx": columns, "/tmp": columns})
    )
    week = history.series("n1:/fsx", "free_bytes", WEEK, now)
    assert week.values == (50.0, *range(40, 21, -1), 5.0), "a gap is no row, and our own rows stay"
    assert week.offsets[:3] == (-6_300.0, -5_700.0, -5_400.0)
    assert len(history.series("n1:/fsx", "free_bytes", 3_600.0, now).values) == 13
    assert math.isnan(history.series("n1:/fsx", "free_inodes", WEEK, now).values[0])
    assert history.series("n1:/fsx", "size_bytes", WEEK, now) == Series((-6_300.0, -3_300.0), (60.0, 100.0))
    assert history.series("n1:/tmp", "free_bytes", WEEK, now).values[0] == 50.0, "its first sample comes later"


def past(span: float, step: float, start: float, *temperatures: float) -> GpuHistoryRead:
    columns = {(0, "temperature_c"): array("d", temperatures)}
    return GpuHistoryRead(node="n1", start=start, step=step, span=span, columns=columns)


def test_the_past_of_a_server_comes_before_what_was_recorded_here() -> None:
    history = History()
    history.record_gpus("n1", 100.0, gpus(61), period=15.0)
    history.restore_gpus(past(3_600.0, 15.0, 40.0, 50, math.nan, 52, 53, 54, 55, 56), period=15.0)
    found = history.series("n1/0", "temperature", 3_600.0, 110.0)
    assert found.offsets == (-70.0, -40.0, -25.0, -10.0), "a gap is no row, and our own rows stay"
    assert found.values == (50.0, 52.0, 53.0, 61.0)
    assert math.isnan(history.series("n1/1", "temperature", 3_600.0, 110.0).values[0])


def test_the_past_of_a_node_without_numbers_here_is_all_there_is() -> None:
    history = History()
    history.restore_gpus(past(DAY, 60.0, 0.0, 50, 51), period=15.0)
    assert history.series("n1/0", "temperature", DAY, 120.0).values == (50.0, 51.0)
    assert history.series("n1/0", "temperature", 3_600.0, 120.0).values == ()


def test_a_node_that_is_read_more_often_from_now_on_keeps_an_hour() -> None:
    history = History()
    for number in range(300):
        history.record_gpus("n1", 15.0 * number, gpus(60), period=15.0)
    for number in range(1_000):
        history.record_gpus("n1", 4_500.0 + 2.0 * number, gpus(61), period=2.0)
    found = history.series("n1/0", "temperature", 3_600.0, 6_500.0)
    assert found.offsets[0] < -3_500
    assert len(found.values) > 1_000
