"""Alerts in the machine-readable contract: in `snapshot --json` and `status --json`, and read back from the latter.

Field names are those of the nouns, so that what another machine's `status` prints becomes the same values here. What a
phone must say to acknowledge an alert never leaves the machine that made it up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from trainmon.lib import Instant
from trainmon.model import SEVERITIES, Alert, Channel, Silence

OURS = frozenset({"token", "told", "repeats", "escalated"})
"""Of an alert, what is nobody else's business: a secret, and what the next notice is reckoned from."""


def alert(found: Alert) -> dict[str, Any]:
    """One alert as plain values."""
    return {name: value for name, value in msgspec.to_builtins(found).items() if name not in OURS}


def silence(found: Silence) -> dict[str, Any]:
    """What is not told for a while, as plain values."""
    return dict(msgspec.to_builtins(found))


def channel(found: Channel) -> dict[str, Any]:
    """How one channel is doing, as plain values; where it goes is masked already."""
    return dict(msgspec.to_builtins(found))


def worst_first(alerts: Iterable[Alert]) -> list[Alert]:
    """Those that fire before those that do not yet, the worst before the others, the oldest first."""
    return sorted(alerts, key=lambda one: (not one.is_firing, SEVERITIES.index(one.severity), one.since, one.id))


def alert_status(alerts: Iterable[Alert], silences: Iterable[Silence], channels: Iterable[Channel]) -> dict[str, Any]:
    """The part of `status --json` that another machine shows: what is open, what ended within a day, what is muted."""
    alerts = tuple(alerts)
    ended = sorted((one for one in alerts if not one.is_open), key=lambda one: -(one.resolved_at or 0.0))
    return {
        "alerts": [alert(one) for one in worst_first(one for one in alerts if one.is_open)],
        "ended": [alert(one) for one in ended],
        "silences": [silence(one) for one in silences],
        "channels": [channel(one) for one in channels],
    }


# ---- read back -------------------------------------------------------------------------------------------------------


class LeaderStatus(msgspec.Struct, frozen=True):
    """Who tells people on that machine, by its own word."""

    holder: str = "nobody"
    pid: int | None = None
    host: str | None = None
    started_at: Instant | None = None
    last_tick_at: Instant | None = None
    words: str | None = None


class Status(msgspec.Struct, frozen=True):
    """What `trainmon-tui status --json` of another machine said."""

    version: int
    at: Instant
    """By its clock."""
    duty: LeaderStatus = LeaderStatus()
    alerts: tuple[Alert, ...] = ()
    ended: tuple[Alert, ...] = ()
    silences: tuple[Silence, ...] = ()
    channels: tuple[Channel, ...] = ()
    outbox: Mapping[str, float | None] = {}


_STATUS = msgspec.json.Decoder(Status)


def read_status(text: bytes | str) -> Status:
    """Raises msgspec.DecodeError (or its ValidationError), whose words say what is wrong with it."""
    return _STATUS.decode(text)
