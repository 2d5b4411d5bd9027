"""trainmon.alerting.pipeline."""

from __future__ import annotations

from trainmon.alerting.pipeline.flapping import Token, begun
from trainmon.alerting.pipeline.inhibit import INHIBITIONS
from trainmon.alerting.pipeline.lifecycle import Happening
from trainmon.alerting.pipeline.routing import Due, HeartbeatSpec, Routing, channels_for, unheard

__all__ = ["INHIBITIONS", "Due", "Happening", "HeartbeatSpec", "Routing", "Token", "begun", "channels_for", "unheard"]
