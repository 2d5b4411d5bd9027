"""Requests of people about alerts: acknowledge, silence, test. Pure; a refusal is a sentence."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.alerting.pipeline.lifecycle import HistoryEntry
from trainmon.lib import Instant, clean
from trainmon.model import Alert, AlertRequest, Silence

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
