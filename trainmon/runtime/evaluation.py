"""The evaluation of alerts by the settings, without the channels that notify people."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from msgspec.structs import replace

from trainmon.alerting.manager import AlertManager
from trainmon.alerting.pipeline.routing import Routing
from trainmon.alerting.rules import Rule
from trainmon.config import (
    InvalidValue,
    Settings,
    resolve_secret,
    routes_of,
    routing_of,
    rules_of,
)
from trainmon.ledger.ledger import ATTEMPTS_AT_MOST, ATTEMPTS_OF, LedgerStuck, alerts_now, recent_attempts
from trainmon.ledger.postgresql import is_address
from trainmon.lib import Clock, ConfigError, Instant
from trainmon.model import (
    AlertsRestored,
    AttemptsRestored,
    ChannelsChanged,
    Event,
    LedgerTrouble,
)


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
    submit(AttemptsRestored(tuple(attempts)))
    if found.channels:
        submit(ChannelsChanged(found.channels))


def copy_address(settings: Settings) -> str | None:
    """The address of the server to which the ledger is copied.

    Raises: ConfigError: when it is missing or not valid, or psycopg is not installed.
    """
    if settings.ledger is None or settings.ledger.copy_to is None:
        return None
    try:
        url = resolve_secret(settings.ledger.copy_to, os.environ)
    except InvalidValue as wrong:
        raise ConfigError([f'[ledger]: "copy_to" {wrong}']) from wrong
    if not is_address(url):
        raise ConfigError(['[ledger]: "copy_to" must be an address such as postgresql://user:password@host/database'])
    if find_spec("psycopg") is None:
        raise ConfigError(
            ['[ledger]: "copy_to" needs psycopg'],
            hint=f"python3 -m pip --python {shlex.quote(sys.executable)} install 'psycopg[binary]'",
        )
    return url


RELOADED = (
    "clusters", "runs", "disks", "log_formats", "evals", "retry", "rules", "notify", "alerts", "maintenance",
)  # fmt: skip
"""The settings that a running program takes over."""


def fixed_settings(settings: Settings) -> Settings:
    """The settings that count from the next start."""
    plain = Settings()
    return replace(settings, **{name: getattr(plain, name) for name in RELOADED})
