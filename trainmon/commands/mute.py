"""trainmon-tui mute: what is not told for a while; it is still shown."""

from __future__ import annotations

import secrets
import time

import click

from trainmon.commands.options import read_duration


@click.command("mute")
@click.argument("subject", required=False, metavar="[SUBJECT]")
@click.option("--rule", metavar="RULE", help="Only what this rule finds.")
@click.option("--run", metavar="RUN", help="Only what is of this run.")
@click.option("--node", metavar="NODE", help="Only what is of this node.")
@click.option("--for", "lasts", callback=read_duration, required=True, metavar="DURATION", help="How long: 1h, 2d.")
@click.option("--why", default="", metavar="TEXT", help="Why; shown to everybody.")
@click.option("--by", metavar="NAME", help="Who says so, where it is not who calls this.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(
    subject: str | None,
    rule: str | None,
    run: str | None,
    node: str | None,
    lasts: float,
    why: str,
    by: str | None,
    as_json: bool,
) -> int:
    """Tell nobody of something for a while; it is still shown. SUBJECT is an alert's id or its subject, as `status` has
    them. All of what is given must match.

    Exit status: 0 done or written down, 2 a mistake in the call, 3 the ledger cannot be written.
    """
    from trainmon.commands.ordering import give, person, read
    from trainmon.config_values import nearest, quoted
    from trainmon.model_alerts import Order, Silence
    from trainmon.rules import RULES

    if not any((subject, rule, run, node)):
        raise click.UsageError("what is to be muted? SUBJECT, --rule, --run or --node")
    names = [one.name for one in RULES]
    if rule is not None and rule not in names:
        raise click.UsageError(f"no rule {quoted(rule)}{nearest(rule, names)}")
    meant = next((one for one in read().recalled.alerts if one.is_open and one.id == subject), None)
    if meant is not None:
        subject, rule = meant.subject, rule or meant.rule
    now = time.time()
    silence = Silence(
        id=secrets.token_hex(4), rule=rule, subject=subject, run=run, node=node, until=now + lasts, by=person(by),
        why=why, made_at=now,
    )  # fmt: skip
    about = " ".join(word for word in (rule, subject, run and f"run {run}", node and f"node {node}") if word)
    until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(silence.until))
    order = Order(verb="mute", at=now, by=silence.by, silence=silence, why=why, via="command")
    return give(order, as_json=as_json, done=f"muted until {until}: {about} (trainmon-tui unmute {silence.id})")
