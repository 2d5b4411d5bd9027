"""What the dashboard showed when it was last open."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trainmon.lib import Instant
from trainmon.model.run import Verdict


class SeenRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as far as a change of it is news."""

    verdict: Verdict
    step: int | None = None
    job: str | None = None
    """Run.job."""
    restarts: int = 0
    """Of that job, by Slurm."""
    attempt: str | None = None
    """WandbRun.path of its current W&B run."""


class SeenDisk(msgspec.Struct, frozen=True, kw_only=True):
    """The space of one disk."""

    state: str
    free_bytes: int | None = None
    total_bytes: int | None = None


class LastSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The runs and disks at one time."""

    at: Instant
    runs: Mapping[str, SeenRun] = {}
    disks: Mapping[str, SeenDisk] = {}
    """By `analysis.last_seen.disk_key`."""
