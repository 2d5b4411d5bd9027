"""Rules about nodes: reachability, memory, InfiniBand, Slurm states."""

from __future__ import annotations

from trainmon.alerting.rules.base import Rule
from trainmon.alerting.rules.nodes.hosts import ClockSkew, NodeDrained, NodeRebooted, NodeUnreachable, SparesFew
from trainmon.alerting.rules.nodes.infiniband import InfinibandDown, InfinibandFlapping
from trainmon.alerting.rules.nodes.memory import MemoryFull, MemoryLeak, OomKill

NODES: tuple[type[Rule], ...] = (
    NodeUnreachable, NodeRebooted, ClockSkew, MemoryFull, MemoryLeak, OomKill, InfinibandDown, InfinibandFlapping,
    NodeDrained, SparesFew,
)  # fmt: skip
"""Every node rule, in the order of help and documents."""

__all__ = ["NODES", "NodeUnreachable"]
