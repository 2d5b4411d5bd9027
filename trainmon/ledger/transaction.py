"""One page of the ledger: what is written in one transaction of alerting, all of it or nothing."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from trainmon.ledger.alerts import Happening, add_history, write_changes
from trainmon.ledger.lease import LeaderNote, is_row_of, write_duty
from trainmon.ledger.outbox import Address, Extra, Mark, write_marks, write_notices
from trainmon.lib import Instant
from trainmon.model import AlertChanges


class Transaction(NamedTuple):
    """What is to be written."""

    changes: AlertChanges | None = None
    history: tuple[Happening, ...] = ()
    extras: tuple[Extra, ...] = ()
    marks: tuple[Mark, ...] = ()
    duty: LeaderNote | None = None


def write_page(
    connection: sqlite3.Connection, page: Transaction, now: Instant, holder: str | None
) -> frozenset[Address] | None:
    """Write it, and say which letters are new. With `holder`, only while the row of the duty is that one's: None, and
    nothing is written, when another program has taken it."""
    if holder is not None and not is_row_of(connection, holder):
        return None
    notices = page.changes.notices if page.changes is not None else ()
    if page.changes is not None:
        write_changes(connection, page.changes)
    add_history(connection, page.history)
    made = write_notices(connection, notices, page.extras, now)
    write_marks(connection, page.marks)
    if page.duty is not None:
        write_duty(connection, page.duty)
    return made
