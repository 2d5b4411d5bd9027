"""Directories that are made while they are watched, as a probe tells of them, and what of that is told."""

from __future__ import annotations

from typing import Any, Self

import pytest

from collectors.assignment import Assigned
from tests.trainmon.alerting.stories.test_real_rules import Cluster
from trainmon.alerting.rules.disks import DiskHung
from trainmon.model import (
    CheckpointEntry,
    CheckpointListing,
    DiskSample,
    DiskSamples,
    DisksReleased,
    FileGroup,
    NodeReading,
    RunsChanged,
    RunSpec,
    Spec,
)

CKPT = "/data/llm/ckpt"
GONE = "does not exist; the nearest existing parent is /data"
TB = 10**12


class Directory(Cluster):
    """A run that saves to a directory on a mount of its host."""

    def __init__(self, mount: str) -> None:
        super().__init__(1, [DiskHung()])
        self.mount = mount
        self.assigned = Assigned()
        self.assigned.spec = Spec(disks=(CKPT,))
        self.assigned.stand_in_for(Spec(), frozenset({CKPT}))
        self.hear(RunsChanged((RunSpec(name="llm", cluster="prod", checkpoints=CKPT, nodes=("gpu-001",)),)))

    def sampled(self, until: float, error: str | None = None) -> Self:
        """Until then the probe samples the directory every ten seconds, and the collector names it."""
        there: dict[str, Any] = {"mount": self.mount, "total_bytes": 100 * TB, "free_bytes": 60 * TB}
        while self.elapsed < until - 1e-6:
            at = self.clock.wall
            found: dict[str, Any] = there if error is None else {"state": "error", "error": error}
            reading = DiskSamples(1, at, (DiskSample(CKPT, **found),))
            for part, _ in self.assigned.parts(reading):
                self.hear(NodeReading("gpu-001", "prod", at, part))
            if renamed := self.assigned.renamed(reading):
                self.hear(DisksReleased("gpu-001", renamed))
            self.talk(self.elapsed + 10)
        return self

    def saved(self) -> Self:
        """The run has made the directory, with a checkpoint, and it was listed."""
        at = self.clock.wall
        files = tuple(FileGroup(name, 1, 9, at - 5, at - 5) for name in ("__#_#.distcp", ".metadata"))
        entries = (CheckpointEntry("step-100", "dir", mtime=at - 5, groups=files),)
        self.hear(NodeReading("gpu-001", "prod", at, CheckpointListing(1, at, CKPT, entries=entries)))
        self.talk(self.elapsed + 2)
        assert self.state.runs["llm"].checkpoints is not None
        assert self.state.runs["llm"].checkpoints.list
        return self


@pytest.mark.parametrize("mount", ["/", "/data"])
def test_a_directory_of_checkpoints_that_appears_later_is_no_fault(mount: str) -> None:
    with Directory(mount) as story:
        story.sampled(100, GONE).saved()
        for _ in range(20):
            story.sampled(story.elapsed + 10).saved()
        assert not story.state.alerts
        assert [*story.state.disks] == [f"gpu-001:{mount}"]


def test_a_mount_that_is_lost_is_a_fault_though_its_directory_remains() -> None:
    """After umount -l, what was saved on the mount does not exist any more."""
    with Directory("/data/llm") as story:
        for _ in range(6):
            story.sampled(story.elapsed + 10).saved()
        for _ in range(12):
            at = story.clock.wall
            listing = CheckpointListing(1, at, CKPT, error="does not exist; the nearest existing parent is /data/llm")
            story.hear(NodeReading("gpu-001", "prod", at, listing)).sampled(story.elapsed + 10, GONE)
        story.expect("fire", f"disk:gpu-001:{CKPT}")


@pytest.mark.parametrize("mount", ["/", "/data"])
def test_a_directory_that_could_not_be_read_is_well_as_soon_as_it_can(mount: str) -> None:
    with Directory(mount) as story:
        story.sampled(100, "no permission").expect("fire", f"disk:gpu-001:{CKPT}")
        story.sampled(260)
        (alert,) = story.state.alerts.values()
        assert alert.phase == "resolved"
        story.expect("resolve", f"disk:gpu-001:{CKPT}")
