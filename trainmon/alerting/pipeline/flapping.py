"""Flapping: which alerts fire and resolve repeatedly. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.alerting.pipeline.episode import FLAP_SLOT, FLAPS_WITHIN, changes_of
from trainmon.lib import Instant
from trainmon.model import Alert

SLOT = FLAP_SLOT
STATES = 1 + int(FLAPS_WITHIN / SLOT)
"""Flapping is measured over the last 21 states, one per minute. A recovery takes a minute (`keep_firing_for`), so none
is missed."""
OLDEST, NEWEST = 0.75, 1.25
"""The weights of state changes, by age."""
STARTS, STOPS = 0.20, 0.05
"""The share of state changes at which flapping starts, and below which it stops (Nagios' sample configuration)."""


class Flapping(NamedTuple):
    """The alerts that flapping changed, and the ids of those that just started to flap."""

    changed: dict[str, Alert]
    started: tuple[str, ...]


def flapped(alerts: Mapping[str, Alert], now: Instant, never_flap: Collection[str] = ()) -> Flapping:
    """Mark the newest episode of each flapping alert. An alert that is stable again is notified again.

    `never_flap`: the rules of which every critical episode is notified, however often it comes. A dead run does not
    flap.
    """
    changed: dict[str, Alert] = {}
    started: list[str] = []
    may_flap = (one for one in alerts.values() if one.flapping or not _is_separate(one, never_flap))
    is_flapping = flapping(may_flap, now)
    by_key: dict[tuple[str, str], list[Alert]] = {}
    for alert in alerts.values() if is_flapping else ():
        if alert.fired_at is not None and alert.key in is_flapping:
            by_key.setdefault(alert.key, []).append(alert)
    for key, episodes in by_key.items():
        newest = max(episodes, key=lambda alert: (alert.fired_at or 0.0, alert.is_open))
        is_separate = _is_separate(newest, never_flap)
        flaps = is_flapping[key] and not is_separate
        before = next((alert for alert in episodes if alert.flapping and alert is not newest), None)
        if before is not None:
            changed[before.id] = replace(before, flapping=False, flapping_notified=False, notified_on=())
            newest = newest if is_separate else _continued(newest, before)
            changed[newest.id] = newest
        if flaps and not newest.flapping:
            changed[newest.id] = replace(newest, flapping=True)
            started.append(newest.id)
        elif not flaps and newest.flapping:
            stays_notified = newest.acknowledged_by is not None or not newest.is_open
            notified_as = newest.notified_as if stays_notified else None
            changed[newest.id] = replace(newest, flapping=False, flapping_notified=False, notified_as=notified_as)
    return Flapping(changed, tuple(started))


def _is_separate(alert: Alert, never_flap: Collection[str]) -> bool:
    return alert.severity == "critical" and alert.rule in never_flap


def _continued(newest: Alert, before: Alert) -> Alert:
    """The next episode of a flapping alert, with the notifications and the acknowledgement of the one before."""
    acknowledged = newest if newest.acknowledged_by is not None else before
    return replace(
        newest,
        flapping=True,
        flapping_notified=before.flapping_notified,
        notified_on=tuple(dict.fromkeys((*newest.notified_on, *before.notified_on))),
        notified_as=newest.notified_as or before.notified_as,
        first_notified_at=newest.first_notified_at if before.first_notified_at is None else before.first_notified_at,
        acknowledged_by=acknowledged.acknowledged_by,
        acknowledged_at=acknowledged.acknowledged_at,
        acknowledged=acknowledged.acknowledged,
    )


def flapping(alerts: Iterable[Alert], now: Instant) -> Mapping[tuple[str, str], bool]:
    """Whether each (rule, subject) flaps, for those that flap now or did until now."""
    alerts, changes = tuple(alerts), dict[tuple[str, str], set[int]]()
    was = {alert.key for alert in alerts if alert.flapping}
    for alert in alerts:
        for at in (*alert.flaps, *changes_of(alert)):
            if 0 <= now - at < (STATES - 1) * SLOT:
                changes.setdefault(alert.key, set()).add(int((now - at) // SLOT))
    steps = STATES - 2
    share = {
        key: sum(OLDEST + (steps - slot) * (NEWEST - OLDEST) / steps for slot in slots) / (STATES - 1)
        for key, slots in changes.items()
    }
    return {
        key: share.get(key, 0.0) >= (STOPS if key in was else STARTS)
        for key in share.keys() | was
        if key in was or share[key] >= STARTS
    }
