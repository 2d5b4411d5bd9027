"""Rules about disks: what they share, errors, hanging mounts, quotas, and how full disks are or will be. Pure."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from shlex import quote
from typing import Any, NamedTuple

from msgspec.structs import replace

from trainmon.alerting.rules.base import (
    Duration,
    Gone,
    Rule,
    Share,
    Size,
    Unknown,
    Unseen,
    is_answering,
    open_alert,
    silent,
)
from trainmon.analysis.disks import (
    ENOUGH,
    EXPIRED,
    Fit,
    Save,
    directories_of,
    fit,
    is_shared,
    largest,
    lies_on,
    saved_on,
)
from trainmon.lib import DAY, Instant, Seconds, ago, clean, counted, group_by, listed, ordinal, size
from trainmon.model import Alert, Allowance, Disk, Finding, Forecast, Quota, Run, Severity, State, says

# ---- what disk rules share -------------------------------------------------------------------------------------------

FRESH: Seconds = 90.0
"""A disk is sampled every 10 s, a hung one every 30 s. An older sample says nothing about now."""


LEFT_AFTER: Seconds = 600.0
"""A disk that an answering host does not report for this long is no longer watched."""


class Volume(NamedTuple):
    """A disk of one host, or a filesystem that several hosts of a cluster share."""

    subject: str
    name: str
    disks: tuple[Disk, ...]
    """The disk as each host sees it now; those that answer first, then the newest sample."""

    @property
    def disk(self) -> Disk:
        return self.disks[0]


def subject_of(disk: Disk) -> str:
    """`disk:login1:/tmp`; of a filesystem that the hosts of a cluster share `disk:prod:/fsx`."""
    return clean(f"disk:{disk.cluster if is_shared(disk) else disk.host}:{disk.path}")


def volumes(state: State, now: Instant, suspect: Callable[[Disk], bool]) -> Iterator[Volume]:
    """The volumes with current samples of which at least one is suspect, whether they answer or not."""
    suspects = {subject_of(disk) for disk in state.disks.values() if suspect(disk)}
    ours = (disk for disk in state.disks.values() if suspects and subject_of(disk) in suspects)
    for subject, disks in group_by((disk for disk in ours if is_current(disk, state, now)), subject_of).items():
        disks.sort(key=lambda disk: (disk.state != "ok", -disk.at, disk.host))
        yield Volume(subject, disks[0].path if is_shared(disks[0]) else disks[0].key, tuple(disks))


def writable_volumes(state: State, now: Instant, suspect: Callable[[Disk], bool]) -> Iterator[Volume]:
    """The suspect volumes that answer and are writable."""
    return (
        volume for volume in volumes(state, now, suspect) if volume.disk.state == "ok" and not volume.disk.read_only
    )


def is_current(disk: Disk, state: State, now: Instant) -> bool:
    return now - disk.at <= FRESH and is_answering(state, f"node:{disk.host}")


def runs_on(volume: Volume, state: State) -> list[Run]:
    """The runs that save their checkpoints there."""
    return saved_on(volume.disk, state.disks, state.runs.values())


class DiskRule(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule about disks. An alert cannot resolve while its disk does not answer or is not sampled."""

    family = "disks"

    def finding(self, volume: Volume, state: State, severity: Severity, summary: str, **more: Any) -> Finding:
        """A finding about a volume. `more` has further fields, or others than these."""
        disk = volume.disk
        where = f"{disk.filesystem or 'a filesystem'} at {disk.mount or disk.path}"
        files = "" if disk.total_inodes is None else f", {disk.free_inodes or 0:,} of {disk.total_inodes:,} inodes"
        known: dict[str, Any] = {
            "rule": self.name,
            "subject": volume.subject,
            "severity": severity,
            "summary": summary,
            "evidence": (
                f"{where}, mounted on {counted(len(volume.disks), 'host')}",
                f"{disk.free_bytes or 0:,} of {disk.total_bytes or 0:,} bytes free{files}",
            ),
            "cluster": disk.cluster,
            "run": next((run.name for run in runs_on(volume, state)), None),
            "node": None if is_shared(disk) else disk.host,
            "sources": (f"node:{disk.host}",),
        }
        return Finding(**known | more)

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        disks = disks_of(alert, state)
        if (unseen := unseen_disks(disks, alert, state, now)) is not None:
            return unseen
        path = disks[0].path
        current = [disk for disk in disks if is_current(disk, state, now) and disk.state == "ok"]
        if not current:
            return Unknown(f"{path} does not answer")
        if all(disk.read_only for disk in current):
            return Unknown(f"{path} is read-only now")
        if (lacking := self.lacking(state, current[0], alert)) is not None:
            return Unknown(lacking)
        is_old = now - alert.found_at < disks[0].lag
        return Unknown(f"the statistics of {path} may be {ago(disks[0].lag)} old") if is_old else None

    def lacking(self, state: State, disk: Disk, alert: Alert) -> str | None:
        """Which number of an answering disk is missing, in a sentence."""
        return None


