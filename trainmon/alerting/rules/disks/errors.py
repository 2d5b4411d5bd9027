"""Rules about disks that fail: errors, hanging mounts, quotas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

from trainmon.alerting.rules.base import Duration, Share, Size, ago, is_answering, why_silent
from trainmon.alerting.rules.disks.base import (
    DiskRule,
    Volume,
    age,
    disks_of,
    holders,
    runs_on,
    volumes,
    why_disks_unknown,
)
from trainmon.analysis.disks import EXPIRED, directories_of, largest, lies_on
from trainmon.lib import Instant, clean, counted, listed, size
from trainmon.model import Alert, Allowance, Disk, Finding, Quota, Run, Severity, State

# ---- rules about disks that do not answer, return errors, or are read-only -------------------------------------------

MISSING = "does not exist"
"""Part of the error of a path that does not exist."""


class DiskHung(DiskRule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mount does not answer, returns an error, or is not there: every access hangs or fails. It is critical if a run
    writes there. A directory that a run has yet to create does not count."""

    name = "disk-hung"
    origin = "a mount that does not answer in 5s: node_exporter's mount-timeout"

    for_: Duration = 30.0
    """How long the condition must hold before the alert fires: a hung mount is tested every 30 s."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for volume in volumes(state, now, lambda disk: disk.state != "ok"):
            bad = [disk for disk in volume.disks if disk.state != "ok" and not _is_yet_to_come(disk, state)]
            if bad:
                yield self._finding(volume, bad, state, now)

    def why_unknown(self, state: State, alert: Alert, now: Instant) -> str | None:
        return why_disks_unknown(holders(alert, state), alert, state, now)

    def _finding(self, volume: Volume, bad: Sequence[Disk], state: State, now: Instant) -> Finding:
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
        return self.finding(
            volume, state, "warning" if run is None else "critical",
            f"{volume.name} {does}{where}; last tried {ago(now - first.at)} ago",
            evidence=(f"{listed(hosts)}: {clean(first.error or first.state)}",),
            advice=advice,
            cluster=first.cluster,
            run=run,
            node=first.host if len(bad) == 1 else None,
            sources=(f"node:{hosts[0]}",),
        )  # fmt: skip


def _is_missing(disk: Disk) -> bool:
    return disk.state == "error" and MISSING in (disk.error or "")


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
    disk."""

    name = "disk-read-only"
    origin = "our choice: with errors=remount-ro, the next save is the first thing that fails"

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        known = {alert.subject for alert in state.alerts.values() if alert.rule == self.name and alert.is_open}
        for volume in volumes(state, now, lambda disk: bool(disk.read_only)):
            disk, runs = volume.disk, runs_on(volume, state)
            if disk.state != "ok" or not disk.read_only:
                continue
            if disk.writable_at is None and not runs and volume.subject not in known:
                continue  # it was always read-only, and no run saves there
            changed = "" if disk.writable_at is None else f": it was writable {ago(now - disk.writable_at)} ago"
            saves = f"; {runs[0].name} saves its checkpoints there" if runs else ""
            yield self.finding(
                volume, state, "critical", f"{volume.name} is mounted read-only{changed}{saves}; {age(disk, now)}",
                advice=f"see dmesg on {disk.host}; its administrators must check and remount it",
            )  # fmt: skip

    def why_unknown(self, state: State, alert: Alert, now: Instant) -> str | None:
        disks = disks_of(alert, state)
        why = why_disks_unknown(disks, alert, state, now)
        is_silent = why is None and all(disk.state != "ok" for disk in disks)
        return f"{disks[0].path} does not answer" if is_silent else why


# ---- the rule about quotas -------------------------------------------------------------------------------------------

SERVERS = " servers"
"""The end of a subject about a missing quota server."""


class QuotaUsed(DiskRule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A quota is nearly used up, in bytes or in files. Or more than its soft limit is used, so writes fail when the
    grace period ends. Or a server was missing when it was counted."""

    name = "quota"
    origin = "90% and 97% of the hard limit: our choice, one poll in ten minutes"

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
            if not is_answering(state.sources.get(quota.source)):
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

    def why_unknown(self, state: State, alert: Alert, now: Instant) -> str | None:
        quotas = state.quotas.items()
        quota = next((one for where, one in quotas if alert.subject.startswith(clean(f"disk:{where} "))), None)
        why = why_silent(state, alert.sources)
        if why is not None or quota is None or alert.subject.endswith(SERVERS):
            return why
        if quota.trouble is not None:
            return f"the quota of {quota.path} is not exact: {quota.trouble}"
        is_listed = any(f" {one.owner} " in f"{alert.subject} " for one in quota.allowances)
        is_gone = quota.allowances and not is_listed
        return f"the quota command of {quota.path} no longer reports it" if is_gone else None

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
                fails = "writes fail now: its grace period is over" if is_over else f"writes fail in {grace}"
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
