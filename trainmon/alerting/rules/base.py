"""What a rule is: a struct of its settings, and a function from a State to what is wrong. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

import msgspec

from trainmon.lib import Instant, Seconds
from trainmon.model import Alert, Finding, Severity, Source, State

Duration = Annotated[float, "duration"]
"""Seconds; in the config `"5m"`."""
Share = Annotated[float, "share"]
"""0 to 1; in the config `"80%"`."""
Size = Annotated[int, "size"]
"""Bytes; in the config `"50GB"`."""

Family = Literal["runs", "gpus", "nodes", "disks", "ourselves"]


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that is looked for. Its fields are its settings in `[[rule]]`; the docstrings under them are told."""

    name: ClassVar[str]
    """As in the config and in every message: `gpu-hot`."""
    family: ClassVar[Family]
    origin: ClassVar[str]
    """Where its defaults are from, in a few words."""
    may_flap: ClassVar[bool] = True
    """Whether one that is critical and comes and goes is told as that alone; else each time wakes somebody."""

    needs_hold: ClassVar[bool] = False
    """Whether only its hold proves it: one sample of a GPU's clock, or the queue of one moment, does not. `snapshot`
    looks once and cannot wait for a hold: it believes the findings of all other rules at once."""

    enabled: bool = True
    """Whether the rule is evaluated."""
    hold: Duration = 0.0
    """How long the condition must hold before the alert fires (Prometheus: `for`)."""
    keep: Duration = 60.0
    """How long the condition must be gone before the alert resolves (Prometheus: `keep_firing_for`)."""
    severity: Severity | None = None
    """The severity of all alerts of this rule, instead of its own."""

    def check(self, state: State, now: Instant) -> Iterator[Finding]:
        """All that is wrong now. What is not found is well, or `blind`."""
        raise NotImplementedError

    def blind(self, state: State, alert: Alert, now: Instant) -> str | None:
        """Why it says nothing that an open alert is not found now, in a sentence; None when it is really over.

        A rule whose subject may vanish or lose its numbers while its sources are well says so here.
        """
        return unseen(state, alert)

    def has_left(self, state: State, alert: Alert, now: Instant) -> bool:
        """Whether nobody looks at its subject any more, while its sources are well: it ends, and is not called over."""
        return False


def unseen(state: State, alert: Alert) -> str | None:
    """Which of the sources that an alert rests on does not answer, in a sentence."""
    for name in alert.sources:
        source = state.sources.get(name)
        if source is None or not is_seen(source):
            return f"{name} does not answer" if source is None or not source.error else f"{name}: {source.error}"
    return None


def is_seen(source: Source | None) -> bool:
    return source is not None and source.health == "ok"


def ago(seconds: Seconds) -> str:
    """How long, in the largest two units that say something: `6m`, `3h 12m`, `2d 4h`."""
    total = int(max(0.0, seconds))
    days, hours, minutes = total // 86_400, total // 3_600 % 24, total // 60 % 60
    if days:
        return f"{days}d {hours}h" if hours else f"{days}d"
    if hours:
        return f"{hours}h {minutes}m" if minutes else f"{hours}h"
    return f"{minutes}m" if minutes else f"{total}s"
