"""What waits to be told when the daemon of another machine is back: what it tells itself, and what only we know of."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

from trainmon.clock import Instant, Seconds
from trainmon.ledger.alert_rows import read_recalled
from trainmon.ledger.outbox import read_newest
from trainmon.ledger.rows import storable
from trainmon.model_alerts import KEPT_RESOLVED, Alert, Notice
from trainmon.snapshot_alerts import Status

AT_MOST = 10_000
SAME: Seconds = 120.0
"""Two machines see the same happening so far apart."""

OF_OUR_VIEW = frozenset({"node-unreachable", "cluster-unreachable", "monitor-blind", "clock-jumped"})
"""Rules about how this machine sees the others: once that machine watches again, they are no news."""


def put_aside(connection: sqlite3.Connection, now: Instant, status: Status, words: str) -> int:
    """Send nothing of what that machine tells itself; how many letters are left, that only we can tell."""
    still = {one.id for one in read_recalled(connection, now).alerts if one.is_open}
    left = [
        letter.id
        for letter in read_newest(connection, now - KEPT_RESOLVED, AT_MOST)
        if letter.state in ("waiting", "leased", "dead") and is_ours(letter.notice, still, status)
    ]
    connection.execute(
        "UPDATE outbox SET state = 'stopped', words = ?, changed_at = ? "
        "WHERE state IN ('waiting', 'leased', 'dead') AND id NOT IN (SELECT value FROM json_each(?))",
        (storable(words), now, str(left)),
    )
    return len(left)


def is_ours(notice: Notice, still: Collection[str], status: Status) -> bool:
    """Whether nobody but us can tell of it. What is still so is found by that machine; what is over is known to it or
    is not."""
    return any(
        (alert.event or alert.id not in still) and not _is_of_our_view(alert) and not is_known(alert, status)
        for alert in notice.alerts
    )


def _is_of_our_view(alert: Alert) -> bool:
    return alert.rule in OF_OUR_VIEW or alert.subject.partition(":")[0] in ("source", "channel", "rule", "self")


def is_known(alert: Alert, status: Status) -> bool:
    """Whether that machine has seen it, too: it fires there, or ended there after it had begun here."""
    same = [one for one in (*status.alerts, *status.ended) if one.key == alert.key]
    if alert.event:
        return any(abs(one.since - alert.since) < SAME for one in same)
    return any(one.is_open or (one.resolved_at or 0.0) >= alert.since for one in same)
