"""trainmon-tui rules: what each rule detects, its settings, and the reason for its defaults."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from trainmon.alerting.rules import Rule
from trainmon.cli.alerts.status import check_name
from trainmon.cli.terminal import plain, print_json, table
from trainmon.config import (
    OLD_NAMES,
    ValueType,
    duration_text,
    load_settings,
    rules_of,
    value_type,
)
from trainmon.lib import description, field_descriptions

RULES_HEAD = ("RULE", "FOR", "KEEP FIRING FOR", "CHANGED SETTINGS", "DESCRIPTION")


def show_rules(rule: str | None, config: Path | None, as_json: bool) -> int:
    """Print all rules, or one; the exit status."""
    found = rules_of(load_settings(config, ())[0].rules)
    if rule is not None:
        check_name("rule", rule, [known.name for known in found], "rules")
        found = tuple(known for known in found if known.name == rule)
    if as_json:
        print_json([rule_row(one) for one in found])
        return 0
    text = "\n".join(one_rule(found[0]) if rule is not None else rule_lines(found))
    click.echo(plain(text) if sys.stdout.isatty() else text)
    return 0


def written(kind: ValueType, value: Any) -> str:
    """A value as the config accepts it; empty where there is none."""
    return "" if value in (None, (), {}) else kind.format(value)


def rule_row(rule: Rule) -> dict[str, Any]:
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


def rule_lines(rules: Sequence[Rule]) -> Iterator[str]:
    """A table for people."""
    rows = []
    for rule in rules:
        changed = ", ".join(f"{name} = {value}" for name, value, default, _ in _settings(rule) if value != default)
        for_, keep = map(duration_text, (rule.for_, rule.keep_firing_for)) if rule.enabled else ("off", "off")
        rows.append((rule.name, for_, keep, changed, description(type(rule))))
    return table(RULES_HEAD, rows)


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
