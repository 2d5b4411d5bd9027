"""The channel `apprise`: mail, chats, pagers and telephones, through apprise in a child that lives for one message.

Apprise and what it imports would be larger than all else of the daemon, and it waits and logs as it likes.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from trainmon.alerting.notify.base import Attachment, Broken, Message, Retry, Sent
from trainmon.alerting.notify.channels.apprise.wire import Answer, Incident, Question
from trainmon.alerting.notify.channels.webhook import fingerprint
from trainmon.alerting.notify.message import is_good_news, printable
from trainmon.lib import Seconds, clean, scrub
from trainmon.lib.deadline import ChildRunner, DeadlineExceeded
from trainmon.model import Alert, Channel

log = logging.getLogger(__name__)

CHILD = (sys.executable, "-P", "-m", "trainmon.alerting.notify.channels.apprise.child")
"""-P: nothing is imported from the working directory."""
START: Seconds = 5.0
"""How long the child may take for itself: on a busy machine it imports for seconds."""
TONES = {"critical": "failure", "warning": "warning", "info": "info"}
FILES = 4
INCIDENTS = 20
"""So many are opened or closed by one message, the worst first."""
DRAWN: Seconds = 20.0
DRAWN_URGENT: Seconds = 4.0
"""How long such a message waits for its pictures: they go with it, or not at all."""
LATER = {
    "twilio": "Twilio", "pover": "Pushover", "whatsapp": "WhatsApp", "vonage": "Vonage", "nexmo": "Vonage",
    "plivo": "Plivo", "clicksend": "ClickSend", "sinch": "Sinch", "msg91": "MSG91", "sns": "Amazon SNS",
}  # fmt: skip
"""Services that say only later whether it was delivered, or read."""
SEVERAL = "{} recipients in one address: when one of them cannot be reached, all are told again; give each a [[notify]]"
PAGERS = {"pagerduty": "PagerDuty", "opsgenie": "Opsgenie", "splunk": "Splunk On-Call", "victorops": "Splunk On-Call"}
"""Services that open an incident for whatever they are told."""


class Apprise:
    """One address of apprise's."""

    def __init__(
        self,
        health: Channel,
        *,
        url: str,
        pictures: bool = True,
        argv: Sequence[str] = CHILD,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._health = health
        self._recipients = 1
        self._url = url
        self._pictures = pictures
        self._argv = tuple(argv)
        self._environ = environ
        self._children = ChildRunner(health.name)

    @property
    def health(self) -> Channel:
        if self._recipients == 1:
            return self._health
        notes = [note for note in (self._health.note, SEVERAL.format(self._recipients)) if note]
        return replace(self._health, note="; ".join(notes))

    def send(self, message: Message, timeout: Seconds) -> Sent:
        """Through a child, which gets files by a directory of ours that goes with it."""
        files = message.attachments[:FILES] if self._pictures else ()
        try:
            with tempfile.TemporaryDirectory(prefix="trainmon-", ignore_cleanup_errors=True) as folder:
                laid = _laid(files, Path(folder), DRAWN_URGENT if message.severity == "critical" else DRAWN)
                answer = self._ask(_question(message, self._url, laid, timeout), timeout)
        except OSError as error:  # no room for pictures: the message goes without them
            log.warning("no pictures for %s: %s", self._health.name, error.strerror)
            answer = self._ask(_question(message, self._url, (), timeout), timeout)
        if answer.outcome == "sent":
            return Sent()
        raise Retry(answer.words) if answer.outcome == "retry" else Broken(answer.words)

    def check(self, timeout: Seconds) -> str | None:
        """Why it cannot be sent by this address, as far as is known without sending; None when it can."""
        try:
            return self.refused(timeout)
        except Retry as error:
            return error.message

    def refused(self, timeout: Seconds) -> str | None:
        """Why apprise would not take this address at all. Raises Retry where it cannot be asked."""
        answer = self._ask(Question(url=self._url), timeout)
        self._recipients = answer.recipients
        return None if answer.outcome == "sent" else answer.words

    def close(self) -> None:
        """Nothing is held between two messages."""

    def _ask(self, question: Question, timeout: Seconds) -> Answer:
        try:
            ended = self._children.run(self._argv, msgspec.json.encode(question), timeout + START, self._environ)
        except DeadlineExceeded:
            raise Retry(f"no answer within {timeout:.0f} s") from None
        except OSError as error:
            raise Retry(f"apprise's child cannot be started: {(error.strerror or 'failed').lower()}") from error
        try:
            return msgspec.json.decode(ended.output, type=Answer)
        except msgspec.MsgspecError:
            last = ended.errors.decode(errors="replace").strip().split("\n")[-1]
            said = clean(scrub(last.replace(self._url, "***")), 120)
            raise Retry(f"apprise's child ended with {ended.status}: {said}") from None


def _question(message: Message, url: str, files: tuple[str, ...], timeout: Seconds) -> Question:
    tone = "success" if is_good_news(message) else TONES[message.severity]
    alerts = {fingerprint(alert.rule, alert.subject): alert for notice in message.notices for alert in notice.alerts}
    told = {
        "url": url,
        "body": message.body or message.title,
        "shorter": message.shorter,
        "title": message.title,
        "tone": tone,
        "files": files,
        "key": message.key,
        "incidents": [_incident(key, alert) for key, alert in list(alerts.items())[:INCIDENTS]],
        "within": timeout,
    }
    return msgspec.convert(told, Question)


def _incident(key: str, alert: Alert) -> Incident:
    return Incident(key, alert.phase == "resolved", printable(f"{alert.rule} {alert.subject}: {alert.summary}"))


def _laid(files: Sequence[Attachment], folder: Path, within: Seconds) -> tuple[str, ...]:
    """The files, where the child finds them."""
    until = time.monotonic() + within
    paths = []
    for number, file in enumerate(files):
        data = file.read(max(0.1, until - time.monotonic()))
        if not data:
            continue
        name = Path(clean(file.name, 80)).name or "file"
        path = folder / f"{number}-{name}"
        path.write_bytes(data)
        paths.append(str(path))
    return tuple(paths)


def pages(url: str) -> str | None:
    """What is to be known of a pager that is told the sign of life."""
    name = PAGERS.get(url.partition("://")[0].lower())
    return f"{name} opens an incident for every sign of life: set heartbeat = false" if name else None


def later(url: str) -> str | None:
    """What is to be known of a service that gives its receipts later."""
    name = LATER.get(url.partition("://")[0].lower())
    return f"{name} says only later whether it was delivered; that is not followed yet" if name else None
