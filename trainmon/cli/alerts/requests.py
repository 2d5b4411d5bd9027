"""Requests about alerts from the command line. They go through the ledger to the running monitor."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from trainmon.ledger.reader import AlertsNow
    from trainmon.lib import Seconds
    from trainmon.model import Alert, AlertRequest

PATIENCE: Seconds = 5.0
"""The longest wait for the result of a request: a monitor reads them every second or two."""

PAUSE: Seconds = 0.1


def read() -> AlertsNow:
    """What the ledger says now. Raises LedgerStuck."""
    from trainmon.ledger.ledger import alerts_now
    from trainmon.lib import find_state_directory

    return alerts_now(find_state_directory(os.environ).path, time.time())


def named(alerts: Sequence[Alert], word: str) -> Alert:
    """The open alert that is meant: by its id, by the beginning of it, or by its subject where that has only one."""
    from trainmon.config import did_you_mean, quoted

    is_open = [alert for alert in alerts if alert.is_open]
    found = [alert for alert in is_open if word == alert.id]
    found = found or [alert for alert in is_open if word == alert.subject or (alert.id.startswith(word) and word)]
    if len(found) == 1:
        return found[0]
    if found:
        listed = ", ".join(f"{alert.id} ({alert.rule})" for alert in found[:5])
        raise click.UsageError(f"{quoted(word)} may be {listed}")
    near = did_you_mean(word, [name for alert in is_open for name in (alert.id, alert.subject)])
    raise click.UsageError(f"no open alert {quoted(word)}{near or '; `trainmon-tui status` lists them'}")


def give(order: AlertRequest, *, as_json: bool, done: str) -> int:
    """Leave an order, wait a moment until it is carried out, and say what came of it."""
    from trainmon.ledger.ledger import give_order
    from trainmon.lib import find_state_directory

    number = give_order(find_state_directory(os.environ).path, order)
    until = time.monotonic() + PATIENCE
    now = read()
    while now.recalled.orders_until < number and _is_watched(now) and time.monotonic() < until:
        time.sleep(PAUSE)
        now = read()
    is_done = now.recalled.orders_until >= number
    if as_json:
        import json

        click.echo(json.dumps(answer(order, number, is_done), ensure_ascii=False))
    else:
        click.echo(done if is_done else f"{done}: recorded; it takes effect when a monitor runs")
    return 0


def _is_watched(now: AlertsNow) -> bool:
    return now.duty is not None and now.duty.is_held


def answer(order: AlertRequest, number: int, is_done: bool) -> dict[str, Any]:
    """What was ordered, as plain values."""
    from trainmon.engine import snapshot

    silence = snapshot.plain(order.silence) if order.silence is not None else None
    return {
        "order": number, "verb": order.verb, "alert": order.alert, "silence": silence, "by": order.by, "at": order.at,
        "carried_out": is_done,
    }  # fmt: skip


def person(named: str | None = None) -> str:
    """Who gives the order: as another machine names its own, or who calls the command."""
    from trainmon.lib import clean
    from trainmon.runtime.backend import who

    return clean(named, 64).strip() or who() if named else who()