def disks_of(alert: Alert, state: State) -> list[Disk]:
    """The disks that an alert is about."""
    return [disk for disk in state.disks.values() if _is_of(alert, subject_of(disk))]


def _is_of(alert: Alert, subject: str) -> bool:
    """Whether an alert is about a disk, or about one of its parts."""
    return alert.subject == subject or alert.subject.startswith(f"{subject} ")


def holders(alert: Alert, state: State) -> list[Disk]:
    """The disks that an alert is about. If its path was its name only until the mount was known: the disks that hold
    that path."""
    owner, _, path = alert.subject.removeprefix("disk:").partition(":")
    return disks_of(alert, state) or [
        disk
        for disk in state.disks.values()
        if owner in (disk.host, disk.cluster) and disk.mount not in (None, "/") and lies_on(path, disk.mount or "")
    ]


def has_left(alert: Alert, state: State, now: Instant) -> bool:
    """Whether a host answers but no longer samples the disk: it sampled the disk for another host that answers now, or
    the disk or its run left the config."""
    since = max(state.started_at, state.clock_jumped_at or 0.0, alert.found_at)
    is_released = any(_is_of(alert, clean(f"disk:{key}")) for key in state.released_disks)
    if holders(alert, state) or (now - since < LEFT_AFTER and not is_released):
        return False
    return bool(alert.sources) and silent(state, alert.sources) is None


def unseen_disks(disks: Sequence[Disk], alert: Alert, state: State, now: Instant) -> Unseen | None:
    """What is known of the disks of an alert if their state is not known now."""
    if has_left(alert, state, now):
        return Gone()
    if not disks:
        return Unknown(f"{alert.subject.removeprefix('disk:')} is not sampled now")
    if any(is_current(disk, state, now) for disk in disks):
        return None
    newest = max(disks, key=lambda disk: disk.at)
    source = state.sources.get(f"node:{newest.host}")
    why = f": {source.problem}" if source is not None and source.error else ""
    return Unknown(f"{newest.key} was last sampled {ago(now - newest.at)} ago{why}")


def age(disk: Disk, now: Instant) -> str:
    """How old the numbers of a disk are."""
    lag = f", and its statistics may be {ago(disk.lag)} old" if disk.lag else ""
    return f"read {ago(now - disk.at)} ago{lag}"


# ---- rules about disks that do not answer, return errors, or are read-only -------------------------------------------


