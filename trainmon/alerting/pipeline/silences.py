"""What people ask of alerts: acknowledge, silence, test; and which alerts silences mute now. Pure."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.alerting.pipeline.lifecycle import HistoryEntry
from trainmon.lib import Instant, clean
from trainmon.model import Alert, AlertRequest, Silence

# ---- silences --------------------------------------------------------------------------------------------------------


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


# ---- requests of people about alerts ---------------------------------------------------------------------------------

PHONE = "phone"
"""Anybody may send requests this way. They may only acknowledge, with the token of the alert."""

SILENCES_AT_MOST = 1_000
TEXT_AT_MOST = 200
"""Characters of a name or a reason that are kept."""


class Result(NamedTuple):
    """What a request changed, or why it was refused."""

    alert: Alert | None = None
    silence: Silence | None = None
    history: tuple[HistoryEntry, ...] = ()
    refused: str | None = None
    test: bool = False
    """Whether a test notification is requested."""


def apply(request: AlertRequest, alerts: Mapping[str, Alert], silences: Mapping[str, Silence], now: Instant) -> Result:
    """Apply a request, if it is allowed."""
    if request.via == PHONE or request.token is not None:
        if request.verb != "ack":
            return Result(refused=f"{request.verb} is not accepted from a phone")
        known = alerts.get(request.alert or "")
        expected, given = "" if known is None else known.token, request.token or ""
        if not expected or not hmac.compare_digest(expected.encode(), given.encode()):
            return Result(refused="the token belongs to another alert")
    match request.verb:
        case "ack" | "unack":
            return _acknowledge(request, alerts.get(request.alert or ""), now)
        case "mute":
            return _mute(request, silences, now)
        case "unmute":
            silence = silences.get(request.alert or "")
            if silence is None or silence.window:
                return Result(refused=f"{request.alert} is not a mute that a person made")
            return Result(silence=replace(silence, ended_at=now))
        case "test":
            return Result(test=True)


def _acknowledge(request: AlertRequest, alert: Alert | None, now: Instant) -> Result:
    if alert is None or not alert.is_open:
        return Result(refused=f"{request.alert} is not an open alert")
    if (request.verb == "unack") == (alert.acknowledged_by is None):
        return Result()  # it is so already
    by, why = clean(request.by, TEXT_AT_MOST), clean(request.why, TEXT_AT_MOST)
    if request.verb == "unack":
        opened = replace(alert, acknowledged_by=None, acknowledged_at=None, acknowledged=None)
        return Result(opened, history=((alert.id, "open", f"{by} removed the acknowledgement"),))
    taken = replace(alert, acknowledged_by=by or "somebody", acknowledged_at=now, acknowledged=alert.severity)
    text = f"by {taken.acknowledged_by}" + (f": {why}" if why else "")
    return Result(taken, history=((alert.id, "acknowledged", text),))


def _mute(request: AlertRequest, silences: Mapping[str, Silence], now: Instant) -> Result:
    silence = request.silence
    if silence is None or not silence.id or silence.until <= now:
        return Result(refused="the mute ends before it begins")
    if len(silences) >= SILENCES_AT_MOST and silence.id not in silences:
        return Result(refused=f"there are {SILENCES_AT_MOST} mutes already")
    made, by = min(silence.made_at, now), silence.by or request.by
    return Result(silence=replace(silence, made_at=made, by=by, window=False, ended_at=None))
