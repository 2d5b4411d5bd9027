"""Receipts of trainmon-run: how commands began and ended. Runs on the node: Python 3.6, standard library only.

A directory of receipts is listed when it has changed and every slow tick. Of a receipt without an end, the end and the
processes are looked for in every period. Only this host can tell whether the processes of its receipts still run.
"""

import functools
import os
import re

from collectors.probe import paths
from collectors.probe.stdlib import Any, Line, Mapping, Operation, from_json, to_json

NAME = re.compile(r"(.+)-(\d{8}T\d{6}Z)-\d+")
"""Host, time and pid."""
NEWEST = 500
"""Receipts of a directory that are read: they are never deleted."""
OPEN = 50
"""The newest of those without an end that are looked at in every period."""
AT_ONCE = 20
"""Receipts that are read in one pass."""
MAX_FILE = 4 << 20
"""Bytes of a file that is read: a command line has up to 2 MiB."""
MAX_TEXT = 32 << 10
"""Characters of a file that are sent. Longer ones go without the attached files and most of the command line."""
WORDS, LONGEST_WORD = 20, 200
"""Of a long command line."""
MAX_LINE = 64 << 10
"""Characters after which a line takes no further receipt. As ASCII, a character may take six."""
LATER = 60.0
"""A process that began this many seconds after the receipt has taken over the pid of another."""
HERTZ = os.sysconf("SC_CLK_TCK")


def default() -> bytes:
    """Where trainmon-run keeps receipts without a setting."""
    home = os.environb.get(b"XDG_STATE_HOME") or os.path.expanduser(b"~/.local/state")
    return os.environb.get(b"TRAINMON_RECEIPTS") or os.path.join(home, b"trainmon-tui", b"receipts")


def began(pid: int) -> "float | None":
    """When a process began, by the clock of this host; None if it does not run."""
    fields = paths.read("/proc/%d/stat" % pid).rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in ("Z", "X"):
        return None
    booted = [line for line in paths.read("/proc/stat").splitlines() if line.startswith("btime ")]
    return float(booted[0].split()[1]) + int(fields[19]) / HERTZ if booted else 0.0


def runs(pid: object, since: float) -> bool:
    """Whether the process of a receipt still runs."""
    found = began(pid) if isinstance(pid, int) else None
    return found is not None and found <= since + LATER


class Receipt:
    """One receipt, and its last report."""

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.is_over = False
        """Whether nothing more comes: it has an end, or its processes are gone."""
        self._reported = None  # type: Line | None
        self._start = None  # type: str | None
        self._command_pid = None  # type: int | None

    def news(self) -> "Line | None":
        """Its line if that is new."""
        line = {"name": paths.shown(os.path.basename(self.path)), "path": paths.shown(self.path)}  # type: Line
        try:
            self._start = self._start or self._text(b"start.json")
            # Its end is written before its process is gone.
            line["gone"] = self._is_gone() if self._start is not None else None
            end = self._text(b"end.json")
            if self._command_pid is not None:
                line["command_pid"] = self._command_pid
        except (OSError, ValueError) as error:
            line["error"], end = paths.failure(error), None
        except (TypeError, KeyError):
            line["error"], end = "it is no receipt of trainmon-run", None
        line.update({name: text for name, text in (("start", self._start), ("end", end)) if text is not None})
        self.is_over = end is not None or bool(line.get("gone"))
        if line == self._reported or not ("start" in line or "end" in line or "error" in line):
            return None
        self._reported = line
        return line

    def _text(self, name: bytes) -> "str | None":
        path = os.path.join(self.path, name)
        try:
            text = paths.small_text(path, os.lstat(path), MAX_FILE)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not text.endswith("\n"):
            raise ValueError("%s is not complete, or larger than %d KiB" % (paths.shown(name), MAX_FILE >> 10))
        if len(text) > MAX_TEXT:
            value = dict(from_json(text))  # type: ignore[call-overload]
            value.pop("artifacts", None)
            if "argv" in value:
                value["argv"] = [word[:LONGEST_WORD] for word in value["argv"][:WORDS]]
            text = to_json(value) + "\n"
        if len(text) > MAX_TEXT:
            raise ValueError("%s is larger than %d KiB" % (paths.shown(name), MAX_TEXT >> 10))
        return text

    def _is_gone(self) -> "bool | None":
        """Whether neither trainmon-run nor its command runs any more; None if that cannot be told here."""
        start = dict(from_json(self._start or ""))  # type: ignore[call-overload]
        if start.get("host") != os.uname().nodename or start.get("pid_namespace") != os.readlink("/proc/self/ns/pid"):
            return None
        since, command = float(start["started_at"]), self._text(b"command.json")
        found = dict(from_json(command)).get("pid") if command else None  # type: ignore[call-overload]
        self._command_pid = found if isinstance(found, int) else None
        return not any(runs(pid, since) for pid in (start.get("pid"), self._command_pid))


