"""Actions for tests of what keeps and tells them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from trainmon.ledger.actions import ActionText, read_actions, read_open, read_texts
from trainmon.ledger.alerts import HistoryLine, Transaction
from trainmon.ledger.lease import LeaderNote
from trainmon.ledger.ledger import Ledger
from trainmon.lib import Instant
from trainmon.model import Action, AlertChanges, Execute, Milestone, Notification, Record


def action(name: str = "a1", **changes: Any) -> Action:
    """A requeue of job 88 of video-2b."""
    plain = Action(
        id=name,
        verb="requeue",
        subject="video-2b",
        cluster="prod",
        host="login1",
        operation=Execute(("scontrol", "requeue", "Incomplete", "88")),
        title="Requeue job 88 of video-2b",
        run="video-2b",
        job="prod/88",
        who="ana",
        from_host="laptop",
        why="its node is slow",
        requested_at=1000.0,
    )
    return replace(plain, **changes)


def record(name: str = "a1", *, at: float = 1000.0, **changes: Any) -> Record:
    """It, written down."""
    return replace(Record(action=action(name, requested_at=at)), **changes)


DONE: dict[str, Any] = {
    "status": "done",
    "done_at": 1001.0,
    "outcome": "requeued",
    "marks": (Milestone("it is pending again", 1002.0),),
}


def transaction(
    changes: AlertChanges | None = None,
    stand_ins: Iterable[Notification] = (),
    marks: Iterable[Notification] = (),
    history: Iterable[HistoryLine] = (),
    note: LeaderNote | None = None,
) -> Transaction:
    """A transaction with all of this in it."""
    made = Transaction()
    if changes is not None:
        made.add_changes(changes)
        owed = ((notice, channel) for notice in changes.notices for channel in notice.channels)
        stand_ins = (*(Notification(channel=name, notice=one, made_at=changes.at) for one, name in owed), *stand_ins)
    for at, *line in history:
        made.add_changes(AlertChanges(at=at, history=(tuple(line),)))
    made.put(stand_ins)
    known = {name: one.because for name, one in made.rows.items()}
    made.put(replace(one, because=known.get(one.address, one.because)) for one in marks)
    made.note = note
    return made


def actions(ledger: Ledger, since: Instant, limit: int = 1_000) -> list[Record]:
    """The newest actions since then, by the ledger's own thread."""
    return found(ledger, lambda connection: read_actions(connection, since, limit))


def open_records(ledger: Ledger) -> list[Record]:
    return found(ledger, lambda connection: read_open(connection, 1_000))


def texts(ledger: Ledger, action_id: str) -> list[ActionText]:
    return found(ledger, lambda connection: read_texts(connection, action_id))


def found(ledger: Ledger, read: Callable[[sqlite3.Connection], list[Any]]) -> list[Any]:
    """What a query finds. Raises LedgerStuck."""
    answer = ledger.read(read, lambda: None)
    ledger._wait(answer)
    return answer.found or []
