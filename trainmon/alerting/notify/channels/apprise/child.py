"""The child process that sends through apprise: one request on standard input, one answer on standard output.

It gets the address on its standard input, because everybody on the machine can see arguments. Apprise hides the answer
of a server: it is read from apprise's own log, and what is not understood there is retried.
"""

from __future__ import annotations

import difflib
import hashlib
import logging
import re
import sys
import urllib.parse
from typing import Any, Literal

import msgspec

from trainmon.alerting.notify.channels.http import COME_AGAIN
from trainmon.lib import MASK, Seconds, clean, scrub, shorten_lines

Outcome = Literal["sent", "retry", "broken"]
Tone = Literal["info", "success", "warning", "failure"]


class Incident(msgspec.Struct, frozen=True):
    """One alert, for a service that opens and closes each by itself."""

    key: str
    """The same in every message about it, such as PagerDuty's dedup key."""
    is_over: bool
    title: str


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A message to send; without a body, a check whether apprise knows the service."""

    url: str
    body: str | None = None
    shorter: tuple[str, ...] = ()
    """Shorter and shorter forms of the body, for a service that limits its length."""
    title: str = ""
    tone: Tone = "info"
    files: tuple[str, ...] = ()
    """The paths of attachments."""
    key: str = ""
    """Identifies copies of one message, such as the Message-ID of a mail."""
    threads: tuple[str, ...] = ()
    """Identify what a mail program shows together with it."""
    incidents: tuple[Incident, ...] = ()
    """For a service that keeps incidents."""
    within: Seconds = 20.0


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The result. `text` holds no part of the address."""

    outcome: Outcome
    text: str = ""
    service: str = ""
    """Apprise's name of it: `Slack`."""
    recipients: int = 1
    """How many the address names."""


ERROR = re.compile(r"\berror=(\d{3,5})\b")
"""An HTTP status, or a code of the service: ntfy's codes begin with a status, Twilio's (20003) do not."""
STATUS = re.compile(r"\"status\": ?(\d{3})\b")
REASON = re.compile(r"\"error\": ?\"(\w{1,60})\"")
"""Slack answers 200 even when it refuses, and names the reason in the body."""
PASSING = frozenset({
    "ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable", "request_timeout",
})  # fmt: skip
BUSY = frozenset({20429, 20500, 20503, 20504})
"""Twilio's temporary errors."""
SMTP = re.compile(r"\((\d{3}), b?['\"](.{0,200}?)['\"]\)|refused: (\d{3}) (.{0,200})")
ERROR_LENGTH = 160
SHORT = 3
"""Shorter parts of an address are not masked: `to`, `yes`."""