class DiskHung(DiskRule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mount does not answer, returns an error, or is not there: every access hangs or fails. It is critical if a run
    writes there. A directory that a run has yet to create does not count.

    Defaults: a mount that does not answer in 5s: node_exporter's mount-timeout
    """

    for_: Duration = 30.0
    """How long the condition must hold before the alert fires: a hung mount is tested every 30 s."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for volume in volumes(state, now, lambda disk: disk.state != "ok"):
            bad = [disk for disk in volume.disks if disk.state != "ok" and not _is_yet_to_come(disk, state)]
            if bad:
                first, path = bad[0], quote(bad[0].path)
                error = clean(first.error or "no reason")
                does = f"cannot be read: {error}"
                advice = f"check df {path} on {first.host}; if it is a mount, tell the storage administrators"
                if first.state == "hung":
                    does = "does not answer"
                    advice = f"its server may be down, and df {path} hangs there too: tell the storage administrators"
                elif _is_missing(first):
                    does = error
                    advice = f"a mount is missing, or the config is wrong: see findmnt -T {path} on {first.host}"
                hosts = sorted(disk.host for disk in bad)
                where = f" on {len(bad)} of {counted(len(volume.disks), 'host')}" if len(volume.disks) > 1 else ""
                run = next((run.name for run in state.runs.values() if _is_used(first, run)), None)
                yield self.finding(
                    volume, state, "warning" if run is None else "critical",
                    f"{volume.name} {does}{where}; last tried {ago(now - first.at)} ago",
                    evidence=(f"{listed(hosts)}: {clean(first.error or first.state)}",),
                    advice=advice,
                    cluster=first.cluster,
                    run=run,
                    node=first.host if len(bad) == 1 else None,
                    sources=(f"node:{hosts[0]}",),
                )  # fmt: skip

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        return unseen_disks(holders(alert, state), alert, state, now)


def _is_missing(disk: Disk) -> bool:
    return disk.state == "error" and says(disk.error, "missing")


def _is_yet_to_come(disk: Disk, state: State) -> bool:
    """Whether it is a directory that a run will create with its first checkpoint or log, or has created since the
    disk was sampled. After the end of a run, a person may have deleted it."""
    if not _is_missing(disk):
        return False
    runs = [run for run in state.runs.values() if disk.path in directories_of(run.spec)]
    logs = ((run.log.path, run.log.checked_at, run.log.error) for run in runs if run.log is not None)
    was_there = [run for run in runs if run.memory.commits and run.verdict not in ("finished", "stopped")]
    saved = (run.checkpoints for run in runs if run.checkpoints and (run.checkpoints.list or run in was_there))
    read = (*logs, *((one.path, one.listed_at, one.error) for one in saved))
    seen = [(at or 0.0) > disk.at and error is None for path, at, error in read if lies_on(path or "", disk.path)]
    return bool(runs) and all(seen)


def _is_used(disk: Disk, run: Run) -> bool:
    """Whether a run writes there."""
    spec, above = run.spec, disk.mount or disk.path
    paths = (spec.checkpoints, spec.log if run.log is None else run.log.path, spec.save_switch, spec.kill_switch)
    return above != "/" and any(path is not None and lies_on(path, above) for path in paths)


class DiskReadOnly(DiskRule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A disk has become read-only, as the kernel does after an error, or checkpoints are to be saved on a read-only
    disk.

    Defaults: our choice: with errors=remount-ro, the next save is the first thing that fails
    """

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for volume in volumes(state, now, lambda disk: bool(disk.read_only)):
            disk, runs = volume.disk, runs_on(volume, state)
            if disk.state != "ok" or not disk.read_only:
                continue
            if disk.writable_at is None and not runs and open_alert(state, self.name, volume.subject) is None:
                continue  # it was always read-only, and no run saves there
            changed = "" if disk.writable_at is None else f": it was writable {ago(now - disk.writable_at)} ago"
            saves = f"; {runs[0].name} saves its checkpoints there" if runs else ""
            yield self.finding(
                volume, state, "critical", f"{volume.name} is mounted read-only{changed}{saves}; {age(disk, now)}",
                advice=f"see dmesg on {disk.host}; its administrators must check and remount it",
            )  # fmt: skip

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        disks = disks_of(alert, state)
        unseen = unseen_disks(disks, alert, state, now)
        is_silent = unseen is None and all(disk.state != "ok" for disk in disks)
        return Unknown(f"{disks[0].path} does not answer") if is_silent else unseen


# ---- the rule about quotas -------------------------------------------------------------------------------------------

SERVERS = " servers"
"""The end of a subject about a missing quota server."""


class QuotaUsed(DiskRule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A quota is nearly used up, in bytes or in files. Or more than its soft limit is used, so writes fail when the
    grace period ends. Or a server was missing when it was counted.

    Defaults: 90% and 97% of the hard limit: our choice, one poll in ten minutes
    """

    name = "quota"

    keep_firing_for: Duration = 300.0
    """How long the condition must be gone before the alert resolves."""
    warn: Share = 0.90
    """Warning at this share of the hard limit, or more."""
    critical: Share = 0.97
    """Critical at this share of the hard limit, or more."""
    checkpoints: int = 20
    """No alert while this many checkpoints fit, each as large as the largest recent one."""
    little: Size = 100_000_000_000
    """With less space left than this, `checkpoints` is ignored."""
    plenty: Size = 10_000_000_000_000
    """On a disk without checkpoints: no alert while this much is left."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for where, quota in state.quotas.items():
            if not is_answering(state, quota.source):
                continue
            disks = (disk for disk in state.disks.values() if disk.quota is quota)
            sizes = (largest(disk, state.disks, state.runs.values()) for disk in disks)
            known = [found for found in sizes if found is not None]
            enough = max(self.little, self.checkpoints * max(known)) if known else self.plenty
            for one in quota.allowances:
                yield from self._used(where, quota, one, enough, now)
                yield from self._grace(where, quota, one, now)
            if quota.trouble is not None:
                yield self._finding(
                    where, quota, SERVERS, "warning", f"the quota of {quota.path} is not exact: {quota.trouble}",
                    "a storage server may be down: see lfs check servers, or tell its administrators", now,
                )  # fmt: skip

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        quotas = state.quotas.items()
        quota = next((one for where, one in quotas if alert.subject.startswith(clean(f"disk:{where} "))), None)
        unseen = Gone() if has_left(alert, state, now) else silent(state, alert.sources)
        if unseen is not None or quota is None or alert.subject.endswith(SERVERS):
            return unseen
        if quota.trouble is not None:
            return Unknown(f"the quota of {quota.path} is not exact: {quota.trouble}")
        is_lacking = quota.allowances and all(f" {one.owner} " not in f"{alert.subject} " for one in quota.allowances)
        return Unknown(f"the quota command of {quota.path} no longer reports it") if is_lacking else None

    def _used(self, where: str, quota: Quota, one: Allowance, enough: int, now: Instant) -> Iterator[Finding]:
        files = f"{one.used_inodes or 0:,} of {one.hard_inodes or 0:,} files"
        for what, used, limit, text in (
            ("", one.used_bytes, one.hard_bytes, f"{size(one.used_bytes or 0)} of {size(one.hard_bytes or 0)}"),
            (" inodes", one.used_inodes, one.hard_inodes, files),
        ):
            left = "" if what else f", {size(one.left_bytes or 0)} left"
            has_enough = not what and (one.left_bytes is None or one.left_bytes >= enough)
            if used is not None and limit and used >= self.warn * limit and not has_enough:
                yield self._finding(
                    where, quota, f" {one.owner}{what}", "critical" if used >= self.critical * limit else "warning",
                    f"the quota of {one.owner} on {quota.path} is {100.0 * used / limit:.1f}% used: {text}{left}",
                    "delete what is no longer needed, or ask for a larger quota; key 3 shows the disks", now,
                )  # fmt: skip

    def _grace(self, where: str, quota: Quota, one: Allowance, now: Instant) -> Iterator[Finding]:
        for what, grace, used, soft in (
            ("bytes", one.bytes_grace, size(one.used_bytes or 0), size(one.soft_bytes or 0)),
            ("files", one.inodes_grace, f"{one.used_inodes or 0:,}", f"{one.soft_inodes or 0:,}"),
        ):
            if grace is not None:
                is_over = grace == EXPIRED
                fails = "writes fail now, after its grace period" if is_over else f"writes fail in {grace}"
                yield self._finding(
                    where, quota, f" {one.owner} {what} grace", "critical" if is_over else "warning",
                    f"{one.owner} uses {used} of {quota.path}, more than the soft limit of {soft} ({what}): {fails}",
                    "delete files until the use is below the soft limit", now,
                )  # fmt: skip

    def _finding(
        self, where: str, quota: Quota, what: str, severity: Severity, text: str, advice: str, now: Instant
    ) -> Finding:
        return Finding(
            rule=self.name,
            subject=f"disk:{where}{what}",
            severity=severity,
            summary=f"{text}; read {ago(now - quota.at)} ago",
            evidence=tuple(_line(one) for one in quota.allowances[:10]),
            advice=advice,
            cluster=quota.cluster,
            sources=(quota.source,),
        )


def _line(one: Allowance) -> str:
    limits = f"soft {size(one.soft_bytes)}, " if one.soft_bytes else ""
    hard = f"hard {size(one.hard_bytes)}" if one.hard_bytes else "no hard limit"
    files = "" if one.used_inodes is None else f"; {one.used_inodes:,} files of {one.hard_inodes or 'no limit'}"
    return f"{one.owner}: {size(one.used_bytes or 0)} used, {limits}{hard}{files}"


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
    free space must also be less than a few of the largest checkpoints that are saved there.

    Defaults: 10% and 3%: node_exporter's mixin and awesome-prometheus-alerts; two samples
    """

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

    def lacking(self, state: State, disk: Disk, alert: Alert) -> str | None:
        return None if disk.total_bytes and disk.usable_free_bytes is not None else "its size is not known"

    def _severity(self, disk: Disk, state: State) -> Severity | None:
        return severity_of(share_left(disk, state), self.warn, self.critical)

    def _becomes_critical_again(self, volume: Volume, checkpoint: int | None, state: State) -> bool:
        """Whether it was critical and the next save makes it critical again: an alert must not flap with each save."""
        alert, free = open_alert(state, self.name, volume.subject), volume.disk.usable_free_bytes
        if checkpoint is None or free is None or alert is None or alert.severity != "critical":
            return False
        return self._severity(replace(volume.disk, usable_free_bytes=max(0, free - checkpoint)), state) == "critical"

    def _finding(
        self, volume: Volume, severity: Severity, checkpoint: int | None, state: State, now: Instant
    ) -> Finding:
        disk, usable = volume.disk, state.usable.get(volume.disk.path, 1.0)
        left, whole = disk.usable_free_bytes or 0, size((disk.total_bytes or 0) * usable)
        of = whole if usable == 1 else f"the usable {whole}"
        fits = f": room for {counted(left // checkpoint, 'checkpoint')} of {size(checkpoint)}" if checkpoint else ""
        saved = [run.checkpoints.path for run in runs_on(volume, state) if run.checkpoints is not None]
        du = f"du -xsh {quote(saved[0] if saved else disk.path).rstrip('/')}/* | sort -h"
        return self.finding(
            volume, state, severity,
            f"{volume.name} is {1.0 - (share_left(disk, state) or 0.0):.1%} full ({size(left)} of {of} free){fits}; "
            f"{age(disk, now)}",
            advice=f"key 3 shows the disks; delete what is no longer needed: {du}",
        )  # fmt: skip


class InodesFull(DiskRule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A filesystem is nearly out of inodes: soon no file can be created, even if bytes are free.

    Defaults: 5% and 3%: node_exporter's mixin; two samples
    """

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
                yield self.finding(
                    volume, state, severity,
                    f"{volume.name} has {counted(disk.free_inodes, 'inode')} left of {disk.total_inodes:,}: "
                    f"{disk.free_inodes / disk.total_inodes:.1%}; {age(disk, now)}",
                    advice="key 3 shows the disks; find the small files: "
                    f"du --inodes -xd1 {quote(disk.path)} | sort -n",
                )  # fmt: skip

    def lacking(self, state: State, disk: Disk, alert: Alert) -> str | None:
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
    after each deletion does. On a shared filesystem only nearly linear growth counts.

    Defaults: 24h and 4h: node_exporter's mixin; its linear forecast is wrong where old checkpoints are deleted
    """

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

    def lacking(self, state: State, disk: Disk, alert: Alert) -> str | None:
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
            advice="key 3 shows the disks; delete old checkpoints, or check whether their cleanup still runs",
        )  # fmt: skip


class CheckpointsDoNotFit(DiskRule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The next checkpoints of the runs that save there do not fit. The rule needs no history: it uses the sizes and the
    interval of the recent checkpoints. It is critical if the very next one does not fit.

    Defaults: our choice: a save that ends with ENOSPC leaves an incomplete checkpoint and often ends the run
    """

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

    def unseen(self, state: State, alert: Alert, now: Instant) -> Unseen | None:
        run, unseen = state.runs.get(alert.run or ""), super().unseen(state, alert, now)
        is_unlisted = run is not None and run.spec.checkpoints is not None and run.checkpoints is None
        if is_unlisted and not isinstance(unseen, Gone):
            return Unknown(f"the checkpoints of {alert.run} have not been listed yet")
        return unseen

    def lacking(self, state: State, disk: Disk, alert: Alert) -> str | None:
        return None if disk.left_bytes is not None else "the free space is not known"

    def _finding(self, volume: Volume, found: Fit, save: Save, state: State, now: Instant) -> Finding:
        disk, is_next = volume.disk, save.number == 1
        is_due = is_next and save.at is not None and save.at - now <= IMMINENT
        due = "" if save.at is None else f", due {_in(save.at, now)},"
        if save.at is not None and save.at < now:
            due = ", which is being written,"
        nth = "checkpoint after the next" if save.number == 2 else f"{ordinal(save.number)} checkpoint from now"
        which = f"the {'next checkpoint' if is_next else nth} of {save.run} ({size(save.size)}){due}"
        before = f" after {counted(found.fitting, 'earlier save')}" if found.fitting else ""
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
