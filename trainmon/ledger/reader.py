"""Reads the ledger of another program by its directory (actions, alerts, leader), and sends requests to the leader."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from trainmon.analysis.explanation import AttemptRecords
from trainmon.ledger.actions import ActionText, read_actions, read_texts
from trainmon.ledger.alerts import HistoryLine, add_request, read_history, read_stored_alerts, read_totals
from trainmon.ledger.attempts import AttemptName, read_around, read_names, read_recent, read_rows
from trainmon.ledger.database import NAME, LedgerStuck, describe, open_to_read, open_to_write
from trainmon.ledger.lease import LOCK, LeaderNote, LeaderNow, is_locked, is_row_held, read_note, this_program
from trainmon.ledger.outbox import Counts, count, read_newest, read_sent, take_over
from trainmon.ledger.schema import NewerLedger, version_of
from trainmon.lib import Instant, Seconds
from trainmon.model import AlertRequest, Attempt, Channel, Delivery, Notification, Record, StoredAlerts

SINCE_ATTEMPTS = 3
SINCE_ALERTS = 2
"""The versions of the ledger that first had attempts, and alerts."""
DAY: Seconds = 86_400.0
NOTIFICATIONS_AT_MOST = 1_000

Found = TypeVar("Found")


class AlertsNow(msgspec.Struct, frozen=True, kw_only=True):
    """The present state of alerting in the ledger."""

    stored: StoredAlerts = StoredAlerts()
    notifications: tuple[Notification, ...] = ()
    """The newest of the last day, the newest last."""
    channels: tuple[Channel, ...] = ()
    sent: Mapping[str, tuple[Instant, ...]] = {}
    """When each channel sent a message in the last day. Only a program that begins to lead reads this."""
    outbox: Counts = Counts()
    leader: LeaderNow | None = None
    is_locked: bool = False
    """Whether a program has the lock beside the ledger. It may have written nothing to the ledger yet."""


def recent_actions(directory: Path, since: Instant, limit: int) -> list[Record]:
    """The newest actions of a ledger, the newest last.

    Raises: LedgerStuck.
    """
    return query_ledger(directory, lambda connection: read_actions(connection, since, limit), [], since_version=1)


def attempt_rows(directory: Path, since: Instant, run: str | None, limit: int) -> list[dict[str, Any]]:
    """The rows of the attempts that ran since then, the newest last.

    Raises: LedgerStuck.
    """
    work = partial(read_rows, since=since, run=run, limit=limit)
    return query_ledger(directory, work, [], since_version=SINCE_ATTEMPTS)


def recent_attempts(directory: Path, since: Instant, limit: int) -> list[Attempt]:
    """The open attempts, and those that ended since then.

    Raises: LedgerStuck.
    """
    work = partial(read_recent, since=since, limit=limit)
    return query_ledger(directory, work, [], since_version=SINCE_ATTEMPTS)


def attempt_names(directory: Path, limit: int) -> list[AttemptName]:
    """The names of the newest attempts, the newest first.

    Raises: LedgerStuck.
    """
    return query_ledger(directory, lambda connection: read_names(connection, limit), [], since_version=SINCE_ATTEMPTS)


def attempt_records(directory: Path, attempt_id: str) -> tuple[Attempt, AttemptRecords] | None:
    """An attempt, and what the ledger knows around it.

    Raises: LedgerStuck.
    """
    work = partial(read_around, attempt_id=attempt_id)
    return query_ledger(directory, work, None, since_version=SINCE_ATTEMPTS)


def action_texts(directory: Path, action_id: str) -> list[ActionText]:
    """The texts that belong to an action.

    Raises: LedgerStuck.
    """
    return query_ledger(directory, lambda connection: read_texts(connection, action_id), [], since_version=1)


def alerts_now(directory: Path, now: Instant) -> AlertsNow:
    """Alerts, notifications, channels and the leader.

    Raises: LedgerStuck.
    """
    found = query_ledger(directory, lambda connection: read_all(connection, now), AlertsNow())
    found = replace(found, is_locked=is_locked(directory))
    return found if found.leader is None else replace(found, leader=_leader(directory, found.leader.note, now))


def leader_now(directory: Path, now: Instant) -> LeaderNow | None:
    """What the program that leads, or led last, has written about itself.

    Raises: LedgerStuck.
    """
    note = query_ledger(directory, read_note, None)
    return None if note is None else _leader(directory, note, now)


def _leader(directory: Path, note: LeaderNote, now: Instant) -> LeaderNow:
    is_held = is_locked(directory) if (directory / LOCK).exists() else is_row_held(note, this_program(), now)
    return LeaderNow(note=note, is_held=is_held)


def alert_history(directory: Path, since: Instant, limit: int) -> list[HistoryLine]:
    """The history of alerts since then, the newest last.

    Raises: LedgerStuck.
    """
    return query_ledger(directory, lambda connection: read_history(connection, since, limit), [])


def totals(directory: Path, now: Instant) -> dict[str, dict[str, float]]:
    """The totals of a ledger, as `read_totals` returns them.

    Raises: LedgerStuck.
    """
    return query_ledger(directory, partial(read_totals, now=now), {}, since_version=SINCE_ATTEMPTS)


def submit_request(directory: Path, request: AlertRequest) -> int:
    """Write a request for the leader and return its number. The leader has carried it out when
    `alerts_now(…).stored.requests_until` reaches that number.

    Raises: LedgerStuck.
    """
    file = directory / NAME
    try:
        with closing(open_to_write(file, is_network=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            number = add_request(connection, request)
            connection.execute("COMMIT")
            return number
    except (sqlite3.Error, OSError, NewerLedger) as error:
        raise LedgerStuck(describe(error, file)) from error


def query_ledger(
    directory: Path,
    work: Callable[[sqlite3.Connection], Found],
    nothing: Found,
    *,
    since_version: int = SINCE_ALERTS,
) -> Found:
    """Query a ledger, also while another program writes. Return `nothing` if there is no ledger, or if its version is
    older than `since_version`.

    Raises: LedgerStuck.
    """
    file = directory / NAME
    try:
        connection = open_to_read(file)
        if connection is None:
            return nothing
        with closing(connection):
            return work(connection) if version_of(connection) >= since_version else nothing
    except (sqlite3.Error, OSError) as error:
        raise LedgerStuck(describe(error, file)) from error


def read_all(connection: sqlite3.Connection, now: Instant) -> AlertsNow:
    """The same from an open ledger. Of the leader it has only the note."""
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
        channels=tuple(_as_sent(one, notifications) for one in note.channels) if note is not None else (),
        outbox=count(connection, now - DAY),
        leader=None if note is None else LeaderNow(note=note, is_held=True),
    )


def _as_sent(channel: Channel, notifications: Sequence[Notification]) -> Channel:
    """The channel with what the outbox knows: its leader wrote the health a while ago, or has ended since."""
    sent = [one.sent_at for one in notifications if one.channel == channel.name and one.sent_at is not None]
    if not sent or (channel.sent_at is not None and channel.sent_at >= max(sent)):
        return channel
    return replace(channel, sent_at=max(sent), state="ok" if channel.state == "unknown" else channel.state)


def remember(connection: sqlite3.Connection, now: Instant) -> AlertsNow:
    """What a program that begins to lead must know: alerts, channels, and the notifications that it sends."""
    notifications = tuple(take_over(connection, now))
    note = read_note(connection)
    channels = note.channels if note is not None else ()
    return AlertsNow(
        stored=read_stored_alerts(connection, now),
        notifications=notifications,
        channels=channels,
        sent=read_sent(connection, now - DAY, now),
    )


def delivery(notification: Notification) -> Delivery:
    """The state of a notification, as its alerts show it."""
    is_retry = notification.state == "waiting" and notification.attempts > 0
    return Delivery(
        channel=notification.channel,
        kind=notification.notice.kind,
        state="sending" if notification.state == "leased" else "retrying" if is_retry else notification.state,
        at=notification.sent_at if notification.sent_at is not None else notification.made_at,
        answer=notification.answer,
    )
