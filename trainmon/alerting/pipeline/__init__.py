"""The alert pipeline: lifecycle, inhibition, flapping, silences, routing and grouping, each a pure function."""

from __future__ import annotations

from trainmon.alerting.pipeline.episode import Token, new_alert
from trainmon.alerting.pipeline.inhibit import INHIBITIONS
from trainmon.alerting.pipeline.lifecycle import HistoryEntry
from trainmon.alerting.pipeline.routing import DueAlert, HeartbeatSpec, Routing, channels_for, quiet_because

__all__ = [
    "INHIBITIONS",
    "DueAlert",
    "HeartbeatSpec",
    "HistoryEntry",
    "Routing",
    "Token",
    "channels_for",
    "new_alert",
    "quiet_because",
]
