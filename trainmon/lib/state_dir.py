"""The state directory: on a local disk if there is one, because SQLite's write-ahead log needs that.

Linux lists its mounts. On other systems every disk counts as local.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from trainmon.lib.text import clean

NAME = "trainmon-tui"
SYSTEM = Path("/var/lib")
MOUNTS = Path("/proc/self/mountinfo")

NETWORK_FILESYSTEMS = frozenset({
    "9p", "afs", "autofs", "beegfs", "ceph", "cifs", "coda", "dvs", "fhgfs", "gfs2", "glusterfs", "gpfs", "lustre",
    "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "vboxsf", "virtiofs", "wekafs",
})  # fmt: skip
"""File systems that several machines can mount at once: a disk of such a kind is shared, and SQLite's write-ahead
log does not work there. autofs stands for an export that is not mounted yet."""

FUSE_OF_THIS_MACHINE = frozenset({
    "fuse.bindfs", "fuse.encfs", "fuse.exfat", "fuse.fuse-overlayfs", "fuse.gocryptfs", "fuse.mergerfs", "fuse.ntfs-3g",
})  # fmt: skip
"""Every other fuse.… may be a server's (sshfs, juicefs, ceph-fuse, rclone): the slower journal is then the safe one."""


class Mount(NamedTuple):
    """A mount point and its filesystem type."""

    path: str
    filesystem: str


class StatePath(NamedTuple):
    """A candidate for the state directory."""

    path: Path
    filesystem: str | None
    """None: unknown."""
    is_writable: bool


class StateDirectory(NamedTuple):
    """The state directory, and a warning about it."""

    path: Path
    warning: str | None = None
    is_network: bool = False


def find_state_directory(
    environ: Mapping[str, str], *, mountinfo: Path = MOUNTS, system: Path = SYSTEM
) -> StateDirectory:
    """$XDG_STATE_HOME/trainmon-tui, else ~/.local/state/trainmon-tui; /var/lib/trainmon-tui if that is on a network."""
    named = environ.get("XDG_STATE_HOME") or ""
    is_named = named.startswith("/")  # the specification says that others are to be ignored
    home = Path(named) if is_named else Path(environ.get("HOME") or "/") / ".local" / "state"
    _is_writable(home)  # a home that is mounted at its first use is in the kernel's list only afterwards
    mounts = tuple(read_mounts(_text(mountinfo)))
    own = _place(home / NAME, mounts)
    if is_named:
        own = own._replace(is_writable=True)  # a named directory is used, and its errors are reported
    return select_directory(own, _place(_own_part(system / NAME), mounts))


def select_directory(own: StatePath, common: StatePath) -> StateDirectory:
    """The user's own directory, unless it is on a network (or cannot be written) and the common one is better."""
    if own.is_writable and not is_network(own.filesystem):
        return StateDirectory(own.path)
    if common.is_writable and not is_network(common.filesystem):
        return StateDirectory(common.path)
    if not is_network(own.filesystem):
        return StateDirectory(own.path)
    warning = (
        f"{clean(str(own.path))} is on a network file system ({own.filesystem}): what is written down there is slower, "
        f"and lost while its server is away; set XDG_STATE_HOME to a directory on a disk of this machine"
    )
    return StateDirectory(own.path, warning, is_network=True)


def is_network(filesystem: str | None) -> bool:
    """Whether several machines may mount it at once. An unknown filesystem counts as local."""
    if filesystem is None:
        return False
    if filesystem == "fuse" or filesystem.startswith("fuse."):
        return filesystem not in FUSE_OF_THIS_MACHINE
    return filesystem in NETWORK_FILESYSTEMS


def read_mounts(text: str) -> Iterator[Mount]:
    """The lines of /proc/self/mountinfo (proc(5)): its fifth field is the place, the first after ` - ` the kind."""
    for line in text.splitlines():
        before, dash, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if dash and len(fields) >= 6 and kinds[0]:
            yield Mount(_unescaped(fields[4]), kinds[0])


def filesystem_of(path: str, mounts: Iterable[Mount]) -> str | None:
    """The kind of file system under a path without links: of the longest place above it, the one mounted last."""
    found: Mount | None = None
    for mount in mounts:
        holds = mount.path == "/" or path == mount.path or path.startswith(f"{mount.path}/")
        if holds and (found is None or len(mount.path) >= len(found.path)):
            found = mount
    return found.filesystem if found else None


def _unescaped(field: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), field)


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="surrogateescape")
    except OSError:
        return ""  # not Linux: see the first lines


def _place(path: Path, mounts: tuple[Mount, ...]) -> StatePath:
    return StatePath(path, filesystem_of(os.path.realpath(path), mounts), _is_writable(path))


def _is_writable(path: Path) -> bool:
    """Whether it is a writable directory, or can be created."""
    nearest = next((folder for folder in (path, *path.parents) if folder.exists()), Path("/"))
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def _own_part(common: Path) -> Path:
    """A subdirectory of our own, when the directory belongs to another user (root)."""
    try:
        about = common.stat()
    except OSError:
        return common
    return common if about.st_uid == os.getuid() else common / str(os.getuid())
