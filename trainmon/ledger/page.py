"""One page of the ledger: what is written in one transaction of alerting, all of it or nothing."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from trainmon.clock import Instant
from trainmon.ledger.alert_rows import add_order, write_changes
from trainmon.ledger.duty import DutyNote
from trainmon.ledger.lease import require, write_duty
from trainmon.ledger.outbox import Address, Extra, Mark, write_marks, write_notices
from trainmon.model_alerts import AlertChanges, Order


class Page(NamedTuple):
    """What is to be written."""

    changes: AlertChanges | None = None
    extras: tuple[Extra, ...] = ()
    marks: tuple[Mark, ...] = ()
    orders: tuple[Order, ...] = ()
    duty: DutyNote | None = None


def write_page(connection: sqlite3.Connection, page: Page, now: Instant, holder: str | None) -> frozenset[Address]:
    """Write it, and say which letters are new. With `holder`, only while that is who has the duty: raises DutyLost."""
    if holder is not None:
        require(connection, holder)
    notices = page.changes.notices if page.changes is not None else ()
    if page.changes is not None:
        write_changes(connection, page.changes)
    made = write_notices(connection, notices, page.extras, now)
    write_marks(connection, page.marks)
    for order in page.orders:
        add_order(connection, order)
    if page.duty is not None:
        write_duty(connection, page.duty)
    return made
