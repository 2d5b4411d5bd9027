"""The log of the daemon on standard error: one line per event, `key=value`, for journald and grep."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from trainmon.lib import clean, scrub
from trainmon.model import Alert, State
from trainmon.runtime.logfile import Background

PLAIN = re.compile(r"[\w.:/@%+,-]+")
VALUE_AT_MOST = 500
PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}
"""syslog's, by the names of logging."""

STDERR = 2

AT_MOST = 40
"""Lines that one look may add: ten thousand findings at once are told as a number."""

told = logging.getLogger("trainmon.daemon")


class Said(NamedTuple):
    """A line: how bad, what happened, and of what."""

    level: int
    happening: str
    fields: Mapping[str, object]


def say(happening: str, level: int = logging.INFO, **fields: object) -> None:
    """Have a line written; never waits."""
    told.log(level, happening, extra={"fields": fields})


class Structured(logging.Formatter):
    """`time=… level=… event=… key=value …`; journald has times and levels of its own, and is told the level its way."""

    def __init__(self, *, journal: bool) -> None:
        super().__init__()
        self._journal = journal

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        fields: dict[str, Any] = getattr(record, "fields", None) or {}
        if record.name == told.name:
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
    """Pairs on one line; what others wrote into them ends no line and shows no secret."""
    return " ".join(f"{key}={_value(value)}" for key, value in pairs.items() if value is not None and value != "")


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    limit = 4 * VALUE_AT_MOST if isinstance(value, str) and value.startswith("Traceback") else VALUE_AT_MOST
    text = clean(scrub(str(value)), limit)
    return text if PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


class _Stderr:
    """Standard error, written by a thread of its own: who reads it may have stopped reading."""

    def write(self, text: bytes) -> None:
        os.write(STDERR, text)

    def close(self) -> None:
        """It is not ours to close."""


def log_to_stderr(level: int = logging.INFO, environ: Mapping[str, str] = os.environ) -> None:
    """Send what is said, and all warnings, to standard error."""
    keep_standard_streams()
    handler = Background(_Stderr())
    handler.setFormatter(Structured(journal=is_journal(environ)))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    told.setLevel(level)


def keep_standard_streams() -> None:
    """What is closed of them stays taken: else the ledger's file would get the number, and the log be written there."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def is_journal(environ: Mapping[str, str]) -> bool:
    """Whether standard error goes to journald itself (systemd.exec(5), $JOURNAL_STREAM)."""
    about = os.fstat(STDERR)
    return environ.get("JOURNAL_STREAM") == f"{about.st_dev}:{about.st_ino}"


# ---- what changed ----------------------------------------------------------------------------------------------------


def changes(before: State, after: State) -> Iterator[Said]:
    """A line for each thing that is worth one."""
    found = list(_all_changes(before, after))
    yield from found[:AT_MOST]
    if len(found) > AT_MOST:
        yield Said(logging.WARNING, "more", {"lines": len(found) - AT_MOST})


def _all_changes(before: State, after: State) -> Iterator[Said]:
    if after.leadership != before.leadership and (after.leadership.holder, after.leadership.where) != (
        before.leadership.holder,
        before.leadership.where,
    ):
        yield Said(logging.INFO, "duty", {"holder": after.leadership.holder, "where": after.leadership.where})
    if after.ledger != before.ledger:
        yield Said(
            logging.WARNING if after.ledger else logging.INFO, "ledger", {"words": after.ledger or "works again"}
        )
    if after.clock_jumped_at != before.clock_jumped_at and after.clock_jumped_at is not None:
        yield Said(logging.WARNING, "clock", {"words": "the machine slept or its clock jumped: older ages are ignored"})
    yield from _sources(before, after)
    yield from _alerts(before, after)
    yield from _channels(before, after)


def _sources(before: State, after: State) -> Iterator[Said]:
    if before.sources is after.sources:
        return
    for name, source in after.sources.items():
        was = before.sources.get(name)
        if was is None or was.health != source.health or (source.error and was.error != source.error):
            is_new = was is None and source.health == "late"  # it was not asked yet
            level = logging.WARNING if source.health in ("late", "down") and not is_new else logging.INFO
            yield Said(level, "source", {"source": name, "health": source.health, "error": source.error})
    for name in before.sources.keys() - after.sources.keys():
        yield Said(logging.INFO, "source", {"source": name, "health": "no longer watched"})


def _alerts(before: State, after: State) -> Iterator[Said]:
    if before.alerts is after.alerts:
        return
    for name, alert in after.alerts.items():
        was = before.alerts.get(name)
        if was is alert:
            continue
        yield from _alert(was, alert)
        known = (was or alert).delivery  # what became of one from before our start was told then
        for made in alert.delivery:
            if made not in known:
                level = logging.WARNING if made.state in ("retrying", "dead") else logging.INFO
                fields = {"alert": alert.id, "channel": made.channel, "kind": made.kind, "words": made.words}
                yield Said(level, made.state, fields)


def _alert(was: Alert | None, alert: Alert) -> Iterator[Said]:
    about = {"alert": alert.id, "rule": alert.rule, "subject": alert.subject, "severity": alert.severity}
    if was is None or was.phase != alert.phase:
        if was is None and alert.phase == "resolved":
            return  # it was so before we began
        level = logging.WARNING if alert.phase == "firing" and alert.severity != "info" else logging.INFO
        words = alert.ended if alert.phase == "resolved" else alert.summary
        yield Said(level, alert.phase, {**about, "summary": words})
    elif was.severity != alert.severity:
        yield Said(logging.WARNING, "severity", {**about, "summary": alert.summary})
    if was is not None and alert.data != was.data:
        yield Said(logging.INFO, "data", {**about, "data": alert.data, "why": alert.data_why})
    if alert.acknowledged_by and (was is None or was.acknowledged_by != alert.acknowledged_by):
        yield Said(logging.INFO, "acknowledged", {**about, "by": alert.acknowledged_by})


def _channels(before: State, after: State) -> Iterator[Said]:
    if before.channels is after.channels:
        return
    for name, channel in after.channels.items():
        was = before.channels.get(name)
        if was is None or was.state != channel.state:
            level = logging.WARNING if channel.state in ("retrying", "broken") else logging.INFO
            fields = {"channel": name, "type": channel.type, "target": channel.target, "state": channel.state}
            yield Said(level, "channel", {**fields, "words": channel.words})
