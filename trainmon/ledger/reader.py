"""What other programs ask of a ledger, by its directory: what was done, who has the duty, what fires; and what they
order."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from trainmon.ledger.actions import ActionText, read_actions, read_texts
from trainmon.ledger.alerts import HistoryLine, add_request, read_history, read_stored_alerts
from trainmon.ledger.database import NAME, LedgerStuck, describe, open_to_read, open_to_write
from trainmon.ledger.lease import LOCK, LeaderNow, is_locked, is_row_held, read_note, this_program
from trainmon.ledger.outbox import Counts, count, read_newest, take_over
from trainmon.ledger.schema import NewerLedger, version_of
from trainmon.lib import Instant, Seconds
from trainmon.model import AlertRequest, Channel, Delivery, Notification, Record, StoredAlerts

SINCE_ALERTS = 2
"""The version of the ledger that first had alerts."""
DAY: Seconds = 86_400.0
NOTIFICATIONS_AT_MOST = 1_000

Found = TypeVar("Found")


class AlertsNow(msgspec.Struct, frozen=True, kw_only=True):
    """What the ledger says of alerting."""

    stored: StoredAlerts = StoredAlerts()
    notifications: tuple[Notification, ...] = ()
    """The newest of the last day, the newest last."""
    channels: tuple[Channel, ...] = ()
    outbox: Counts = Counts()
    leader: LeaderNow | None = None
    is_locked: bool = False
    """Whether a program has the lock beside the ledger, though it may have written nothing down."""


def recent_actions(directory: Path, since: Instant, limit: int) -> list[Record]:
    """The newest actions of a ledger, whoever writes into it now; the newest last. Raises LedgerStuck."""
    return query_ledger(directory, lambda connection: read_actions(connection, since, limit), [], since_version=1)


def action_texts(directory: Path, action_id: str) -> list[ActionText]:
    """What was kept for an action. Raises LedgerStuck."""
    return query_ledger(directory, lambda connection: read_texts(connection, action_id), [], since_version=1)


def alerts_now(directory: Path, now: Instant) -> AlertsNow:
    """All of it. Raises LedgerStuck."""
    found = query_ledger(directory, lambda connection: read_all(connection, now), AlertsNow())
    found = replace(found, is_locked=is_locked(directory))
    if found.leader is None:
        return found
    is_held = found.is_locked if (directory / LOCK).exists() else is_row_held(found.leader.note, this_program(), now)
    return replace(found, leader=replace(found.leader, is_held=is_held))


def alert_history(directory: Path, since: Instant, limit: int) -> list[HistoryLine]:
    """What happened to alerts since then, the newest last. Raises LedgerStuck."""
    return query_ledger(directory, lambda connection: read_history(connection, since, limit), [])


def submit_request(directory: Path, order: AlertRequest) -> int:
    """Leave an order for whoever has the duty; its number. It is carried out once
    `alerts_now(…).stored.requests_until` has come to it. Raises LedgerStuck."""
    file = directory / NAME
    try:
        connection = open_to_write(file, is_network=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            number = add_request(connection, order)
            connection.execute("COMMIT")
            return number
        finally:
            connection.close()
    except (sqlite3.Error, OSError, NewerLedger) as error:
        raise LedgerStuck(describe(error, file)) from error


def query_ledger(
    directory: Path,
    work: Callable[[sqlite3.Connection], Found],
    nothing: Found,
    *,
    since_version: int = SINCE_ALERTS,
) -> Found:
    """Read something, whoever writes now; `nothing` where there is no ledger, or one from before there was such."""
    file = directory / NAME
    try:
        connection = open_to_read(file)
        if connection is None:
            return nothing
        try:
            return work(connection) if version_of(connection) >= since_version else nothing
        finally:
            connection.close()
    except (sqlite3.Error, OSError) as error:
        raise LedgerStuck(describe(error, file)) from error


def read_all(connection: sqlite3.Connection, now: Instant) -> AlertsNow:
    """What a ledger that is open says; of its duty the note alone."""
    notifications = tuple(read_newest(connection, now - DAY, NOTIFICATIONS_AT_MOST))
    stored = read_stored_alerts(connection, now)
    newest: dict[str, dict[str, Delivery]] = {}
    for notification in notifications:
        for alert in notification.notice.alerts:
            newest.setdefault(alert.id, {})[notification.channel] = delivery(notification)
    alerts = (replace(one, delivery=tuple(newest.get(one.id, {}).values()) or one.delivery) for one in stored.alerts)
    note = read_note(connection)
    return AlertsNow(
        stored=replace(stored, alerts=tuple(alerts)),
        notifications=notifications,
        channels=note.channels if note is not None else (),
        outbox=count(connection, now - DAY),
        leader=None if note is None else LeaderNow(note=note, is_held=True),
    )


def remember(connection: sqlite3.Connection, now: Instant) -> AlertsNow:
    """What a program that begins to lead must know: alerts, channels, and the notifications that it sends."""
    notifications = tuple(take_over(connection, now))
    note = read_note(connection)
    channels = note.channels if note is not None else ()
    return AlertsNow(stored=read_stored_alerts(connection, now), notifications=notifications, channels=channels)


def delivery(notification: Notification) -> Delivery:
    """The state of a notification, as its alerts show it."""
    is_retry = notification.state == "waiting" and notification.attempts > 0
    return Delivery(
        channel=notification.channel,
        kind=notification.notice.kind,
        state="sending" if notification.state == "leased" else "retrying" if is_retry else notification.state,
        at=notification.sent_at if notification.sent_at is not None else notification.made_at,
        words=notification.words,
    )
