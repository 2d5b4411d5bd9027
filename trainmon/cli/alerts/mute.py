"""trainmon-tui mute: silences alerts for a while; they are still shown."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from trainmon.cli.options import read_duration

if TYPE_CHECKING:
    from trainmon.ledger.reader import AlertsNow


@click.command("mute")
@click.argument("subject", required=False, metavar="[SUBJECT]")
@click.option("--rule", metavar="RULE", help="Match alerts of this rule.")
@click.option("--run", metavar="RUN", help="Match alerts of this run.")
@click.option("--node", metavar="NODE", help="Match alerts of this node.")
@click.option("--for", "lasts", callback=read_duration, required=True, metavar="DURATION", help="How long: 1h, 2d.")
@click.option("--why", default="", metavar="TEXT", help="The reason; everybody sees it.")
@click.option("--by", metavar="NAME", help="The name of the person. [default: you]")
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
    """Silence an alert, rule, run or node for a while. Muted alerts are still shown. SUBJECT is the id or the subject
    of an alert, as `status` shows them. All given conditions must match.

    Exit status: 0 done or recorded, 2 a mistake in the call, 3 the ledger cannot be written.
    """
    from trainmon.alerting.rules import RULES
    from trainmon.cli.alerts.requests import give, person, read
    from trainmon.config import did_you_mean, quoted
    from trainmon.model import AlertRequest, Silence

    if not any((subject, rule, run, node)):
        raise click.UsageError("name what to mute: SUBJECT, --rule, --run or --node")
    names = [one.name for one in RULES]
    if rule is not None and rule not in names:
        raise click.UsageError(
            f"no rule {quoted(rule)}{did_you_mean(rule, names) or '; `trainmon-tui rules` lists them'}"
        )
    present = read()
    meant = next((one for one in present.recalled.alerts if one.is_open and one.id == subject), None)
    if meant is not None:
        subject, rule = meant.subject, rule or meant.rule
    for words in unknown(present, subject, node):
        click.echo(f"note: {words}", err=True)
    now = time.time()
    silence = Silence(
        id=secrets.token_hex(4), rule=rule, subject=subject, run=run, node=node, until=now + lasts, by=person(by),
        why=why, made_at=now,
    )  # fmt: skip
    about = " ".join(word for word in (rule, subject, run and f"run {run}", node and f"node {node}") if word)
    until = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(silence.until))
    order = AlertRequest(verb="mute", at=now, by=silence.by, silence=silence, why=why, via="command")
    return give(order, as_json=as_json, done=f"muted until {until}: {about} (trainmon-tui unmute {silence.id})")


def unknown(present: AlertsNow, subject: str | None, node: str | None) -> Iterator[str]:
    """A sentence for each condition that matches nothing now: it may match later, or be a typing error."""
    from trainmon.config import did_you_mean, quoted

    subjects = [one.subject for one in present.recalled.alerts if one.is_open]
    if subject is not None and subject not in subjects:
        yield f"no open alert has the subject {quoted(subject)}{did_you_mean(subject, subjects)}"
    sources = present.duty.note.sources if present.duty is not None else ()
    nodes = [one.name.removeprefix("node:") for one in sources if one.kind == "node"]
    if node is not None and nodes and node not in nodes:
        yield f"no node {quoted(node)} is watched{did_you_mean(node, nodes)}"


@click.command("unmute")
@click.argument("silence", metavar="ID")
@click.option("--by", metavar="NAME", help="The name of the person. [default: you]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def unmute(silence: str, by: str | None, as_json: bool) -> int:
    """Remove a mute. ID is what `mute` printed and what `status` lists.

    Exit status: 0 done or recorded, 2 no such mute, 3 the ledger cannot be written.
    """
    from trainmon.cli.alerts.requests import give, person, read
    from trainmon.config import did_you_mean, quoted
    from trainmon.model import AlertRequest

    names = [one.id for one in read().recalled.silences]
    if silence not in names:
        near = did_you_mean(silence, names) or "; `trainmon-tui status` lists them"
        raise click.UsageError(f"no mute {quoted(silence)}{near}")
    order = AlertRequest(verb="unmute", at=time.time(), by=person(by), alert=silence, via="command")
    return give(order, as_json=as_json, done=f"unmuted: {silence}")
