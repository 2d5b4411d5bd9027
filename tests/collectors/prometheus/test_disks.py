"""The disks of nodes that Prometheus has: without SSH, beside it, and their past."""

from __future__ import annotations

import pytest

from collectors.discovery import OverSsh
from collectors.prometheus.reader import QueryFailed
from tests.collectors.prometheus.captured import NEWEST
from tests.collectors.prometheus.stage import HOSTS, Stage, filesystem
from tests.trainmon.alerting.rules.asked import findings
from trainmon.alerting.rules import RULES
from trainmon.model import (
    DiskSample,
    DiskSamples,
    DisksForgotten,
    NodeReading,
)


def test_the_watched_disks_of_a_node_are_read_without_ssh() -> None:
    stage = Stage(HOSTS, nodes=("gpu-001",))
    stage.disks = ("/scratch", "/dev/shm")
    stage.server.answers["node_load1|"] = filesystem()
    state = stage.step()
    assert 'mountpoint=~"|/dev|/dev/shm|/scratch"' in stage.server.queries[0]
    [disk] = state.disks.values()
    assert (disk.key, disk.at, disk.mount, disk.filesystem) == ("gpu-001:/scratch", NEWEST, "/scratch", "xfs")
    assert (disk.total_bytes, disk.free_bytes, disk.free_inodes) == (10**12, 4 * 10**11, 900_000)
    assert "disk /dev/shm" in (stage.source("prometheus:prod:node").hint or "")
    stage.server.answers["node_load1|"] = filesystem(NEWEST + 15, avail_bytes=1e9, readonly=1)
    disk = stage.step(15.0).disks["gpu-001:/scratch"]
    assert (disk.free_bytes, disk.read_only, disk.writable_at) == (10**9, True, NEWEST)


def test_a_disk_has_its_last_day_and_its_forecast_at_once() -> None:
    stage = Stage(HOSTS, nodes=("gpu-001",))
    stage.disks = ("/scratch",)
    stage.server.answers["node_load1|"] = filesystem()
    disk = stage.step().disks["gpu-001:/scratch"]
    assert disk.full_at == pytest.approx(stage.clock.now() + 4e11 / 1e6, rel=0.01)
    assert disk.forecast is not None
    assert disk.forecast.span > 86_000.0
    assert len(stage.engine.history(disk.key, "free_bytes", 86_400.0).values) > 280
    [past] = [text for text in stage.server.queries if "by 300s" in text]
    assert 'mountpoint=~"|/scratch"' in past
    stage.server.answers["node_load1|"] = filesystem(NEWEST + 15)
    stage.step(15.0)
    assert len([text for text in stage.server.queries if "by 300s" in text]) == 1, "it is read once"


def test_a_past_that_cannot_be_read_costs_nothing_else_and_is_tried_again_later() -> None:
    stage = Stage(HOSTS, nodes=("gpu-001",))
    stage.disks = ("/scratch",)
    stage.server.past_error = QueryFailed("the server gave up the query (503)")
    for later in (0.0, 15.0):
        stage.server.answers["node_load1|"] = filesystem(NEWEST + later)
        state = stage.step(15.0)
    assert state.sources["prometheus:prod:node"].health == "ok"
    assert len([text for text in stage.server.queries if "by 300s" in text]) == 1
    stage.server.past_error = None
    stage.server.answers["node_load1|"] = filesystem(NEWEST + 620.0)
    assert stage.step(600.0).disks["gpu-001:/scratch"].full_at is not None


def test_a_disk_that_is_almost_full_is_an_alert_without_ssh() -> None:
    stage = Stage(HOSTS, nodes=("gpu-001",))
    stage.disks = ("/scratch",)
    stage.server.answers["node_load1|"] = filesystem(avail_bytes=1e9, files_free=10)
    state = stage.step()
    found = {one.rule for rule in RULES for one in findings(rule(), state, stage.clock.now())}
    assert {"disk-full", "inodes-full"} <= found
    stage.server.answers["node_load1|"] = filesystem(NEWEST + 15, without=("size_bytes", "avail_bytes"), device_error=1)
    state = stage.step(15.0)
    assert "disk-hung" in {one.rule for rule in RULES for one in findings(rule(), state, stage.clock.now())}


def test_the_probe_s_disks_win_and_stay_while_ssh_fails() -> None:
    stage = Stage(HOSTS, nodes=("gpu-001",))
    stage.disks = ("/scratch", "/dev/shm")
    stage.ssh["gpu-001"] = OverSsh(is_up=True)
    stage.server.answers["node_load1|"] = filesystem()
    assert stage.step().disks == {}
    own = DiskSamples(1, NEWEST, (DiskSample("/scratch", free_bytes=5), DiskSample("/dev/shm", free_bytes=6)))
    stage.engine.step([NodeReading("gpu-001", "prod", NEWEST, own)], NEWEST)
    stage.ssh["gpu-001"] = OverSsh(problem="no answer")
    for later in (60.0, 120.0):
        stage.server.answers["node_load1|"] = filesystem(NEWEST + later)
        state = stage.step(60.0)
    assert {key: disk.free_bytes for key, disk in state.disks.items()} == {
        "gpu-001:/scratch": 4 * 10**11,
        "gpu-001:/dev/shm": 6,
    }
    assert state.disks["gpu-001:/dev/shm"].at == NEWEST, "its age shows that it is not read"


def test_a_disk_that_prometheus_has_stays_when_ssh_is_closed() -> None:
    stage = Stage(HOSTS, nodes=("gpu-001",))
    stage.disks = ("/scratch",)
    stage.server.answers["node_load1|"] = filesystem()
    stage.step()
    kept = stage.poller.disks("gpu-001")
    assert kept == {"/scratch"}
    assert [*stage.engine.step([DisksForgotten("gpu-001", kept)], NEWEST).disks] == ["gpu-001:/scratch"]


def test_disks_that_were_read_over_ssh_leave_with_the_connection() -> None:
    stage = Stage()
    stage.step()
    disks = DiskSamples(1, NEWEST, (DiskSample("/", total_bytes=100, free_bytes=50),))
    state = stage.engine.step([NodeReading("gpu-001", "prod", NEWEST, disks)], NEWEST)
    assert "gpu-001:/" in state.disks
    state = stage.engine.step([DisksForgotten("gpu-001")], NEWEST)
    assert state.disks == {}
    assert state.nodes["gpu-001"].gpus
