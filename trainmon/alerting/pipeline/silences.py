"""What is not told for a while: silences of people, and maintenance windows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from msgspec.structs import replace

from trainmon.lib import Instant
from trainmon.model import Alert, Silence


def in_force(silences: Iterable[Silence], now: Instant) -> tuple[Silence, ...]:
    """Those that are in force now. A person's is from when it is made, wherever the clock is set afterwards."""
    return tuple(
        silence
        for silence in silences
        if silence.ended_at is None and now < silence.until and (silence.made_at <= now or not silence.window)
    )


def covers(silence: Silence, alert: Alert) -> bool:
    """Whether an alert is one that a silence means: every part that is given matches. `*` and `?` stand for any."""
    parts = (
        (silence.rule, alert.rule),
        (silence.subject, alert.subject),
        (silence.run, alert.run),
        (silence.node, alert.node),
    )
    return all(wanted is None or _matches(wanted, have) for wanted, have in parts)


def muted(alerts: Mapping[str, Alert], silences: Iterable[Silence], now: Instant) -> dict[str, Alert]:
    """The alerts that changed, each with until when it is muted now; of several silences the longest counts."""
    longest_first = sorted(in_force(silences, now), key=lambda silence: silence.until, reverse=True)
    changed = {}
    for alert in alerts.values():
        if not (alert.is_open or alert.muted_until is not None):
            continue
        silence = next((one for one in longest_first if covers(one, alert)), None)
        until, why = (None, None) if silence is None else (silence.until, silence.why or None)
        if (until, why) != (alert.muted_until, alert.muted_why):
            changed[alert.id] = replace(alert, muted_until=until, muted_why=why)
    return changed


def _matches(wanted: str, have: str | None) -> bool:
    """A subject is also meant by what it begins with: `node:gpu-001` means its InfiniBand port."""
    if have is None:
        return False
    return wanted == have or have.startswith(wanted + " ") or fnmatchcase(have, wanted)
