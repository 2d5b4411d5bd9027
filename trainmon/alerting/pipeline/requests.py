"""What people say of alerts, carried out. Pure: a refusal is a sentence."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.alerting.pipeline.lifecycle import Happening
from trainmon.lib import Instant, clean
from trainmon.model import Alert, AlertRequest, Silence

PHONE = "phone"
"""What comes this way comes from anywhere: it may acknowledge, with the alert's own token, and nothing else."""

SILENCES_AT_MOST = 1_000
WORDS = 200
"""Characters of a name or a reason that are kept."""


class Carried(NamedTuple):
    """What an order changed."""

    alert: Alert | None = None
    silence: Silence | None = None
    happened: tuple[Happening, ...] = ()
    refused: str | None = None
    test: bool = False
    """Whether the test message is asked for now."""


def carry_out(
    order: AlertRequest, alerts: Mapping[str, Alert], silences: Mapping[str, Silence], now: Instant
) -> Carried:
    """Do what an order says, if it may say so."""
    refused = _refused(order, alerts)
    if refused is not None:
        return Carried(refused=refused)
    match order.verb:
        case "ack" | "unack":
            return _acknowledge(order, alerts.get(order.alert or ""), now)
        case "mute":
            return _mute(order, silences, now)
        case "unmute":
            return _unmute(order, silences, now)
        case "test":
            return Carried(test=True)


def _refused(order: AlertRequest, alerts: Mapping[str, Alert]) -> str | None:
    if order.via != PHONE and order.token is None:
        return None
    if order.verb != "ack":
        return f"{order.verb} is not taken from a phone"
    alert = alerts.get(order.alert or "")
    expected, given = "" if alert is None else alert.token, order.token or ""
    if not expected or not hmac.compare_digest(expected.encode(), given.encode()):
        return "an acknowledgement with another token than the alert's own"
    return None


def _acknowledge(order: AlertRequest, alert: Alert | None, now: Instant) -> Carried:
    if alert is None or not alert.is_open:
        return Carried(refused=f"{order.alert} is no open alert")
    if order.verb == "unack":
        if alert.acknowledged_by is None:
            return Carried()
        words = f"{clean(order.by, WORDS)} took the acknowledgement back"
        return Carried(
            replace(alert, acknowledged_by=None, acknowledged_at=None, acknowledged=None),
            happened=((alert.id, "open", words),),
        )
    if alert.acknowledged_by is not None:
        return Carried()
    by, why = clean(order.by, WORDS), clean(order.why, WORDS)
    taken = replace(alert, acknowledged_by=by or "somebody", acknowledged_at=now, acknowledged=alert.severity)
    words = f"by {taken.acknowledged_by}" + (f": {why}" if why else "")
    return Carried(taken, happened=((alert.id, "acknowledged", words),))


def _mute(order: AlertRequest, silences: Mapping[str, Silence], now: Instant) -> Carried:
    silence = order.silence
    if silence is None or not silence.id or silence.until <= now:
        return Carried(refused="a silence that is over before it begins")
    if len(silences) >= SILENCES_AT_MOST and silence.id not in silences:
        return Carried(refused=f"there are {SILENCES_AT_MOST} silences already")
    made = min(silence.made_at, now)
    return Carried(silence=replace(silence, made_at=made, by=silence.by or order.by, window=False, ended_at=None))


def _unmute(order: AlertRequest, silences: Mapping[str, Silence], now: Instant) -> Carried:
    silence = silences.get(order.alert or "")
    if silence is None or silence.window:
        return Carried(refused=f"{order.alert} is no silence that a person made")
    return Carried(silence=replace(silence, ended_at=now))
