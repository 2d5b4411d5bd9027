"""The rows about config and data: what an attempt trained with, and what has changed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trainmon.analysis.attempts import ORDER, values_of
from trainmon.analysis.explanation.explain import Change, Explanation, at_text, not_compared, short_id
from trainmon.analysis.explanation.rows import UNKNOWN, PageRow
from trainmon.lib import counted, duration, size
from trainmon.model import Attempt, Origin

FIELDS = {
    "config_hash": "config", "config_path": "config file", "git_commit": "git commit", "container": "container",
    "data_manifest": "data", "evaluators": "evaluators", "command": "command", "nodes": "nodes", "gpus": "GPUs",
    "target_step": "target step",
}  # fmt: skip
"""The labels of fields."""
ORIGINS: Mapping[Origin, str] = {
    "config": "[[run]]", "environment": "its environment", "command": "its command line", "wandb": "W&B",
    "receipt": "its receipt",
}  # fmt: skip
AT_THE_START = 60.0
"""Seconds. A file that is written that soon after the start is probably written by the job itself, before it trains."""

TRAINED_WITH = ("config_hash", "config_path", "git_commit", "container", "data_manifest", "command")
SETTINGS_AT_MOST = 20


def config_rows(one: Explanation) -> Iterator[PageRow]:
    """What the attempt trained with, and what has changed since the previous one."""
    changed = {change.field: change for change in one.changes}
    for field in TRAINED_WITH:
        value = getattr(one.attempt, field)
        hashed = _hashed(one.attempt) if field == "config_hash" else ""
        yield PageRow(FIELDS[field], f"{value}{hashed}" if value else UNKNOWN, "" if value else "dim")
        if field in changed:
            yield PageRow("", _was(changed.pop(field)), "warn")
        if field == "config_hash":
            yield from _settings(one)
        yield from _file(one.attempt, field)
        if field in ("container", "data_manifest", "git_commit"):
            yield from _contradictions(one.attempt, field)
    for change in changed.values():
        yield PageRow(FIELDS[change.field], _value(change.after))
        yield PageRow("", _was(change), "warn")
    if one.previous is None:
        yield PageRow("changed", "No earlier attempt is known.", "dim")
    elif not one.changes:
        text = f"nothing that is recorded, since attempt {short_id(one.previous)}"
        yield PageRow("changed", text, link=("attempt", one.previous.attempt_id))
    else:
        text = f"since attempt {short_id(one.previous)}: {', '.join(FIELDS[one.field] for one in one.changes)}"
        yield PageRow("changed", text, "warn", ("attempt", one.previous.attempt_id))
    if one.previous is not None and (fields := not_compared(one.previous, one.attempt)):
        text = f"{', '.join(FIELDS[field] for field in fields)}: known of only one of the two attempts"
        yield PageRow("not compared", text, "dim")


def _settings(one: Explanation) -> Iterator[PageRow]:
    """The settings that have changed since the previous attempt."""
    for setting in one.settings[:SETTINGS_AT_MOST]:
        was, now = (value if value is not None else "not set" for value in (setting.before, setting.after))
        yield PageRow("", f"{setting.name}: {now}; before: {was}", "warn")
    if (left := len(one.settings) - SETTINGS_AT_MOST) > 0:
        yield PageRow("", f"and {counted(left, 'other setting')}", "warn")


def _hashed(attempt: Attempt) -> str:
    """Whose hash it is; nothing if only an older version knows."""
    values = values_of(attempt, "config_hash")
    return ", the hash of its W&B settings" if "wandb" in values else ", the hash of its config file" if values else ""


def _file(attempt: Attempt, field: str) -> Iterator[PageRow]:
    """What was read of the file that a field names."""
    file, started_at = attempt.files.get(field), attempt.started_at
    if file is None:
        return
    if file.error is not None:
        yield PageRow("", f"{file.path} cannot be read: {file.error}", "warn")
        return
    facts = [] if file.size is None else [size(file.size)]
    if file.modified_at is not None:
        facts.append(f"changed {at_text(file.modified_at)}")
    read = f"read {at_text(file.read_at)}"
    if started_at is not None:
        read = f"read {duration(max(0.0, file.read_at - started_at))} after the start"
    yield PageRow("", ", ".join((*facts, read)), "dim")
    if started_at is not None and (file.modified_at or 0.0) > started_at + AT_THE_START:
        yield PageRow("", "It was changed after the start: the attempt may have read what it was before.", "warn")


def _contradictions(attempt: Attempt, field: str) -> Iterator[PageRow]:
    """The other values of a field."""
    values = values_of(attempt, field)
    origins = [origin for origin in ORDER[field] if origin in values]
    for other in origins[1:]:
        if values[other] != values[origins[0]]:
            yield PageRow("", f"from {ORIGINS[origins[0]]}, but {ORIGINS[other]} says {values[other]}", "warn")


def _was(change: Change) -> str:
    return f"changed; before: {_value(change.before)}"


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or UNKNOWN
    if isinstance(value, dict):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    return UNKNOWN if value is None else str(value)
