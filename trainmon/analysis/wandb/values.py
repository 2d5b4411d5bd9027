"""The names, settings and latest values of W&B runs: bounded, clean, without secrets. Pure.

They come from W&B's server, or from the files of its client.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from trainmon.analysis.wandb import metric_names
from trainmon.lib import MASK, clean, is_secret, scrub

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""What W&B writes where JSON has no number."""

NAMES_AT_MOST = 300
"""The maximum number of metrics of a summary, and of settings of a config."""

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


def read_summary(summary: Mapping[str, Any], charts: Iterable[str] = ()) -> dict[str, float | str]:
    """The latest value of each metric, charted ones first, without media and W&B's own counters.

    If there are too many, those with common names stay.
    """
    values: dict[str, float | str] = {}
    wanted = frozenset(charts)
    found = list(leaves(summary, mark="_type"))
    if len(found) > NAMES_AT_MOST:  # the loss must not be dropped; finding it is slow
        wanted |= {*metric_names.choose((), [name for name, _ in found]), *metric_names.STEPS}
    found.sort(key=lambda leaf: leaf[0] not in wanted)  # stable: the others keep the server's order
    for name, value in found:
        key, as_number = safe_text(name), number(value)
        latest = as_number if as_number is not None else safe_text(value, VALUE_LENGTH)
        if key is not None and latest is not None and not name.startswith("_") and len(values) < NAMES_AT_MOST:
            values[key] = latest
    return values


def read_config(config: Mapping[str, Any]) -> dict[str, str]:
    """The settings as short texts. The value of a name such as `api_key` is always masked."""
    settings: dict[str, str] = {}
    for name, value in leaves(config):
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


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def leaves(values: Mapping[str, Any], mark: str = "", before: str = "", depth: int = 1) -> Iterator[tuple[str, Any]]:
    """All values with their names, nested ones as `outer.inner`. Mappings with the mark are left out."""
    for key, value in values.items():
        inner = mapping(value)
        if mark and mark in inner:
            continue
        if inner and depth < DEEPEST:
            yield from leaves(inner, mark, f"{before}{key}.", depth + 1)
        else:
            yield f"{before}{key}", value
