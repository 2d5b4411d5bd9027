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
    refused = _refused(request, alerts)
    if refused is not None:
        return Result(refused=refused)
    match request.verb:
        case "ack" | "unack":
            return _acknowledge(request, alerts.get(request.alert or ""), now)
        case "mute":
            return _mute(request, silences, now)
        case "unmute":
            return _unmute(request, silences, now)
        case "test":
            return Result(test=True)


def _refused(request: AlertRequest, alerts: Mapping[str, Alert]) -> str | None:
    if request.via != PHONE and request.token is None:
        return None
    if request.verb != "ack":
        return f"{request.verb} is not accepted from a phone"
    alert = alerts.get(request.alert or "")
    expected, given = "" if alert is None else alert.token, request.token or ""
    if not expected or not hmac.compare_digest(expected.encode(), given.encode()):
        return "an acknowledgement with the token of another alert"
    return None


def _acknowledge(request: AlertRequest, alert: Alert | None, now: Instant) -> Result:
    if alert is None or not alert.is_open:
        return Result(refused=f"{request.alert} is not an open alert")
    if request.verb == "unack":
        if alert.acknowledged_by is None:
            return Result()
        text = f"{clean(request.by, TEXT_AT_MOST)} removed the acknowledgement"
        return Result(
            replace(alert, acknowledged_by=None, acknowledged_at=None, acknowledged=None),
            history=((alert.id, "open", text),),
        )
    if alert.acknowledged_by is not None:
        return Result()
    by, why = clean(request.by, TEXT_AT_MOST), clean(request.why, TEXT_AT_MOST)
    taken = replace(alert, acknowledged_by=by or "somebody", acknowledged_at=now, acknowledged=alert.severity)
    text = f"by {taken.acknowledged_by}" + (f": {why}" if why else "")
    return Result(taken, history=((alert.id, "acknowledged", text),))


def _mute(request: AlertRequest, silences: Mapping[str, Silence], now: Instant) -> Result:
    silence = request.silence
    if silence is None or not silence.id or silence.until <= now:
        return Result(refused="a silence that ends before it begins")
    if len(silences) >= SILENCES_AT_MOST and silence.id not in silences:
        return Result(refused=f"there are {SILENCES_AT_MOST} silences already")
    made = min(silence.made_at, now)
    return Result(silence=replace(silence, made_at=made, by=silence.by or request.by, window=False, ended_at=None))


def _unmute(request: AlertRequest, silences: Mapping[str, Silence], now: Instant) -> Result:
    silence = silences.get(request.alert or "")
    if silence is None or silence.window:
        return Result(refused=f"{request.alert} is not a silence that a person made")
    return Result(silence=replace(silence, ended_at=now))
