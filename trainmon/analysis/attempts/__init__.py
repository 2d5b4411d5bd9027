"""Attempts: which starts of a run there were, what each did, and how it ended. Pure."""

from trainmon.analysis.attempts.ending import OUTLIVES, ending_directories, with_outlived, with_tail
from trainmon.analysis.attempts.fold import ORDER, SAME_START, is_same_start, merged, named_as, values_of
from trainmon.analysis.attempts.observed import rank_processes, silence, unrecorded
from trainmon.analysis.attempts.provenance import (
    by_same_origin,
    changed_settings,
    config_digest,
    config_in_file,
    files_to_read,
    has_same_config,
    has_same_settings,
    missing,
    why_missing,
    with_file,
)
from trainmon.analysis.attempts.ranks import RankPlace, place_of, places_in, places_shown, ranks_of_log, with_places
from trainmon.analysis.attempts.steps import began_at
from trainmon.analysis.attempts.track import (
    attempt_of_log,
    logs_to_read,
    pruned,
    read_once,
    track,
    unwatched_since,
    with_accounted,
    with_stored,
    with_unseen_log,
)

__all__ = [
    "ORDER",
    "OUTLIVES",
    "SAME_START",
    "RankPlace",
    "attempt_of_log",
    "began_at",
    "by_same_origin",
    "changed_settings",
    "config_digest",
    "config_in_file",
    "ending_directories",
    "files_to_read",
    "has_same_config",
    "has_same_settings",
    "is_same_start",
    "logs_to_read",
    "merged",
    "missing",
    "named_as",
    "place_of",
    "places_in",
    "places_shown",
    "pruned",
    "rank_processes",
    "ranks_of_log",
    "read_once",
    "silence",
    "track",
    "unrecorded",
    "unwatched_since",
    "values_of",
    "why_missing",
    "with_accounted",
    "with_file",
    "with_outlived",
    "with_places",
    "with_stored",
    "with_tail",
    "with_unseen_log",
]
