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


def plain(value: msgspec.Struct, *without: str) -> dict[str, Any]:
    """A value as a JSON object, without some of its fields."""
    return {name: field for name, field in msgspec.to_builtins(value).items() if name not in without}


def alert(found: Alert) -> dict[str, Any]:
    """One alert without its secret, and without what the next notice is computed from."""
    return plain(found, "token", "told", "repeats", "escalated")


def worst_first(alerts: Iterable[Alert]) -> list[Alert]:
    """Those that fire before those that do not yet, the worst before the others, the oldest first."""
    return sorted(alerts, key=lambda one: (not one.is_firing, SEVERITIES.index(one.severity), one.since, one.id))


def alert_status(alerts: Iterable[Alert], silences: Iterable[Silence], channels: Iterable[Channel]) -> dict[str, Any]:
    """The part of `status --json` that another machine shows: what is open, what ended within a day, what is muted."""
    newest_first = sorted(alerts, key=lambda one: -(one.resolved_at or 0.0))
    return {
        "alerts": [alert(one) for one in worst_first(one for one in newest_first if one.is_open)],
        "ended": [alert(one) for one in newest_first if not one.is_open],
        "silences": [plain(one) for one in silences],
        "channels": [plain(one) for one in channels],
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
