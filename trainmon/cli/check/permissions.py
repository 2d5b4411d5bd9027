"""Checks who else can read the secrets of the config."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from trainmon.cli.check.rows import Row
from trainmon.config import AlertmanagerSettings, MetricsSettings, Settings

SECRETS = frozenset({"topic", "reply_topic", "token", "reply_token", "password", "url", "headers", "ping", "copy_to"})
"""The settings of [[notify]], [heartbeat], [ledger] and `metrics` that are secrets."""


def permission_rows(settings: Settings, file: Path | None) -> Iterator[Row]:
    """A note for each file with secrets that other users can read."""
    tables = (table for cluster in settings.clusters for table in cluster.metrics)
    parts = (*settings.notify, settings.heartbeat, settings.ledger, *tables)
    secrets = [text for part in parts for text in _secrets(part)]
    if file is not None and any(not text.startswith(("env:", "file:")) for text in secrets):
        yield from _row("config", file, stat.S_IRGRP | stat.S_IROTH, "it contains secrets")
    named = (text.removeprefix("file:") for text in secrets if text.startswith("file:"))
    for name in dict.fromkeys(named):
        yield from _row("secret", Path(name).expanduser(), stat.S_IRWXG | stat.S_IRWXO, "it is a secret")


def _secrets(part: object) -> Iterator[str]:
    """The secrets of one table, as they are written."""
    if not isinstance(part, msgspec.Struct):
        return
    for name in part.__struct_fields__:
        value = getattr(part, name)
        if isinstance(value, msgspec.Struct):
            yield from _secrets(value)
        elif name in SECRETS and not _is_open_address(name, part):
            yield from (one for one in (value.values() if isinstance(value, dict) else [value]) if isinstance(one, str))


def _is_open_address(name: str, part: object) -> bool:
    """Whether a setting is the address of an Alertmanager or a Prometheus server, without a password in it."""
    return name == "url" and isinstance(part, AlertmanagerSettings | MetricsSettings) and "@" not in part.url


def _row(what: str, file: Path, refused: int, why: str) -> Iterator[Row]:
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError:
        return  # another row says that it cannot be read
    if mode & refused:
        text = f"other users can read {file} (mode {mode:o}), and {why}"
        yield Row("note", what, "", text, f"chmod go-rwx {shlex.quote(str(file))}")
