"""The GPU grid as rows, and one node in full."""

from __future__ import annotations

from tui.views.nodes.cells import METRICS, Metric
from tui.views.nodes.detail import PROCESSES, Scheduled, gpu_head, gpu_rows, node_facts, read_ago
from tui.views.nodes.grid import Grid, node_names
from tui.views.nodes.summary import DOWN, HOT, LATE, LOST, NO_DRIVER, missing_gpus, node_summary, without_driver

__all__ = [
    "DOWN",
    "HOT",
    "LATE",
    "LOST",
    "METRICS",
    "NO_DRIVER",
    "PROCESSES",
    "Grid",
    "Metric",
    "Scheduled",
    "gpu_head",
    "gpu_rows",
    "missing_gpus",
    "node_facts",
    "node_names",
    "node_summary",
    "read_ago",
    "without_driver",
]
