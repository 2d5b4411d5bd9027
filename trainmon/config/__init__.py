"""The config: finds trainmon.toml, decodes it into Settings and reports every mistake in it."""

from __future__ import annotations

from trainmon.config.alerts import OLD_NAMES, DaemonSettings, heartbeat_of, routing_of, rules_of
from trainmon.config.decode import watched_nodes
from trainmon.config.load import load_settings, log_formats, login_of, queue_users, run_specs, why_not_trusted
from trainmon.config.notify import (
    CHANNEL_TYPES,
    AlertmanagerSettings,
    ChannelSettings,
    NotifySettings,
    address_error,
    apprise_url_error,
    routes_of,
    topic_error,
)
from trainmon.config.schema import (
    ClusterSettings,
    ConnectSettings,
    DiskSettings,
    ImplicitCluster,
    LedgerSettings,
    LogFormatSettings,
    MetricsSettings,
    QuotaSettings,
    RunSettings,
    Settings,
)
from trainmon.config.table import Table, table_of, value_type
from trainmon.config.types import (
    InvalidValue,
    ValueType,
    did_you_mean,
    duration_text,
    parse_duration,
    quoted,
    resolve_secret,
    toml,
)

__all__ = [
    "CHANNEL_TYPES",
    "OLD_NAMES",
    "AlertmanagerSettings",
    "ChannelSettings",
    "ClusterSettings",
    "ConnectSettings",
    "DaemonSettings",
    "DiskSettings",
    "ImplicitCluster",
    "InvalidValue",
    "LedgerSettings",
    "LogFormatSettings",
    "MetricsSettings",
    "NotifySettings",
    "QuotaSettings",
    "RunSettings",
    "Settings",
    "Table",
    "ValueType",
    "address_error",
    "apprise_url_error",
    "did_you_mean",
    "duration_text",
    "heartbeat_of",
    "load_settings",
    "log_formats",
    "login_of",
    "parse_duration",
    "queue_users",
    "quoted",
    "resolve_secret",
    "routes_of",
    "routing_of",
    "rules_of",
    "run_specs",
    "table_of",
    "toml",
    "topic_error",
    "value_type",
    "watched_nodes",
    "why_not_trusted",
]
