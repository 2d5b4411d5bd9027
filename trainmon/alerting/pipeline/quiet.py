"""What keeps a firing alert quiet: another alert that it follows from, and what people ask for. Pure."""

from __future__ import annotations

import hmac
from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple

from msgspec.structs import replace

from trainmon.alerting.pipeline.lifecycle import HistoryEntry
from trainmon.lib import Instant, clean
from trainmon.model import Alert, AlertRequest, Silence, is_worse

# ---- inhibition ------------------------------------------------------------------------------------------------------

Within = Literal["subject", "node", "cluster", "run", "everywhere"]

GPU_RULES = (
    "gpu-hot", "gpu-slowdown", "power-brake", "ecc-uncorrected", "row-remap", "xid", "gpu-lost", "gpu-missing",
    "gpu-memory-full", "gpu-idle", "gpu-leftover",
)  # fmt: skip
NODE_RULES = (
    "clock-skew", "memory-leak", "memory-full", "infiniband-down", "infiniband-flapping", "slow-link", "disk-hung",
    "straggler", "storage-wait",
)  # fmt: skip
DRAINS = ("node-unreachable", "gpu-lost", "gpu-missing", "ecc-uncorrected", "row-remap", "xid")
"""What Slurm drains a node for."""
SLOWED = ("power-brake", "gpu-slowdown", "gpu-hot")
"""Why a GPU is slow. That its node is a straggler follows from it; not from a slow link, as all ranks wait for that."""
STALLS = ("run-hung", "run-stalled", "data-stall")
PACE = (
    "slow-throughput", "straggler", "gpu-idle", "wandb-heartbeat-lost", "checkpoint-overdue", "skipped-steps",
    "time-limit-near", "storage-wait",
)  # fmt: skip
"""Alerts that follow if a run does not run."""


class Hides(NamedTuple):
    """While an alert of the rule `by` fires, alerts of the rules `hidden` are not notified, within the same …"""

    by: str
    within: Within
    hidden: tuple[str, ...]
    milder: bool = False
    """Whether only less severe alerts are hidden."""
    covered: bool = False
    """Whether a person who was notified of `by` knows enough: what it hid is not notified after its end, either."""


INHIBITIONS: tuple[Hides, ...] = (
    Hides("monitor-blind", "everywhere", ("cluster-unreachable", "node-unreachable", "source-late", "source-down")),
    Hides("cluster-unreachable", "cluster", ("node-unreachable", "source-late", "source-down", "spares-few")),
    Hides("source-down", "subject", ("source-late",)),
    Hides("run-stopped", "run", ("run-dead", "node-unreachable", "ended-early", "not-scheduled", *STALLS, *PACE)),
    Hides("run-dead", "run", ("ended-early", *PACE)),  # of a run that keeps failing, the next attempt may hang
    Hides("finished", "run", ("run-dead", "node-unreachable", "no-job-queued", "not-scheduled", *STALLS, *PACE)),
    Hides("node-unreachable", "node", (*GPU_RULES, *NODE_RULES)),
    Hides("node-unreachable", "node", ("node-rebooted",), covered=True),
    *(Hides(by, "node", ("node-drained",), milder=True) for by in DRAINS),
    Hides("gpu-lost", "node", ("gpu-missing",)),
    Hides("gpu-lost", "subject", ("xid",), covered=True),
    Hides("gpu-lost", "subject", tuple(rule for rule in GPU_RULES if rule not in ("gpu-lost", "xid"))),
    Hides("run-hung", "run", ("run-stalled", "data-stall", "slow-throughput", "straggler", "gpu-idle")),
    Hides("run-stalled", "run", ("slow-throughput", "gpu-idle")),
    Hides("data-stall", "run", ("run-stalled", "slow-throughput", "gpu-idle")),
    Hides("loss-nan", "run", ("loss-spike",)),
    Hides("gpu-slowdown", "subject", ("gpu-hot",)),
    *(Hides(by, "node", ("straggler",)) for by in SLOWED),
    *(Hides(by, "subject", ("slow-link",)) for by in ("gpu-lost", "infiniband-down", "infiniband-flapping")),
    Hides("storage-wait", "run", ("data-stall", "gpu-idle", "slow-throughput"), milder=True),
    Hides("disk-hung", "node", ("storage-wait",), milder=True),
    Hides("disk-hung", "subject", ("disk-full", "inodes-full", "disk-forecast", "checkpoints-do-not-fit")),
    Hides("disk-full", "subject", ("disk-forecast",)),
    Hides("channel-failing", "subject", ("outbox-old",)),
)
"""The first match counts: a worse problem stands above what it hides."""


