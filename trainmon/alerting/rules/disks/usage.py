"""Rules about disks that are nearly full, in bytes or in inodes."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from msgspec.structs import replace

from trainmon.alerting.rules.base import Duration, Share, Size
from trainmon.alerting.rules.disks.shared import DiskRule, Place, age, largest_on, runs_on, well
from trainmon.lib import Instant, counted, size
from trainmon.model import Alert, Disk, Finding, Severity, State


def share_left(disk: Disk, state: State) -> float | None:
    """The free share of what may be used (`usable`)."""
    if not disk.total_bytes or disk.usable_free_bytes is None:
        return None
    return disk.usable_free_bytes / (disk.total_bytes * state.usable.get(disk.path, 1.0))


def graded(share: float, warn: float, critical: float) -> Severity | None:
    """The severity of a free share; None if it is large enough."""
    if share < critical:
        return "critical"
    return "warning" if share < warn else None


class DiskFull(DiskRule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Little of a disk is left, of what may be used (`usable`). A small share of a large disk may still be plenty, so
    the space must also be less than a few of the largest checkpoints that are saved there."""

    name = "disk-full"
    origin = "10 % and 3 %: node_exporter's mixin and awesome-prometheus-alerts; two samples"

    for_: Duration = 20.0
    """How long the condition must hold before the alert fires: two samples."""
    keep_firing_for: Duration = 1_800.0
    """How long the condition must be gone before the alert resolves: checkpoints that come and go cross a threshold
    again and again."""
    warn: Share = 0.10
    """The free share from which on it is a warning."""
    critical: Share = 0.03
    """The free share from which on it is critical."""
    checkpoints: int = 20
    """No alert while this many of the largest recent checkpoint fit: 5 % of 9.8 PB is fine."""
    little: Size = 100_000_000_000
    """Below this much free space the size of the checkpoints does not matter: other things are written there, too."""
    plenty: Size = 10_000_000_000_000
    """On a disk without checkpoints: no alert while this much is free."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for place in well(state, now, lambda disk: self._graded(disk, state) is not None):
            severity = self._graded(place.disk, state)
            if severity == "warning" and self._comes_again(place, state):
                severity = "critical"
            if severity is not None and (place.disk.usable_free_bytes or 0) < self._enough(place, state):
                yield self._finding(place, state, now, severity)

    def lacks(self, state: State, disk: Disk, alert: Alert) -> str | None:
        return None if disk.total_bytes and disk.usable_free_bytes is not None else "its size is not known"

    def _graded(self, disk: Disk, state: State) -> Severity | None:
        share = share_left(disk, state)
        return None if share is None else graded(share, self.warn, self.critical)

    def _comes_again(self, place: Place, state: State) -> bool:
        """Whether it was critical and the next save makes it critical again: an alert must not flap with each save."""
        key, largest = (self.name, place.subject), largest_on(place, state)
        was = any(
            alert.key == key and alert.is_open and alert.severity == "critical" for alert in state.alerts.values()
        )
        if not was or largest is None or place.disk.usable_free_bytes is None:
            return False
        after = replace(place.disk, usable_free_bytes=max(0, place.disk.usable_free_bytes - largest))
        return self._graded(after, state) == "critical"

    def _enough(self, place: Place, state: State) -> int:
        largest = largest_on(place, state)
        return self.plenty if largest is None else max(self.little, self.checkpoints * largest)

    def _finding(self, place: Place, state: State, now: Instant, severity: Severity) -> Finding:
        disk, largest = place.disk, largest_on(place, state)
        share, usable = share_left(disk, state) or 0.0, state.usable.get(disk.path, 1.0)
        left, whole = disk.usable_free_bytes or 0, (disk.total_bytes or 0) * usable
        of = f"{size(whole)}" if usable == 1 else f"the {usable:.0%} of it that may be used ({size(whole)})"
        fits = "" if largest is None else f", {counted(left // largest, 'checkpoint')} of {size(largest)} fit"
        summary = f"{place.name} has {size(left)} left of {of}: {share:.1%}{fits}; {age(disk, now)}"
        advice = f"key 3 shows the disks; delete what is no longer needed: {du(place, state)}"
        return self.finding(place, state, severity, summary, advice=advice)


class InodesFull(DiskRule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Few more files can be created, whatever the free bytes."""

    name = "inodes-full"
    origin = "5 % and 3 %: node_exporter's mixin; two samples"

    for_: Duration = 20.0
    """How long the condition must hold before the alert fires: two samples."""
    keep_firing_for: Duration = 300.0
    """How long the condition must be gone before the alert resolves."""
    warn: Share = 0.05
    """The free share from which on it is a warning."""
    critical: Share = 0.03
    """The free share from which on it is critical."""
    plenty: int = 10_000_000
    """No alert while this many files can still be created."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for place in well(state, now, lambda disk: self._graded(disk) is not None):
            disk = place.disk
            severity = self._graded(disk)
            if severity is not None and disk.free_inodes is not None and disk.total_inodes:
                share = disk.free_inodes / disk.total_inodes
                left = f"{counted(disk.free_inodes, 'inode')} left of {disk.total_inodes:,}: {share:.1%}"
                advice = f"key 3 shows the disks; find the small files: du --inodes -xd1 {quote(disk.path)} | sort -n"
                yield self.finding(place, state, severity, f"{place.name} has {left}; {age(disk, now)}", advice=advice)

    def lacks(self, state: State, disk: Disk, alert: Alert) -> str | None:
        return None if disk.total_inodes and disk.free_inodes is not None else "its inodes are not known"

    def _graded(self, disk: Disk) -> Severity | None:
        if not disk.total_inodes or disk.free_inodes is None or disk.free_inodes >= self.plenty:
            return None
        return graded(disk.free_inodes / disk.total_inodes, self.warn, self.critical)


def du(place: Place, state: State) -> str:
    """The command that shows what fills a place."""
    saved = [run.checkpoints.path for run in runs_on(place, state) if run.checkpoints is not None]
    return f"du -xsh {quote(saved[0] if saved else place.disk.path.rstrip('/'))}/* | sort -h"
