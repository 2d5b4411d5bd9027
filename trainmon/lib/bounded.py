"""Collections that only keep so many of the newest."""

from __future__ import annotations

from typing import Any


def drop_oldest(kept: dict[Any, Any], limit: int) -> None:
    """Drop what was added first until no more than `limit` are left."""
    while len(kept) > limit:
        del kept[next(iter(kept))]
