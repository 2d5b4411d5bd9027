"""trainmon-tui sql: a query on the ledger, for experts."""

from __future__ import annotations

import os
import threading
from typing import Any

import click

from trainmon.cli.options import ledger_config_option

GRACE = 0.5
"""Seconds after its time limit in which a query must stop by itself: one call of a function cannot be interrupted."""


@click.command("sql")
@click.argument("query", metavar="QUERY")
@click.option("--json", "as_json", is_flag=True, help="A JSON list with one object per row.")
@ledger_config_option
def command(query: str, as_json: bool) -> int:
    """Run one SELECT on the ledger. The table `training_attempts` has the attempts, `evals` the results of
    evaluators, `gpu_hours` the last hour of the GPUs of each attempt.

    docs/attempts.md has an example, and lists the columns.

    A query can only read. It may take 10s and give 10,000 rows. `now() - interval '7 days'` works as in PostgreSQL.

    Exit status: 0 done, 2 a usage error, 3 the query is wrong, may not be run, or exceeds a limit.
    """
    from trainmon.cli.terminal import plain, table
    from trainmon.ledger.query import TIME_LIMIT, QueryRefused, select
    from trainmon.lib import find_state_directory

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
        import json

        rows = [dict(zip(found.columns, map(_value, row), strict=True)) for row in found.rows]
        click.echo(json.dumps(rows, ensure_ascii=False))
    else:
        cells = [["" if value is None else str(_value(value)) for value in row] for row in found.rows]
        click.echo(plain("\n".join(table(found.columns, cells))))
    return 0


def _value(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value


def _give_up() -> None:
    os.write(2, b"trainmon-tui: the query was stopped after 10s\n")
    os._exit(3)
