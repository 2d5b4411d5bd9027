"""The choices of `m`: what to mute, and for how long. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from trainmon.lib import Instant, Seconds, clean, counted
from trainmon.model import Alert, Silence

HOUR: Seconds = 3_600.0
USUAL = "1h"
LONGEST: Seconds = 30 * 86_400.0
"""People forget longer silences. Such a rule should be disabled in trainmon.toml."""

_UNITS = {"s": 1.0, "m": 60.0, "h": HOUR, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([smhdw])")


class Choice(NamedTuple):
    """One choice: its key, its text, and the matchers of its silences."""

    key: str
    text: str
    matchers: tuple[dict[str, str], ...]


def choices(alerts: Sequence[Alert]) -> tuple[Choice, ...]:
    """The choices, the narrowest first: these alerts, their rules, subjects, nodes, runs."""
    rules = list(dict.fromkeys(one.rule for one in alerts))
    subjects = list(dict.fromkeys(one.subject for one in alerts))
    nodes = list(dict.fromkeys(one.node for one in alerts if one.node))
    runs = list(dict.fromkeys(one.run for one in alerts if one.run))
    is_other = not set(subjects) <= {f"run:{run}" for run in runs} | {f"node:{node}" for node in nodes}
    offered = (
        ("rule", "rule {}, on every run, node and disk", rules),
        ("subject", "all alerts on {}", subjects if is_other else []),
        ("node", "all alerts on node {}", nodes),
        ("run", "all alerts of run {}", runs),
    )
    first = f"{rules[0]} on {subjects[0]}" if len(alerts) == 1 else f"these {counted(len(alerts), 'alert')}"
    these = tuple({"rule": one.rule, "subject": one.subject} for one in alerts)
    return (
        Choice("these", clean(first, 200), these),
        *(
            Choice(key, clean(text.format(_listed(names)), 200), tuple({key: name} for name in names))
            for key, text, names in offered
            if names
        ),
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def silences_of(choice: Choice, until: Instant, why: str) -> tuple[Silence, ...]:
    """The silences of a choice. The backend fills in their author and time."""
    return tuple(
        Silence(
            id="", rule=match.get("rule"), subject=match.get("subject"), run=match.get("run"), node=match.get("node"),
            until=until, by="", why=why, made_at=0.0,
        )
        for match in choice.matchers
    )  # fmt: skip


def parse_duration(text: str) -> Seconds | str:
    """`1h`, `90m`, `2d4h` as seconds, or a sentence about the error."""
    text = text.strip().lower()
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text).strip():
        return "type a duration such as 30m, 1h, 2d or 1w"
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if seconds < 60:
        return "the shortest duration is 1m"
    return "the longest duration is 30d; disable an unwanted rule in trainmon.toml" if seconds > LONGEST else seconds
