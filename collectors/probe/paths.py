"""Paths as bytes, and what goes wrong with them in words. Runs on the node: Python 3.6, standard library only.

Bytes, because Python 3.6 under LANG=C (what a bare ssh command gets) cannot encode a path with an é in it.
"""

import errno
import os
import stat

WORDS = {
    errno.EACCES: "no permission",
    errno.EPERM: "no permission",
    errno.ESTALE: "stale file handle: the file server forgot this mount, it must be mounted again",
    errno.EIO: "input/output error: the disk or the file server failed",
    errno.ENOTCONN: "not connected: the client of this filesystem has died, it must be mounted again",
    errno.ESHUTDOWN: "the client of this filesystem was shut down, it must be mounted again",
    errno.EHOSTDOWN: "the file server is down",
    errno.ETIMEDOUT: "the file server does not answer",
    errno.ELOOP: "symbolic links in a circle",
}

TEXT_BYTES = 500

KINDS = ((stat.S_ISDIR, "a directory"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))


def encoded(path: str) -> bytes:
    """The path as the kernel takes it; a leading ~ is the home on this node."""
    return os.path.expanduser(path.encode("utf-8", "surrogateescape"))


def shown(path: bytes) -> str:
    """A path or text of any bytes, as text that JSON can carry."""
    return path.decode("utf-8", "replace")


def failure(error: "OSError | ValueError") -> str:
    """What the kernel said, in words that tell an operator what it means."""
    if not isinstance(error, OSError) or error.errno is None:
        return str(error)
    return WORDS.get(error.errno) or os.strerror(error.errno).lower()


def is_missing(error: BaseException) -> bool:
    """Whether a path does not exist, rather than cannot be looked at."""
    return isinstance(error, (FileNotFoundError, NotADirectoryError))


def missing(path: bytes) -> str:
    """The sentence for a path that does not exist: it names the nearest parent that does."""
    parent = os.path.dirname(path)
    while parent not in (b"", b"/"):
        try:
            os.stat(parent)
        except (FileNotFoundError, NotADirectoryError):
            parent = os.path.dirname(parent)
        else:
            break
    return "does not exist; the nearest parent that does is %s" % shown(parent or b".")


def kind(mode: int) -> str:
    """What a thing that is no regular file is."""
    for test, name in KINDS:
        if test(mode):
            return name
    return "a device"


def open_quietly(path: bytes) -> int:
    """Open for reading, leaving no trace: no waiting, no terminal, the access time kept where we may (own files)."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
    try:
        return os.open(path, flags | getattr(os, "O_NOATIME", 0))
    except PermissionError:
        return os.open(path, flags)


def small_text(path: bytes) -> str:
    """The first bytes of what is written in a file. Untrusted. A character cut at the end is left out."""
    handle = open_quietly(path)
    try:
        data = os.read(handle, TEXT_BYTES)
    finally:
        os.close(handle)
    text = data.decode("utf-8", "replace")
    return text[:-1] if len(data) == TEXT_BYTES and text.endswith("\ufffd") else text


def read(path: str) -> str:
    """A small file of /proc or /sys; empty when it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""


def listed(path: str) -> "list[str]":
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []
