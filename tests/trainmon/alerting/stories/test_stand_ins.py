"""Shared files whose login host is slow, or away: what another host sees of them, and what of that is told."""

from __future__ import annotations

from typing import Any, Self

from tests.trainmon.alerting.stories.test_real_rules import Cluster
from trainmon.alerting.rules.disks import DiskFull, DiskHung
from trainmon.model import Cluster as Known
from trainmon.model import (
    ClustersChanged,
    DiskSample,
    DiskSamples,
    DisksReleased,
    NodeReading,
    RunsChanged,
    RunSpec,
    Source,
    SourceChanged,
)

TB = 10**12
FORBIDDEN: dict[str, Any] = {"state": "error", "error": "no permission"}
MISSING: dict[str, Any] = {"state": "error", "error": "does not exist"}
FULL: dict[str, Any] = {
    "mount": "/fsx", "filesystem": "xfs", "read_only": True, "total_bytes": 100 * TB, "free_bytes": TB // 100,
}  # fmt: skip
WELL = FULL | {"read_only": False, "free_bytes": 60 * TB}
SPEC = RunSpec(name="llm", cluster="prod", checkpoints="/fsx/ckpt", nodes=("gpu-001", "gpu-002"))


class Site(Cluster):
    """Two nodes, and a login host that reads the run's files when it answers."""

    def __init__(self) -> None:
        super().__init__(2, [DiskHung(), DiskFull()])
        self.hear(ClustersChanged((Known(name="prod", login="login1"),)), RunsChanged((SPEC,)))
        login = Source(name="node:login1", kind="node", cluster="prod", period=10.0, phase="connecting")
        self.hear(SourceChanged(login))

    def read(self, host: str, until: float, *, is_stand_in: bool = False, **found: Any) -> Self:
        """Until then this host tells of the disk every ten seconds."""
        while self.elapsed < until - 1e-6:
            at = self.clock.wall
            sample = DiskSample("/fsx", **found)
            self.hear(NodeReading(host, "prod", at, DiskSamples(1, at, (sample,)), is_stand_in=is_stand_in))
            self.talk(self.elapsed + 10)
        return self


def test_a_login_host_that_is_slow_to_log_in_is_no_fault() -> None:
    with Site() as story:
        story.read("gpu-001", 700, is_stand_in=True, **FORBIDDEN)
        story.read("gpu-002", 1_400, is_stand_in=True, **MISSING)
        assert story.state.disks == {}
        story.hear(DisksReleased("gpu-002", ())).read("login1", 2_400, **WELL)
        assert not story.state.alerts


def test_what_the_login_host_itself_must_not_read_is_reported() -> None:
    with Site() as story:
        story.read("login1", 100, **FORBIDDEN).expect("fire", "disk:login1:/fsx")
        story.read("login1", 300, **WELL).expect("resolve", "disk:login1:/fsx")


def test_what_a_stand_in_reported_ends_at_once_when_the_login_host_answers() -> None:
    with Site() as story:
        story.read("login1", 200, **WELL)
        story.read("gpu-001", 400, is_stand_in=True, **FULL).expect("fire", "disk:gpu-001:/fsx")
        story.hear(DisksReleased("gpu-001", ("/fsx",))).talk(story.elapsed + 2)
        assert "gpu-001:/fsx" not in story.state.disks
        alert = story.alert("disk-full")
        assert (alert.phase, alert.ended) == ("resolved", "no longer watched")
        story.read("login1", story.elapsed + 60, **WELL).expect("resolve", "disk:gpu-001:/fsx")
        story.read("login1", 3_000, **WELL)
