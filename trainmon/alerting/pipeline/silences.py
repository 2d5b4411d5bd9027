"""Silences: which alerts people and maintenance windows mute now. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from msgspec.structs import replace

from trainmon.lib import Instant
from trainmon.model import Alert, Silence


def in_force(silences: Iterable[Silence], now: Instant) -> tuple[Silence, ...]:
    """The silences that apply now. A person's silence applies from its creation, even if the clock is set back."""
    return tuple(
        silence
        for silence in silences
        if silence.ended_at is None and now < silence.until and (silence.made_at <= now or not silence.window)
    )


def covers(silence: Silence, alert: Alert) -> bool:
    """Whether a silence matches an alert: all its given matchers must match. `*` and `?` are wildcards.

    A matcher also matches what it begins: `node:gpu-001` matches the InfiniBand ports of that node.
    """
    matchers = (
        (silence.rule, alert.rule),
        (silence.subject, alert.subject),
        (silence.run, alert.run),
        (silence.node, alert.node),
    )
    return all(
        wanted is None
        or (value is not None and (wanted == value or value.startswith(wanted + " ") or fnmatchcase(value, wanted)))
        for wanted, value in matchers
    )


def muted(alerts: Mapping[str, Alert], in_force: Iterable[Silence]) -> dict[str, Alert]:
    """The alerts that silences changed, with the end of the longest silence that matches."""
    longest_first = sorted(in_force, key=lambda silence: silence.until, reverse=True)
    changed = {}
    for alert in alerts.values():
        if alert.is_open or alert.muted_until is not None:
            silence = next((one for one in longest_first if covers(one, alert)), None)
            until, why = (None, None) if silence is None else (silence.until, silence.why or None)
            if (until, why) != (alert.muted_until, alert.muted_why):
                changed[alert.id] = replace(alert, muted_until=until, muted_why=why)
    return changed
