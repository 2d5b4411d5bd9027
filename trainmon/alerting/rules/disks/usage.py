"""Rules about full disks: how full they are, and when they will be."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from shlex import quote

from msgspec.structs import replace

from trainmon.alerting.rules.base import Duration, Share, Size, ago
from trainmon.alerting.rules.disks.base import DiskRule, Volume, age, runs_on, writable_volumes
from trainmon.analysis.disks import DAY, ENOUGH, Fit, Save, fit, is_shared, largest, saved_on
from trainmon.lib import Instant, counted, ordinal, size
from trainmon.model import Alert, Disk, Finding, Forecast, Run, Severity, State

# ---- rules about disks that are nearly full, in bytes or in inodes ---------------------------------------------------


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
    origin = "10% and 3%: node_exporter's mixin and awesome-prometheus-alerts; two samples"

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
    """No alert while this many checkpoints fit, each as large as the largest recent one: 5% of 9.8 PB is enough."""
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
    origin = "5% and 3%: node_exporter's mixin; two samples"

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


# ---- rules about disks that will be full -----------------------------------------------------------------------------

SOON = 4 * 3_600.0
"""If the forecast is later than this, the saves until then fit."""

IMMINENT = 120.0
"""From this many seconds before a save on, the alert fires at once."""

INODES = " inodes"
"""The end of a subject that is about inodes and not bytes."""

SAVES = 24
"""The history must cover this many saves, or a day: the first deletion may come after many saves."""

WIDE = 4.0
"""On a shared filesystem, the latest possible time of a forecast may be this many times the time that is left."""


class DiskForecast(DiskRule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A disk will be full soon. Checkpoints that are written and deleted again do not count as growth; what remains
    after each deletion does. On a shared filesystem only nearly linear growth counts."""

    name = "disk-forecast"
    origin = "24h and 4h: node_exporter's mixin; its linear forecast is wrong where old checkpoints are deleted"

    for_: Duration = 120.0
    """How long the condition must hold before the alert fires: two forecasts."""
    keep_firing_for: Duration = 600.0
    """How long the condition must be gone before the alert resolves."""
    warn: Duration = 86_400.0
    """Warning if the disk is full within this time."""
    critical: Duration = 14_400.0
    """Critical if the disk is full within this time."""
    history: Duration = 28_800.0
    """The minimum history for a forecast."""
    fit: Share = 0.9
    """On a shared filesystem, the share of the change that linear growth must explain (R²)."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        def is_suspect(disk: Disk) -> bool:
            return any(at is not None and at < now + self.warn for at in (disk.full_at, disk.inodes_full_at))

        for volume in writable_volumes(state, now, is_suspect):
            for what, forecast in (("", volume.disk.forecast), (INODES, volume.disk.inodes_forecast)):
                if forecast is not None and forecast.full_at is not None:
                    left = forecast.full_at - now
                    if left < self.warn and self._is_believed(forecast, volume.disk, state, left):
                        yield self._finding(volume, state, now, left, forecast, what)

    def missing_number(self, state: State, disk: Disk, alert: Alert) -> str | None:
        forecast = disk.inodes_forecast if alert.subject.endswith(INODES) else disk.forecast
        is_known = forecast is not None and self._has_history(forecast, disk, state)
        return None if is_known else "there is not enough history of it yet"

    def _has_history(self, forecast: Forecast, disk: Disk, state: State) -> bool:
        """Whether the history is long enough for a forecast. With checkpoints, the first deletion may be many saves
        away."""
        if forecast.basis == "cycles":
            return forecast.cycles > ENOUGH and forecast.span >= self.history
        saved = (run.checkpoints for run in saved_on(disk, state.disks, state.runs.values()))
        slowest = max((one.every_s or 0.0 for one in saved if one is not None), default=0.0)
        return forecast.span >= max(self.history, min(DAY, SAVES * slowest))

    def _is_believed(self, forecast: Forecast, disk: Disk, state: State, left: float) -> bool:
        if not self._has_history(forecast, disk, state):
            return False
        if not is_shared(disk) or forecast.of == "quota":
            return True
        latest = None if forecast.latest is None or forecast.full_at is None else forecast.latest - forecast.full_at
        return forecast.fit >= self.fit and latest is not None and latest <= (WIDE - 1) * max(left, 60.0)

    def _finding(
        self, volume: Volume, state: State, now: Instant, left: float, forecast: Forecast, what: str
    ) -> Finding:
        disk = volume.disk
        per_day = disk.inodes_per_day if what else disk.bytes_per_day
        ends, pace = "will run out of inodes" if what else "will be full", ""
        if forecast.of == "quota":
            ends = f"will use up its quota of {'inodes' if what else 'bytes'}"
        elif per_day is not None:
            pace = f" at {counted(round(per_day), 'file') if what else size(max(0.0, per_day))} per day"
        first = "?" if forecast.earliest is None else ago(forecast.earliest - now)
        last = "never" if forecast.latest is None else f"in {ago(forecast.latest - now)}"
        return self.finding(
            volume, state, "critical" if left < self.critical else "warning",
            f"{volume.name} {ends} in {ago(left)}{pace}, {forecast.description}; {age(disk, now)}",
            subject=volume.subject + what,
            evidence=(
                f"{ago(forecast.span)} of history, R² {forecast.fit:.2f}; full in {first} at the earliest,"
                f" {last} at the latest",
                f"{size(disk.left_bytes or 0)} may still be written",
            ),
            advice="key 3 shows the disks; delete old checkpoints, or see whether their cleanup still runs",
        )  # fmt: skip


class CheckpointsDoNotFit(DiskRule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The next checkpoints of the runs that save there do not fit. The rule needs no history: it uses the sizes and the
    interval of the recent checkpoints. It is critical if the very next one does not fit."""

    name = "checkpoints-do-not-fit"
    origin = "our choice: a save that ends with ENOSPC leaves an incomplete checkpoint and often ends the run"
    needs_for = True

    for_: Duration = 600.0
    """How long the condition must hold before the alert fires: an old checkpoint is deleted minutes after a save. It
    fires at once if the next save is about to begin."""
    keep_firing_for: Duration = 120.0
    """How long the condition must be gone before the alert resolves."""
    wanted: int = 2
    """How many of the next checkpoints of each run must fit."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        hosts = {run.checkpoints.host for run in state.runs.values() if run.checkpoints is not None}
        if not hosts:
            return
        for volume in writable_volumes(state, now, lambda disk: disk.host in hosts or is_shared(disk)):
            found = fit(volume.disk, state, self.wanted, now)
            if found is None or found.first is None:
                continue
            is_later = found.first.number > 1
            if is_later and (_keeps_few(state.runs[found.first.run]) or _is_pruned(volume.disk.forecast, now)):
                continue  # checkpoints are deleted again before that save
            yield self._finding(volume, found, found.first, state, now)

    def why_unknown(self, state: State, alert: Alert, now: Instant) -> str | None:
        run = state.runs.get(alert.run or "")
        if run is not None and run.spec.checkpoints is not None and run.checkpoints is None:
            return f"the checkpoints of {run.name} have not been listed yet"
        return super().why_unknown(state, alert, now)

    def missing_number(self, state: State, disk: Disk, alert: Alert) -> str | None:
        return None if disk.left_bytes is not None else "the free space is not known"

    def _finding(self, volume: Volume, found: Fit, save: Save, state: State, now: Instant) -> Finding:
        disk, is_next = volume.disk, save.number == 1
        is_due = is_next and save.at is not None and save.at - now <= IMMINENT
        due = "" if save.at is None else f", due {_in(save.at, now)},"
        if save.at is not None and save.at < now:
            due = ", which is being written,"
        nth = "checkpoint after the next" if save.number == 2 else f"{ordinal(save.number)} checkpoint from now"
        which = f"the {'next checkpoint' if is_next else nth} of {save.run} ({size(found.bytes)}){due}"
        before = f"; room for {counted(found.fitting, 'more checkpoint')}" if found.fitting else ""
        assuming = "" if is_next else ", if nothing is deleted"
        quota = " of its quota" if disk.quota is not None and disk.left_bytes == disk.quota.left_bytes else ""
        next_at = "" if found.next_at is None else f"; the next save begins {_in(found.next_at, now)}"
        return self.finding(
            volume, state, "critical" if is_next else "warning",
            f"{volume.name} has {size(disk.left_bytes or 0)}{quota} left: {which} does not fit{before}{assuming}; "
            f"{age(disk, now)}",
            evidence=(
                f"recent checkpoints take up to {size(found.bytes)}{next_at}",
                f"{disk.left_bytes or 0:,} bytes may still be written at {disk.mount or disk.path}",
            ),
            advice="delete old checkpoints before the save; Enter on the run (key 1) shows them",
            run=save.run,
            fires_at_once=is_due,
            by_age=is_due,
        )  # fmt: skip


def _in(at: Instant, now: Instant) -> str:
    """With the time of day, because a person may read it much later."""
    return "now" if at <= now else f"in {ago(at - now)} (at {dt.datetime.fromtimestamp(at, dt.UTC):%H:%M} UTC)"


def _keeps_few(run: Run) -> bool:
    """Whether the run deletes its old checkpoints: its first ones are gone. The very next save still needs room."""
    found = run.checkpoints
    if found is None or not found.every_steps:
        return False
    steps = [one.step for one in found.list if one.is_whole and one.step is not None]
    return len(steps) > 1 and min(steps) > 1.5 * found.every_steps


def _is_pruned(forecast: Forecast | None, now: Instant) -> bool:
    """Whether checkpoints are deleted regularly, and the remaining growth does not fill the disk soon."""
    return (
        forecast is not None
        and forecast.basis == "cycles"
        and forecast.cycles > ENOUGH
        and (forecast.full_at is None or forecast.full_at - now > SOON)
    )
