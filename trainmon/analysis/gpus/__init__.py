"""GPUs: what their activity shows of a run, and what Xids mean. Pure."""

from __future__ import annotations

from trainmon.analysis.gpus.activity import EMPTY_MIB, FRESH, IDLE_PCT, gpus_of, is_empty, is_read, unread
from trainmon.analysis.gpus.xid import RECOVERY, XidMeaning, meaning, switch_meaning

__all__ = [
    "EMPTY_MIB",
    "FRESH",
    "IDLE_PCT",
    "RECOVERY",
    "XidMeaning",
    "gpus_of",
    "is_empty",
    "is_read",
    "meaning",
    "switch_meaning",
    "unread",
]
