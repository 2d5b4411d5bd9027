"""Everything that goes wrong in the first round, seen in the events, and that it ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.demo.stories import Incident, Schedule
from collectors.demo.world import LIMIT_W
from tests.collectors.demo.stage import Stage
from trainmon.model import (
    DiskSample,
    DiskSamples,
    GpuFactsAll,
    GpuSamples,
    Hello,
    HostSample,
    LogChunk,
    Xid,
    throttle_names,
)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """The first round and the beginning of the second, once for all."""
    stage = Stage(tmp_path_factory.mktemp("demo") / "files").play(680.0)
    yield stage
    stage.demo.stop()


def incident(story: str, number: int = 0) -> Incident:
    return next(incident for incident in Schedule().round(number) if incident.story == story)


def place(incident: Incident) -> tuple[str, int]:
    assert incident.node is not None
    assert incident.gpu is not None
    return incident.node, incident.gpu


def test_the_hot_gpu_slows_itself_down_within_40_s_and_cools_again(played: Stage) -> None:
    node, index = place(incident("hot"))
    first = next(at for at, reading in played.readings(GpuSamples, node) if (reading.g[index].temperature_c or 0) >= 87)
    assert first < 40
    hot = played.gpu(node, index, 60, 120)
    assert min(sample.temperature_c or 0 for sample in hot) >= 85
    assert all({"hw_thermal", "hw_slowdown"} <= set(throttle_names(sample.throttle_mask)) for sample in hot[-5:])
    assert all((sample.sm_clock_mhz or 0) < 1300 for sample in hot[-5:])
    margins = [
        reading.g[index].temperature_margin_c for at, reading in played.readings(GpuFactsAll, node) if 40 < at < 120
    ]
    assert set(margins) == {0}
    cool = played.gpu(node, index, 200, 240)
    assert max(sample.temperature_c or 99 for sample in cool) < 75
    assert "hw_thermal" not in throttle_names(cool[-1].throttle_mask)


def test_its_neighbours_stay_cool(played: Stage) -> None:
    node, index = place(incident("hot"))
    assert max(sample.temperature_c or 99 for sample in played.gpu(node, (index + 1) % 8, 0, 200)) < 75


def test_the_lost_gpu_has_an_xid_its_run_dies_and_a_reboot_brings_both_back(played: Stage) -> None:
    lost = incident("lost")
    node, index = place(lost)
    xids = [(at, reading) for at, reading in played.readings(Xid) if at < 600]
    assert [(reading.code, reading.index) for _, reading in xids] == [(79, index)]
    gone = played.gpu(node, index, lost.begins + 3, lost.ends)
    assert all(sample.lost and sample.temperature_c is None for sample in gone)
    assert all(sample.temperature_c for sample in played.gpu(node, (index + 1) % 8, lost.begins, lost.ends))
    assert any("CUDA error" in line for line in played.lines("moe-1b", lost.begins, lost.ends))
    boots = [reading.boot_time for _, reading in played.readings(Hello, node)]
    assert len(boots) == 2
    assert boots[0] != boots[1]
    assert "down for a reboot" in str([source.error for _, source in played.sources(node)])
    assert not any(sample.lost for sample in played.gpu(node, index, lost.ends + 20, 600))
    assert any("Resumed from step" in line for line in played.lines("moe-1b", lost.ends, lost.ends + 60))


def test_the_hung_run_spins_at_100_percent_with_little_power_and_says_nothing(played: Stage) -> None:
    hang = incident("hang")
    samples = played.gpu("gpu-008", 2, hang.begins + 20, hang.ends - 2)
    assert {sample.utilization_pct for sample in samples} == {100}
    assert max(sample.power_w or 999 for sample in samples) < 0.4 * LIMIT_W
    assert played.lines("llm-7b", hang.begins + 20, hang.ends - 1) == []
    assert any("step:" in line for line in played.lines("llm-7b", hang.ends + 20, hang.ends + 60))
    assert played.gpu("gpu-008", 2, hang.ends + 40, hang.ends + 60)[-1].power_w == pytest.approx(655, abs=60)


def used(disk: DiskSample) -> tuple[float, float]:
    assert disk.total_bytes is not None
    assert disk.free_bytes is not None
    assert disk.total_inodes is not None
    assert disk.free_inodes is not None
    return 1 - disk.free_bytes / disk.total_bytes, 1 - disk.free_inodes / disk.total_inodes


def test_the_shared_disk_fills_in_bytes_and_inodes_and_is_cleared(played: Stage) -> None:
    disk = incident("disk")
    found = [
        (at, used(sample))
        for at, reading in played.readings(DiskSamples)
        for sample in reading.d
        if sample.path == "/fsx"
    ]
    full = [shares for at, shares in found if disk.begins + 85 < at < disk.ends]
    assert min(min(shares) for shares in full) > 0.99
    calm = [shares for at, shares in found if at < disk.begins or at > disk.ends + 11]
    assert max(max(shares) for shares in calm) < 0.8


def test_checkpoints_move_the_shared_disk(played: Stage) -> None:
    found = [sample for at, reading in played.readings(DiskSamples) for sample in reading.d if at < 190]
    free = [sample.free_bytes or 0 for sample in found if sample.path == "/fsx"]
    assert max(free) - min(free) > 2 * 10**12


def test_the_dropped_node_is_silent_then_down_with_a_sentence_and_comes_back(played: Stage) -> None:
    drop = incident("node")
    assert played.gpu(drop.victim, 0, drop.begins + 1, drop.ends) == []
    down = [(at, source) for at, source in played.sources(drop.victim) if source.phase == "retrying"]
    assert 5 < down[0][0] - drop.begins < 8, "first it is late, then it is given up"
    assert down[0][1].error == "gpu-006: no answer"
    assert all(source.retry_at is not None for _, source in down)
    assert len(down) > 3
    back, source = played.sources(drop.victim)[-1]
    assert source.phase == "up"
    assert back < drop.ends + 15
    assert played.gpu(drop.victim, 0, back, back + 5)


def test_the_nan_is_the_loss_that_vanishes_and_the_run_goes_back(played: Stage) -> None:
    nan = incident("nan")
    during = [line for line in played.lines("video-2b", nan.begins + 6, nan.ends) if "iteration " in line]
    assert during
    assert all("lm loss" not in line for line in during if "consumed samples" in line)
    assert any("number of nan iterations:   1" in line for line in during)
    after = [line for line in played.lines("video-2b", nan.ends + 30, nan.ends + 80) if "consumed samples" in line]
    assert after
    assert all("lm loss" in line for line in after)


def test_the_node_that_wants_a_login_is_held_and_not_redialled(played: Stage) -> None:
    login = incident("login")
    changes = [(source.phase, source.hint) for at, source in played.sources(login.victim) if at > 1]
    assert changes == [("held", "press L to log in"), ("connecting", None), ("up", None)]
    assert played.gpu(login.victim, 0, login.begins + 1, login.ends) == []
    assert played.gpu(login.victim, 0, login.ends + 1, login.ends + 5)


def test_a_person_who_logs_in_has_the_node_back_at_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "demo", story="login").play(30.0)
    assert stage.sources("gpu-011")[-1][1].phase == "held"
    stage.demo.login("node:gpu-011")
    stage.play(32.0)
    assert stage.sources("gpu-011")[-1][1].phase == "up"
    stage.play(60.0)
    assert stage.sources("gpu-011")[-1][1].phase == "up", "and it stays, though the story goes on"
    stage.demo.stop()


def test_the_burst_is_bounded_and_its_steps_are_not_missed(played: Stage) -> None:
    burst = incident("burst")
    chunks = [
        chunk
        for at, chunk in played.readings(LogChunk)
        if burst.begins <= at <= burst.ends + 3 and chunk.id == burst.victim
    ]
    assert sum(chunk.seen for chunk in chunks) > 5_500
    assert sum(chunk.dropped for chunk in chunks) > 4_000
    assert max(len(chunk.lines) for chunk in chunks) <= 200
    steps = [line for line in played.lines(burst.victim, burst.begins, burst.ends + 3) if "step:" in line]
    assert len(steps) >= 2


def test_the_clock_that_is_off_is_the_nodes_own(played: Stage) -> None:
    clock = incident("clock")
    off = [skew for at, skew in skews(played, clock.victim) if clock.begins + 3 < at < clock.ends]
    assert off
    assert all(abs(skew - 437) < 1 for skew in off)
    assert not any(abs(skew) > 1 for at, skew in skews(played, clock.victim) if at > clock.ends + 3)


def skews(played: Stage, node: str) -> list[tuple[float, float]]:
    start = played.clock.now() - played.clock.passed
    return [(at, reading.t - (start + at)) for at, reading in played.readings(HostSample, node)]


def test_the_second_round_begins_with_another_victim(played: Stage) -> None:
    node, index = place(incident("hot", number=1))
    assert (node, index) != place(incident("hot"))
    assert max(sample.temperature_c or 0 for sample in played.gpu(node, index, 640, 680)) >= 87
