"""What disk rules share: a shared filesystem is one volume, what is known of it, and how a finding is made. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from trainmon.alerting.rules.base import Rule, ago, is_answering, why_silent
from trainmon.analysis.disks import is_shared, lies_on, saved_on
from trainmon.lib import Instant, Seconds, clean, counted
from trainmon.model import Alert, Disk, Finding, Run, Severity, State

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
    groups: dict[str, list[Disk]] = {}
    for disk in state.disks.values() if suspects else ():
        if (subject := subject_of(disk)) in suspects and is_current(disk, state, now):
            groups.setdefault(subject, []).append(disk)
    for subject, disks in groups.items():
        disks.sort(key=lambda disk: (disk.state != "ok", -disk.at, disk.host))
        yield Volume(subject, disks[0].path if is_shared(disks[0]) else disks[0].key, tuple(disks))


def writable_volumes(state: State, now: Instant, suspect: Callable[[Disk], bool]) -> Iterator[Volume]:
    """The suspect volumes that answer and are writable."""
    found = volumes(state, now, suspect)
    return (volume for volume in found if volume.disk.state == "ok" and not volume.disk.read_only)


def is_current(disk: Disk, state: State, now: Instant) -> bool:
    return now - disk.at <= FRESH and is_answering(state.sources.get(f"node:{disk.host}"))


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

    def why_unknown(self, state: State, alert: Alert, now: Instant) -> str | None:
        disks = disks_of(alert, state)
        if (why := why_disks_unknown(disks, alert, state, now)) is not None:
            return why
        path = disks[0].path
        current = [disk for disk in disks if is_current(disk, state, now) and disk.state == "ok"]
        if not current:
            return f"{path} does not answer"
        if all(disk.read_only for disk in current):
            return f"{path} is read-only now"
        is_old = now - alert.found_at < disks[0].lag
        lag = f"the statistics of {path} may be {ago(disks[0].lag)} old" if is_old else None
        return self.missing_number(state, current[0], alert) or lag

    def has_left(self, state: State, alert: Alert, now: Instant) -> bool:
        """Whether its host answers but no longer samples it: the host sampled it for another one that answers now, or
        the disk or its run left the config."""
        since = max(state.started_at, state.clock_jumped_at or 0.0, alert.found_at)
        is_released = any(_is_of(alert, clean(f"disk:{key}")) for key in state.released_disks)
        if holders(alert, state) or (now - since < LEFT_AFTER and not is_released):
            return False
        return bool(alert.sources) and why_silent(state, alert.sources) is None

    def missing_number(self, state: State, disk: Disk, alert: Alert) -> str | None:
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


def why_disks_unknown(disks: Sequence[Disk], alert: Alert, state: State, now: Instant) -> str | None:
    """Why the state of these disks is not known now."""
    if not disks:
        return f"{alert.subject.removeprefix('disk:')} is not sampled now"
    if any(is_current(disk, state, now) for disk in disks):
        return None
    newest = max(disks, key=lambda disk: disk.at)
    source = state.sources.get(f"node:{newest.host}")
    why = f": {source.problem}" if source is not None and source.error else ""
    return f"{newest.key} was last sampled {ago(now - newest.at)} ago{why}"


def age(disk: Disk, now: Instant) -> str:
    """How old the numbers of a disk are."""
    lag = f", and its statistics may be {ago(disk.lag)} old" if disk.lag else ""
    return f"read {ago(now - disk.at)} ago{lag}"
