"""The channel `command`: a program of the user's, which gets the message as JSON on its standard input."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec

from trainmon.alerting.notify.base import Broken, Message, Retry, Sent
from trainmon.lib import Seconds, clean, scrub
from trainmon.lib.deadline import ChildRunner, DeadlineExceeded
from trainmon.model import Alert, Channel

TEMPORARY = 75
"""The exit status that says: come again (EX_TEMPFAIL of sysexits.h)."""
WORDS = 200
NOT_TOLD = ("token", "delivery")


class Command:
    """One program."""

    def __init__(self, health: Channel, *, argv: Sequence[str]) -> None:
        self._health = health
        self._argv = tuple(argv)
        self._children = ChildRunner(health.name)

    @property
    def health(self) -> Channel:
        return self._health

    def send(self, message: Message, timeout: Seconds) -> Sent:
        """0 is taken, 75 comes again, and so does a program that takes too long; every other status is a fault."""
        given = json.dumps(told(message), ensure_ascii=False).encode(errors="replace") + b"\n"
        try:
            ended = self._children.run(self._argv, given, timeout)
        except DeadlineExceeded:
            raise Retry(f"it did not end within {timeout:.0f} s") from None
        except OSError as error:
            raise Broken(f"it cannot be started: {(error.strerror or 'failed').lower()}") from error
        words = clean(scrub((ended.errors or ended.output).decode(errors="replace").strip().split("\n")[-1]), WORDS)
        if ended.status == 0:
            return Sent()
        said = f"it ended with {ended.status}" + (f": {words}" if words else "")
        raise Retry(said) if ended.status == TEMPORARY or ended.status < 0 else Broken(said)

    def close(self) -> None:
        """Nothing is held between two messages."""


def told(message: Message) -> dict[str, Any]:
    """The message as a program reads it. Without what acknowledges: that is the phone's."""
    return {
        "version": 1,
        "key": message.key,
        "at": message.at,
        "severity": message.severity,
        "title": message.title,
        "body": message.body,
        "link": message.link,
        "notices": [
            {"key": notice.key, "kind": notice.kind, "reason": notice.reason, "at": notice.at, "run": notice.run}
            | {"severity": notice.severity, "more": notice.more}
            | {"alerts": [_alert(alert) for alert in notice.alerts]}
            for notice in message.notices
        ],
    }


def _alert(alert: Alert) -> dict[str, Any]:
    fields = {name: value for name, value in msgspec.structs.asdict(alert).items() if name not in NOT_TOLD}
    return {name: _scrubbed(value) for name, value in fields.items()}


def _scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return clean(scrub(value))
    return [_scrubbed(part) for part in value] if isinstance(value, tuple) else value
