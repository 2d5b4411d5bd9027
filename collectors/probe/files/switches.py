"""Switch files (kill, save): whether each exists, since when, its owner and its text. Runs on the node: Python 3.6.

Only the text of a regular file with one link is read: whoever may create a switch could link it to a private file, and
many people see what it says.
They are read every period, and sent when they change and every slow tick. Each path is an operation: a mount may hang.
"""

import errno
import functools
import os
import stat

from collectors.probe import paths
from collectors.probe.host import user_name
from collectors.probe.stdlib import Any, Line, Mapping, Operation

DANGLING = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""The errors of a symbolic link that leads to no file."""


def without_file(path: bytes) -> "Line":
    """A switch without a file, which is normal; without its folder nobody can create it."""
    parent = os.path.dirname(path) or b"."
    try:
        os.stat(parent)
    except (FileNotFoundError, NotADirectoryError):
        return {"exists": False, "error": "its folder %s %s" % (paths.shown(parent), paths.missing(parent))}
    return {"exists": False}


class Switch:
    """One path, and its last report."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._reported = None  # type: Line | None
        self._signature = None  # type: tuple[int, ...] | None
        self._text = {}  # type: Line

    def sample(self, slow: bool) -> "list[Line]":
        sample = {"path": self.path}  # type: Line
        try:
            sample.update(self._state(paths.encoded(self.path)))
        except (OSError, ValueError) as error:
            sample["error"] = "cannot be checked: " + paths.failure(error)
        if sample == self._reported and not slow:
            return []
        self._reported = sample
        return [{"k": "switch", "s": [sample]}]

    def _state(self, path: bytes) -> "Line":
        try:
            # The link itself counts: who made it, and when.
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return without_file(path)
        if stat.S_ISLNK(found.st_mode):
            try:
                os.stat(path)  # the trainer sees the target
            except OSError as error:
                if error.errno not in DANGLING:
                    raise
                target = paths.shown(os.readlink(path))
                return {"exists": False, "error": "a dangling symbolic link to %s: it does not arm the switch" % target}
        kind = paths.kind(found) or ("a hard link" if found.st_nlink != 1 else "")
        content = {"kind": kind} if kind else self._content(path, found)  # type: Line
        return dict(content, exists=True, mtime=found.st_mtime, owner=user_name(found.st_uid))

    def _content(self, path: bytes, found: os.stat_result) -> "Line":
        """Its text, read again only when the file has changed."""
        signature = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
        if signature != self._signature:
            try:
                self._text = {"text": paths.small_text(path, found)}
            except (OSError, ValueError):
                self._text = {"kind": "an unreadable file"}
            self._signature = signature
        return self._text


class Switches(paths.Section):
    """The watched switch files."""

    def configure(self, spec: "Mapping[str, Any]") -> None:
        self._known = {path: self._known.get(path) or Switch(path) for path in spec.get("switches") or ()}

    def operations(self, slow: bool) -> "list[Operation]":
        return [("switch:" + path, functools.partial(one.sample, slow)) for path, one in self._known.items()]
