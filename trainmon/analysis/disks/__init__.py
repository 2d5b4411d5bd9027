"""Disks: capacity, quotas and forecasts. Pure."""

from trainmon.analysis.disks.capacity import (
    ENOUGH,
    RATE_SPAN,
    Fit,
    Save,
    checkpoints_that_fit,
    directories_of,
    fit,
    is_on,
    is_shared,
    largest,
    lies_on,
    saved_on,
    with_trend,
)
from trainmon.analysis.disks.quota import EXPIRED, Parser, of_path, parse

__all__ = [
    "ENOUGH",
    "EXPIRED",
    "RATE_SPAN",
    "Fit",
    "Parser",
    "Save",
    "checkpoints_that_fit",
    "directories_of",
    "fit",
    "is_on",
    "is_shared",
    "largest",
    "lies_on",
    "of_path",
    "parse",
    "saved_on",
    "with_trend",
]
