"""What disk rules share: a shared filesystem is one place, what is seen of it, and how a finding is made. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from trainmon.alerting.rules.base import Rule, ago, is_seen
from trainmon.analysis.disks import is_shared, largest, lies_on, saved_on
from trainmon.lib import Instant, Seconds, clean, counted
from trainmon.model import Alert, Disk, Finding, Run, Severity, State

FRESH: Seconds = 90.0
"""A disk is sampled every 10 s, a hung one every 30 s. An older sample says nothing about now."""


LEFT_AFTER: Seconds = 600.0
"""A disk that an answering host does not report for this long is no longer watched."""


class Place(NamedTuple):
    """A disk of one host, or a filesystem that several hosts of a cluster see."""

    subject: str
    name: str
    disks: tuple[Disk, ...]
    """The disk as each host sees it now; those that answer first, then the newest sample."""

    @property
    def disk(self) -> Disk:
        return self.disks[0]

    @property
    def node(self) -> str | None:
        return None if is_shared(self.disk) else self.disk.host

    @property
    def sources(self) -> tuple[str, ...]:
        return (f"node:{self.disk.host}",)


def subject_of(disk: Disk) -> str:
    """`disk:login1:/tmp`; of a filesystem that the hosts of a cluster share `disk:prod:/fsx`."""
    return clean(f"disk:{disk.cluster if is_shared(disk) else disk.host}:{disk.path}")


def places(state: State, now: Instant, suspect: Callable[[Disk], bool]) -> Iterator[Place]:
    """The places that are seen now and of which at least one host's sample is suspect, whether they answer or not."""
    suspects = {subject_of(disk) for disk in state.disks.values() if suspect(disk)}
    if not suspects:
        return
    groups: dict[str, list[Disk]] = {}
    for disk in state.disks.values():
        if (subject := subject_of(disk)) in suspects and is_current(disk, state, now):
            groups.setdefault(subject, []).append(disk)
    for subject, disks in groups.items():
        disks.sort(key=lambda disk: (disk.state != "ok", -disk.at, disk.host))
        shared = is_shared(disks[0])
        yield Place(subject, disks[0].path if shared else disks[0].key, tuple(disks))


def well(state: State, now: Instant, suspect: Callable[[Disk], bool]) -> Iterator[Place]:
    """The suspect places that answer and are writable."""
    for place in places(state, now, suspect):
        if place.disk.state == "ok" and not place.disk.read_only:
            yield place


def is_current(disk: Disk, state: State, now: Instant) -> bool:
    return now - disk.at <= FRESH and is_seen(state.sources.get(f"node:{disk.host}"))


def runs_on(place: Place, state: State) -> list[Run]:
    """The runs that save their checkpoints there."""
    return saved_on(place.disk, state.disks, state.runs.values())


def largest_on(place: Place, state: State) -> int | None:
    """The largest recent checkpoint that is saved there."""
    return largest(place.disk, state.disks, state.runs.values())


class DiskRule(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule about disks. A disk that does not answer, or is no longer sampled, is not well."""

    family = "disks"

    def finding(self, place: Place, state: State, severity: Severity, summary: str, **more: Any) -> Finding:
        """A finding about a place. `more` has further fields, or others than these."""
        known: dict[str, Any] = {
            "rule": self.name,
            "subject": place.subject,
            "severity": severity,
            "summary": summary,
            "evidence": evidence(place),
            "cluster": place.disk.cluster,
            "run": next((run.name for run in runs_on(place, state)), None),
            "node": place.node,
            "sources": place.sources,
        }
        return Finding(**known | more)

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        mine = disks_of(alert, state)
        why = unread(mine, alert, state, now)
        if why is not None:
            return why
        current = [disk for disk in mine if is_current(disk, state, now) and disk.state == "ok"]
        if not current:
            return f"{mine[0].path} does not answer"
        if all(disk.read_only for disk in current):
            return f"{mine[0].path} is read-only now"
        return self.lacks(state, current[0], alert) or lags(mine[0], alert, now)

    def has_left(self, state: State, alert: Alert, now: Instant) -> bool:
        """Whether its host answers but no longer samples it: the host sampled it for another one that answers now, or
        the disk or its run left the config."""
        since = max(state.started_at, state.woke_at or 0.0, alert.found_at)
        is_handed_back = any(_is_of(alert, clean(f"disk:{key}")) for key in state.handed_back)
        if holders(alert, state) or (now - since < LEFT_AFTER and not is_handed_back):
            return False
        return bool(alert.sources) and all(is_seen(state.sources.get(name)) for name in alert.sources)

    def lacks(self, state: State, disk: Disk, alert: Alert) -> str | None:
        """Which number of an answering disk is missing, in a sentence."""
        return None


def disks_of(alert: Alert, state: State) -> list[Disk]:
    """The disks that an alert is about."""
    return [disk for disk in state.disks.values() if _is_of(alert, subject_of(disk))]


def _is_of(alert: Alert, subject: str) -> bool:
    """Whether it is about a disk, or about one of its parts."""
    return alert.subject == subject or alert.subject.startswith(f"{subject} ")


def holders(alert: Alert, state: State) -> list[Disk]:
    """The disks that an alert is about. If its path was its name only until the mount was known: the disks that hold
    that path."""
    mine = disks_of(alert, state)
    owner, _, path = alert.subject.removeprefix("disk:").partition(":")
    return mine or [
        disk
        for disk in state.disks.values()
        if owner in (disk.host, disk.cluster) and disk.mount not in (None, "/") and lies_on(path, disk.mount or "")
    ]


def unread(mine: Sequence[Disk], alert: Alert, state: State, now: Instant) -> str | None:
    """Why the state of these disks is not known now."""
    if not mine:
        return f"{alert.subject.removeprefix('disk:')} is not sampled now"
    if any(is_current(disk, state, now) for disk in mine):
        return None
    newest = max(mine, key=lambda disk: disk.at)
    source = state.sources.get(f"node:{newest.host}")
    why = f": {source.error}" if source is not None and source.error else ""
    return f"{newest.key} was last sampled {ago(now - newest.at)} ago{why}"


def lags(disk: Disk, alert: Alert, now: Instant) -> str | None:
    """Why numbers that look well again are not believed yet."""
    if now - alert.found_at < disk.lag:
        return f"the statistics of {disk.path} may be {ago(disk.lag)} old"
    return None


def age(disk: Disk, now: Instant) -> str:
    """How old the numbers of a disk are."""
    known = f"read {ago(now - disk.at)} ago"
    return f"{known}, and its statistics may be {ago(disk.lag)} old" if disk.lag else known


def evidence(place: Place) -> tuple[str, ...]:
    """The numbers of a place, for the evidence of a finding."""
    disk = place.disk
    seen = f"seen by {counted(len(place.disks), 'host')}"
    where = f"{disk.filesystem or 'a filesystem'} at {disk.mount or disk.path}, {seen}"
    space = f"{disk.free_bytes or 0:,} of {disk.total_bytes or 0:,} bytes free"
    files = "" if disk.total_inodes is None else f", {disk.free_inodes or 0:,} of {disk.total_inodes:,} inodes"
    return (where, space + files)
