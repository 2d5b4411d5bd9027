"""Inhibition: an alert that follows from another one is not notified, and shown as hidden by it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple

from msgspec.structs import replace

from trainmon.model import Alert, is_worse

Within = Literal["subject", "node", "cluster", "run", "everywhere"]

GPU_RULES = (
    "gpu-hot", "gpu-slowdown", "power-brake", "ecc-uncorrected", "row-remap", "xid", "gpu-lost", "gpu-missing",
    "gpu-memory-full", "gpu-idle", "gpu-leftover",
)  # fmt: skip
NODE_RULES = (
    "clock-skew", "memory-leak", "memory-full", "infiniband-down", "infiniband-flapping", "disk-hung", "straggler",
)  # fmt: skip
DRAINS = ("node-unreachable", "gpu-lost", "gpu-missing", "ecc-uncorrected", "row-remap", "xid")
"""What Slurm drains a node for."""
SLOWED = ("power-brake", "gpu-slowdown", "gpu-hot")
"""Why a GPU is slow. That its node is a straggler follows from it."""
PACE = (
    "run-hung", "run-stalled", "data-stall", "slow-throughput", "straggler", "gpu-idle", "wandb-heartbeat-lost",
    "checkpoint-overdue", "skipped-steps", "time-limit-near",
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
    Hides("run-stopped", "run", ("run-dead", "node-unreachable", "ended-early", "not-scheduled", *PACE)),
    Hides("run-dead", "run", ("ended-early", *PACE)),
    Hides("finished", "run", ("run-dead", "node-unreachable", "no-job-queued", "not-scheduled", *PACE)),
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
    the GPU. The path of a disk may have spaces."""
    match within:
        case "subject":
            return alert.subject if alert.subject.startswith("disk:") else alert.subject.partition(" ")[0]
        case "node":
            return alert.node or None
        case "cluster":
            return alert.cluster or None
        case "run":
            return alert.run or None
        case "everywhere":
            return ""
