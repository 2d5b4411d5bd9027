"""The channel `desktop`: a notification of this machine's desktop by notify-send, else a toast and the bell."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from trainmon.alerting.notify.base import Broken, Message, Retry, Sent
from trainmon.alerting.notify.message import fitted
from trainmon.lib import Seconds
from trainmon.lib.deadline import ChildRunner, DeadlineExceeded
from trainmon.model import Channel, Severity

PROGRAM = "notify-send"
BODY_BYTES = 1_000
"""More is not shown."""
URGENCY: dict[Severity, str] = {"critical": "critical", "warning": "normal", "info": "low"}

MISSING = f"there is no {PROGRAM} here: it is shown in the dashboard alone, and by --alerts-only it cannot be told"

Toast = Callable[[str, str, Severity, tuple[str, ...]], bool]
"""Shows a title and a text in the dashboard, and rings for what is critical; whether there is one that can. The ids are
those of the alerts of which it tells no more than that they are critical now: a dashboard shows that by itself."""


class Face:
    """The dashboard of this process, where there is one: it begins after its channels are made."""

    toast: Toast | None = None


FACE = Face()


def missing(find: Callable[[str], str | None] = shutil.which) -> str | None:
    """What is to be known where there is no desktop."""
    return MISSING if find(PROGRAM) is None else None


class Desktop:
    """The screen of whoever sits here."""

    def __init__(self, health: Channel, *, face: Face = FACE, find: Callable[[str], str | None] = shutil.which) -> None:
        self._health = health
        self._face = face
        self._find = find
        self._children = ChildRunner(health.name)

    @property
    def health(self) -> Channel:
        return self._health

    def send(self, message: Message, timeout: Seconds) -> Sent:
        program = self._find(PROGRAM)
        words = self._notify(program, message, timeout) if program is not None else f"there is no {PROGRAM} here"
        if words is None:
            return Sent()
        toast = self._face.toast
        if toast is None:
            raise Broken(words)
        if not toast(message.title, fitted(message, BODY_BYTES, "…")[0], message.severity, _new(message)):
            raise Retry(f"{words}, and the dashboard is not there now")
        return Sent(f"in the dashboard: {words}")

    def close(self) -> None:
        """Nothing is held between two messages."""

    def _notify(self, program: str, message: Message, timeout: Seconds) -> str | None:
        """Why the desktop did not take it. Its text is a markup of its own."""
        body = fitted(message, BODY_BYTES, "…")[0].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        flags = ["--app-name", "trainmon-tui", "--urgency", URGENCY[message.severity]]
        try:
            ended = self._children.run([program, *flags, "--", message.title, body], b"", timeout)
        except DeadlineExceeded:
            raise Retry(f"{PROGRAM} did not end within {timeout:.0f} s") from None
        except OSError:
            return f"{PROGRAM} cannot be started"
        return None if ended.status == 0 else f"{PROGRAM} reaches no desktop from here"


def _new(message: Message) -> tuple[str, ...]:
    """The alerts that are critical now, where it tells of nothing else."""
    alerts = [alert for notice in message.notices for alert in notice.alerts]
    is_all = all(notice.kind in ("fire", "worse") for notice in message.notices)
    is_all = is_all and all(alert.severity == "critical" and alert.is_open for alert in alerts)
    return tuple(alert.id for alert in alerts) if is_all else ()
