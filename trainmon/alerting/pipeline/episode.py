"""Episodes: one alert from its first finding to its end: its id, what a restart leaves, whether it flaps. Pure."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from itertools import count
from typing import NamedTuple

from msgspec.structs import replace

from trainmon.lib import Instant, Seconds, by_key, group_by
from trainmon.model import Alert, Finding, Problem

OUTAGE_TOLERANCE: Seconds = 3_600.0
"""The `for` of a pending alert continues after an outage of at most this long; after a longer one it starts again
(Prometheus: rules.alert.for-outage-tolerance)."""

RESTART: Seconds = 30.0
"""A restart within this time is no outage: what is found before and after it was so in between. That this program
evaluates is written every 10s, so one that crashes more often would never see a `for` end."""

SAME_WITHIN: Seconds = 3_600.0
"""Findings with the same `since` in the same hour are the same episode."""

Token = Callable[[], str]


FLAPS_WITHIN: Seconds = 1_200.0
"""Flapping is measured over this time."""
SLOT: Seconds = 60.0


def new_alert(
    finding: Finding, now: Instant, taken: Container[str], token: Token, before: Alert | None = None
) -> Alert:
    """The alert of a first finding. `taken`: the ids of other alerts. `before`: the last episode of its subject."""
    since = now if finding.since is None else finding.since if finding.event else min(finding.since, now)
    episode = 1 if before is None else before.episode + 1
    # An event that is found again is the same one. Of a condition, `taken` has only the newest episodes.
    distinct = (0.0, 0) if finding.event else (now, episode - 1)
    return Alert(
        id=alert_id(finding.rule, finding.subject, since, taken, *distinct),
        **{name: getattr(finding, name) for name in Problem.__struct_fields__},
        since=since,
        found_at=now,
        pending_since=now,
        token=token(),
        flaps=() if before is None else _flaps(before, now),
        episode=episode,
    )


def _flaps(alert: Alert, now: Instant) -> tuple[int, ...]:
    """When the alert and the episodes before it fired and resolved. Two times a minute suffice to know in which slots
    of a minute, from any time on, there was one."""
    times = [*alert.flaps, *(int(at) for at in changes_of(alert) if at <= now)]
    minutes = group_by((at for at in times if now - at < FLAPS_WITHIN + SLOT), lambda at: at // SLOT)
    return tuple(sorted({at for found in minutes.values() for at in (min(found), max(found))}))


def changes_of(alert: Alert) -> tuple[Instant, ...]:
    """When it fired and resolved. An event does not resolve."""
    times = (alert.fired_at, None if alert.event else alert.resolved_at)
    return tuple(at for at in times if at is not None)


def alert_id(
    rule: str, subject: str, since: Instant, taken: Container[str], found: Instant = 0.0, number: int = 0
) -> str:
    """Eight characters: equal for the same episode on every machine, different for every other episode.

    `found` and `number` separate a later episode from one that `taken` no longer has: the outbox still knows the old
    id.
    """
    texts = (f"{rule}\0{subject}\0{int(since)}\0{int(found // SAME_WITHIN)}\0{one}" for one in count(number))
    names = (base64.b32encode(hashlib.sha256(text.encode()).digest())[:8].decode().lower() for text in texts)
    return next(name for name in names if name not in taken)


def firing_again(alert: Alert) -> Alert:
    """A recovering alert that fires again. If nobody was notified of it, it does not count as notified."""
    notified_as = None if alert.first_notified_at is None else alert.notified_as
    return replace(alert, phase="firing", clear_since=None, notified_as=notified_as)


def after_outage(alert: Alert, outage: Seconds, now: Instant) -> Alert:
    """The alert after an outage of the monitor: the outage itself neither fires nor resolves it."""
    if alert.phase == "recovering":
        return firing_again(alert)
    if alert.phase != "pending":
        return alert
    since = alert.found_at if alert.pending_since is None else alert.pending_since
    return replace(alert, pending_since=now if outage > OUTAGE_TOLERANCE else min(now, since + outage))


def merge_stored(
    ours: Mapping[str, Alert], stored: Iterable[Alert], outage: Seconds | None, now: Instant
) -> dict[str, Alert]:
    """The alerts that the ledger stored, and those of ours that it does not know.

    `outage` is None if there was none: after a restart, and if evaluations are separate programs (cron).
    """
    kept = {
        alert.id: alert if outage is None or not alert.is_open else after_outage(alert, outage, now)
        for alert in stored
        if alert.is_open or alert.fired_at is not None
    }
    known = {alert.key for alert in kept.values() if alert.is_open}
    for alert in ours.values():
        if not alert.is_open:
            kept.setdefault(alert.id, alert)
        elif alert.key not in known:
            name = alert.id if alert.id not in kept else alert_id(*alert.key, alert.since, kept)
            kept[name] = replace(alert, id=name)
    return kept


# ---- flapping --------------------------------------------------------------------------------------------------------

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
    fired = (one for one in alerts.values() if is_flapping and one.fired_at is not None and one.key in is_flapping)
    for key, episodes in group_by(fired, lambda alert: alert.key).items():
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
    alerts = tuple(alerts)
    was = {alert.key for alert in alerts if alert.flapping}
    changes = by_key(
        (alert.key, int((now - at) // SLOT))
        for alert in alerts
        for at in (*alert.flaps, *changes_of(alert))
        if 0 <= now - at < (STATES - 1) * SLOT
    )
    steps = STATES - 2
    share = {
        key: sum(OLDEST + (steps - slot) * (NEWEST - OLDEST) / steps for slot in set(slots)) / (STATES - 1)
        for key, slots in changes.items()
    }
    return {
        key: share.get(key, 0.0) >= (STOPS if key in was else STARTS)
        for key in share.keys() | was
        if key in was or share[key] >= STARTS
    }
