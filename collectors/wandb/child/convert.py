"""Converts what W&B's server returns about a run into our model: bounded, clean, without secrets. Pure.

A `run` here is the SDK's own object. Only its public attributes are read; a server may leave any of them out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from collectors.wandb.wire import NON_FINITE, ReadMetadata, RunMetadata
from trainmon.analysis.wandb import metric_names
from trainmon.lib import MASK, Instant, clean, is_secret, scrub
from trainmon.model import Points, WandbRun, WandbSpec

NAMES_AT_MOST = 300
"""The maximum number of metrics of a summary, and of settings of a config."""

KEYS_AT_MOST = 1_000
"""The maximum number of metrics of a history."""

TAGS_AT_MOST = 50
NAME_LENGTH = 200
VALUE_LENGTH = 200
DEEPEST = 4
"""The maximum depth of nested mappings."""


def safe_text(value: object, limit: int = NAME_LENGTH) -> str | None:
    """A text of the server, safe to show; None for anything else."""
    return (_cleaned(value[: 4 * limit], limit) or None) if isinstance(value, str) else None


@lru_cache(maxsize=8_192)
def _cleaned(text: str, limit: int) -> str:
    """Cached, because scrubbing is slow: every poll brings the same names and settings, thousands for ten runs."""
    return scrub(clean(text, 4 * limit))[:limit]  # scrub before the cut: half a secret is not recognised


def instant(text: object) -> Instant | None:
    """Unix seconds of `2026-01-31T12:00:00`; a time without a zone is UTC."""
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return None if time is None else (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def number(value: object) -> float | None:
    """A number of the server, which writes nan and infinity as words; None for anything else."""
    try:
        return (
            float(value)
            if isinstance(value, int | float)
            else NON_FINITE.get(value)
            if isinstance(value, str)
            else None
        )
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]  # only an int overflows


def integer(value: object) -> int | None:
    """A counter of the server."""
    found = number(value)
    return int(found) if found is not None and math.isfinite(found) else None


def read_run(run: Any, spec: WandbSpec, start: Mapping[str, Any]) -> WandbRun:
    """A listed run. `start` is the result of `read_start`."""
    summary = _mapping(getattr(run, "summary_metrics", None))
    step = integer(summary.get("_step"))
    tags = getattr(run, "tags", None)
    return WandbRun(
        entity=str(run.entity),
        project=str(run.project),
        id=str(run.id),
        name=safe_text(run.name) or str(run.id),
        state=safe_text(run.state, 40) or "unknown",
        group=safe_text(getattr(run, "group", None)),
        url=safe_text(run.url, 1_000),
        created_at=instant(getattr(run, "created_at", None)),
        heartbeat_at=instant(getattr(run, "heartbeat_at", None)),
        logged_at=number(summary.get("_timestamp")),
        step=step if step is not None else integer(_mapping(getattr(run, "history_keys", None)).get("lastStep")),
        lines=integer(getattr(run, "history_line_count", None)),
        tags=tuple(filter(None, map(safe_text, tags[:TAGS_AT_MOST] if isinstance(tags, list | tuple) else ()))),
        user=safe_text(getattr(getattr(run, "user", None), "username", None)),
        host=safe_text(start.get("host")),
        commit=safe_text(getattr(run, "commit", None)) or safe_text(_mapping(start.get("git")).get("commit")),
        summary=read_summary(summary, spec.charts),
        config=read_config(_mapping(getattr(run, "config", None))),
    )


def read_summary(summary: Mapping[str, Any], charts: Iterable[str] = ()) -> dict[str, float | str]:
    """The latest value of each metric, charted ones first, without media and W&B's own counters.

    If there are too many, those with common names stay.
    """
    values: dict[str, float | str] = {}
    wanted = frozenset(charts)
    leaves = list(_leaves(summary, mark="_type"))
    if len(leaves) > NAMES_AT_MOST:  # the loss must not be dropped; finding it is slow
        wanted |= {*metric_names.choose((), [name for name, _ in leaves]), *metric_names.STEPS}
    leaves.sort(key=lambda leaf: leaf[0] not in wanted)  # stable: the others keep the server's order
    for name, value in leaves:
        key, found = safe_text(name), number(value)
        latest = found if found is not None else safe_text(value, VALUE_LENGTH)
        if key is not None and latest is not None and not name.startswith("_") and len(values) < NAMES_AT_MOST:
            values[key] = latest
    return values


def read_config(config: Mapping[str, Any]) -> dict[str, str]:
    """The settings as short texts. The value of a name such as `api_key` is always masked."""
    settings: dict[str, str] = {}
    for name, value in _leaves(config):
        key = safe_text(name)
        if key is None or name.startswith("_") or len(settings) >= NAMES_AT_MOST:
            continue
        if isinstance(value, str) and value and is_secret(name.replace("/", ".").rsplit(".", 1)[-1], as_flag=False):
            settings[key] = MASK
            continue
        try:
            text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        except (TypeError, ValueError, RecursionError):
            text = type(value).__name__
        settings[key] = safe_text(text, VALUE_LENGTH) or ""
    return settings


def read_keys(history_keys: object) -> tuple[str, ...]:
    """The numeric metrics of a history, by name. A name that must be cleaned is left out: it cannot be requested."""
    names = []
    for key, facts in sorted(_mapping(_mapping(history_keys).get("keys")).items()):
        counts = _mapping(facts).get("typeCounts")
        types = [_mapping(count).get("type") for count in counts] if isinstance(counts, list) else []
        if "number" in types and not key.startswith("_") and clean(key, NAME_LENGTH) == key:
            names.append(key)
    if len(names) > KEYS_AT_MOST:  # the loss must not be dropped for thousands of evaluation metrics
        names = list(dict.fromkeys((*metric_names.choose((), names), *names)))
    return tuple(names[:KEYS_AT_MOST])


def read_start(config: object) -> Mapping[str, Any]:
    """Where and from what a run was started. The client writes it into the config since 0.19.

    `config` is the server's text: the SDK drops this part when it decodes it.
    """
    try:
        decoded = msgspec.json.decode(config) if isinstance(config, str) else config
    except msgspec.DecodeError:
        return {}
    own = _mapping(_mapping(decoded).get("_wandb"))
    return next(map(_mapping, _mapping(_mapping(own.get("value", own)).get("e")).values()), {})


def filters(spec: WandbSpec) -> dict[str, Any]:
    """The filter for the runs of a spec, as the server takes it: all conditions must hold."""
    display = None if spec.display is None else {"$regex": spec.display}
    named = (("group", spec.group), ("name", spec.run), ("display_name", display))
    wanted: list[dict[str, Any]] = [{"tags": {"$in": [tag]}} for tag in spec.tags]
    wanted += [{name: value} for name, value in named if value is not None]
    return wanted[0] if len(wanted) == 1 else {"$and": wanted} if wanted else {}


def read_points(key: str, rows: Iterable[Any] | None, since: float | None) -> Points:
    """A curve from the server's rows. A row without a number is left out; nan and infinities are numbers."""
    points: list[tuple[float, float, float]] = []
    for row in rows or ():
        if isinstance(row, Mapping):
            step, at, value = (number(row.get(name)) for name in ("_step", "_timestamp", key))
            if step is not None and at is not None and value is not None and (since is None or step >= since):
                points.append((step, at, value))
    return Points(*map(list, zip(*points, strict=True))) if points else Points([], [], [])


def read_metadata(request: ReadMetadata, file: object) -> RunMetadata:
    """The content of `wandb-metadata.json`."""
    content = _mapping(file)
    return RunMetadata(
        id=request.id,
        path=request.path,
        host=safe_text(content.get("host")),
        user=safe_text(content.get("username")),
        commit=safe_text(_mapping(content.get("git")).get("commit")),
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _leaves(values: Mapping[str, Any], mark: str = "", before: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    """All values with their names, nested ones as `outer.inner`. Mappings with the mark are left out."""
    for key, value in values.items():
        inner = _mapping(value)
        if mark and mark in inner:
            continue
        if inner and depth < DEEPEST:
            yield from _leaves(inner, mark, f"{before}{key}.", depth + 1)
        else:
            yield f"{before}{key}", value
