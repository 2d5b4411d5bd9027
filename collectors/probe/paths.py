"""Paths as bytes, their errors in plain English, and what a worker watches at paths. Runs on the node: Python 3.6.

Paths are bytes because Python 3.6 under LANG=C (as in a bare ssh command) cannot encode a path with an é.
"""

import errno
import itertools
import os
import stat
import time

from collectors.probe.stdlib import Any, AnyStr, Callable, Iterable, Mapping

MESSAGES = {
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
    errno.ESTALE: "stale file handle: the file server has lost this mount, it must be mounted again",
    errno.EIO: "input/output error: the disk or the file server failed",
    errno.ENOTCONN: "not connected: the client of this filesystem has died, it must be mounted again",
    errno.ESHUTDOWN: "the client of this filesystem was shut down, it must be mounted again",
    errno.EHOSTDOWN: "the file server is down",
    errno.ETIMEDOUT: "the file server does not answer",
    errno.ELOOP: "symbolic links in a circle",
}

MAX_TEXT_BYTES = 500

MAX_LINKS = 40
"""As many symbolic links as the kernel follows in one path."""

KINDS = (
    (stat.S_ISLNK, "a symbolic link"), (stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
)  # fmt: skip


def encoded(path: str) -> bytes:
    """The path for the kernel; a leading ~ is the home on this node."""
    return os.path.expanduser(path.encode("utf-8", "surrogateescape"))


def shown(path: bytes) -> str:
    """A path or text of any bytes as text for JSON."""
    return path.decode("utf-8", "replace")


def failure(error: "OSError | ValueError") -> str:
    """The error in plain English, with what it means for the operator."""
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    return MESSAGES.get(error.errno) or os.strerror(error.errno).lower()


def is_missing(error: BaseException) -> bool:
    """Whether the path does not exist. Other errors mean that it cannot be read."""
    return isinstance(error, (FileNotFoundError, NotADirectoryError))


def failure_at(path: bytes, error: "OSError | ValueError") -> str:
    """The same for an error at a path: if it does not exist, the nearest parent is named."""
    return missing(path) if is_missing(error) else failure(error)


def missing(path: bytes) -> str:
    """The message for a path that does not exist: it names the nearest parent that exists."""
    parent = os.path.dirname(path)
    while parent not in (b"", b"/"):
        try:
            os.stat(parent)
            break
        except (FileNotFoundError, NotADirectoryError):
            parent = os.path.dirname(parent)
    return "does not exist; the nearest existing parent is %s" % shown(parent or b".")


def kind(found: os.stat_result) -> str:
    """What it is, if it is no regular file: `a FIFO`; else empty."""
    if stat.S_ISREG(found.st_mode):
        return ""
    return next((name for has_type, name in KINDS if has_type(found.st_mode)), "a device")


def refuse_special(found: os.stat_result) -> None:
    """Accept only regular files: others may block.

    Raises:
        ValueError: when it is another kind of file.
    """
    if kind(found):
        raise ValueError("%s, not a regular file: it is not read" % kind(found))


def open_quietly(path: bytes) -> int:
    """Open for reading without a trace: no blocking, no controlling terminal, and the same access time on own files.
    A symbolic link is not followed.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_NOFOLLOW
    try:
        return os.open(path, flags | getattr(os, "O_NOATIME", 0))
    except PermissionError:
        return os.open(path, flags)


def open_linked(path: bytes, *owners: int) -> int:
    """Open a regular file, through symbolic links. Each of these must belong to us, to root or to the owner of the
    file: else somebody could make us read and report a private file of ours. `owners`: of the links so far.

    Raises:
        ValueError: when it is no regular file, or a link is somebody else's.
    """
    refuse_special(os.stat(path))  # before opening, which wakes the writer of a FIFO, and rewinds a tape
    try:
        handle = open_quietly(path)
    except OSError as error:
        if error.errno != errno.ELOOP or len(owners) == MAX_LINKS:
            raise
        owner, target = _link(path)
        return open_linked(os.path.join(os.path.dirname(path), target), *owners, owner)
    found = os.fstat(handle)
    if kind(found) or set(owners) - {0, os.geteuid(), found.st_uid}:
        os.close(handle)
        what = kind(found) or "a symbolic link of another user, not of the owner of the file"
        raise ValueError("%s: it is not read" % what)
    return handle


def _link(path: bytes) -> "tuple[int, bytes]":
    """The owner and the target of a symbolic link: on Linux of one and the same link, even if somebody replaces it."""
    if not hasattr(os, "O_PATH"):
        return os.lstat(path).st_uid, os.readlink(path)
    link = os.open(path, os.O_PATH | os.O_NOFOLLOW)
    try:
        return os.fstat(link).st_uid, os.readlink(b"", dir_fd=link)
    finally:
        os.close(link)


def small_text(path: bytes, judged: os.stat_result, limit: int = MAX_TEXT_BYTES) -> str:
    """The first bytes of a file, as text without a cut last character. Untrusted. `judged`: as lstat has just found it.

    Raises:
        ValueError: when it is no regular file, or another one has come meanwhile.
    """
    refuse_special(judged)
    handle = open_quietly(path)
    try:
        if not os.path.samestat(judged, os.fstat(handle)):
            raise ValueError("another file has just come there")
        data = os.read(handle, limit)
    finally:
        os.close(handle)
    text = data.decode("utf-8", "replace")
    return text[:-1] if len(data) == limit and text.endswith("\ufffd") else text


def read(path: str, limit: int = 65536, encoding: str = "utf-8") -> str:
    """A small file of /proc or /sys; empty if it cannot be read."""
    try:
        with open(path, encoding=encoding, errors="replace", newline="") as file:
            return file.read(limit)
    except OSError:
        return ""


def listed(path: "AnyStr", most: "int | None" = None) -> "list[AnyStr]":
    """The sorted names in a folder, at most so many; none if it cannot be read."""
    try:
        with os.scandir(path) as names:
            return sorted(item.name for item in itertools.islice(names, most))
    except OSError:
        return []


class Section:
    """What a worker watches of one kind, as the spec asks for it. Each path or file is an operation of its own."""

    def __init__(self, spec: "Mapping[str, Any]", monotonic: "Callable[[], float]" = time.monotonic) -> None:
        self._monotonic = monotonic
        self._known = {}  # type: dict[str, Any]
        self.configure(spec)

    def configure(self, spec: "Mapping[str, Any]") -> None:
        """Watch what this spec asks for, and go on with what is watched already."""

    def follow(self, wanted: "Iterable[Mapping[str, Any]]", begin: "Callable[..., Any]") -> None:
        """Watch these, by their ids. What is asked for in other words than before begins anew."""
        before, self._known = self._known, {}
        for one in wanted:
            same = one["id"] in before and before[one["id"]].spec == one
            self._known[one["id"]] = before.pop(one["id"]) if same else begin(one, self._monotonic)
        for gone in before.values():
            gone.close()
