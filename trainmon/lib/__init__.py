"""Helpers for all packages: clock, errors, text, redaction, state directory, struct documentation."""

from __future__ import annotations

from trainmon.lib.bounded import drop_oldest
from trainmon.lib.clock import Clock, Instant, Seconds, SystemClock, clock_difference
from trainmon.lib.errors import (
    CommandFailed,
    ConfigError,
    HostKeyRefused,
    HostUnreachable,
    LoginNeeded,
    LoginRefused,
    TrainmonError,
)
from trainmon.lib.field_docs import description, field_descriptions
from trainmon.lib.redact import MASK, is_secret, last_line, scrub
from trainmon.lib.state_dir import (
    NETWORK_FILESYSTEMS,
    ScratchDirectory,
    find_state_directory,
    is_first_time,
    remove_abandoned,
    write_private,
)
from trainmon.lib.text import (
    cell_width,
    clean,
    counted,
    dated,
    duration,
    elapsed,
    last_state,
    mib_size,
    natural_key,
    ordinal,
    ranges,
    short_size,
    shorten,
    shorten_lines,
    shorten_start,
    size,
    without_sequences,
)

__all__ = [
    "MASK",
    "NETWORK_FILESYSTEMS",
    "Clock",
    "CommandFailed",
    "ConfigError",
    "HostKeyRefused",
    "HostUnreachable",
    "Instant",
    "LoginNeeded",
    "LoginRefused",
    "ScratchDirectory",
    "Seconds",
    "SystemClock",
    "TrainmonError",
    "cell_width",
    "clean",
    "clock_difference",
    "counted",
    "dated",
    "description",
    "drop_oldest",
    "duration",
    "elapsed",
    "field_descriptions",
    "find_state_directory",
    "is_first_time",
    "is_secret",
    "last_line",
    "last_state",
    "mib_size",
    "natural_key",
    "ordinal",
    "ranges",
    "remove_abandoned",
    "scrub",
    "short_size",
    "shorten",
    "shorten_lines",
    "shorten_start",
    "size",
    "without_sequences",
    "write_private",
]
