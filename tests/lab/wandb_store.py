"""What the W&B stand-in keeps: runs with their history, console and files, and the rules that turn their states."""

from __future__ import annotations

import base64
import bisect
import datetime as dt
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

STALE_AFTER = 300.0
"""Seconds without a heartbeat after which W&B's sweep calls a running run crashed."""

LINES_AT_MOST = 10_000
"""Of a console log in one answer."""


def iso(at: float) -> str:
    """As the server writes times: UTC without a zone."""
    return dt.datetime.fromtimestamp(at, dt.UTC).replace(tzinfo=None).isoformat(timespec="seconds")


@dataclass(slots=True)
class ConsoleLine:
    """One line that the client captured."""

    number: int
    timestamp: str
    level: str
    line: str
    label: str = ""


@dataclass(slots=True)
class StoredFile:
    """A file of a run."""

    name: str
    url: str
    content: bytes
    at: float


class Counts:
    """How often each metric came, by kind. What was counted once is not counted again: a test may log 100,000 rows."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, int]] = {}
        self._rows = 0

    def up_to(self, rows: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
        while self._rows < len(rows) - 1:
            _add(self._kinds, rows[self._rows])
            self._rows += 1
        found = {key: {**kinds} for key, kinds in self._kinds.items()}
        _add(found, rows[-1])  # the last may still get more
        return found


def _add(counts: dict[str, dict[str, int]], row: Mapping[str, Any]) -> None:
    for key, value in row.items():
        kinds, kind = counts.setdefault(key, {}), _kind(value)
        kinds[kind] = kinds.get(kind, 0) + 1


@dataclass(slots=True)
class StoredRun:
    """One run as the server knows it. A test may change any of it."""

    entity: str
    project: str
    id: str
    url: str
    """Where its files are put and fetched."""
    created_at: float
    heartbeat_at: float
    serial: int
    state: str = "running"
    display_name: str = ""
    group: str | None = None
    job_type: str | None = None
    tags: list[str] = field(default_factory=list)
    notes: str | None = None
    host: str | None = None
    commit: str | None = None
    program: str | None = None
    username: str = "tester"
    config: dict[str, Any] = field(default_factory=dict)
    """As the client sends it: `{"lr": {"value": 0.1}, "_wandb": …}`."""
    summary: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
    """Rows; nan and infinities are the strings that the client sends."""
    events: list[dict[str, Any]] = field(default_factory=list)
    """System metrics."""
    console: dict[int, ConsoleLine] = field(default_factory=dict)
    files: dict[str, StoredFile] = field(default_factory=dict)
    exit_code: int | None = None
    stop_asked: bool = False
    _counted: Counts = field(default_factory=Counts)

    @property
    def path(self) -> str:
        return f"{self.entity}/{self.project}/{self.id}"

    @property
    def storage_id(self) -> str:
        return base64.b64encode(f"Run:v1:{self.id}:{self.project}:{self.entity}".encode()).decode()

    @property
    def facts(self) -> dict[str, Any]:
        """What filters and orders may name."""
        return {
            "name": self.id, "display_name": self.display_name, "group": self.group, "job_type": self.job_type,
            "state": self.state, "tags": self.tags, "host": self.host, "username": self.username,
            "created_at": iso(self.created_at), "heartbeat_at": iso(self.heartbeat_at), "serial": self.serial,
        }  # fmt: skip

    @property
    def history_keys(self) -> dict[str, Any] | None:
        """The metrics it logged and how often, as the server counts them; null before the first."""
        if not self.history:
            return None
        stored = {
            key: {"typeCounts": [{"type": kind, "count": count} for kind, count in kinds.items()], "monotonic": False}
            for key, kinds in self._counted.up_to(self.history).items()
        }
        return {"sets": [], "keys": stored, "lastStep": int(self.history[-1]["_step"])}

    def log(self, values: Mapping[str, Any], step: int | None = None, at: float | None = None) -> None:
        """Add a row of its history, as if its client had sent it."""
        last = int(self.history[-1]["_step"]) if self.history else -1
        step, at = (last + 1 if step is None else step), (self.heartbeat_at if at is None else at)
        stored = {key: _as_sent(value) for key, value in values.items()}
        row = {**stored, "_step": step, "_timestamp": at, "_runtime": at - self.created_at}
        if step == last:
            self.history[-1] |= row
        else:
            self.history.append(row)
        self.summary |= row

    def print(self, *lines: str, at: float | None = None) -> None:
        """Add lines to its console log."""
        for line in lines:
            number = len(self.console)
            stamp = dt.datetime.fromtimestamp(self.heartbeat_at if at is None else at, dt.UTC).replace(tzinfo=None)
            self.console[number] = ConsoleLine(number, stamp.isoformat(timespec="microseconds"), "", line)

    def put(self, name: str, content: bytes, at: float | None = None) -> None:
        """Add a file."""
        url = f"{self.url}/{name}"
        self.files[name] = StoredFile(name, url, content, self.heartbeat_at if at is None else at)

    def finish(self, exit_code: int = 0) -> None:
        self.exit_code = exit_code
        self.state = "finished" if exit_code == 0 else "failed"

    def sampled(self, spec: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The rows that have all keys of a spec, these keys of them; both ends count; of too many, evenly some."""
        keys, low, high = spec["keys"], spec.get("minStep"), spec.get("maxStep")
        start = 0 if low is None else bisect.bisect_left(self.history, low, key=_step_of)
        end = len(self.history) if high is None else bisect.bisect_right(self.history, high, key=_step_of)
        rows = [{key: row[key] for key in keys} for row in self.history[start:end] if all(key in row for key in keys)]
        return evenly(rows, int(spec.get("samples", 500)))


