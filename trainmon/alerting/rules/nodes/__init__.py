"""Rules about nodes: reachability, memory, InfiniBand, Slurm states."""

from __future__ import annotations

from trainmon.alerting.rules.nodes.hosts import ClockSkew, NodeRebooted, NodeUnreachable
from trainmon.alerting.rules.nodes.infiniband import InfinibandDown, InfinibandFlapping
from trainmon.alerting.rules.nodes.memory import MemoryFull, MemoryLeak, OomKill
from trainmon.alerting.rules.nodes.slurm import NodeDrained, SparesFew

__all__ = [
    "ClockSkew",
    "InfinibandDown",
    "InfinibandFlapping",
    "MemoryFull",
    "MemoryLeak",
    "NodeDrained",
    "NodeRebooted",
    "NodeUnreachable",
    "OomKill",
    "SparesFew",
]