def inhibited(alerts: Mapping[str, Alert]) -> dict[str, Alert]:
    """The alerts that inhibition changed, each with the alert that hides it now."""
    hiding = _hiding(alert for alert in alerts.values() if alert.is_firing)
    changed = {}
    for alert in alerts.values():
        by = _hidden_by(alert, hiding) if hiding else None
        if alert.is_open and by != alert.inhibited_by:
            # A recovering alert that nothing hides any more needs no notification.
            is_known = by is None and (alert.phase == "recovering" or _was_covered(alert, alerts))
            notified_as = alert.notified_as or alert.severity if is_known else alert.notified_as
            changed[alert.id] = replace(alert, inhibited_by=by, notified_as=notified_as)
    return changed


COVERED = frozenset((hides.by, rule) for hides in INHIBITIONS if hides.covered for rule in hides.hidden)
"""(rule that hid, rule that was hidden)"""


def _was_covered(alert: Alert, alerts: Mapping[str, Alert]) -> bool:
    """Whether the alert that hid this one was notified, and says the same."""
    by = alerts.get(alert.inhibited_by or "")
    return by is not None and by.first_notified_at is not None and (by.rule, alert.rule) in COVERED


def may_be_hidden_soon(alerts: Collection[Alert]) -> set[str]:
    """The ids of firing alerts that a pending alert may hide soon."""
    hiding = _hiding(alert for alert in alerts if alert.phase == "pending")
    waiting = (alert for alert in alerts if alert.is_firing and alert.notified_as is None) if hiding else ()
    return {alert.id for alert in waiting if _hidden_by(alert, hiding) is not None}


Hiding = Mapping[tuple[int, str], Alert]
"""(index in INHIBITIONS, run or node) → the most severe alert that hides."""

HIDERS: Mapping[str, tuple[tuple[int, Within], ...]] = {
    rule: tuple((index, hides.within) for index, hides in enumerate(INHIBITIONS) if rule in hides.hidden)
    for rule in {rule for hides in INHIBITIONS for rule in hides.hidden}
}
"""By rule: the inhibitions that may hide it."""
HIDING: Mapping[str, tuple[tuple[int, Within], ...]] = {
    by: tuple((index, hides.within) for index, hides in enumerate(INHIBITIONS) if hides.by == by)
    for by in {hides.by for hides in INHIBITIONS}
}
"""By rule: the inhibitions that it may cause."""


def _hiding(sources: Iterable[Alert]) -> Hiding:
    found: dict[tuple[int, str], Alert] = {}
    for alert in sources:
        for index, within in HIDING.get(alert.rule, ()):
            where = _where(alert, within)
            if where is not None and is_worse(alert.severity, found.setdefault((index, where), alert).severity):
                found[index, where] = alert
    return found


def _hidden_by(alert: Alert, hiding: Hiding) -> str | None:
    for index, within in HIDERS.get(alert.rule, ()):
        where = _where(alert, within)
        by = None if where is None else hiding.get((index, where))
        if by is not None and (not INHIBITIONS[index].milder or is_worse(by.severity, alert.severity)):
            return by.id
    return None


def _where(alert: Alert, within: Within) -> str | None:
    """The cluster, node, run or subject of an alert; nothing hides an alert without one. The subject of a GPU's Xid is
    the GPU. That of a port is this port, and the path of a disk may have spaces. W&B is outside of the clusters."""
    match within:
        case "subject":
            return alert.subject.partition(" ")[0] if alert.subject.startswith("gpu:") else alert.subject
        case "node":
            return alert.node or None
        case "cluster":
            return None if alert.subject.startswith("source:wandb:") else alert.cluster or None
        case "run":
            return alert.run or None
        case "everywhere":
            return ""


# ---- silences --------------------------------------------------------------------------------------------------------


def in_force(silences: Iterable[Silence], now: Instant) -> tuple[Silence, ...]:
    """The silences that apply now. A person's silence applies from its creation, even if the clock is set back."""
    return tuple(
        silence
        for silence in silences
        if silence.ended_at is None and now < silence.until and (silence.made_at <= now or not silence.window)
    )


def muted(alerts: Mapping[str, Alert], in_force: Iterable[Silence]) -> dict[str, Alert]:
    """The alerts that silences changed, with the end of the longest silence that matches."""
    longest_first = sorted(in_force, key=lambda silence: silence.until, reverse=True)
    changed = {}
    for alert in alerts.values():
        if alert.is_open or alert.muted_until is not None:
            silence = next((one for one in longest_first if one.covers(alert)), None)
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
