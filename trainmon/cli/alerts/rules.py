"""trainmon-tui rules: what each rule detects, its settings, and the reason for its defaults."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from trainmon.cli.options import config_option


def complete_rules(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """The rules that begin so."""
    from trainmon.alerting.rules import RULES

    return [rule.name for rule in RULES if rule.name.startswith(incomplete)]


@click.command("rules")
@click.argument("rule", required=False, metavar="[RULE]", shell_complete=complete_rules)
@config_option
@click.option("--json", "as_json", is_flag=True, help="A JSON list with one object per rule.")
def command(rule: str | None, config: Path | None, as_json: bool) -> int:
    """List all rules with the settings of the config, or every setting of one RULE.

    Exit status: 0 listed, 2 a usage or config error.
    """
    from trainmon.cli.alerts.reference import lines, one_rule, row
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
