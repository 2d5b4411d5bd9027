"""tui.views.jobs."""

from __future__ import annotations

from tui.views.jobs.detail import NODES_SHOWN, job_lines, moment, node_links, time_left
from tui.views.jobs.node_words import folded, node_look, node_state
from tui.views.jobs.nodes import CLUSTER, NODE, clusters, node_rows, reason
from tui.views.jobs.rows import ENDED_SHOWN, ORDERS, QueueEntry, QueueRows, chosen, head, is_mine, layout, row, run_of
from tui.views.jobs.words import code, is_left_behind, left, short_wait, sign, spent, why

__all__ = [
    "CLUSTER",
    "ENDED_SHOWN",
    "NODE",
    "NODES_SHOWN",
    "ORDERS",
    "QueueEntry",
    "QueueRows",
    "chosen",
    "clusters",
    "code",
    "folded",
    "head",
    "is_left_behind",
    "is_mine",
    "job_lines",
    "layout",
    "left",
    "moment",
    "node_links",
    "node_look",
    "node_rows",
    "node_state",
    "reason",
    "row",
    "run_of",
    "short_wait",
    "sign",
    "spent",
    "time_left",
    "why",
]
