"""Rules about disks that do not answer, return errors, or are read-only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from posixpath import dirname
from shlex import quote

from trainmon.alerting.rules.base import Duration, ago
from trainmon.alerting.rules.disks.shared import (
    DiskRule,
    Place,
    age,
    disks_of,
    holders,
    places,
    runs_on,
    unread,
)
from trainmon.analysis.disks import lies_on
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
    origin = "a mount that does not answer in 5 s: node_exporter's mount-timeout"

    for_: Duration = 30.0
    """How long the condition must hold before the alert fires: a hung mount is tested every 30 s."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        for place in places(state, now, lambda disk: disk.state != "ok"):
            bad = [disk for disk in place.disks if disk.state != "ok" and not _is_awaited(disk, state)]
            if bad:
                yield self._finding(place, bad, state, now)

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        return unread(holders(alert, state), alert, state, now)

    def _finding(self, place: Place, bad: Sequence[Disk], state: State, now: Instant) -> Finding:
        first = bad[0]
        why = clean(first.error or "no reason")
        does = "does not answer" if first.state == "hung" else why if _is_missing(first) else f"cannot be read: {why}"
        hosts = sorted(disk.host for disk in bad)
        where = f" on {len(bad)} of {counted(len(place.disks), 'host')}" if len(place.disks) > 1 else ""
        run = next((run.name for run in state.runs.values() if _is_used(first, run)), None)
        listed = ", ".join(hosts[:NAMED]) + (f" and {len(hosts) - NAMED} more" if len(hosts) > NAMED else "")
        return self.finding(
            place, state, "warning" if run is None else "critical",
            f"{place.name} {does}{where}; last tried {ago(now - first.at)} ago",
            evidence=(f"{listed}: {clean(first.error or first.state)}",),
            advice=_advice(first),
            cluster=first.cluster,
            run=run,
            node=first.host if len(bad) == 1 else None,
            sources=(f"node:{hosts[0]}",),
        )  # fmt: skip


def _advice(disk: Disk) -> str:
    if disk.state == "hung":
        return f"its server may be down, and df {quote(disk.path)} hangs there too: tell the storage administrators"
    if _is_missing(disk):
        return f"a mount is missing, or the config is wrong: see findmnt -T {quote(disk.path)} on {disk.host}"
    return f"check df {quote(disk.path)} on {disk.host}; if it is a mount, tell the storage administrators"


def _is_missing(disk: Disk) -> bool:
    return disk.state == "error" and MISSING in (disk.error or "")


def _is_awaited(disk: Disk, state: State) -> bool:
    """Whether it is a directory that a run will create with its first checkpoint or log."""
    if not _is_missing(disk):
        return False
    runs = [run for run in state.runs.values() if disk.path in _directories(run)]
    return bool(runs) and not any(path is not None and lies_on(path, disk.path) for run in runs for path in _seen(run))


def _directories(run: Run) -> tuple[str, ...]:
    spec = run.spec
    files = (spec.log, spec.kill_switch, spec.save_switch)
    return (spec.checkpoints or "", *(dirname(path) for path in files if path is not None))


def _seen(run: Run) -> tuple[str | None, ...]:
    """What was once there."""
    found = run.checkpoints
    return (None if run.log is None else run.log.path, found.path if found is not None and found.list else None)


def _is_used(disk: Disk, run: Run) -> bool:
    """Whether a run writes there."""
    log = run.spec.log if run.log is None else run.log.path
    above = disk.mount or disk.path
    paths = (run.spec.checkpoints, log, run.spec.save_switch, run.spec.kill_switch)
    return above != "/" and any(path is not None and lies_on(path, above) for path in paths)


class DiskReadOnly(DiskRule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A disk has become read-only, as the kernel does after an error, or checkpoints are to be saved on a read-only
    disk."""

    name = "disk-read-only"
    origin = "our choice: a disk with errors=remount-ro fails the next save, and nothing before it"

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        known = {alert.subject for alert in state.alerts.values() if alert.rule == self.name and alert.is_open}
        for place in places(state, now, lambda disk: bool(disk.read_only)):
            if place.disk.state != "ok" or not place.disk.read_only:
                continue
            runs = runs_on(place, state)
            if place.disk.writable_at is None and not runs and place.subject not in known:
                continue  # it was always read-only, and no run saves there
            yield self._finding(place, runs, state, now)

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        mine = disks_of(alert, state)
        why = unread(mine, alert, state, now)
        if why is None and all(disk.state != "ok" for disk in mine):
            return f"{mine[0].path} does not answer"
        return why

    def _finding(self, place: Place, runs: Sequence[Run], state: State, now: Instant) -> Finding:
        disk = place.disk
        changed = "" if disk.writable_at is None else f": it was writable {ago(now - disk.writable_at)} ago"
        saves = f"; {runs[0].name} saves its checkpoints there" if runs else ""
        return self.finding(
            place, state, "critical", f"{place.name} is mounted read-only{changed}{saves}; {age(disk, now)}",
            advice=f"see dmesg on {disk.host}; its administrators must check and remount it",
        )  # fmt: skip
