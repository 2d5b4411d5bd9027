"""Checks who else can read the secrets of the config, and write to the config itself."""

from __future__ import annotations

import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec

from trainmon.cli.check.rows import Row
from trainmon.config import AlertmanagerSettings, Settings

SECRETS = frozenset({"topic", "reply_topic", "token", "reply_token", "password", "url", "headers", "ping", "copy_to"})
"""The settings of [[notify]], [heartbeat] and [ledger] that are secrets."""


def permission_rows(settings: Settings, file: Path | None) -> Iterator[Row]:
    """A note for each file that other users can read or write though they should not."""
    tables = (table for cluster in settings.clusters for table in cluster.metrics)
    parts = (*settings.notify, settings.heartbeat, settings.ledger)
    secrets = [text for part in parts for text in _secrets(part)]
    secrets += [table.token for table in tables if table.token is not None]
    if file is not None:
        why = "a config may contain commands"
        yield from _row("config", file, stat.S_IWGRP | stat.S_IWOTH, "write to", why, "go-w")
        if any(not text.startswith(("env:", "file:")) for text in secrets):
            yield from _row("config", file, stat.S_IRGRP | stat.S_IROTH, "read", "it contains secrets", "go-rwx")
    named = (text.removeprefix("file:") for text in secrets if text.startswith("file:"))
    for name in dict.fromkeys(named):
        readable_or_writable = stat.S_IRWXG | stat.S_IRWXO
        yield from _row("secret", Path(name).expanduser(), readable_or_writable, "read", "it is a secret", "go-rwx")


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
    """Whether a setting is the address of an Alertmanager, without a password in it."""
    return name == "url" and isinstance(part, AlertmanagerSettings) and "@" not in part.url


def _row(what: str, file: Path, refused: int, verb: str, why: str, change: str) -> Iterator[Row]:
    try:
        mode = stat.S_IMODE(file.stat().st_mode)
    except OSError:
        return  # another row says that it cannot be read
    if mode & refused:
        text = f"other users can {verb} {file} (mode {mode:o}), and {why}"
        yield Row("note", what, "", text, f"chmod {change} {shlex.quote(str(file))}")
