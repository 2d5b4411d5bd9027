"""Requests to the daemon of another machine as arguments, and its answers in our clock's time. Pure."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from msgspec.structs import replace

from trainmon.engine.snapshot import Status
from trainmon.lib import Seconds
from trainmon.model import Alert, AlertRequest

TIMES = frozenset(
    {"since", "found_at", "fired_at", "clear_since", "resolved_at", "acknowledged_at", "muted_until", "notified_at",
     "first_notified_at", "at", "until", "made_at", "ended_at", "sent_at", "oldest_at", "started_at", "last_tick_at"}
)  # fmt: skip
"""The fields of its answers that hold a time."""

StructType = TypeVar("StructType", bound=msgspec.Struct)


def request_argv(request: AlertRequest) -> tuple[str, ...] | None:
    """`ack --by=ana --why=… -- 3f2a91bc`: the command line for a request. None for requests to this machine alone."""
    common = (f"--by={request.by}", *((f"--why={request.why}",) if request.why else ()))
    match request.verb:
        case "ack" | "unack" if request.alert:
            undo = ("--undo",) if request.verb == "unack" else ()
            return ("ack", "--json", *undo, *common, "--", request.alert)
        case "unmute" if request.alert:
            return ("unmute", "--json", f"--by={request.by}", "--", request.alert)
        case "mute" if request.silence is not None:
            silence = request.silence
            parts = (("rule", silence.rule), ("run", silence.run), ("node", silence.node))
            options = tuple(f"--{name}={value}" for name, value in parts if value)
            seconds = max(60, round(silence.until - request.at))
            subject = ("--", silence.subject) if silence.subject else ()
            return ("mute", "--json", f"--for={seconds}s", *options, *common, *subject)
    return None


def shift_times(status: Status, seconds: Seconds) -> Status:
    """The answer with all times moved by these seconds, to our clock."""
    return replace(
        _moved(status, seconds),
        leader=_moved(status.leader, seconds),
        alerts=tuple(_moved(alert, seconds) for alert in status.alerts),
        ended=tuple(_moved(alert, seconds) for alert in status.ended),
        silences=tuple(_moved(silence, seconds) for silence in status.silences),
        channels=tuple(_moved(channel, seconds) for channel in status.channels),
    )


def _moved(value: StructType, seconds: Seconds) -> StructType:
    fields: dict[str, object] = {
        name: getattr(value, name) + seconds
        for name in value.__struct_fields__
        if name in TIMES and getattr(value, name) is not None
    }
    if isinstance(value, Alert):
        fields["delivery"] = tuple(_moved(delivery, seconds) for delivery in value.delivery)
    return replace(value, **fields)
