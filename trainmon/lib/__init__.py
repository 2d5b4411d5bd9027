"""trainmon.lib."""

from __future__ import annotations

from trainmon.lib.clock import Clock, Instant, Seconds, SystemClock
from trainmon.lib.errors import (
    CommandFailed,
    ConfigError,
    HostKeyRefused,
    HostUnreachable,
    LoginNeeded,
    LoginRefused,
    TrainmonError,
)
from trainmon.lib.field_docs import notes, words
from trainmon.lib.redact import MASK, is_secret, scrub
from trainmon.lib.state_dir import find
from trainmon.lib.text import (
    cells,
    clean,
    counted,
    duration,
    keep_end,
    last_state,
    natural,
    shorten,
    size,
    without_sequences,
)

__all__ = [
    "MASK",
    "Clock",
    "CommandFailed",
    "ConfigError",
    "HostKeyRefused",
    "HostUnreachable",
    "Instant",
    "LoginNeeded",
    "LoginRefused",
    "Seconds",
    "SystemClock",
    "TrainmonError",
    "cells",
    "clean",
    "counted",
    "duration",
    "find",
    "is_secret",
    "keep_end",
    "last_state",
    "natural",
    "notes",
    "scrub",
    "shorten",
    "size",
    "without_sequences",
    "words",
]
