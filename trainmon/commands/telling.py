"""The parts that find out what is wrong and tell people of it, joined for one start: rules, post, dead-man's switch."""

from __future__ import annotations

import logging

from trainmon.clock import Instant, Seconds
from trainmon.config import Settings
from trainmon.config_alerts import routing_of, rules_of
from trainmon.config_notify import routes_of
from trainmon.routing import Routing
from trainmon.rules.base import Rule

log = logging.getLogger(__name__)

WINDOWS_EVERY: Seconds = 6 * 3_600.0
"""Maintenance windows that come again are known some days ahead; they are made anew so often."""


def watched_rules(settings: Settings) -> tuple[Rule, ...]:
    """The rules that are looked at."""
    return tuple(rule for rule in rules_of(settings.rules) if rule.enabled)


def routing(settings: Settings, now: Instant) -> Routing:
    return routing_of(routes_of(settings.notify), settings.alerts, settings.maintenance, now)
