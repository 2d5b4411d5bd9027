"""trainmon-tui unmute: what was muted is told again."""

from __future__ import annotations

import time

import click


@click.command("unmute")
@click.argument("silence", metavar="ID")
@click.option("--by", metavar="NAME", help="Who asks for it. [default: you]")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def command(silence: str, by: str | None, as_json: bool) -> int:
    """Remove a mute. ID is what `mute` printed and what `status` lists.

    Exit status: 0 done or recorded, 2 no such mute, 3 the ledger cannot be written.
    """
    from trainmon.commands.ordering import give, person, read
    from trainmon.config_values import nearest, quoted
    from trainmon.model_alerts import Order

    names = [one.id for one in read().recalled.silences]
    if silence not in names:
        near = nearest(silence, names) or "; `trainmon-tui status` lists them"
        raise click.UsageError(f"nothing is muted as {quoted(silence)}{near}")
    order = Order(verb="unmute", at=time.time(), by=person(by), alert=silence, via="command")
    return give(order, as_json=as_json, done=f"told again: {silence}")