class Directory:
    """One directory of receipts."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.only = b""
        """How the names of the receipts begin that are read."""
        self.repeat()

    def repeat(self) -> None:
        """List it again, and report all of it."""
        self._known = {}  # type: dict[bytes, Receipt]
        self._waiting = []  # type: list[Receipt]
        self._changed_at = self._reported = None  # type: Any

    def advance(self, slow: bool) -> "list[Line]":
        """Read what may be new."""
        line = {"k": "receipts", "directory": self.name}  # type: Line
        if "error" in (self._reported or {}) and not slow:
            return []
        path = paths.encoded(self.name) if self.name else default()
        try:
            changed_at = os.stat(path).st_mtime_ns
            if slow or changed_at != self._changed_at:
                self._list(path)
                self._changed_at = changed_at
        except (OSError, ValueError) as error:
            line["error"] = paths.failure(error) if os.path.lexists(path) else paths.missing(path)
        line["receipts"] = self._news()
        if line == self._reported:
            return []
        self._reported = dict(line, receipts=[])
        return [line]

    def _news(self) -> "list[Line]":
        """The lines of receipts that are read for the first time, and of those without an end, if they are new."""
        is_open = [one for one in self._known.values() if not one.is_over and one not in self._waiting][:OPEN]
        found, characters = [], 0  # type: list[Line], int
        for one in self._waiting[:AT_ONCE] + is_open:
            news = one.news()
            if one in self._waiting:
                self._waiting.remove(one)
            if news is not None:
                found.append(news)
                characters += len(news.get("start", "")) + len(news.get("end", ""))
            if characters > MAX_LINE:
                break
        return found

    def _list(self, path: bytes) -> None:
        found = {}  # type: dict[str, bytes]
        for name in os.listdir(path):
            match = NAME.fullmatch(name.decode("utf-8", "replace"))
            if match and name.startswith(self.only):
                found[match.group(2) + match.group(1) + match.group(0)] = name
        names = [found[key] for key in sorted(found, reverse=True)[:NEWEST]]
        known = self._known
        self._known = {name: known.get(name) or Receipt(os.path.join(path, name)) for name in names}
        self._waiting += [one for name, one in self._known.items() if name not in known]


class Receipts(paths.Section):
    """The directories of receipts: an empty one is where trainmon-run keeps them without a setting."""

    def configure(self, spec: "Mapping[str, Any]") -> None:
        only = b"" if spec.get("every_receipt") else os.fsencode(os.uname().nodename) + b"-"
        self._known = {name: self._known.get(name) or Directory(name) for name in spec.get("receipts") or ()}
        for one in self._known.values():
            if one.only != only:
                one.only = only
                one.repeat()

    def operations(self, slow: bool) -> "list[Operation]":
        return [("receipts:" + name, functools.partial(one.advance, slow)) for name, one in self._known.items()]
