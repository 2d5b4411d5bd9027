"""A checkpoint directory's listing → which checkpoints there are, and in which state. Pure."""

from __future__ import annotations

from trainmon.clock import Instant
from trainmon.model_checkpoints import Checkpoints
from trainmon.readings import CheckpointListing


def read(
    listing: CheckpointListing,
    *,
    host: str,
    at: Instant,
    is_running: bool | None,
    now: Instant,
    skew: float,
    before: Checkpoints | None,
) -> Checkpoints:
    """Interpret one listing."""
    return Checkpoints(path=listing.path, host=host, looked_at=at, error=listing.error)
