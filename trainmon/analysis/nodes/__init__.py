"""Nodes: memory leaks and spare nodes. Pure."""

from __future__ import annotations

from trainmon.analysis.nodes.memory_leak import BUCKETS, leak
from trainmon.analysis.nodes.spares import Spares

__all__ = ["BUCKETS", "Spares", "leak"]
