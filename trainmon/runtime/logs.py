"""Our own logs, which a thread writes: a thread that warns about a dead disk must not wait for that disk.

A dashboard owns the screen: its warnings and tracebacks go to a small file of the user. A daemon writes one line per
event to standard error, `key=value`, for journald and grep.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from trainmon.lib import Seconds, clean, counted, find_state_directory, scrub
from trainmon.model import Alert, State

# ---- a file of the user ----------------------------------------------------------------------------------------------

BYTES_AT_MOST = 1_000_000

WAITING_AT_MOST = 1_000
"""How many lines wait for the disk; more are lost, and counted."""

FLUSH: Seconds = 1.0
"""How long the end of the program waits for the disk."""


class _Scrubbed(logging.Formatter):
    """Masks tokens and passwords that an error may hold."""

    def format(self, record: logging.LogRecord) -> str:
        return scrub(super().format(record))


class _PrivateFile:
    """A file that only its user can read, and the previous one of the same size."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._open()

    def _open(self) -> None:
        self._descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._size = os.fstat(self._descriptor).st_size

    def write(self, line: bytes) -> None:
        if self._size + len(line) > BYTES_AT_MOST:
            self._file.replace(f"{self._file}.1")
            os.close(self._descriptor)
            self._open()
        os.write(self._descriptor, line)
        self._size += len(line)


class BackgroundHandler(logging.Handler):
    """Gives lines to a thread that writes them; `write` may hang. It waits for the thread only at the end."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        super().__init__()
        self._write = write
        self._lines: queue.Queue[bytes | threading.Event | None] = queue.Queue(WAITING_AT_MOST)
        self._lost = 0
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        lost = f"({counted(self._lost, 'line')} lost before this)\n" if self._lost else ""
        try:
            line = f"{lost}{self.format(record)}\n".encode(errors="backslashreplace")
            self._lines.put_nowait(line)
            self._lost = 0
        except queue.Full:
            self._lost += 1
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait until all lines so far are written, at most FLUSH. logging also calls it at the end."""
        written = threading.Event()
        try:
            self._lines.put_nowait(written)
        except queue.Full:
            return
        written.wait(FLUSH)

    def close(self) -> None:
        """End the thread after the lines that wait."""
        with contextlib.suppress(queue.Full):  # it hangs, and ends with the program
            self._lines.put_nowait(None)
        super().close()

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            if isinstance(line, threading.Event):
                line.set()
                continue
            try:
                self._write(line)
            except OSError:
                self._lost += 1  # a full disk: there is no other place to report it


def log_to_file(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Send all warnings to trainmon.log in the state directory, and none to the terminal. None when there can be no
    file: then nothing is kept."""
    file = find_state_directory(environ).path / "trainmon.log"
    root = logging.getLogger()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler = BackgroundHandler(_PrivateFile(file).write)
    except OSError:
        # A read-only home: the dashboard shows every error in its row anyway; only tracebacks are lost.
        root.addHandler(logging.NullHandler())
        return None
    handler.setFormatter(_Scrubbed("%(asctime)s %(levelname)s %(name)s [%(threadName)s] %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    return file


# ---- standard error of the daemon ------------------------------------------------------------------------------------

PLAIN = re.compile(r"[\w.:/@%+,-]+")
VALUE_AT_MOST = 500
PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""syslog's, by the names of logging."""

STDERR = 2

AT_MOST = 40
"""The most lines of one evaluation: of ten thousand findings at once the rest is counted."""

events = logging.getLogger("trainmon.daemon")
Value = TypeVar("Value")


class LogEvent(NamedTuple):
    """One line of the log."""

    level: int
    event: str
    fields: Mapping[str, object]


def log_event(event: str, level: int = logging.INFO, **fields: object) -> None:
    """Write a line; never waits."""
    events.log(level, event, extra={"fields": fields})


class Structured(logging.Formatter):
    """`time=… level=… event=… key=value …`. journald adds its own time, and gets the level as a prefix."""

    def __init__(self, *, journal: bool) -> None:
        super().__init__()
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        fields: dict[str, Any] = getattr(record, "fields", None) or {}
        if record.name == events.name:
            pairs = {"event": record.getMessage(), **fields}
        else:
            pairs = {"event": "log", "logger": record.name, "thread": record.threadName, "message": record.getMessage()}
        if record.exc_info:
            pairs["traceback"] = self.formatException(record.exc_info)[-4 * VALUE_AT_MOST :]
        if self._journal:
            return f"<{PRIORITIES.get(level, 6)}>{line(pairs)}"
        at = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(record.created))
        return line({"time": at, "level": level, **pairs})


