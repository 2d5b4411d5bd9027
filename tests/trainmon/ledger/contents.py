"""All that a ledger holds, as the functions read it that the program itself uses."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from trainmon.ledger.actions import read_open
from trainmon.ledger.alerts import read_requests, read_waiting
from trainmon.ledger.attempts import read_evals, read_hours
from trainmon.ledger.database import NAME
from trainmon.ledger.ledger import action_texts, alert_history, alerts_now, attempt_rows, recent_actions
from trainmon.lib import Instant

MANY = 10_000


def restored(script: Path, directory: Path) -> Path:
    """A ledger made from its dump."""
    file = directory / NAME
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(script.read_text())
    return file


def contents(directory: Path, at: Instant) -> dict[str, Any]:
    """By kind, in JSON's types. `at`: the time then; what is long over is not recalled."""
    actions = recent_actions(directory, 0.0, MANY)
    now = alerts_now(directory, at)
    with closing(sqlite3.connect(directory / NAME)) as connection:
        orders = read_requests(connection, 0)
        waiting = read_waiting(connection)
        watched = read_open(connection, MANY)
        names = connection.execute("SELECT DISTINCT run_id, coalesce(cluster, '') FROM evals").fetchall()
        evals = {run: read_evals(connection, run, cluster) for run, cluster in names}
        names = connection.execute("SELECT DISTINCT attempt_id FROM gpu_hours").fetchall()
        hours = {name: read_hours(connection, name) for (name,) in names}
    attempts = attempt_rows(directory, 0.0, None, MANY)
    found = {
        "actions": actions,
        "attempts": attempts,
        "evals": evals,
        "gpu hours": hours,
        "actions that are watched": [one.action.id for one in watched],
        "texts": [text for one in actions for text in action_texts(directory, one.action.id)],
        "alerts": now.stored.alerts,
        "history": [{**line._asdict(), "words": line.text} for line in alert_history(directory, 0.0, MANY)],
        "silences": now.stored.silences,
        "orders": [{"number": number, "order": order} for number, order in orders],
        "orders until": now.stored.requests_until,
        "memory": {name: str(at) for name, at in now.stored.memory.items()},
        "written at": now.stored.at,
        "outbox": [replace(one, notice=one.told) for one in now.notifications],
        "outbox that waits": [notification.id for notification in waiting],
        "outbox in numbers": now.outbox._asdict(),
        "duty": None if now.leader is None else now.leader.note,
    }
    as_json: dict[str, Any] = json.loads(msgspec.json.encode(found))
    return as_json
