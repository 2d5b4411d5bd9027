"""The child process that sends through apprise: one question on standard input, one answer on standard output.

It gets the address on its standard input, because arguments can be seen by everybody on the machine. Apprise hides what
a server answered: it is read from apprise's own log, and what is not understood there is worth another try.
"""

from __future__ import annotations

import difflib
import hashlib
import logging
import re
import sys
import urllib.parse
from typing import Any

import msgspec

from trainmon.alerting.notify.channels.apprise.wire import Answer, Outcome, Question
from trainmon.alerting.notify.channels.http import COME_AGAIN
from trainmon.alerting.notify.message import fit
from trainmon.lib import MASK, Seconds, clean, scrub

ERROR = re.compile(r"\berror=(\d{3,5})\b")
"""A status of HTTP, or a code of the service's own: ntfy's begin with a status, Twilio's (20003) do not."""
STATUS = re.compile(r"\"status\": ?(\d{3})\b")
SAID = re.compile(r"\"error\": ?\"(\w{1,60})\"")
"""Slack answers 200 to what it refuses, and says by a name why."""
PASSING = frozenset({
    "ratelimited", "rate_limited", "internal_error", "fatal_error", "service_unavailable", "request_timeout",
})  # fmt: skip
BUSY = frozenset({20429, 20500, 20503, 20504})
"""Of Twilio's codes those that pass."""
SMTP = re.compile(r"\((\d{3}), b?['\"](.{0,200}?)['\"]\)|refused: (\d{3}) (.{0,200})")
WORDS = 160
SHORT = 3
"""Parts of an address that are not longer say nothing: `to`, `yes`."""
CONNECT_AT_MOST: Seconds = 10.0


