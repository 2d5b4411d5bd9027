"""The channel `apprise`: mail, chats, pagers and telephones. A child process runs apprise for one message.

Apprise and its imports would use more memory than the rest of the daemon, and it has its own timeouts and logs.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from trainmon.alerting.notify.channels.apprise.child import Answer, Incident, Request, Tone
from trainmon.alerting.notify.channels.webhook import fingerprint
from trainmon.alerting.notify.message import Broken, Message, Retry, Sent, is_good_news, printable
from trainmon.lib import MASK, ScratchDirectory, Seconds, clean, last_line
from trainmon.lib.extras import install_command
from trainmon.lib.threads import ChildRunner, DeadlineExceeded, decoder
from trainmon.model import Channel, Severity

log = logging.getLogger(__name__)

FOLDER = "mail"
"""The kind of temporary directory that holds the attachments of a message."""
CHILD = (sys.executable, "-P", "-m", "trainmon.alerting.notify.channels.apprise.child")
"""-P: nothing is imported from the working directory."""
START: Seconds = 5.0
"""How long the child may take to start: on a busy machine its imports take seconds."""
TONES: dict[Severity, Tone] = {"critical": "failure", "warning": "warning", "info": "info"}
FILES = 4
INCIDENTS = 20
"""One message opens or closes at most this many incidents, the most severe first."""
DRAWN: Seconds = 20.0
DRAWN_URGENT: Seconds = 4.0
"""How long a message waits for its plots, and a critical one: they are sent with it, or not at all."""
LATER = {
    "twilio": "Twilio", "pover": "Pushover", "whatsapp": "WhatsApp", "vonage": "Vonage", "nexmo": "Vonage",
    "plivo": "Plivo", "clicksend": "ClickSend", "sinch": "Sinch", "msg91": "MSG91", "sns": "Amazon SNS",
}  # fmt: skip
"""Services that report later whether the message was delivered or read."""
SEVERAL = "{} recipients in one address: when one cannot be reached, all get the message again; give each a [[notify]]"
PAGERS = {"pagerduty": "PagerDuty", "opsgenie": "Opsgenie", "splunk": "Splunk On-Call", "victorops": "Splunk On-Call"}
"""Services that open an incident for every message."""


class Apprise:
    """One address of apprise."""

    def __init__(
        self,
        health: Channel,
        *,
        url: str,
        pictures: bool = True,
        argv: Sequence[str] = CHILD,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.health = health
        self._find_library()
        self._note = health.note
        self._url = url
        self._pictures = pictures
        self._argv = tuple(argv)
        self._environ = environ
        self._children = ChildRunner(health.name)

    def send(self, message: Message, timeout: Seconds) -> Sent:
        """Send by a child process. It reads attachments from a temporary directory.

        Raises:
            Retry: when the service may accept it later.
            Broken: when the service refuses it, or apprise is not installed.
        """
        try:
            with ScratchDirectory(FOLDER) as folder:
                paths = _write_files(message, Path(folder)) if self._pictures else []
                answer = self._run(_request(message, self._url, paths, timeout), timeout)
        except OSError as error:  # a full disk: the message is sent without plots
            log.warning("no plots for %s: %s", self.health.name, error.strerror)
            answer = self._run(_request(message, self._url, [], timeout), timeout)
        if answer.outcome == "sent":
            return Sent()
        raise Retry(answer.text) if answer.outcome == "retry" else Broken(answer.text)

    def check(self, timeout: Seconds) -> None:
        """Find out whether apprise accepts this address.

        Raises:
            Retry: when apprise cannot be run.
            Broken: when it refuses the address, or is not installed: then the health says so, too.
        """
        answer = self._run(Request(url=self._url), timeout)
        if answer.recipients > 1:
            note = "; ".join(filter(None, (self._note, SEVERAL.format(answer.recipients))))
            self.health = replace(self.health, note=note)
        if answer.outcome != "sent":
            raise Broken(answer.text)

    def _find_library(self) -> Broken | None:
        """An error without apprise, which the health of the channel has from then on until apprise is installed."""
        command = install_command("apprise")
        missing = Broken("apprise is not installed", hint=command) if command is not None else None
        self.health = replace(
            self.health, state="broken" if missing else "unknown", problem=str(missing) if missing else None
        )
        return missing

    def _run(self, request: Request, timeout: Seconds) -> Answer:
        if missing := self._find_library():
            raise missing
        try:
            ended = self._children.run(self._argv, msgspec.json.encode(request), timeout + START, self._environ)
        except DeadlineExceeded:
            raise Retry(f"no answer within {timeout:.0f}s") from None
        except OSError as error:
            raise Retry(f"apprise's child cannot be started: {(error.strerror or 'failed').lower()}") from error
        try:
            return decoder(Answer).decode(ended.output)
        except msgspec.MsgspecError:
            last = last_line(ended.errors.replace(self._url.encode(), MASK.encode()), 120)
            raise Retry(f"apprise's child ended with {ended.status}: {last}") from None


def _request(message: Message, url: str, files: Sequence[str], timeout: Seconds) -> Request:
    alerts = {fingerprint(alert.rule, alert.subject): alert for notice in message.notices for alert in notice.alerts}
    return Request(
        url=url,
        body=message.body or message.title,
        shorter=message.shorter,
        title=message.title,
        tone="success" if is_good_news(message) else TONES[message.severity],
        files=tuple(files),
        key=message.key,
        threads=message.threads,
        incidents=tuple(
            Incident(key, one.phase == "resolved", printable(f"{one.rule} {one.subject}: {one.summary}"))
            for key, one in list(alerts.items())[:INCIDENTS]
        ),
        within=timeout,
    )


def _write_files(message: Message, folder: Path) -> list[str]:
    """Write the attachments to the directory of the child."""
    until = time.monotonic() + (DRAWN_URGENT if message.severity == "critical" else DRAWN)
    paths = []
    for number, file in enumerate(message.attachments[:FILES]):
        if data := file.read(max(0.1, until - time.monotonic())):
            path = folder / f"{number}-{Path(clean(file.name, 80)).name or 'file'}"
            path.write_bytes(data)
            paths.append(str(path))
    return paths


def pages(url: str) -> str | None:
    """A warning about a pager that gets heartbeats."""
    name = PAGERS.get(url.partition("://")[0].lower())
    return f"{name} opens an incident for every heartbeat: set heartbeat = false" if name else None


def later(url: str) -> str | None:
    """A note about a service that reports delivery later."""
    name = LATER.get(url.partition("://")[0].lower())
    return f"{name} reports delivery later; that report is not read yet" if name else None
