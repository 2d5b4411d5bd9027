"""What makes an episode of an alert: its id, its taking up after a pause, and whether it flaps. Pure."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, NamedTuple

from msgspec.structs import replace

from trainmon.alerting.pipeline.clock_jumps import Jump
from trainmon.lib import Instant, Seconds
from trainmon.model import Alert, Finding

TOLERANCE: Seconds = 3_600.0
"""A hold that ran when this program stopped goes on where it stood, when nobody looked for at most so long; else it
begins anew (Prometheus' rules.alert.for-outage-tolerance). What is found again after it is what was found before."""

STATES = 21
SLOT: Seconds = 60.0
"""Flapping is judged by the last 21 states, one a minute: a recovery takes a minute (`keep`), so none is missed."""
OLDEST, NEWEST = 0.75, 1.25
"""The weights of changes, by their age."""
STARTS, STOPS = 0.20, 0.05
"""The share of changes from which it flaps, and under which it is stable again (Nagios' sample configuration)."""

SAME_WITHIN: Seconds = 3_600.0
"""What is found in the same hour, since the same time, is the same happening."""

Token = Callable[[], str]


def begun(finding: Finding, now: Instant, taken: Container[str], token: Token) -> Alert:
    """A new episode, found for the first time."""
    since = now if finding.since is None else finding.since if finding.event else min(finding.since, now)
    return Alert(
        id=name_of(finding.rule, finding.subject, since, taken, 0.0 if finding.event else now),
        rule=finding.rule,
        subject=finding.subject,
        severity=finding.severity,
        summary=finding.summary,
        evidence=finding.evidence,
        advice=finding.advice,
        cluster=finding.cluster,
        run=finding.run,
        node=finding.node,
        sources=finding.sources,
        event=finding.event,
        person=finding.person,
        since=since,
        found_at=now,
        pending_since=now,
        token=token(),
    )


def name_of(rule: str, subject: str, since: Instant, taken: Container[str], found: Instant = 0.0) -> str:
    """Eight characters, the same for the same happening wherever it is seen, and no one else's. What is found anew when
    `taken` has forgotten it, after a day, is another episode: the outbox still knows the keys of the old one."""
    count = 0
    while True:
        text = "\0".join((rule, subject, str(int(since)), str(int(found // SAME_WITHIN)), str(count)))
        name = base64.b32encode(hashlib.sha256(text.encode()).digest())[:8].decode().lower()
        if name not in taken:
            return name
        count += 1


def firing_again(alert: Alert) -> Alert:
    """One that was recovering. What counted as told because it was nearly over, though nobody was, no longer does."""
    told = None if alert.first_told_at is None else alert.told
    return replace(alert, phase="firing", clear_since=None, told=told)


def resumed(alert: Alert, outage: Seconds, now: Instant) -> Alert:
    """The alert after nobody looked for so long: nothing has fired and nothing is over because of that."""
    if alert.phase == "recovering":
        return firing_again(alert)
    if alert.phase != "pending":
        return alert
    since = alert.found_at if alert.pending_since is None else alert.pending_since
    return replace(alert, pending_since=now if outage > TOLERANCE else min(now, since + outage))


def after_jump(alert: Alert, jump: Jump, now: Instant) -> Alert:
    """The alert after a jump of the clock: what it waits for takes as long as it would have taken without."""
    names = ["told_at", "first_told_at", "acknowledged_at"]
    if jump.shift < 0:
        names += ["found_at", "fired_at", "resolved_at"] + ([] if alert.event else ["since"])
    moved: dict[str, Any] = {
        name: at + jump.shift for name in names if jump.shift and (at := getattr(alert, name)) is not None
    }
    if jump.shift < 0 and alert.pending_since is not None:
        moved["pending_since"] = alert.pending_since + jump.shift
    if jump.shift < 0 and alert.clear_since is not None:
        moved["clear_since"] = alert.clear_since + jump.shift
    moved_alert = replace(alert, **moved) if moved else alert
    return resumed(moved_alert, jump.outage, now) if jump.outage else moved_alert


def recalled(
    mine: Mapping[str, Alert],
    theirs: Iterable[Alert],
    outage: Seconds | None,
    now: Instant,
) -> dict[str, Alert]:
    """The alerts as the ledger remembers them, and of ours those that it does not know. With no `outage`, what was so
    at the last look and is so at the next was so between them."""
    kept: dict[str, Alert] = {}
    for alert in theirs:
        if alert.is_open:
            kept[alert.id] = alert if outage is None else resumed(alert, outage, now)
        elif alert.fired_at is not None:
            kept[alert.id] = alert
    known = {alert.key for alert in kept.values() if alert.is_open}
    for alert in mine.values():
        if not alert.is_open:
            kept.setdefault(alert.id, alert)
        elif alert.key not in known:
            name = alert.id if alert.id not in kept else name_of(*alert.key, alert.since, kept)
            kept[name] = replace(alert, id=name)
    return kept


class Flapping(NamedTuple):
    """The alerts that changed because they began to flap or became stable; and those that just began to."""

    changed: dict[str, Alert]
    begun: tuple[str, ...]


Wakes = Callable[[Alert], bool]
"""Whether each of its episodes must wake somebody, however often it comes: a run that has died is not unstable."""


def flapped(alerts: Mapping[str, Alert], now: Instant, wakes: Wakes = lambda alert: False) -> Flapping:
    """Mark the newest episode of what flaps; one that is stable again is to be told as it is now."""
    changed: dict[str, Alert] = {}
    new: list[str] = []
    judged = flapping((alert for alert in alerts.values() if alert.flapping or not wakes(alert)), now)
    by_key: dict[tuple[str, str], list[Alert]] = {}
    for alert in alerts.values() if judged else ():
        if alert.fired_at is not None and alert.key in judged:
            by_key.setdefault(alert.key, []).append(alert)
    for key, episodes in by_key.items():
        newest = max(episodes, key=lambda alert: (alert.fired_at or 0.0, alert.is_open))
        is_alone = wakes(newest)
        is_flapping = judged[key] and not is_alone
        before = next((alert for alert in episodes if alert.flapping and alert is not newest), None)
        if before is not None:
            changed[before.id] = replace(before, flapping=False, told_on=())
            newest = newest if is_alone else _heir(newest, before)
            changed[newest.id] = newest
        if is_flapping and not newest.flapping:
            changed[newest.id] = replace(newest, flapping=True)
            new.append(newest.id)
        elif not is_flapping and newest.flapping:
            keeps = newest.acknowledged_by is not None or not newest.is_open
            changed[newest.id] = replace(newest, flapping=False, told=newest.told if keeps else None)
    return Flapping(changed, tuple(new))


def _heir(newest: Alert, before: Alert) -> Alert:
    """Another episode of what flaps: who was told of the one before was told of this one, and who took it has it."""
    told_on = tuple(dict.fromkeys((*newest.told_on, *before.told_on)))
    taken = newest if newest.acknowledged_by is not None else before
    return replace(
        newest,
        flapping=True,
        told_on=told_on,
        told=newest.told or before.told,
        first_told_at=newest.first_told_at if before.first_told_at is None else before.first_told_at,
        acknowledged_by=taken.acknowledged_by,
        acknowledged_at=taken.acknowledged_at,
        acknowledged=taken.acknowledged,
    )


def flapping(alerts: Iterable[Alert], now: Instant) -> Mapping[tuple[str, str], bool]:
    """Of each (rule, subject) that flaps, or did until now, whether it flaps."""
    changes: dict[tuple[str, str], set[int]] = {}
    was: set[tuple[str, str]] = set()
    for alert in alerts:
        if alert.flapping:
            was.add(alert.key)
        for at in (alert.fired_at, None if alert.event else alert.resolved_at):
            if at is not None and 0 <= now - at < (STATES - 1) * SLOT:
                changes.setdefault(alert.key, set()).add(int((now - at) // SLOT))
    begun = {key for key, slots in changes.items() if _flaps(slots, key in was)}
    return {key: key in begun for key in begun | was}


def _flaps(slots: Iterable[int], was: bool) -> bool:
    """By the share of changes among the last states; a slot is how many minutes ago it was."""
    steps = STATES - 2
    total = sum(OLDEST + (steps - slot) * (NEWEST - OLDEST) / steps for slot in slots)
    share = total / (STATES - 1)
    return share >= (STOPS if was else STARTS)
