"""The evaluation of alerts by the settings, without the channels that notify people."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from trainmon.alerting.manager import AlertManager
from trainmon.alerting.pipeline import Routing
from trainmon.alerting.rules import Rule
from trainmon.config import Settings, routes_of, routing_of, rules_of
from trainmon.ledger.ledger import ATTEMPTS_AT_MOST, ATTEMPTS_OF, LedgerStuck, alerts_now, recent_attempts
from trainmon.lib import Clock, Instant
from trainmon.model import AlertsRestored, AttemptsRestored, ChannelsChanged, Event, LedgerTrouble


def enabled_rules(settings: Settings) -> tuple[Rule, ...]:
    return tuple(rule for rule in rules_of(settings.rules) if rule.enabled)


def routing(settings: Settings, now: Instant) -> Routing:
    """How alerts reach people by these settings."""
    return routing_of(routes_of(settings.notify), settings.alerts, settings.maintenance, now)


def evaluator(settings: Settings, clock: Clock) -> AlertManager:
    """An AlertManager that evaluates alerts and notifies nobody."""
    return AlertManager(enabled_rules(settings), routing(settings, clock.now()), None, clock=clock, runs_once=True)


def submit_stored_alerts(directory: Path, submit: Callable[[Event], None], now: Instant) -> None:
    """Submit the alerts, channels and recent attempts that the ledger holds."""
    try:
        found = alerts_now(directory, now)
        attempts = recent_attempts(directory, now - ATTEMPTS_OF, ATTEMPTS_AT_MOST)
    except LedgerStuck as error:
        submit(LedgerTrouble(error.message))
        return
    submit(AlertsRestored(found.stored))
    if attempts:
        submit(AttemptsRestored(tuple(attempts)))
    if found.channels:
        submit(ChannelsChanged(found.channels))


def connection_settings(settings: Settings) -> Settings:
    """The settings whose change needs new connections, not only a reload of the alerts."""
    plain = Settings()
    return replace(settings, rules=plain.rules, notify=plain.notify, alerts=plain.alerts, maintenance=plain.maintenance)
