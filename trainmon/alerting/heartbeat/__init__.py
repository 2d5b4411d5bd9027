"""Heartbeats: reports while nothing is wrong, start and stop notifications, tests, and the monitor's self-check."""

from __future__ import annotations

from trainmon.alerting.heartbeat.notices import HEARTBEAT, heartbeat
from trainmon.alerting.heartbeat.report import unwell

__all__ = ["HEARTBEAT", "heartbeat", "unwell"]
