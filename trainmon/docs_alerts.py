"""The README's tables of rules and channels, made from the code."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import msgspec

from trainmon.config_decode import find_kind
from trainmon.config_notify import KINDS, Channel
from trainmon.config_rule_kinds import NAMED, kind_of
from trainmon.config_values import Kind, duration_text
from trainmon.notes import notes, words
from trainmon.rules import RULES
from trainmon.rules.base import Rule

FAMILIES = {
    "runs": "Runs", "gpus": "GPUs", "nodes": "Nodes", "disks": "Disks", "ourselves": "Ourselves",
}  # fmt: skip
COMMON = tuple(field.name for field in msgspec.structs.fields(Rule))


def rules() -> str:
    """Every rule, by family: what it looks for, and its settings."""
    parts = [f"Settings of every rule:\n\n{_grid(map(_common_row, msgspec.structs.fields(Rule)))}"]
    for family, found in itertools.groupby(RULES, key=lambda rule: rule.family):
        lines = ["| rule | hold | keep | own settings | defaults are from |", "|---|---|---|---|---|"]
        parts.append(f"**{FAMILIES[family]}**\n\n" + "\n".join([*lines, *map(_row, found)]))
    return "\n\n".join(parts)


def _grid(rows: Iterator[str]) -> str:
    return "\n".join(["| setting | default | written as | meaning |", "|---|---|---|---|", *rows])


def _common_row(field: msgspec.structs.FieldInfo) -> str:
    default = "" if field.name in ("hold", "keep") else shown(field.type, field.default)
    return (
        f"| `{field.name}` | {default} | {_escaped(kind_of(field.type).words)} | {_escaped(notes(Rule)[field.name])} |"
    )


def _row(rule: type[Rule]) -> str:
    fields = {field.name: field for field in msgspec.structs.fields(rule)}
    hold, keep = (shown(fields[name].type, fields[name].default) for name in ("hold", "keep"))
    own = "<br>".join(_own_setting(rule, field) for name, field in fields.items() if name not in COMMON)
    return f"| `{rule.name}` {_escaped(words(rule))} | {hold} | {keep} | {own} | {_escaped(rule.origin)} |"


def _own_setting(rule: type[Rule], field: msgspec.structs.FieldInfo) -> str:
    default = shown(field.type, _default(field))
    note = _escaped(notes(rule)[field.name])
    return f"`{field.name}`{f' = {default}' if default else ''}: {note}" if note else f"`{field.name}` = {default}"


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def shown(type_: object, value: Any) -> str:
    """A default as the config would write it, in backquotes; empty where there is none."""
    text = written(kind_of(type_), value)
    return f"`{text}`" if text else ""


def written(kind: Kind, value: Any) -> str:
    """A value as the config would write it; empty where there is none."""
    if value is None or value == ():
        return ""
    if kind is NAMED["duration"]:
        return f'"{duration_text(value)}"'
    if kind is NAMED["share"]:
        return f'"{value * 100:g}%"'
    if kind is NAMED["size"]:
        return f'"{size_text(value)}"'
    return json.dumps(value, ensure_ascii=False)


def size_text(value: int) -> str:
    """Bytes as the config writes them: 50000000000 is `50GB`."""
    for prefix, power in (("P", 5), ("T", 4), ("G", 3), ("M", 2), ("k", 1)):
        for unit, base in ((f"{prefix}B", 1000), (f"{prefix}iB", 1024)):
            if value and value % base**power == 0:
                return f"{value // base**power}{unit}"
    return f"{value}B"


def channels() -> str:
    """Every kind of channel, and its settings."""
    parts = ["Settings of every channel:\n\n" + _table(Channel)]
    parts += [f"{words(table)}\n\n{_table(table)}" for table in KINDS.values()]
    return "\n\n".join(parts).replace("\n\n\n", "\n\n").strip()


def _table(table: type[msgspec.Struct]) -> str:
    fields = msgspec.structs.fields(table)
    return _grid(_setting(table, field) for field in fields) if fields else ""


def _setting(table: type[msgspec.Struct], field: msgspec.structs.FieldInfo) -> str:
    kind = find_kind(field.type)
    assert kind is not None
    default = "needed" if field.required else written(kind, _default(field))
    told = default if default in ("", "needed", "{}") else f"`{default}`"
    name = field.encode_name
    return f"| `{name}` | {told.replace('{}', '')} | {_escaped(kind.words)} | {_escaped(notes(table)[field.name])} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
