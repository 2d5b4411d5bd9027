"""All rules about nodes, in the order of docs/alerts-and-rules.md."""

from __future__ import annotations

from trainmon.rules.base import Rule
from trainmon.rules.nodes_hosts import ClockSkew, NodeRebooted, NodeUnreachable
from trainmon.rules.nodes_links import InfinibandDown, InfinibandFlapping
from trainmon.rules.nodes_memory import MemoryFull, MemoryLeak, OomKill
from trainmon.rules.nodes_scheduler import NodeDrained, SparesFew

NODES: tuple[type[Rule], ...] = (
    NodeUnreachable,
    NodeRebooted,
    ClockSkew,
    MemoryFull,
    MemoryLeak,
    OomKill,
    InfinibandDown,
    InfinibandFlapping,
    NodeDrained,
    SparesFew,
)
