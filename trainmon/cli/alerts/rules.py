"""trainmon-tui rules, and the reference of rules and channels for docs/: both are made from the code."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from trainmon.alerting.rules import RULES, Rule
from trainmon.cli.alerts.status import check_name
from trainmon.cli.terminal import plain, print_json, table
from trainmon.config import (
    CHANNEL_TYPES,
    OLD_NAMES,
    ChannelSettings,
    ValueType,
    duration_text,
    load_settings,
    rules_of,
    value_type,
)
from trainmon.lib import description, field_descriptions

# ---- the reference of rules and channels, made from the code ---------------------------------------------------------

FAMILIES = {
    "runs": "Run rules",
    "gpus": "GPU rules",
    "nodes": "Node rules",
    "disks": "Disk rules",
    "ourselves": "Monitoring rules",
}
HEAD = ("RULE", "FOR", "KEEP FIRING FOR", "CHANGED SETTINGS", "DESCRIPTION")
HELD = ("for_", "keep_firing_for")
"""The fields of all rules whose defaults differ by rule."""
COMMON = tuple(field.name for field in msgspec.structs.fields(Rule))


def rules() -> str:
    """Every rule, by family: what it detects, and its settings."""
    sections = [f"### Settings of every rule\n\n{grid(_row(Rule, field) for field in msgspec.structs.fields(Rule))}"]
    for family, group in itertools.groupby(RULES, key=lambda rule: rule.family):
        found = list(group)
        lines = [
            "| rule | what it detects | for | keep firing for | reason for the defaults |",
            "|---|---|---|---|---|",
        ]
        for rule in found:
            known = {field.name: field for field in msgspec.structs.fields(rule)}
            for_, keep_firing_for = (default_of(known[name]) for name in HELD)
            lines.append(
                f"| `{rule.name}` | {cell(description(rule))} | {for_} | {keep_firing_for} | {cell(rule.origin)} |"
            )
        own = [row for rule in found for row in _own_rows(rule)]
        if own:
            lines += ["", "| rule | setting | default | meaning |", "|---|---|---|---|", *own]
        sections.append("\n".join([f"### {FAMILIES[family]}", "", *lines]))
    return "\n\n".join(sections)


def _own_rows(rule: type[Rule]) -> Iterator[str]:
    for field in msgspec.structs.fields(rule):
        if field.name not in COMMON:
            meaning = cell(field_descriptions(rule)[field.name])
            yield f"| `{rule.name}` | `{field.name}` | {default_of(field)} | {meaning} |"


def channels() -> str:
    """Every kind of channel, and its settings."""
    sections = ["### Settings of every channel\n\n" + _channel(ChannelSettings)]
    sections += [
        f"### `{name}`\n\n{description(table)}\n\n{_channel(table)}".strip() for name, table in CHANNEL_TYPES.items()
    ]
    return "\n\n".join(sections)


def _channel(table: type[msgspec.Struct]) -> str:
    fields = msgspec.structs.fields(table)
    return grid(_row(table, field) for field in fields) if fields else ""


def _row(table: type[msgspec.Struct], field: msgspec.structs.FieldInfo) -> str:
    default = "see below" if table is Rule and field.name in HELD else default_of(field)
    meaning = cell(field_descriptions(table)[field.name])
    return f"| `{field.encode_name}` | {default} | {cell(value_type(field.type).description)} | {meaning} |"


# ---- what the tables of docs/ share ----------------------------------------------------------------------------------


def grid(rows: Iterable[str]) -> str:
    """A table of settings."""
    return "\n".join(["| setting | default | format | meaning |", "|---|---|---|---|", *rows])


def cell(text: str) -> str:
    """A text inside a table of Markdown."""
    return text.replace("|", "\\|")


def default_of(field: msgspec.structs.FieldInfo) -> str:
    """A setting's default as the config accepts it; empty where there is none."""
    if field.required:
        return "required"
    default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
    text = written(value_type(field.type), default)
    return f"`{text}`" if text else ""


def written(kind: ValueType, value: Any) -> str:
    """A value as the config accepts it; empty where there is none."""
    return "" if value in (None, (), {}) else kind.format(value)


# ---- trainmon-tui rules --------------------------------------------------------------------------------------------


def row(rule: Rule) -> dict[str, Any]:
    """A rule as plain values: durations in seconds, shares from 0 to 1, sizes in bytes."""
    kind = type(rule)
    values, defaults = msgspec.to_builtins(rule), msgspec.to_builtins(kind())
    settings = {
        field.encode_name: {
            "value": values[field.encode_name],
            "default": defaults[field.encode_name],
            "meaning": field_descriptions(kind)[field.name],
        }
        for field in msgspec.structs.fields(kind)
    }
    return {
        "name": rule.name,
        "family": rule.family,
        "what": description(kind),
        "origin": rule.origin,
        "settings": settings | {old: settings[new] for old, new in OLD_NAMES.items() if new in settings},
    }


def lines(rules: Sequence[Rule]) -> Iterator[str]:
    """A table for people."""
    rows = []
    for rule in rules:
        changed = ", ".join(f"{name} = {value}" for name, value, default, _ in _settings(rule) if value != default)
        for_, keep = map(duration_text, (rule.for_, rule.keep_firing_for)) if rule.enabled else ("off", "off")
        rows.append((rule.name, for_, keep, changed, description(type(rule))))
    return table(HEAD, rows)


def one_rule(rule: Rule) -> Iterator[str]:
    """All of one rule."""
    yield f"{rule.name}: {description(type(rule))}"
    yield f"reason for the defaults: {rule.origin}"
    yield from table(("SETTING", "VALUE", "DEFAULT", "MEANING"), list(_settings(rule)))


def _settings(rule: Rule) -> Iterator[tuple[str, str, str, str]]:
    """Each setting: its name, its value and its default as the config writes them, and its meaning."""
    kind = type(rule)
    for field in msgspec.structs.fields(kind):
        value, default = (written(value_type(field.type), getattr(one, field.name)) or "-" for one in (rule, kind()))
        yield field.encode_name, value, default, field_descriptions(kind)[field.name]


# ---- trainmon-tui rules ----------------------------------------------------------------------------------------------


def show_rules(rule: str | None, config: Path | None, as_json: bool) -> int:
    """Print all rules, or one; the exit status."""
    found = rules_of(load_settings(config, ())[0].rules)
    if rule is not None:
        check_name("rule", rule, [known.name for known in found], "rules")
        found = tuple(known for known in found if known.name == rule)
    if as_json:
        print_json([row(one) for one in found])
        return 0
    text = "\n".join(one_rule(found[0]) if rule is not None else lines(found))
    click.echo(plain(text) if sys.stdout.isatty() else text)
    return 0
