"""Rules about disks that are nearly full, in bytes or in inodes."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from msgspec.structs import replace

from trainmon.alerting.rules.base import Duration, Share, Size
from trainmon.alerting.rules.disks.base import DiskRule, Volume, age, runs_on, writable_volumes
from trainmon.analysis.disks import largest
from trainmon.lib import Instant, counted, size
from trainmon.model import Alert, Disk, Finding, Severity, State


def share_left(disk: Disk, state: State) -> float | None:
    """The free share of what may be used (`usable`)."""
    if not disk.total_bytes or disk.usable_free_bytes is None:
        return None
    return disk.usable_free_bytes / (disk.total_bytes * state.usable.get(disk.path, 1.0))


def severity_of(share: float | None, warn: float, critical: float) -> Severity | None:
    """The severity of a free share; None if it is large enough."""
    if share is None or share >= max(warn, critical):
        return None
    return "critical" if share < critical else "warning"


class DiskFull(DiskRule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A disk is nearly full, of what may be used (`usable`). A small share of a large disk may still be enough, so the
    free space must also be less than a few of the largest checkpoints that are saved there."""

    name = "disk-full"
    origin = "10 % and 3 %: node_exporter's mixin and awesome-prometheus-alerts; two samples"

    for_: Duration = 20.0
    """How long the condition must hold before the alert fires: two samples."""
    keep_firing_for: Duration = 1_800.0
    """How long the condition must be gone before the alert resolves: checkpoints that come and go cross a threshold
    again and again."""
    warn: Share = 0.10
    """Warning below this free share."""
    critical: Share = 0.03
    """Critical below this free share."""
    checkpoints: int = 20
    """No alert while this many checkpoints fit, each as large as the largest recent one: 5 % of 9.8 PB is enough."""
    little: Size = 100_000_000_000
    """With less free space than this, `checkpoints` is ignored: other files are written there, too."""
    plenty: Size = 10_000_000_000_000
    """On a disk without checkpoints: no alert while this much is free."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for volume in writable_volumes(state, now, lambda disk: self._severity(disk, state) is not None):
            disk, severity = volume.disk, self._severity(volume.disk, state)
            size_of_one = largest(disk, state.disks, state.runs.values())
            if severity == "warning" and self._becomes_critical_again(volume, size_of_one, state):
                severity = "critical"
            enough = self.plenty if size_of_one is None else max(self.little, self.checkpoints * size_of_one)
            if severity is not None and (disk.usable_free_bytes or 0) < enough:
                yield self._finding(volume, severity, size_of_one, state, now)

    def missing_number(self, state: State, disk: Disk, alert: Alert) -> str | None:
        return None if disk.total_bytes and disk.usable_free_bytes is not None else "its size is not known"

    def _severity(self, disk: Disk, state: State) -> Severity | None:
        return severity_of(share_left(disk, state), self.warn, self.critical)

    def _becomes_critical_again(self, volume: Volume, checkpoint: int | None, state: State) -> bool:
        """Whether it was critical and the next save makes it critical again: an alert must not flap with each save."""
        key, free = (self.name, volume.subject), volume.disk.usable_free_bytes
        known = (alert for alert in state.alerts.values() if alert.key == key and alert.is_open)
        if checkpoint is None or free is None or not any(alert.severity == "critical" for alert in known):
            return False
        return self._severity(replace(volume.disk, usable_free_bytes=max(0, free - checkpoint)), state) == "critical"

    def _finding(
        self, volume: Volume, severity: Severity, checkpoint: int | None, state: State, now: Instant
    ) -> Finding:
        disk, usable = volume.disk, state.usable.get(volume.disk.path, 1.0)
        left, whole = disk.usable_free_bytes or 0, size((disk.total_bytes or 0) * usable)
        of = whole if usable == 1 else f"the {whole} that may be used"
        fits = f": room for {counted(left // checkpoint, 'checkpoint')} of {size(checkpoint)}" if checkpoint else ""
        share = f"{1.0 - (share_left(disk, state) or 0.0):.1%}"
        saved = [run.checkpoints.path for run in runs_on(volume, state) if run.checkpoints is not None]
        du = f"du -xsh {quote(saved[0] if saved else disk.path.rstrip('/'))}/* | sort -h"
        return self.finding(
            volume, state, severity,
            f"{volume.name} is {share} full ({size(left)} of {of} free){fits}; {age(disk, now)}",
            advice=f"key 3 shows the disks; delete what is no longer needed: {du}",
        )  # fmt: skip


class InodesFull(DiskRule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A filesystem is nearly out of inodes: soon no file can be created, even if bytes are free."""

    name = "inodes-full"
    origin = "5 % and 3 %: node_exporter's mixin; two samples"

    for_: Duration = 20.0
    """How long the condition must hold before the alert fires: two samples."""
    keep_firing_for: Duration = 300.0
    """How long the condition must be gone before the alert resolves."""
    warn: Share = 0.05
    """Warning below this free share."""
    critical: Share = 0.03
    """Critical below this free share."""
    plenty: int = 10_000_000
    """No alert while this many files can still be created."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for volume in writable_volumes(state, now, lambda disk: self._severity(disk) is not None):
            disk, severity = volume.disk, self._severity(volume.disk)
            if severity is not None and disk.free_inodes is not None and disk.total_inodes:
                left = f"{counted(disk.free_inodes, 'inode')} left of {disk.total_inodes:,}"
                yield self.finding(
                    volume, state, severity,
                    f"{volume.name} has {left}: {disk.free_inodes / disk.total_inodes:.1%}; {age(disk, now)}",
                    advice="key 3 shows the disks; find the small files: "
                    f"du --inodes -xd1 {quote(disk.path)} | sort -n",
                )  # fmt: skip

    def missing_number(self, state: State, disk: Disk, alert: Alert) -> str | None:
        return None if disk.total_inodes and disk.free_inodes is not None else "its inodes are not known"

    def _severity(self, disk: Disk) -> Severity | None:
        if not disk.total_inodes or disk.free_inodes is None or disk.free_inodes >= self.plenty:
            return None
        return severity_of(disk.free_inodes / disk.total_inodes, self.warn, self.critical)
