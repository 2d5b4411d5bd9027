"""Jobs and nodes of the queue as rows, and one job in full."""

from __future__ import annotations

from tui.views.jobs.detail import NODES_SHOWN, job_lines, moment, node_links, time_left
from tui.views.jobs.nodes import CLUSTER, NODE, clusters, folded, node_rows, node_state, node_style, reason
from tui.views.jobs.rows import (
    ENDED_SHOWN,
    ORDERS,
    QueueEntry,
    head,
    is_mine,
    layout,
    listed_jobs,
    queue_rows,
    row,
    runs_by_job,
)
from tui.views.jobs.status import code, elapsed, is_missing, left, short_wait, sign, why

__all__ = [
    "CLUSTER",
    "ENDED_SHOWN",
    "NODE",
    "NODES_SHOWN",
    "ORDERS",
    "QueueEntry",
    "clusters",
    "code",
    "elapsed",
    "folded",
    "head",
    "is_mine",
    "is_missing",
    "job_lines",
    "layout",
    "left",
    "listed_jobs",
    "moment",
    "node_links",
    "node_rows",
    "node_state",
    "node_style",
    "queue_rows",
    "reason",
    "row",
    "runs_by_job",
    "short_wait",
    "sign",
    "time_left",
    "why",
]