def line(pairs: Mapping[str, object]) -> str:
    """Pairs on one line. Untrusted values end no line and show no secret."""
    return " ".join(f"{key}={_value(value)}" for key, value in pairs.items() if value is not None and value != "")


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    limit = 4 * VALUE_AT_MOST if isinstance(value, str) and value.startswith("Traceback") else VALUE_AT_MOST
    text = clean(scrub(str(value)), limit)
    return text if PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def log_to_stderr(level: int = logging.INFO, environ: Mapping[str, str] = os.environ) -> None:
    """Send events, and all warnings, to standard error. A thread writes it, because its reader may have stopped."""
    # A closed standard stream stays taken: else the ledger's file would get its number, and the log be written there.
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    handler = BackgroundHandler(partial(os.write, STDERR))
    handler.setFormatter(Structured(journal=is_journal(environ)))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    events.setLevel(level)


def is_journal(environ: Mapping[str, str]) -> bool:
    """Whether standard error goes to journald itself (systemd.exec(5), $JOURNAL_STREAM)."""
    about = os.fstat(STDERR)
    return environ.get("JOURNAL_STREAM") == f"{about.st_dev}:{about.st_ino}"


# ---- what changed ----------------------------------------------------------------------------------------------------


def changes(before: State, after: State) -> Iterator[LogEvent]:
    """The events between two States."""
    found = list(_all_changes(before, after))
    yield from found[:AT_MOST]
    if len(found) > AT_MOST:
        yield _event("more", is_bad=True, lines=len(found) - AT_MOST)


def _event(event: str, *, is_bad: object = False, **fields: object) -> LogEvent:
    return LogEvent(logging.WARNING if is_bad else logging.INFO, event, fields)


def _all_changes(before: State, after: State) -> Iterator[LogEvent]:
    if (after.leadership.holder, after.leadership.where) != (before.leadership.holder, before.leadership.where):
        yield _event("duty", holder=after.leadership.holder, where=after.leadership.where)
    if after.ledger != before.ledger:
        yield _event("ledger", is_bad=after.ledger, words=after.ledger or "works again")
    if after.clock_jumped_at != before.clock_jumped_at and after.clock_jumped_at is not None:
        yield _event("clock", is_bad=True, words="the machine slept or its clock jumped: older ages are ignored")
    for name, old, source in _changed(before.sources, after.sources):
        if old is None or old.health != source.health or (source.error and old.error != source.error):
            is_new = old is None and source.health == "late"  # it was not polled yet
            is_bad = source.health in ("late", "down") and not is_new
            yield _event("source", is_bad=is_bad, source=name, health=source.health, error=source.error)
    for name in before.sources.keys() - after.sources.keys():
        yield _event("source", source=name, health="no longer watched")
    for _, was, alert in _changed(before.alerts, after.alerts):
        yield from _alert_changes(was, alert)
    for name, known, channel in _changed(before.channels, after.channels):
        if known is None or known.state != channel.state:
            fields = {"type": channel.type, "target": channel.target, "state": channel.state, "words": channel.problem}
            yield _event("channel", is_bad=channel.state in ("retrying", "broken"), channel=name, **fields)


def _changed(before: Mapping[str, Value], after: Mapping[str, Value]) -> Iterator[tuple[str, Value | None, Value]]:
    if before is not after:
        pairs = ((name, before.get(name), new) for name, new in after.items())
        yield from ((name, old, new) for name, old, new in pairs if old is not new)


def _alert_changes(was: Alert | None, alert: Alert) -> Iterator[LogEvent]:
    about = {"alert": alert.id, "rule": alert.rule, "subject": alert.subject, "severity": alert.severity}
    is_past = was is None and alert.phase == "resolved"  # it had ended before this program began
    if was is None or was.phase != alert.phase:
        text = alert.ended if alert.phase == "resolved" else alert.summary
        if not is_past:
            is_bad = alert.phase == "firing" and alert.severity != "info"
            yield _event(alert.phase, is_bad=is_bad, **about, summary=text)
    elif was.severity != alert.severity:
        yield _event("severity", is_bad=True, **about, summary=alert.summary)
    if was is not None and alert.data != was.data:
        yield _event("data", **about, data=alert.data, why=alert.data_why)
    if not is_past and alert.acknowledged_by and (was is None or was.acknowledged_by != alert.acknowledged_by):
        yield _event("acknowledged", **about, by=alert.acknowledged_by)
    for delivery in alert.delivery:
        if was is not None and delivery not in was.delivery:  # an earlier program logged what came before our start
            fields = {"channel": delivery.channel, "kind": delivery.kind, "words": delivery.answer}
            yield _event(delivery.state, is_bad=delivery.state in ("retrying", "dead"), alert=alert.id, **fields)
