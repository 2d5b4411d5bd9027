"""trainmon-tui sql: a query on the ledger, for experts."""

from __future__ import annotations

import os
import threading
from typing import Any

import click

from trainmon.cli.terminal import print_json, print_lines, table
from trainmon.ledger.reader import TIME_LIMIT, QueryRefused, select
from trainmon.lib import find_state_directory

GRACE = 0.5
"""Seconds after its time limit in which a query must stop by itself: one call of a function cannot be interrupted."""


def print_rows(query: str, as_json: bool) -> int:
    """Print what a SELECT gives; the exit status."""
    watchdog = threading.Timer(TIME_LIMIT + GRACE, _give_up)
    watchdog.daemon = True
    watchdog.start()
    try:
        found = select(find_state_directory(os.environ).path, query)
    except QueryRefused as error:
        click.echo(f"trainmon-tui: {error.message}", err=True)
        if error.hint:
            click.echo(f"try: {error.hint}", err=True)
        return 3
    finally:
        watchdog.cancel()
    if as_json:
        rows = [dict(zip(found.columns, map(_value, row), strict=True)) for row in found.rows]
        print_json(rows)
    else:
        cells = [["" if value is None else str(_value(value)) for value in row] for row in found.rows]
        print_lines(*table(found.columns, cells))
    return 0


def _value(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _give_up() -> None:
    os.write(2, b"trainmon-tui: the query was stopped after 10s\n")
    os._exit(3)
