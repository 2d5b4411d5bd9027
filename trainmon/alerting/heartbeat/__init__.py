"""trainmon.alerting.heartbeat."""

from __future__ import annotations

from trainmon.alerting.heartbeat.notices import HEARTBEAT, sign_of_life
from trainmon.alerting.heartbeat.self_check import unwell

__all__ = ["HEARTBEAT", "sign_of_life", "unwell"]