class LogCapture(logging.Handler):
    """Keeps apprise's log. Its details hold addresses and tokens: they never leave this process as they are."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.levelno, record.getMessage()))


def main() -> None:
    """Carry out the request on standard input."""
    sys.stdout.buffer.write(msgspec.json.encode(answer(msgspec.json.decode(sys.stdin.buffer.read(), type=Request))))


def answer(request: Request) -> Answer:
    """Carry out one request."""
    import apprise

    capture = LogCapture()
    logger = logging.getLogger("apprise")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(capture)
    asset = apprise.AppriseAsset(storage_mode=apprise.PersistentStoreMode.MEMORY, async_mode=False)
    service: Any = apprise.Apprise.instantiate(request.url, asset=asset)
    if service is None:
        return Answer(outcome="broken", text=_unknown(request.url))
    name = clean(str(service.service_name or ""), 40)
    if request.body is None:
        return Answer(outcome="sent", service=name, recipients=len(service))
    service.request_rate_per_sec = 0  # 5.5 s between two requests, though this object sends once
    service.socket_connect_timeout = min(request.within, 10.0)
    service.socket_read_timeout = request.within
    mail: Any = sys.modules.get("apprise.plugins.email.base")
    if mail is not None and hasattr(mail, "make_msgid"):
        # There is no setting for it, and our own header would be a second one.
        mail.make_msgid = lambda domain="localhost", **_: message_id(request.key, domain)
        if request.threads:
            others = " ".join(message_id(key, service.smtp_host) for key in request.threads)
            service.headers |= {"In-Reply-To": others, "References": others}
    is_sent = _send(service, request, list(request.files))
    outcome, text = _judge(capture.lines)
    if not is_sent and request.files and (outcome == "broken" or "attach" in text.lower() or ".png" in text):
        capture.lines.clear()  # the files were refused or did not get through: the text matters more
        is_sent = _send(service, request, [])
        outcome, text = _judge(capture.lines)
    if is_sent:
        return Answer(outcome="sent", service=name)
    return Answer(outcome=outcome, text=masked(text, request.url), service=name)


def message_id(key: str, domain: str) -> str:
    """The same ID for copies of one message, so that a mail program shows them as one."""
    return f"<trainmon.{hashlib.sha256(key.encode()).hexdigest()[:32]}@{domain or 'localhost'}>"


def _send(service: Any, request: Request, files: list[str]) -> bool:
    """Send the message once. A service that keeps incidents gets it once for each: they end one by one."""
    import apprise

    assert request.body is not None
    sending = apprise.Apprise()
    sending.add(service)
    keeps_incidents = hasattr(service, "dedup") and hasattr(service, "action") and service.dedup is None
    incidents = request.incidents if keeps_incidents else ()
    results = []
    for incident in incidents or (None,):
        title = request.title
        if incident is not None:
            service.dedup, service.action = incident.key, "resolve" if incident.is_over else "trigger"
            title = request.title if len(incidents) == 1 else incident.title
        limit = max(1, service.body_maxlen - len(title) - 2)  # in characters; apprise would cut off the advice
        bodies = (body for body in (request.body, *request.shorter) if len(body) <= limit)
        results.append(
            sending.notify(
                body=next(bodies, None) or shorten_lines((request.body, *request.shorter)[-1], limit, "…")[0],
                title=title,
                notify_type=request.tone,
                body_format=apprise.NotifyFormat.TEXT,
                attach=files or None,
                timeout=request.within,
            )
        )
    return all(results)


def _judge(lines: list[tuple[int, str]]) -> tuple[Outcome, str]:
    """Whether another try may help, from what was logged."""
    texts = [text for _, text in reversed(lines)]
    warnings = (text for level, text in reversed(lines) if level >= logging.WARNING)
    last = next(warnings, "apprise gave no reason")
    if mail := next(filter(None, map(SMTP.search, texts)), None):
        code, text = int(mail[1] or mail[3]), mail[2] or mail[4] or ""
        return ("broken" if code >= 500 else "retry"), f"the mail server answers {code} {text}"
    response = next((text for text in texts if text.startswith("Response Details")), "")
    error = next(filter(None, map(ERROR.search, texts)), None)
    return _judge_code(int(error[1]), response, last) if error else ("retry", last)


def _judge_code(code: int, response: str, text: str) -> tuple[Outcome, str]:
    """The same from an error code; if that is no HTTP error, from the response of the service."""
    if code > 999:
        status = STATUS.search(response)
        own = code // 100
        if status is None and not 400 <= own < 600:
            return ("retry" if code in BUSY else "broken"), text
        code = int(status[1]) if status is not None else own
    if code < 400:
        reason = REASON.search(response)
        if reason is None:
            return "retry", text
        return ("retry" if reason[1] in PASSING else "broken"), f"it answers {reason[1]}"
    return ("retry" if code in COME_AGAIN or code >= 500 else "broken"), text


def _unknown(url: str) -> str:
    """Why apprise refused an address: the service is unknown, or the rest of the address is wrong."""
    import apprise

    schema = url.partition("://")[0].lower()
    services: list[dict[str, Any]] = apprise.Apprise().details()["schemas"]
    known = {str(name) for one in services for key in ("protocols", "secure_protocols") for name in one.get(key) or ()}
    if schema in known:
        return f"apprise cannot read what follows {schema}://; see its documentation of this service"
    near = difflib.get_close_matches(schema, known, n=1)
    return f"apprise knows no service {clean(schema, 40)}://" + (f"; did you mean {near[0]}://?" if near else "")


def masked(text: str, url: str) -> str:
    """The text without any part of the address that it may repeat."""
    rest = url.partition("://")[2]
    parts = {*re.split(r"[/:@?&=,+]", rest), *re.split(r"[/?&=]", rest)}
    parts |= {urllib.parse.unquote_plus(part) for part in parts}
    for part in sorted(parts, key=len, reverse=True):
        text = text.replace(part, MASK) if len(part) > SHORT else text
    return clean(scrub(text), ERROR_LENGTH)


if __name__ == "__main__":
    main()
