"""What W&B's server says of a run → our nouns: bounded, clean of control characters, without secrets. Pure.

A `run` here is the SDK's own object, of which public attributes alone are read; a server may leave any of them out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from collectors.wandb.wire import WORDS, ReadMetadata, RunMetadata
from trainmon.analysis.wandb import metric_names as wandb_keys
from trainmon.lib import MASK, Instant, clean, is_secret, scrub
from trainmon.model import Points, WandbRun, WandbSpec

NAMES_AT_MOST = 300
"""Metrics of a summary, and settings of a config."""

KEYS_AT_MOST = 1_000
"""Metrics of a history."""

TAGS_AT_MOST = 50
NAME_LENGTH = 200
VALUE_LENGTH = 200
DEEPEST = 4
"""How far mappings within mappings are followed."""


def shown(value: object, limit: int = NAME_LENGTH) -> str | None:
    """A text of the server as it may be shown; None where it said none."""
    return (_shown(value[: 4 * limit], limit) or None) if isinstance(value, str) else None


def instant(text: object) -> Instant | None:
    """Unix seconds of `2026-01-31T12:00:00`, with or without a zone: the server means UTC."""
    try:
        read = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if read is None:
        return None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


def number(value: object) -> float | None:
    """A number of the server, which writes nan and infinity as words; None where it is something else."""
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    return WORDS.get(value) if isinstance(value, str) else None


def whole(value: object) -> int | None:
    """A counter of the server."""
    read = number(value)
    return int(read) if read is not None and math.isfinite(read) else None


def read_run(run: Any, spec: WandbSpec, began: Mapping[str, Any]) -> WandbRun:
    """One run of a listing; `began` is what `read_start` finds of it."""
    said = _mapping(getattr(run, "summary_metrics", None))
    keys = _mapping(getattr(run, "history_keys", None))
    git = _mapping(began.get("git"))
    step = whole(said.get("_step"))
    return WandbRun(
        entity=str(run.entity),
        project=str(run.project),
        id=str(run.id),
        name=shown(run.name) or str(run.id),
        state=shown(run.state, 40) or "unknown",
        group=shown(getattr(run, "group", None)),
        url=shown(run.url, 1_000),
        created_at=instant(getattr(run, "created_at", None)),
        heartbeat_at=instant(getattr(run, "heartbeat_at", None)),
        logged_at=number(said.get("_timestamp")),
        step=step if step is not None else whole(keys.get("lastStep")),
        lines=whole(getattr(run, "history_line_count", None)),
        tags=_tags(getattr(run, "tags", None)),
        user=shown(getattr(getattr(run, "user", None), "username", None)),
        host=shown(began.get("host")),
        commit=shown(getattr(run, "commit", None)) or shown(git.get("commit")),
        summary=read_summary(said, spec.charts),
        config=read_config(_mapping(getattr(run, "config", None))),
    )


def newest_first(runs: Iterable[WandbRun]) -> tuple[WandbRun, ...]:
    """In the order in which they were created; of the same moment as they came."""
    return tuple(sorted(runs, key=lambda run: run.created_at or 0.0, reverse=True))


def read_summary(said: Mapping[str, Any], charts: Iterable[str] = ()) -> dict[str, float | str]:
    """The latest value of each metric, the charted ones first; media and W&B's own counters are none. Of too many those
    stay that have a common name."""
    values: dict[str, float | str] = {}
    wanted = frozenset(charts)
    leaves = list(_leaves(said, mark="_type"))
    if len(leaves) > NAMES_AT_MOST:  # its loss must not be what is left out; to find it takes long
        wanted |= {*wandb_keys.choose((), [name for name, _ in leaves]), *wandb_keys.STEPS}
    leaves.sort(key=lambda leaf: leaf[0] not in wanted)  # stable: else in the server's order
    for name, value in leaves:
        key = shown(name)
        read = number(value)
        told = read if read is not None else shown(value, VALUE_LENGTH)
        if key is not None and told is not None and not name.startswith("_") and len(values) < NAMES_AT_MOST:
            values[key] = told
    return values


def read_config(config: Mapping[str, Any]) -> dict[str, str]:
    """Its settings in a few words each. The value of a name such as `api_key` is masked whatever it looks like."""
    settings: dict[str, str] = {}
    for name, value in _leaves(config):
        key = shown(name)
        if key is None or name.startswith("_") or len(settings) >= NAMES_AT_MOST:
            continue
        leaf = name.replace("/", ".").rsplit(".", 1)[-1]
        is_hidden = isinstance(value, str) and value and is_secret(leaf, as_flag=False)
        settings[key] = MASK if is_hidden else _words(value)
    return settings


def read_keys(history_keys: object) -> tuple[str, ...]:
    """The metrics of a history that are numbers, by name. One that cannot be shown as it is cannot be asked for."""
    keys = _mapping(_mapping(history_keys).get("keys"))
    found = (key for key, facts in keys.items() if not key.startswith("_") and _is_numeric(facts))
    names = sorted(key for key in found if clean(key, NAME_LENGTH) == key)
    if len(names) > KEYS_AT_MOST:  # an evaluation of thousands of parts must not push the loss out
        names = list(dict.fromkeys((*wandb_keys.choose((), names), *names)))
    return tuple(names[:KEYS_AT_MOST])


def read_start(config: object) -> Mapping[str, Any]:
    """Where and from what a run was started, which the client writes into its config since 0.19: no file must be asked
    for. `config` is what the server told; the SDK's own reading of it drops this part."""
    try:
        told = msgspec.json.decode(config) if isinstance(config, str) else config
    except msgspec.DecodeError:
        return {}
    own = _mapping(_mapping(told).get("_wandb"))
    writers = _mapping(_mapping(own.get("value", own)).get("e"))
    return next((_mapping(facts) for facts in writers.values()), {})


