"""Runs: verdicts, job matching, loss and throughput. Pure."""

from __future__ import annotations

from trainmon.analysis.runs.context import (
    PATIENCE,
    Queue,
    RunContext,
    has_begun,
    is_new_attempt,
    is_trained_elsewhere,
    our_time,
    patience,
    position,
    queue_of,
    target,
    where,
)
from trainmon.analysis.runs.job_matching import (
    ENDED_RUNS_STAY,
    holds_nodes,
    is_running,
    jobs_of,
    owner_of,
    present,
    rivals,
    watched_runs,
)
from trainmon.analysis.runs.loss import AT_LEAST, SIGMAS, trouble_of
from trainmon.analysis.runs.no_steps import SOMEBODY, UNREAD, how_it_ended, last_line_at, needed_to_save, who_stopped
from trainmon.analysis.runs.own_processes import process_runs
from trainmon.analysis.runs.status import STILL, judge
from trainmon.analysis.runs.throughput import ENOUGH, MINUTE, loss_scale
from trainmon.analysis.runs.trainer import (
    listening,
    named_files,
    other_switches,
    read_status,
    saves_on,
    status_file,
    stops_by,
    was_withdrawn,
)

__all__ = [
    "AT_LEAST",
    "ENDED_RUNS_STAY",
    "ENOUGH",
    "MINUTE",
    "PATIENCE",
    "SIGMAS",
    "SOMEBODY",
    "STILL",
    "UNREAD",
    "Queue",
    "RunContext",
    "has_begun",
    "holds_nodes",
    "how_it_ended",
    "is_new_attempt",
    "is_running",
    "is_trained_elsewhere",
    "jobs_of",
    "judge",
    "last_line_at",
    "listening",
    "loss_scale",
    "named_files",
    "needed_to_save",
    "other_switches",
    "our_time",
    "owner_of",
    "patience",
    "position",
    "present",
    "process_runs",
    "queue_of",
    "read_status",
    "rivals",
    "saves_on",
    "status_file",
    "stops_by",
    "target",
    "trouble_of",
    "was_withdrawn",
    "watched_runs",
    "where",
    "who_stopped",
]
