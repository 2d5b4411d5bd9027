"""Switch files (kill, save): is it there, since when, whose, what does it say. Runs on the node: Python 3.6.

Looked at every period, said when it changes and every slow tick. One operation a path, for dead mounts.
"""

import os
import pwd
import stat

from collectors.probe import paths

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

OWNERS = {}  # type: dict[int, str]


def owner_of(uid: int) -> str:
    """The user's name, or the number where no name is known. Remembered: a directory server may stand behind it."""
    if uid not in OWNERS:
        try:
            OWNERS[uid] = pwd.getpwuid(uid).pw_name
        except KeyError:
            OWNERS[uid] = str(uid)
    return OWNERS[uid]


def without_file(path: bytes) -> "dict[str, Any]":
    """A switch that is not there, which is well; a folder that is not there means that nobody could ever arm it."""
    parent = os.path.dirname(path) or b"."
    try:
        os.stat(parent)
    except (FileNotFoundError, NotADirectoryError):
        return {"exists": False, "error": "its folder %s %s" % (paths.shown(parent), paths.missing(parent))}
    return {"exists": False}


class Switch:
    """One path, and what was last said of it."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._said = None  # type: dict[str, Any] | None
        self._signature = None  # type: tuple[int, ...] | None
        self._text = {}  # type: dict[str, Any]

    def operation(self, slow: bool) -> "Callable[[], list[dict[str, Any]]]":
        return lambda: self.look(slow)

    def look(self, slow: bool) -> "list[dict[str, Any]]":
        sample = {"path": self.path}  # type: dict[str, Any]
        try:
            sample.update(self._sample(paths.encoded(self.path)))
        except (OSError, ValueError) as error:
            sample["error"] = "cannot be looked at: " + paths.failure(error)
        if sample == self._said and not slow:
            return []
        self._said = sample
        return [{"k": "switch", "s": [sample]}]

    def _sample(self, path: bytes) -> "dict[str, Any]":
        try:
            # Of a symbolic link the trainer sees the target; lstat alone tells a dangling one from an absent file.
            found = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return without_file(path)
        if stat.S_ISLNK(found.st_mode):
            try:
                found = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                return {"exists": False, "error": "a symbolic link to nothing: does not arm the switch"}
        if stat.S_ISDIR(found.st_mode):
            return {"exists": False, "error": "a directory, not a switch file; some trainers may take it for one"}
        sample = {"exists": True, "mtime": found.st_mtime, "owner": owner_of(found.st_uid)}
        sample.update(self._read(path, found))
        return sample

    def _read(self, path: bytes, found: os.stat_result) -> "dict[str, Any]":
        """What it says, read again only when the file changed."""
        if not stat.S_ISREG(found.st_mode):
            return {"error": "armed by %s; never read" % paths.kind(found.st_mode)}
        signature = (found.st_dev, found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)
        if signature != self._signature:
            try:
                self._text = {"text": paths.small_text(path)}
            except OSError as error:
                self._text = {"error": "armed, but what it says cannot be read: " + paths.failure(error)}
            self._signature = signature
        return self._text


class Switches:
    """The watched switch files."""

    def __init__(self, spec: "Mapping[str, Any]") -> None:
        self._switches = {}  # type: dict[str, Switch]
        self.configure(spec)

    def configure(self, spec: "Mapping[str, Any]") -> None:
        self._switches = {path: self._switches.get(path) or Switch(path) for path in spec.get("switches") or ()}

    def operations(self, slow: bool) -> "list[tuple[str, Callable[[], list[dict[str, Any]]]]]":
        return [("switch:" + path, switch.operation(slow)) for path, switch in self._switches.items()]
