"""Which alert hides which: what follows from something worse is not told, and shown as hidden by it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from msgspec.structs import replace

from trainmon.model import Alert, Severity, is_worse

Within = Literal["subject", "node", "cluster", "run", "everywhere"]

GPU_TROUBLES = (
    "gpu-hot", "gpu-slowdown", "power-brake", "ecc-uncorrected", "row-remap", "xid", "gpu-lost", "gpu-missing",
    "gpu-memory-full", "gpu-idle", "gpu-leftover",
)  # fmt: skip
NODE_TROUBLES = (
    "clock-skew", "memory-leak", "memory-full", "infiniband-down", "infiniband-flapping", "disk-hung", "straggler",
)  # fmt: skip
DRAINS = ("node-unreachable", "gpu-lost", "gpu-missing", "ecc-uncorrected", "row-remap", "xid")
"""What Slurm drains a node for."""
SLOWED = ("power-brake", "gpu-slowdown", "gpu-hot")
"""Why a GPU is slow: that its node holds a run up follows from it."""
PACE = (
    "run-hung", "run-stalled", "data-stall", "slow-throughput", "straggler", "gpu-idle", "wandb-heartbeat-lost",
    "checkpoint-overdue", "skipped-steps", "time-limit-near",
)  # fmt: skip
"""What is no news of a run that does not run."""


class Hides(NamedTuple):
    """While an alert of the rule `by` fires, those of `hidden` are not told, within the same …"""

    by: str
    within: Within
    hidden: tuple[str, ...]
    milder: bool = False
    """Whether only what is less bad is hidden."""


INHIBITIONS: tuple[Hides, ...] = (
    Hides("monitor-blind", "everywhere", ("cluster-unreachable", "node-unreachable", "source-late", "source-down")),
    Hides("cluster-unreachable", "cluster", ("node-unreachable", "source-late", "source-down", "spares-few")),
    Hides("run-stopped", "run", ("run-dead", "node-unreachable", "ended-early", "not-scheduled", *PACE)),
    Hides("run-dead", "run", ("ended-early", *PACE)),
    Hides("finished", "run", ("run-dead", "node-unreachable", "no-job-queued", "not-scheduled", *PACE)),
    Hides("node-unreachable", "node", (*GPU_TROUBLES, *NODE_TROUBLES)),
    *(Hides(by, "node", ("node-drained",), milder=True) for by in DRAINS),
    Hides("gpu-lost", "node", ("gpu-missing",)),
    Hides("gpu-lost", "subject", tuple(rule for rule in GPU_TROUBLES if rule != "gpu-lost")),
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
"""Read from the top: what is worse stands above what it hides."""


def inhibited(alerts: Mapping[str, Alert]) -> dict[str, Alert]:
    """The alerts that changed, each with what hides it now."""
    hiding = _hiding(alert for alert in alerts.values() if alert.is_firing)
    changed = {}
    for alert in alerts.values():
        if not alert.is_open:
            continue
        by = None if not hiding else _hidden_by(alert, hiding)
        if by != alert.inhibited_by:
            changed[alert.id] = replace(alert, inhibited_by=by, told=_told(alert, by))
    return changed


def _told(alert: Alert, by: str | None) -> Severity | None:
    """What counts as told: all of one that is just recovering as nothing hides it any more."""
    return alert.severity if by is None and alert.phase == "recovering" and alert.told is None else alert.told


def may_be_hidden_soon(alerts: Iterable[Alert]) -> Mapping[str, str]:
    """Of those that fire, the ones that something hides which is still pending: id → id of what may hide it."""
    everyone = tuple(alerts)
    hiding = _hiding(alert for alert in everyone if alert.phase == "pending")
    if not hiding:
        return {}
    found = {}
    for alert in everyone:
        if alert.is_firing and alert.told is None and (by := _hidden_by(alert, hiding)) is not None:
            found[alert.id] = by
    return found


Hiding = Mapping[tuple[int, str], Alert]
"""(which of INHIBITIONS, of which run or node) → the alert that hides, the worst."""

HIDERS: Mapping[str, tuple[tuple[int, Within], ...]] = {
    rule: tuple((index, hides.within) for index, hides in enumerate(INHIBITIONS) if rule in hides.hidden)
    for rule in {rule for hides in INHIBITIONS for rule in hides.hidden}
}
"""By hidden rule, what may hide it."""
HIDING: Mapping[str, tuple[tuple[int, Within], ...]] = {
    by: tuple((index, hides.within) for index, hides in enumerate(INHIBITIONS) if hides.by == by)
    for by in {hides.by for hides in INHIBITIONS}
}
"""By rule, what it may hide."""


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
    """Which cluster, node, run or subject an alert is of; one that is of none is hidden by none. A GPU's Xid is of the
    GPU; a path may have spaces."""
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
