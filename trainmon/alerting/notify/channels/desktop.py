"""The channel `desktop`: a notification on this machine's desktop by notify-send, else a toast and the bell."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from trainmon.alerting.notify.message import Broken, Message, Retry, Sent, fitted
from trainmon.lib import Seconds
from trainmon.lib.threads import ChildRunner, DeadlineExceeded
from trainmon.model import Channel, Severity

PROGRAM = "notify-send"
BODY_BYTES = 1_000
URGENCY: dict[Severity, str] = {"critical": "critical", "warning": "normal", "info": "low"}

Toast = Callable[[str, str, Severity, tuple[str, ...]], bool]
"""Shows a title and a text in the dashboard, and rings for a critical alert; returns whether it could. The ids are
those of alerts of which the message only says that they are critical now: a dashboard shows that by itself."""


class Toaster:
    """The toasts of the dashboard of this process, if there is one: it starts after its channels are created."""

    toast: Toast | None = None


TOASTER = Toaster()


def missing(find: Callable[[str], str | None] = shutil.which) -> str | None:
    """A note where there is no desktop."""
    problem = f"there is no {PROGRAM} here: only a dashboard shows it, and --alerts-only cannot send it"
    return problem if find(PROGRAM) is None else None


class Desktop:
    """The screen of the person at this machine."""

    def __init__(
        self,
        health: Channel,
        *,
        toaster: Toaster = TOASTER,
        find: Callable[[str], str | None] = shutil.which,
    ) -> None:
        self.health = health
        self._toaster = toaster
        self._find = find
        self._children = ChildRunner(health.name)

    def send(self, message: Message, timeout: Seconds) -> Sent:
        """Show it on the desktop, else in the dashboard.

        Raises:
            Retry: when neither can show it now.
            Broken: when there is no desktop and no dashboard.
        """
        program = self._find(PROGRAM)
        problem = self._notify(program, message, timeout) if program is not None else f"there is no {PROGRAM} here"
        if problem is None:
            return Sent()
        if self._toaster.toast is None:
            raise Broken(problem)
        alerts = [alert for notice in message.notices for alert in notice.alerts]
        is_new = all(notice.kind in ("fire", "worse") for notice in message.notices) and all(
            alert.severity == "critical" and alert.is_open for alert in alerts
        )
        ids = tuple(alert.id for alert in alerts) if is_new else ()
        if not self._toaster.toast(message.title, fitted(message, BODY_BYTES, "…")[0], message.severity, ids):
            raise Retry(f"{problem}, and the dashboard is not there now")
        return Sent(f"in the dashboard: {problem}")

    def _notify(self, program: str, message: Message, timeout: Seconds) -> str | None:
        """Why the desktop did not accept it. Its text is markup, so it is escaped."""
        body = fitted(message, BODY_BYTES, "…")[0].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        flags = ["--app-name", "trainmon-tui", "--urgency", URGENCY[message.severity]]
        try:
            ended = self._children.run([program, *flags, "--", message.title, body], b"", timeout)
        except DeadlineExceeded:
            raise Retry(f"{PROGRAM} did not end within {timeout:.0f}s") from None
        except OSError:
            return f"{PROGRAM} cannot be started"
        return None if ended.status == 0 else f"{PROGRAM} reaches no desktop from here"
