"""Paths as bytes, and their errors in plain English. Runs on the node: Python 3.6, standard library only.

Paths are bytes because Python 3.6 under LANG=C (as in a bare ssh command) cannot encode a path with an é.
"""

import errno
import os
import stat

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

KINDS = ((stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))


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


def kind(mode: int) -> str:
    """The type of a file that is not regular: `a FIFO`."""
    return next((name for has_type, name in KINDS if has_type(mode)), "a device")


def open_quietly(path: bytes) -> int:
    """Open for reading without a trace: no blocking, no controlling terminal, and the same access time on own files."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
    try:
        return os.open(path, flags | getattr(os, "O_NOATIME", 0))
    except PermissionError:
        return os.open(path, flags)


def small_text(path: bytes, limit: int = MAX_TEXT_BYTES) -> str:
    """The first bytes of a file as text, without a cut last character. Untrusted."""
    handle = open_quietly(path)
    try:
        data = os.read(handle, limit)
    finally:
        os.close(handle)
    text = data.decode("utf-8", "replace")
    return text[:-1] if len(data) == limit and text.endswith("\ufffd") else text


def read(path: str) -> str:
    """A small file of /proc or /sys; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""


def listed(path: str) -> "list[str]":
    """The sorted names in a folder; none if it cannot be read."""
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []
