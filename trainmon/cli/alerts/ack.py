"""trainmon-tui ack ALERT: acknowledges an alert, which stops its repeats and escalation."""

from __future__ import annotations

import time

import click


@click.command("ack")
@click.argument("alert", metavar="ALERT")
@click.option("--why", default="", metavar="TEXT", help="What you do about it.")
@click.option("--undo", is_flag=True, help="Remove the acknowledgement.")
@click.option("--by", metavar="NAME", help="The name of the person. [default: you]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(alert: str, why: str, undo: bool, by: str | None, as_json: bool) -> int:
    """Acknowledge an alert: repeats and escalation stop until it resolves or gets worse. ALERT is its id, the beginning
    of the id, or its subject.

    Exit status: 0 done or recorded, 2 no such alert, 3 the ledger cannot be written.
    """
    from trainmon.cli.alerts.requests import give, named, person, read
    from trainmon.model import AlertRequest

    found = named(read().recalled.alerts, alert)
    order = AlertRequest(
        verb="unack" if undo else "ack", at=time.time(), by=person(by), alert=found.id, why=why, via="command"
    )
    done = f"{'acknowledgement removed' if undo else 'acknowledged'}: {found.id} {found.rule} {found.subject}"
    return give(order, as_json=as_json, done=done)