class Heard(logging.Handler):
    """All that apprise says. Its details hold addresses and tokens: they never leave this process as they are."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.said: list[tuple[int, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append((record.levelno, record.getMessage()))


def main() -> None:
    """Answer the question that comes."""
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    sys.stdout.buffer.write(msgspec.json.encode(answer(question)))


def answer(question: Question) -> Answer:
    """What came of one question."""
    import apprise

    heard = Heard()
    logger = logging.getLogger("apprise")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(heard)
    asset = apprise.AppriseAsset(storage_mode=apprise.PersistentStoreMode.MEMORY, async_mode=False)
    service = apprise.Apprise.instantiate(question.url, asset=asset)
    if service is None:
        return Answer(outcome="broken", words=_unknown(question.url))
    name = clean(str(service.service_name or ""), 40)
    if question.body is None:
        return Answer(outcome="sent", service=name, recipients=len(service))
    _prepare(service, question)
    told = _told(service, question, list(question.files))
    if not told and question.files and _may_be_the_files(heard):
        heard.said.clear()  # what is told matters more
        told = _told(service, question, [])
    if told:
        return Answer(outcome="sent", service=name)
    outcome, words = _judge(heard)
    return Answer(outcome=outcome, words=masked(words, question.url), service=name)


def _prepare(service: Any, question: Question) -> None:
    """Take away what would hold a message up; give it a key that a second copy has, too."""
    service.request_rate_per_sec = 0  # 5.5 s between two requests, of an object that sends once
    service.socket_connect_timeout = min(question.within, CONNECT_AT_MOST)
    service.socket_read_timeout = question.within
    mail: Any = sys.modules.get("apprise.plugins.email.base")
    if mail is not None and hasattr(mail, "make_msgid"):
        # There is no setting for it, and a header of ours would be a second one.
        mail.make_msgid = lambda domain="localhost", **_: message_id(question.key, domain)


def message_id(key: str, domain: str) -> str:
    """The same for the same message, so that a mail program shows two copies as one."""
    return f"<trainmon.{hashlib.sha256(key.encode()).hexdigest()[:32]}@{domain or 'localhost'}>"


def _told(service: Any, question: Question, files: list[str]) -> bool:
    """Tell it once; where incidents are kept, once for each: they end one by one."""
    keeps = hasattr(service, "dedup") and hasattr(service, "action") and service.dedup is None
    if not keeps or not question.incidents:
        return _sent(service, question, question.title, files)
    told = []
    for incident in question.incidents:
        service.dedup, service.action = incident.key, "resolve" if incident.is_over else "trigger"
        title = question.title if len(question.incidents) == 1 else incident.title
        told.append(_sent(service, question, title, files))
    return all(told)


def _sent(service: Any, question: Question, title: str, files: list[str]) -> bool:
    import apprise

    assert question.body is not None
    room = service.body_maxlen - len(title) - 2
    body = _fitted((question.body, *question.shorter), max(1, room))
    sending = apprise.Apprise()
    sending.add(service)
    return bool(
        sending.notify(
            body=body,
            title=title,
            notify_type=question.tone,
            body_format=apprise.NotifyFormat.TEXT,
            attach=files or None,
            timeout=question.within,
        )
    )


def _fitted(bodies: tuple[str, ...], room: int) -> str:
    """The body in as many words as the service takes: it counts letters, and would cut off what is to be done."""
    found = next((body for body in bodies if len(body) <= room), None)
    return fit(bodies[-1], room, "…")[0] if found is None else found


def _judge(heard: Heard) -> tuple[Outcome, str]:
    """Whether another try may help, from what was logged."""
    warnings = [text for level, text in heard.said if level >= logging.WARNING]
    last = warnings[-1] if warnings else "apprise did not say why"
    for _, text in reversed(heard.said):
        mail = SMTP.search(text)
        if mail is not None:
            code, words = int(mail[1] or mail[3]), mail[2] or mail[4] or ""
            return ("broken" if code >= 500 else "retry"), f"the mail server says {code} {words}"
    for _, text in reversed(heard.said):
        error = ERROR.search(text)
        if error is not None:
            return _meant(int(error[1]), _answered(heard), last)
    return "retry", last


def _answered(heard: Heard) -> str:
    return next((text for _, text in reversed(heard.said) if text.startswith("Response Details")), "")


def _meant(code: int, answer: str, words: str) -> tuple[Outcome, str]:
    """What a number says; where it is no status of HTTP's refusals, what the service itself said."""
    if code > 999:
        status = STATUS.search(answer)
        own = code // 100
        if status is None and not 400 <= own < 600:
            return ("retry" if code in BUSY else "broken"), words
        code = int(status[1]) if status is not None else own
    if code < 400:
        said = SAID.search(answer)
        if said is None:
            return "retry", words
        return ("retry" if said[1] in PASSING else "broken"), f"it says {said[1]}"
    return ("retry" if code in COME_AGAIN or code >= 500 else "broken"), words


def _may_be_the_files(heard: Heard) -> bool:
    """Whether what is told may go without its files: they were refused, or it was they that did not get through. What
    did get through must not be told again and again for their sake."""
    outcome, words = _judge(heard)
    return outcome == "broken" or "attach" in words.lower() or ".png" in words


def _unknown(url: str) -> str:
    """Why apprise made nothing of an address: an unknown service, or one that wants more."""
    import apprise

    schema = url.partition("://")[0].lower()
    known = {str(name) for service in apprise.Apprise().details()["schemas"] for name in _schemas(service)}
    if schema in known:
        return f"apprise cannot read what follows {schema}://; its pages say what it wants"
    near = difflib.get_close_matches(schema, known, n=1)
    return f"apprise knows no service {clean(schema, 40)}://" + (f"; did you mean {near[0]}://?" if near else "")


def _schemas(service: dict[str, Any]) -> list[str]:
    return [*(service.get("protocols") or []), *(service.get("secure_protocols") or [])]


def masked(words: str, url: str) -> str:
    """Words of apprise's without any part of the address that they may repeat."""
    rest = url.partition("://")[2]
    parts = {*re.split(r"[/:@?&=,+]", rest), *re.split(r"[/?&=]", rest)}
    parts |= {urllib.parse.unquote_plus(part) for part in parts}
    for part in sorted(parts, key=len, reverse=True):
        if len(part) > SHORT:
            words = words.replace(part, MASK)
    return clean(scrub(words), WORDS)


if __name__ == "__main__":
    main()
