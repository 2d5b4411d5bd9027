"""trainmon.config."""

from __future__ import annotations

from trainmon.config.alerts import OLD_NAMES, DaemonSettings, heartbeat_of, routing_of, rules_of
from trainmon.config.decode import find_kind, table_of
from trainmon.config.load import FILE_NAME, choose, formats, queue_users, run_specs, why_not_trusted
from trainmon.config.notify import (
    KINDS,
    AppriseSettings,
    ChannelSettings,
    CommandSettings,
    HealthchecksSettings,
    NotifySettings,
    NtfySettings,
    WebhookSettings,
    routes_of,
    wrong_address,
    wrong_apprise_url,
    wrong_topic,
)
from trainmon.config.rule_types import kind_of
from trainmon.config.schema import (
    ClusterSettings,
    ConnectSettings,
    DiskSettings,
    LedgerSettings,
    QuotaSettings,
    RunSettings,
    Settings,
)
from trainmon.config.secrets import secret
from trainmon.config.table import Table
from trainmon.config.types import Kind, Wrong, duration_text, nearest, quoted, toml
from trainmon.config.validate import watched

__all__ = [
    "FILE_NAME",
    "KINDS",
    "OLD_NAMES",
    "AppriseSettings",
    "ChannelSettings",
    "ClusterSettings",
    "CommandSettings",
    "ConnectSettings",
    "DaemonSettings",
    "DiskSettings",
    "HealthchecksSettings",
    "Kind",
    "LedgerSettings",
    "NotifySettings",
    "NtfySettings",
    "QuotaSettings",
    "RunSettings",
    "Settings",
    "Table",
    "WebhookSettings",
    "Wrong",
    "choose",
    "duration_text",
    "find_kind",
    "formats",
    "heartbeat_of",
    "kind_of",
    "nearest",
    "queue_users",
    "quoted",
    "routes_of",
    "routing_of",
    "rules_of",
    "run_specs",
    "secret",
    "table_of",
    "toml",
    "watched",
    "why_not_trusted",
    "wrong_address",
    "wrong_apprise_url",
    "wrong_topic",
]
