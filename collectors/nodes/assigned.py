"""What one host reads now, for itself and as a stand-in for another host, and its readings in these terms."""

from __future__ import annotations

from collections.abc import Iterator

from collectors.assignment import by_mount, name_of, requested_parts
from trainmon.model import AnyReading, DiskSamples, Spec


class Assigned:
    """The Spec of one host. The lock of its NodeCollector is held in every call."""

    def __init__(self) -> None:
        self.spec: Spec | None = None
        """None before the first one."""
        self._implied: frozenset[str] = frozenset()
        self._stand_in = Spec()
        self._disks: dict[str, str] = {}
        """By path: the names of the disks that it has read as a stand-in."""
        self._unnamed: set[str] = set()
        """Directories of runs whose mount is not known, as they do not exist yet or cannot be read."""

    def stand_in_for(self, stand_in: Spec, implied: frozenset[str]) -> tuple[str, ...]:
        """Read this part for another host from now on. Returns the names of the disks that it no longer reads so."""
        self._implied, self._stand_in = implied, stand_in
        before = self._disks
        self._disks = {path: name for path, name in before.items() if path in stand_in.disks}
        return tuple(sorted(set(before.values()) - set(self._disks.values())))

    def parts(self, reading: AnyReading) -> Iterator[tuple[AnyReading, bool]]:
        """The parts of a reading that it should read, each with whether it is a stand-in for them. Disks of directories
        that are only implied have the name of their mount."""
        spec, implied = self.spec or Spec(), self._implied
        for part, is_stand_in in requested_parts(reading, spec, self._stand_in):
            if isinstance(part, DiskSamples) and is_stand_in:
                self._disks |= {disk.path: name_of(disk, implied) for disk in part.d}
            yield by_mount(part, implied, spec) if isinstance(part, DiskSamples) and implied else part, is_stand_in

    def renamed(self, reading: AnyReading) -> tuple[str, ...]:
        """The directories in a reading that have the name of their mount from now on: each one once."""
        if not isinstance(reading, DiskSamples):
            return ()
        found = {disk.path: disk.mount is not None for disk in reading.d if disk.path in self._implied}
        self._unnamed |= {path for path, is_known in found.items() if not is_known}
        renamed = tuple(path for path, is_known in found.items() if is_known and path in self._unnamed)
        self._unnamed.difference_update(renamed)
        return renamed
