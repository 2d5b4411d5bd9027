"""What the records of a `.wandb` file say, as far as it is sent. Runs on the node: Python 3.6."""

import re

from collectors.probe import paths
from collectors.probe.annotations import Any, Line, Mapping
from collectors.probe.files.wandb_records import MALFORMED, Items, fields, finite, number_of, signed

MAX_CURVES = 40
MAX_OTHERS = 6
"""Metrics without a known name that are sent: they are charted if there is nothing better."""
MAX_METRICS = 10000
MAX_NAMES = 300
"""Values of a summary, and settings of a config."""
MAX_TEXT = 2000
SUMMARY_TEXT = 200

SAMPLED_FROM = 4 << 20
POINTS = 10000
"""Of a file that had more than 4 MiB when it was found, so many points of each metric, as from W&B's server."""

NON_FINITE = (b"NaN", b"Infinity", b"-Infinity")
RUN_TEXTS = {1: "id", 2: "entity", 3: "project", 6: "group", 8: "name", 13: "host"}
"""By field of a RunRecord."""


class Metrics:
    """Of one file: new rows, and changed names, settings and values."""

    def __init__(self, spec: "Mapping[str, Any]", size: int) -> None:
        self._charts = frozenset(spec.get("charts") or ())
        self._pattern = re.compile(spec.get("pattern") or "$^")
        self._others = 0
        self.keys = []  # type: list[str]
        self._columns = {}  # type: dict[str, int | None]
        self._next = []  # type: list[int]
        self._sampled_to = size if size > SAMPLED_FROM else 0
        self.rows = 0
        self.malformed = 0
        self.has_ended = False
        self.step = None  # type: float | None
        self.logged_at = None  # type: float | None
        self.started_at = ""
        self._points = []  # type: list[list[Any]]
        self._items = Items()
        self._known = {"summary": {}, "config": {}}  # type: dict[str, dict[str, bytes]]
        self._changed = {}  # type: Line

    def add(self, end: int, record: bytes) -> None:
        """Take over one record that ends at this offset."""
        try:
            for number, value in fields(record):
                if not isinstance(value, bytes):
                    continue
                if number == 2:
                    self._row(end, value)
                elif number == 3:
                    self._update("summary", value, SUMMARY_TEXT)
                elif number == 5:
                    self._update("config", value, MAX_TEXT)
                elif number == 17:
                    self._run(value)
                elif number == 18:
                    found = dict(fields(value))
                    self.has_ended = True
                    self._changed["exit"] = [signed(found.get(1, 0)), signed(found.get(2, 0))]
        except MALFORMED:
            self.malformed += 1

    def _row(self, end: int, history: bytes) -> None:
        self.rows += 1
        step = at = None
        found = []  # type: list[tuple[int, Any]]
        for key, text in self._items.read(history):
            if key == "_step":
                step = finite(text)
            elif key == "_timestamp":
                at = finite(text)
            else:
                column = self._columns[key] if key in self._columns else self._column(key, text)
                if column is not None and (end > self._sampled_to or end >= self._next[column] or text in NON_FINITE):
                    found.append((column, text))
        self.step, self.logged_at = step, at or self.logged_at
        if step is None or not found:
            return
        point = [self.rows, step, at] + [None] * (max(found)[0] + 1)  # type: list[Any]
        for column, text in found:
            try:
                point[3 + column] = number_of(text)
            except ValueError:
                continue  # a text or a table under the name of a metric
            if end <= self._sampled_to:
                self._next[column] = end + self._sampled_to // POINTS
        self._points.append(point)

    def _column(self, key: str, text: bytes) -> "int | None":
        """The column of a new metric; None if it is not sent."""
        try:
            float(text)
        except ValueError:
            return None  # its next value may be a number
        column = None
        if len(self._columns) >= MAX_METRICS:
            return None
        if not key.startswith(("_", "system/", "system.")) and len(self.keys) < MAX_CURVES and self._is_wanted(key):
            column = len(self.keys)
            self.keys.append(key)
            self._next.append(0)
        self._columns[key] = column
        return column

    def _is_wanted(self, key: str) -> bool:
        if self._charts:
            return key in self._charts
        if self._pattern.search(key.lower()):
            return True
        self._others += 1
        return self._others <= MAX_OTHERS

    def _run(self, record: bytes) -> None:
        run = {}  # type: Line
        for number, value in fields(record):
            if not isinstance(value, bytes):
                continue
            if number in RUN_TEXTS:
                run[RUN_TEXTS[number]] = paths.shown(value[:MAX_TEXT])
            elif number == 10:
                run.setdefault("tags", []).append(paths.shown(value[:SUMMARY_TEXT]))
            elif number == 4:
                self._update("config", value, MAX_TEXT)
            elif number == 17:
                start = dict(fields(value))
                run["started_at"] = int(start.get(1, 0)) + int(start.get(2, 0)) / 1e9
                self.started_at = "%.6f" % run["started_at"]
        self._changed["run"] = dict(run, tags=run.get("tags", [])[:50])

    def _update(self, what: str, record: bytes, longest: int) -> None:
        """Take over the values that a summary or a config has now."""
        known, changed = self._known[what], self._changed.setdefault(what, {})
        for key, value in self._items.read(record):
            text = value[: longest + 1]
            if known.get(key) != text and not key.startswith("_") and (key in known or len(known) < MAX_NAMES):
                known[key] = changed[key] = text

    def take_points(self) -> "Line":
        """The rows since the last call."""
        points, self._points = self._points, []
        return {"keys": list(self.keys), "points": points} if points else {}

    def take_changes(self) -> "Line":
        """What else has changed since the last call."""
        changed, self._changed = self._changed, {}
        for name in self._known.keys() & changed:
            changed[name] = {key: paths.shown(text) for key, text in changed[name].items()}
        return {name: value for name, value in changed.items() if value}
