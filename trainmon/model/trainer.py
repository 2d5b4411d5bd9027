"""What a training loop reports of itself."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trainmon.lib import Instant, Seconds


class Asked(msgspec.Struct, frozen=True):
    """What a trainer was asked to do."""

    what: str
    """save or stop."""
    by: str
    """The kill switch, the save switch, the time limit, or a signal and its rank."""
    at: Instant
    step: int | None = None
    """The step at which it obeyed."""


class Trainer(msgspec.Struct, frozen=True, kw_only=True):
    """What a training loop with trainmon_hooks reports in its status file. Times are by our clock."""

    path: str
    """The status file, and the host that reads it."""
    host: str
    at: Instant
    """When the loop wrote it."""
    phase: str
    step: int | None = None
    job: str | None = None
    deadline: Instant | None = None
    """When its job ends."""
    grace_s: Seconds = 0.0
    """How long before that it saves and stops."""
    kill: str | None = None
    """The switches that it looks at."""
    save: str | None = None
    signals: Mapping[str, str] = {}
    """Signal → save or stop."""
    is_task: bool = False
    """Whether its process is the task that Slurm has started, and so gets the signals of Slurm."""
    asked: Asked | None = None
    saved_step: int | None = None
    saved_at: Instant | None = None
    ended_at: Instant | None = None
    ended: str | None = None
    """Why it has ended."""