def filters(spec: WandbSpec) -> dict[str, Any]:
    """How the server is asked for the runs of a spec: all that it names must be true of a run."""
    wanted: list[dict[str, Any]] = [{"tags": {"$in": [tag]}} for tag in spec.tags]
    if spec.group is not None:
        wanted.append({"group": spec.group})
    if spec.run is not None:
        wanted.append({"name": spec.run})
    if spec.display is not None:
        wanted.append({"display_name": {"$regex": spec.display}})
    return wanted[0] if len(wanted) == 1 else {"$and": wanted} if wanted else {}


def read_points(key: str, rows: Iterable[Any] | None, since: float | None) -> Points:
    """A curve of the server's rows. A value that is no number is none; nan and infinities are."""
    steps, times, values = [], [], []
    for row in rows or ():
        if not isinstance(row, Mapping):
            continue
        step, at, value = number(row.get("_step")), number(row.get("_timestamp")), number(row.get(key))
        if step is None or at is None or value is None or (since is not None and step < since):
            continue
        steps.append(step)
        times.append(at)
        values.append(value)
    return Points(steps, times, values)


def read_facts(asked: ReadMetadata, file: object) -> RunMetadata:
    """What `wandb-metadata.json` says."""
    told = _mapping(file)
    git = _mapping(told.get("git"))
    return RunMetadata(
        id=asked.id,
        path=asked.path,
        host=shown(told.get("host")),
        user=shown(told.get("username")),
        commit=shown(git.get("commit")),
    )


@lru_cache(maxsize=8_192)
def _shown(text: str, limit: int) -> str:
    """Names and settings come again with every poll: ten runs have some thousands, and scrubbing is what takes long."""
    return scrub(clean(text, 4 * limit))[:limit]  # in this order: half a secret looks like none


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _tags(tags: object) -> tuple[str, ...]:
    told = tags if isinstance(tags, list | tuple) else ()
    return tuple(text for text in map(shown, told[:TAGS_AT_MOST]) if text)


def _is_numeric(facts: object) -> bool:
    counts = _mapping(facts).get("typeCounts")
    kinds = [_mapping(count).get("type") for count in counts] if isinstance(counts, list) else []
    return "number" in kinds


def _leaves(values: Mapping[str, Any], mark: str = "", before: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    """All values with their names, those of mappings within as `outer.inner`. A mapping with the mark is left out."""
    for key, value in values.items():
        inner = _mapping(value)
        if mark and mark in inner:
            continue
        if inner and depth < DEEPEST:
            yield from _leaves(inner, mark, f"{before}{key}.", depth + 1)
        else:
            yield f"{before}{key}", value


def _words(value: object) -> str:
    if isinstance(value, str):
        text = value
    else:
        try:
            text = msgspec.json.encode(value).decode()
        except (TypeError, ValueError, RecursionError):
            text = str(type(value).__name__)
    return shown(text, VALUE_LENGTH) or ""
