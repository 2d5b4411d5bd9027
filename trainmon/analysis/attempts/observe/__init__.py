"""What the State shows of the attempts of its runs. Pure."""

from __future__ import annotations

from trainmon.analysis.attempts.observe.jobs import (
    is_begun,
    is_restored,
    job_attempt,
    job_attempt_id,
    silence,
    unrecorded,
    with_log,
)
from trainmon.analysis.attempts.observe.observed import observed
from trainmon.analysis.attempts.observe.outlived import OUTLIVES, with_outlived

__all__ = [
    "OUTLIVES",
    "is_begun",
    "is_restored",
    "job_attempt",
    "job_attempt_id",
    "observed",
    "silence",
    "unrecorded",
    "with_log",
    "with_outlived",
]
