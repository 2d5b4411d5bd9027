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

HEAD = ("RULE", "FOR", "KEEP FIRING FOR", "OVERRIDES", "DESCRIPTION")


@click.command("rules")
@click.argument("rule", required=False, metavar="[RULE]")
@config_option
@click.option("--json", "as_json", is_flag=True, help="A JSON list with one object per rule.")
def command(rule: str | None, config: Path | None, as_json: bool) -> int:
    """List the rules as the config sets them, or all settings of one RULE.

    Exit status: 0 listed, 2 a mistake in the call or the config.
    """
    from trainmon.cli.terminal import plain
    from trainmon.config import did_you_mean, load_settings, quoted, rules_of

    settings, _ = load_settings(config, ())
    found = rules_of(settings.rules)
    if rule is not None:
        names = [one.name for one in found]
        if rule not in names:
            raise click.UsageError(
                f"no rule {quoted(rule)}{did_you_mean(rule, names) or '; `trainmon-tui rules` lists them'}"
            )
        found = tuple(one for one in found if one.name == rule)
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

    return table(
        HEAD,
        [
            (
                rule.name,
                duration_text(rule.for_) if rule.enabled else "off",
                duration_text(rule.keep_firing_for) if rule.enabled else "off",
                ", ".join(_changed(rule)),
                description(type(rule)),
            )
            for rule in rules
        ],
    )


def _changed(rule: Rule) -> Iterator[str]:
    kind = type(rule)
    before = kind()
    for name, config_name in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True):
        if getattr(rule, name) != getattr(before, name):
            yield f"{config_name} = {_written(kind, name, getattr(rule, name))}"


def one_rule(rule: Rule) -> Iterator[str]:
    """All of one rule."""
    from trainmon.cli.terminal import table
    from trainmon.lib import description, field_descriptions

    kind = type(rule)
    before = kind()
    yield f"{rule.name}: {description(kind)}"
    yield f"reason for the defaults: {rule.origin}"
    rows = [
        (
            config_name,
            _written(kind, name, getattr(rule, name)),
            _written(kind, name, getattr(before, name)),
            field_descriptions(kind)[name],
        )
        for name, config_name in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
    ]
    yield from table(("SETTING", "VALUE", "DEFAULT", "MEANING"), rows)


def _written(kind: type[Rule], name: str, value: object) -> str:
    """A setting as the config would write it."""
    import msgspec

    from trainmon.cli.alerts.reference import written
    from trainmon.config import value_type

    type_ = next(field.type for field in msgspec.structs.fields(kind) if field.name == name)
    return written(value_type(type_), value) or "-"
