"""Alerting rules: each is a struct of settings and a pure function from a State to findings."""

from __future__ import annotations

from trainmon.alerting.rules.base import Rule, ago, is_answering
from trainmon.alerting.rules.evaluate import failed_rules
from trainmon.alerting.rules.monitoring import (
    CHANNEL,
    TEST,
    ChannelFailing,
    ClockJumped,
    ClusterUnreachable,
    ConfigNotLoaded,
    LedgerStuck,
    MonitorBlind,
    OutboxOld,
    SourceDown,
    SourceLate,
    UnansweredTest,
)
from trainmon.alerting.rules.registry import DISKS, RULES

__all__ = [
    "CHANNEL",
    "DISKS",
    "RULES",
    "TEST",
    "ChannelFailing",
    "ClockJumped",
    "ClusterUnreachable",
    "ConfigNotLoaded",
    "LedgerStuck",
    "MonitorBlind",
    "OutboxOld",
    "Rule",
    "SourceDown",
    "SourceLate",
    "UnansweredTest",
    "ago",
    "failed_rules",
    "is_answering",
]
