"""trainmon.actions.planning."""

from __future__ import annotations

from trainmon.actions.planning.context import Actor, FileStat, LookAt, Readback
from trainmon.actions.planning.jobs import is_held, place_of
from trainmon.actions.planning.plan import Offer, hold_or_release, looks, offered
from trainmon.actions.planning.queue import cluster_of
from trainmon.actions.planning.signal import NUMBERS
from trainmon.actions.planning.switches import SILENT_VERDICTS

__all__ = [
    "NUMBERS",
    "SILENT_VERDICTS",
    "Actor",
    "FileStat",
    "LookAt",
    "Offer",
    "Readback",
    "cluster_of",
    "hold_or_release",
    "is_held",
    "looks",
    "offered",
    "place_of",
]
