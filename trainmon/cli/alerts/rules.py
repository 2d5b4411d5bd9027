"""trainmon-tui rules: what each rule detects, its settings, and the reason for its defaults."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trainmon.cli.options import config_option

if TYPE_CHECKING:
    from trainmon.alerting.rules import Rule

HEAD = ("RULE", "FOR", "KEEP FIRING FOR", "CHANGED SETTINGS", "DESCRIPTION")


@click.command("rules")
@click.argument("rule", required=False, metavar="[RULE]")
@config_option
@click.option("--json", "as_json", is_flag=True, help="A JSON list with one object per rule.")
def command(rule: str | None, config: Path | None, as_json: bool) -> int:
    """List all rules with the settings of the config, or every setting of one RULE.

    Exit status: 0 listed, 2 a usage or config error.
    """
    from trainmon.cli.alerts.requests import check_name
    from trainmon.cli.terminal import plain
    from trainmon.config import load_settings, rules_of

    found = rules_of(load_settings(config, ())[0].rules)
    if rule is not None:
        check_name("rule", rule, [known.name for known in found], "rules")
        found = tuple(known for known in found if known.name == rule)
    if as_json:
        import json

        click.echo(json.dumps([row(one) for one in found], ensure_ascii=False))
        return 0
    text = "\n".join(one_rule(found[0]) if rule is not None else lines(found))
    click.echo(plain(text) if sys.stdout.isatty() else text)
    return 0


def row(rule: Rule) -> dict[str, Any]:
    """A rule as plain values: durations in seconds, shares from 0 to 1, sizes in bytes."""
    import msgspec

    from trainmon.config import OLD_NAMES
    from trainmon.lib import description, field_descriptions

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
    from trainmon.cli.terminal import table
    from trainmon.config import duration_text
    from trainmon.lib import description

    rows = []
    for rule in rules:
        changed = ", ".join(f"{name} = {value}" for name, value, default, _ in _settings(rule) if value != default)
        for_, keep = map(duration_text, (rule.for_, rule.keep_firing_for)) if rule.enabled else ("off", "off")
        rows.append((rule.name, for_, keep, changed, description(type(rule))))
    return table(HEAD, rows)


def one_rule(rule: Rule) -> Iterator[str]:
    """All of one rule."""
    from trainmon.cli.terminal import table
    from trainmon.lib import description

    yield f"{rule.name}: {description(type(rule))}"
    yield f"reason for the defaults: {rule.origin}"
    yield from table(("SETTING", "VALUE", "DEFAULT", "MEANING"), list(_settings(rule)))


def _settings(rule: Rule) -> Iterator[tuple[str, str, str, str]]:
    """Each setting: its name, its value and its default as the config writes them, and its meaning."""
    import msgspec

    from trainmon.cli.alerts.reference import written
    from trainmon.config import value_type
    from trainmon.lib import field_descriptions

    kind = type(rule)
    for field in msgspec.structs.fields(kind):
        value, default = (written(value_type(field.type), getattr(one, field.name)) or "-" for one in (rule, kind()))
        yield field.encode_name, value, default, field_descriptions(kind)[field.name]