def _step_of(row: Mapping[str, Any]) -> float:
    return float(row["_step"])


def evenly(rows: list[dict[str, Any]], at_most: int) -> list[dict[str, Any]]:
    """The first, the last and some between."""
    if len(rows) <= at_most:
        return rows
    if at_most < 2:
        return rows[-at_most:] if at_most > 0 else []
    return [rows[round(number * (len(rows) - 1) / (at_most - 1))] for number in range(at_most)]


def _kind(value: Any) -> str:
    if isinstance(value, bool | str):
        return "number" if value in ("NaN", "Infinity", "-Infinity") else "string"
    if isinstance(value, int | float):
        return "number"
    return str(value.get("_type", "map")) if isinstance(value, dict) else "list"


def _as_sent(value: Any) -> Any:
    """JSON has no nan: the client sends words."""
    if isinstance(value, float) and value - value != 0:
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
    return value


class Store:
    """All runs, by entity/project/id; projects come with their first run."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.runs: dict[str, StoredRun] = {}
        self.projects: set[tuple[str, str]] = set()

    def find(self, entity: str, project: str, name: str) -> StoredRun | None:
        return self.runs.get(f"{entity}/{project}/{name}")

    def of_project(self, entity: str, project: str) -> list[StoredRun]:
        return [run for run in self.runs.values() if (run.entity, run.project) == (entity, project)]

    def add(self, entity: str, project: str, name: str | None, at: float) -> StoredRun:
        serial, name = len(self.runs) + 1, name or secrets.token_hex(4)
        url = f"{self.url}/stored/{entity}/{project}/{name}"
        run = StoredRun(entity, project, name, url=url, created_at=at, heartbeat_at=at, serial=serial)
        run.display_name = f"quiet-river-{serial}"
        self.projects.add((entity, project))
        self.runs[run.path] = run
        return run

    def sweep(self, now: float) -> list[StoredRun]:
        """W&B's own rule: who runs and was silent for five minutes crashed. Those that it turned."""
        silent = [run for run in self.runs.values() if run.state == "running" and now - run.heartbeat_at > STALE_AFTER]
        for run in silent:
            run.state = "crashed"
        return silent


def take_stream(run: StoredRun, body: Mapping[str, Any], now: float) -> None:
    """One message of a client's file stream: rows, console lines, the exit. Each is a heartbeat."""
    run.heartbeat_at = now
    run.state, run.exit_code = "running", None  # who speaks again lives
    for name, piece in body.get("files", {}).items():
        offset, lines = int(piece.get("offset", 0)), piece.get("content", [])
        if name == "wandb-history.jsonl":
            _splice(run.history, offset, lines)
        elif name == "wandb-events.jsonl":
            _splice(run.events, offset, lines)
        elif name == "wandb-summary.json":
            run.summary = parsed(lines[-1]) if lines else run.summary
        elif name == "output.log":
            _take_console(run, offset, lines)
    if body.get("complete"):
        run.finish(int(body.get("exitcode", 0)))


def parsed(text: str) -> dict[str, Any]:
    """What a client sent. It writes bare NaN and Infinity; the server answers with them as words."""
    stored: dict[str, Any] = json.loads(text, parse_constant=str)
    return stored


def _splice(rows: list[dict[str, Any]], offset: int, lines: Iterable[str]) -> None:
    new = [parsed(line) for line in lines]
    rows[offset : offset + len(new)] = new


def _take_console(run: StoredRun, offset: int, lines: Iterable[str]) -> None:
    """`[ERROR ]2026-11-21T15:30:00.123456 text`; a line that was printed over comes again at its number."""
    for number, text in enumerate(lines, offset):
        level, rest = ("error", text[6:]) if text.startswith("ERROR ") else ("", text)
        stamp, _, line = rest.partition(" ")
        run.console[number] = ConsoleLine(number, stamp, level, line)
