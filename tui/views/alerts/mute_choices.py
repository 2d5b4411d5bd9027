"""The choices of `m`: what to mute, and for how long. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from trainmon.lib import Instant, Seconds, clean, counted
from trainmon.model import Alert, Silence

HOUR: Seconds = 3_600.0
USUAL = "1h"
LONGEST: Seconds = 30 * 86_400.0
"""Longer silences are forgotten. Such a rule should be disabled in trainmon.toml."""

_UNITS = {"s": 1.0, "m": 60.0, "h": HOUR, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])")


class Choice(NamedTuple):
    """One choice: its key, its text, and the matchers of its silences."""

    key: str
    words: str
    what: tuple[dict[str, str], ...]


def choices(alerts: Sequence[Alert]) -> tuple[Choice, ...]:
    """The choices, the narrowest first: these alerts, their rules, subjects, nodes, runs."""
    rules = _several(one.rule for one in alerts)
    subjects = _several(one.subject for one in alerts)
    nodes = _several(one.node for one in alerts if one.node)
    runs = _several(one.run for one in alerts if one.run)
    these = tuple({"rule": one.rule, "subject": one.subject} for one in alerts)
    first = f"{rules[0]} on {subjects[0]}" if len(alerts) == 1 else f"these {counted(len(alerts), 'alert')}"
    found = [Choice("these", first, these)]
    found.append(Choice("rule", f"rule {_names(rules)}, wherever it fires", tuple({"rule": one} for one in rules)))
    if not set(subjects) <= {f"run:{run}" for run in runs} | {f"node:{node}" for node in nodes}:
        parts = tuple({"subject": one} for one in subjects)
        found.append(Choice("subject", f"all alerts on {_names(subjects)}", parts))
    if nodes:
        found.append(Choice("node", f"all alerts of node {_names(nodes)}", tuple({"node": one} for one in nodes)))
    if runs:
        found.append(Choice("run", f"all alerts of run {_names(runs)}", tuple({"run": one} for one in runs)))
    return tuple(choice._replace(words=clean(choice.words, 200)) for choice in found)


def _several(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def silences_of(choice: Choice, until: Instant, why: str) -> tuple[Silence, ...]:
    """The silences of a choice. The backend fills in their author and time."""
    return tuple(
        Silence(
            id="", rule=what.get("rule"), subject=what.get("subject"), run=what.get("run"), node=what.get("node"),
            until=until, by="", why=why, made_at=0.0,
        )
        for what in choice.what
    )  # fmt: skip


def parse_duration(text: str) -> Seconds | str:
    """`1h`, `90m`, `2d 4h` as seconds, or a sentence about the error."""
    text = text.strip().lower()
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip():
        return "how long, as 30m, 1h, 2d or 1w"
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds < 60:
        return "at least a minute: 1m"
    if seconds > LONGEST:
        return "at most 30 days; disable an unwanted rule in trainmon.toml"
    return seconds
