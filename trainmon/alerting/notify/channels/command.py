"""The channel `command`: a program of the user that gets the message as JSON on its standard input."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from trainmon.alerting.notify.message import Broken, Message, Retry, Sent
from trainmon.lib import Seconds, clean, last_line, scrub
from trainmon.lib.threads import ChildRunner, DeadlineExceeded
from trainmon.model import Alert, Channel

TEMPORARY = 75
"""The exit status for a temporary failure (EX_TEMPFAIL of sysexits.h)."""


class Command:
    """One program."""

    def __init__(self, health: Channel, *, argv: Sequence[str]) -> None:
        self.health = health
        self._argv = tuple(argv)
        self._children = ChildRunner(health.name)

    def send(self, message: Message, timeout: Seconds) -> Sent:
        """Run the program. 0 is a success; 75, a signal and a timeout are retried; every other status is an error.

        Raises:
            Retry: when the program may succeed later.
            Broken: when it cannot start, or ends with an error.
        """
        try:
            ended = self._children.run(self._argv, payload(message), timeout)
        except DeadlineExceeded:
            raise Retry(f"it did not end within {timeout:.0f}s") from None
        except OSError as error:
            raise Broken(f"it cannot be started: {(error.strerror or 'failed').lower()}") from error
        if ended.status == 0:
            return Sent()
        output = last_line(ended.errors or ended.output, 200)
        why = f"it ended with {ended.status}" + (f": {output}" if output else "")
        raise Retry(why) if ended.status == TEMPORARY or ended.status < 0 else Broken(why)


def payload(message: Message) -> bytes:
    """The message as JSON. It has no tokens: only phones acknowledge by them."""
    fields = {
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
    return json.dumps(fields, ensure_ascii=False).encode(errors="replace") + b"\n"


def _alert(alert: Alert) -> dict[str, Any]:
    return {name: _scrubbed(value) for name, value in to_builtins(alert).items() if name not in ("token", "delivery")}


def _scrubbed(value: Any) -> Any:
    if isinstance(value, str):
        return clean(scrub(value))
    return [_scrubbed(part) for part in value] if isinstance(value, (list, tuple)) else value
