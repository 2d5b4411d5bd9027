"""What is put to the daemon of another machine, as arguments; and its answers by our clock. Pure."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec.structs import replace

from trainmon.engine.snapshot_alerts import Status
from trainmon.lib import Instant, Seconds
from trainmon.model import AlertRequest

TIMES = frozenset(
    {"since", "found_at", "fired_at", "clear_since", "resolved_at", "acknowledged_at", "muted_until", "told_at",
     "first_told_at", "at", "until", "made_at", "ended_at", "sent_at", "oldest_at", "started_at", "last_tick_at"}
)  # fmt: skip
"""The fields of its answers that are a time."""

Found = TypeVar("Found", bound=msgspec.Struct)


def request_argv(order: AlertRequest) -> tuple[str, ...] | None:
    """`ack --by=ana --why=… -- 3f2a91bc`: the same, said there. None for what means this machine alone."""
    said = (f"--by={order.by}", *((f"--why={order.why}",) if order.why else ()))
    match order.verb:
        case "ack" | "unack" if order.alert:
            undo = ("--undo",) if order.verb == "unack" else ()
            return ("ack", "--json", *undo, *said, "--", order.alert)
        case "unmute" if order.alert:
            return ("unmute", "--json", f"--by={order.by}", "--", order.alert)
        case "mute" if order.silence is not None:
            found = order.silence
            parts = (("--rule", found.rule), ("--run", found.run), ("--node", found.node))
            given = tuple(f"{name}={value}" for name, value in parts if value)
            seconds = max(60, round(found.until - order.at))
            subject = ("--", found.subject) if found.subject else ()
            return ("mute", "--json", f"--for={seconds}s", *given, *said, *subject)
    return None


def shift_times(status: Status, seconds: Seconds) -> Status:
    """The same answer, by a clock that is so much ahead of theirs."""
    return replace(
        _moved(status, seconds),
        duty=_moved(status.duty, seconds),
        alerts=tuple(_told(one, seconds) for one in status.alerts),
        ended=tuple(_told(one, seconds) for one in status.ended),
        silences=tuple(_moved(one, seconds) for one in status.silences),
        channels=tuple(_moved(one, seconds) for one in status.channels),
    )


def _told(alert: Found, seconds: Seconds) -> Found:
    moved = _moved(alert, seconds)
    deliveries = tuple(_moved(one, seconds) for one in getattr(moved, "delivery", ()))
    return replace(moved, delivery=deliveries)


def _moved(value: Found, seconds: Seconds) -> Found:
    times = {name: getattr(value, name) for name in value.__struct_fields__ if name in TIMES}
    return replace(value, **{name: _later(at, seconds) for name, at in times.items()})


def _later(at: Instant | None, seconds: Seconds) -> Instant | None:
    return None if at is None else at + seconds
