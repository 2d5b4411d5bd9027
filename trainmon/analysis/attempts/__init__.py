"""Attempts: which starts of a run there were, what each did, and how it ended. Pure."""

from __future__ import annotations

from trainmon.analysis.attempts.accounted import with_accounted
from trainmon.analysis.attempts.ending import ending_directories
from trainmon.analysis.attempts.merge import merged
from trainmon.analysis.attempts.provenance import missing
from trainmon.analysis.attempts.track import pruned, track, unwatched_since, with_stored

__all__ = [
    "ending_directories",
    "merged",
    "missing",
    "pruned",
    "track",
    "unwatched_since",
    "with_accounted",
    "with_stored",
]
