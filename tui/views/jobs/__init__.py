"""Jobs and nodes of the queue as rows, and one job in full."""

from __future__ import annotations

from tui.views.jobs.detail import NODES_SHOWN, job_lines, node_links, time_and_age, time_left
from tui.views.jobs.nodes import CLUSTER, NODE, clusters, folded, node_reason, node_rows, node_state, node_style
from tui.views.jobs.rows import (
    ENDED_SHOWN,
    ORDERS,
    QueueEntry,
    is_mine,
    listed_jobs,
    queue_head,
    queue_layout,
    queue_row,
    queue_rows,
    runs_by_job,
)
from tui.views.jobs.status import elapsed, is_missing, job_sign, seconds_left, short_wait, state_code, status_text

__all__ = [
    "CLUSTER",
    "ENDED_SHOWN",
    "NODE",
    "NODES_SHOWN",
    "ORDERS",
    "QueueEntry",
    "clusters",
    "elapsed",
    "folded",
    "is_mine",
    "is_missing",
    "job_lines",
    "job_sign",
    "listed_jobs",
    "node_links",
    "node_reason",
    "node_rows",
    "node_state",
    "node_style",
    "queue_head",
    "queue_layout",
    "queue_row",
    "queue_rows",
    "runs_by_job",
    "seconds_left",
    "short_wait",
    "state_code",
    "status_text",
    "time_and_age",
    "time_left",
]
