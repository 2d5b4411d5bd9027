"""The reference of rules and channels, made from the code: for docs/ and for `trainmon-tui rules`."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from trainmon.alerting.rules import RULES, Rule
from trainmon.config import CHANNEL_TYPES, ChannelSettings, ValueType, value_type
from trainmon.lib import description, field_descriptions

FAMILIES = {
    "runs": "Run rules",
    "gpus": "GPU rules",
    "nodes": "Node rules",
    "disks": "Disk rules",
    "ourselves": "Monitoring rules",
}
HELD = ("for_", "keep_firing_for")
"""The fields that every rule has a default of its own for."""
COMMON = tuple(field.name for field in msgspec.structs.fields(Rule))


def rules() -> str:
    """Every rule, by family: what it detects, and its settings."""
    sections = [f"### Settings of every rule\n\n{grid(map(_common_row, msgspec.structs.fields(Rule)))}"]
    for family, found in itertools.groupby(RULES, key=lambda rule: rule.family):
        sections.append(f"### {FAMILIES[family]}\n\n{_family(tuple(found))}")
    return "\n\n".join(sections)


def _family(found: tuple[type[Rule], ...]) -> str:
    lines = ["| rule | what it detects | for | keep firing for | reason for the defaults |", "|---|---|---|---|---|"]
    lines += map(_rule_row, found)
    own = [row for rule in found for row in _own_rows(rule)]
    if own:
        lines += ["", "| rule | setting | default | meaning |", "|---|---|---|---|", *own]
    return "\n".join(lines)


def _rule_row(rule: type[Rule]) -> str:
    fields = {field.name: field for field in msgspec.structs.fields(rule)}
    for_, keep_firing_for = (default_of(value_type(fields[name].type), fields[name]) for name in HELD)
    return f"| `{rule.name}` | {cell(description(rule))} | {for_} | {keep_firing_for} | {cell(rule.origin)} |"


def _own_rows(rule: type[Rule]) -> Iterator[str]:
    for field in msgspec.structs.fields(rule):
        if field.name not in COMMON:
            default = default_of(value_type(field.type), field)
            yield f"| `{rule.name}` | `{field.name}` | {default} | {cell(field_descriptions(rule)[field.name])} |"


def _common_row(field: msgspec.structs.FieldInfo) -> str:
    kind = value_type(field.type)
    default = "see below" if field.name in HELD else default_of(kind, field)
    meaning = cell(field_descriptions(Rule)[field.name])
    return f"| `{field.encode_name}` | {default} | {cell(kind.description)} | {meaning} |"


def channels() -> str:
    """Every kind of channel, and its settings."""
    sections = ["### Settings of every channel\n\n" + _channel(ChannelSettings)]
    sections += [
        f"### `{name}`\n\n{description(table)}\n\n{_channel(table)}".strip() for name, table in CHANNEL_TYPES.items()
    ]
    return "\n\n".join(sections)


def _channel(table: type[msgspec.Struct]) -> str:
    fields = msgspec.structs.fields(table)
    return grid(_channel_row(table, field) for field in fields) if fields else ""


def _channel_row(table: type[msgspec.Struct], field: msgspec.structs.FieldInfo) -> str:
    kind = value_type(field.type)
    meaning = cell(field_descriptions(table)[field.name])
    return f"| `{field.encode_name}` | {default_of(kind, field)} | {cell(kind.description)} | {meaning} |"


# ---- what the tables of docs/ share ----------------------------------------------------------------------------------


def grid(rows: Iterable[str]) -> str:
    """A table of settings."""
    return "\n".join(["| setting | default | written as | meaning |", "|---|---|---|---|", *rows])


def cell(text: str) -> str:
    """A text inside a table of Markdown."""
    return text.replace("|", "\\|")


def default_of(kind: ValueType, field: msgspec.structs.FieldInfo) -> str:
    """A setting's default as the config accepts it; empty where there is none."""
    if field.required:
        return "required"
    default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    text = written(kind, default)
    return f"`{text}`" if text else ""


def written(kind: ValueType, value: Any) -> str:
    """A value as the config accepts it; empty where there is none."""
    return "" if value in (None, (), {}) else kind.format(value)
