"""Rules about disks that do not answer, return errors, or are read-only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

from trainmon.alerting.rules.base import Duration, ago
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
from trainmon.analysis.disks import directories_of, lies_on
from trainmon.lib import Instant, clean, counted
from trainmon.model import Alert, Disk, Finding, Run, State

MISSING = "does not exist"
"""Part of the error of a path that does not exist."""

NAMED = 5
"""Hosts that the evidence names."""


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
        more = f" and {len(hosts) - NAMED} more" if hosts[NAMED:] else ""
        where = f" on {len(bad)} of {counted(len(volume.disks), 'host')}" if len(volume.disks) > 1 else ""
        run = next((run.name for run in state.runs.values() if _is_used(first, run)), None)
        return self.finding(
            volume, state, "warning" if run is None else "critical",
            f"{volume.name} {does}{where}; last tried {ago(now - first.at)} ago",
            evidence=(f"{', '.join(hosts[:NAMED])}{more}: {clean(first.error or first.state)}",),
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
