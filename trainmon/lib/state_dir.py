"""The state directory, and files in it that only their user reads; a directory for a short time.

Linux lists its mounts. On other systems every disk counts as local.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from trainmon.lib.text import clean

# ---- temporary directories of our own --------------------------------------------------------------------------------

PREFIX = "trainmon-"


class ScratchDirectory(tempfile.TemporaryDirectory[str]):
    """A temporary directory with a lock in the kernel's memory, which ends with this process."""

    def __init__(self, kind: str) -> None:
        super().__init__(prefix=f"{PREFIX}{kind}-", ignore_cleanup_errors=True)
        self._lock = os.open(self.name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with contextlib.suppress(OSError):  # a network file system without locks: `remove_abandoned` leaves it alone
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def cleanup(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        super().cleanup()


def remove_abandoned(kind: str) -> None:
    """Remove the directories of this kind whose program was killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}{kind}-*"):
        with contextlib.suppress(OSError):
            if path.lstat().st_uid != os.geteuid():
                continue
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)


# ---- the state directory: on a local disk if possible, because SQLite's write-ahead log needs one --------------------

NAME = "trainmon-tui"
SYSTEM = Path("/var/lib")
MOUNTS = Path("/proc/self/mountinfo")

NETWORK_FILESYSTEMS = frozenset({
    "9p", "afs", "autofs", "beegfs", "ceph", "cifs", "coda", "dvs", "fhgfs", "gfs2", "glusterfs", "gpfs", "lustre",
    "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "panfs", "pvfs2", "smb3", "smbfs", "vboxsf", "virtiofs", "wekafs",
})  # fmt: skip
"""Filesystem types that several machines can mount at once. SQLite's write-ahead log does not work there. autofs is an
export that is not mounted yet."""

LOCAL_FUSE = frozenset({
    "fuse.bindfs", "fuse.encfs", "fuse.exfat", "fuse.fuse-overlayfs", "fuse.gocryptfs", "fuse.mergerfs", "fuse.ntfs-3g",
})  # fmt: skip
"""Any other fuse.… type may be remote (sshfs, juicefs, ceph-fuse, rclone): there the slower journal is safe."""


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
    is_named = named.startswith("/")  # the XDG specification ignores relative paths
    home = Path(named) if is_named else Path(environ.get("HOME") or "/") / ".local" / "state"
    _is_writable(home)  # an automounted home appears in the kernel's list at its first use
    try:
        mounts = read_mounts(mountinfo.read_text(errors="surrogateescape"))
    except OSError:
        mounts = {}  # not Linux
    own, common = home / NAME, system / NAME
    with contextlib.suppress(OSError):
        if common.stat().st_uid != os.getuid():  # it belongs to another user (root)
            common /= str(os.getuid())
    candidates = [StatePath(path, filesystem_of(os.path.realpath(path), mounts), _is_writable(path))
                  for path in (own, common)]  # fmt: skip
    if is_named:  # a named directory is used, and its errors are reported
        candidates[0] = candidates[0]._replace(is_writable=True)
    return select_directory(*candidates)


def select_directory(own: StatePath, common: StatePath) -> StateDirectory:
    """The user's own directory, unless it is on a network (or cannot be written) and the common one is better."""
    for candidate in (own, common):
        if candidate.is_writable and not is_network(candidate.filesystem):
            return StateDirectory(candidate.path)
    if not is_network(own.filesystem):
        return StateDirectory(own.path)
    warning = (
        f"{clean(str(own.path))} is on a network file system ({own.filesystem}): the ledger there is slower, and "
        f"unavailable while the file server is; set XDG_STATE_HOME to a directory on a local disk"
    )
    return StateDirectory(own.path, warning, is_network=True)


def is_network(filesystem: str | None) -> bool:
    """Whether several machines can mount it at once. An unknown filesystem counts as local."""
    is_fuse = f"{filesystem}.".startswith("fuse.")
    return filesystem not in LOCAL_FUSE if is_fuse else filesystem in NETWORK_FILESYSTEMS


def read_mounts(text: str) -> dict[str, str]:
    """The filesystem type of each mount point, from /proc/self/mountinfo (proc(5)).

    The fifth field is the mount point; the first field after ` - ` is the type. The last mount on a path counts.
    """
    mounts = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, filesystem = before.split(" "), after.partition(" ")[0]
        if filesystem and len(fields) >= 6:
            mounts[re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])] = filesystem
    return mounts


def filesystem_of(path: str, mounts: Mapping[str, str]) -> str | None:
    """The filesystem type at a path without links: that of the longest mount point above it."""
    above = (mount for mount in mounts if f"{path}/".startswith(f"{mount.rstrip('/')}/"))
    return mounts.get(max(above, key=len, default=""))


def _is_writable(path: Path) -> bool:
    """Whether it is a writable directory, or can be created."""
    nearest = next((folder for folder in (path, *path.parents) if folder.exists()), Path("/"))
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


def is_first_time(directory: Path, key: str) -> bool:
    """Whether this is the first call with this key, by an empty file in the state directory. If it cannot be written,
    every call is the first."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        (directory / f"seen-{key}").touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


def write_private(file: Path, content: bytes, *, once: bool = False) -> None:
    """Write a file that only its user can read, as `write_whole` does. Its directory is made.

    Raises:
        OSError: when it cannot be written.
    """
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(file, content, mode=0o600, once=once)


def write_whole(file: Path, content: bytes, *, mode: int | None = None, once: bool = False) -> int:
    """Write a file; returns its inode. A reader sees all of an old version or all of the new one, and a failure leaves
    nothing beside it. Who may read it is said by `mode`, else by the umask. With `once`, a file that exists is kept.

    Raises:
        OSError: when it cannot be written.
    """
    beside = file.parent / f".trainmon-{os.urandom(6).hex()}"  # also beside a file with the longest of names
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(beside, flags, 0o666 if mode is None else mode), "wb") as opened:
            opened.write(content)
            if mode is not None:
                os.fchmod(opened.fileno(), mode)  # whatever the umask is
            inode = os.fstat(opened.fileno()).st_ino
        if once:
            with contextlib.suppress(FileExistsError):
                os.link(beside, file)
        else:
            beside.replace(file)
        return inode
    finally:
        beside.unlink(missing_ok=True)
