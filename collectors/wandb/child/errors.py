"""Errors of the SDK as RequestFailed with a message and a hint. No message contains the API key.

The server's HTTP status decides where the SDK passes it on. It does not for retried requests and failed connections:
there the message decides, or wandb-core's log. While wandb-core waits to retry, the SDK is silent, but the log gets a
line for each failed request.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

from collectors.wandb.child.convert import instant
from collectors.wandb.wire import FailureKind, RequestFailed
from trainmon.lib import MASK, Instant, TrainmonError, clean, last_state, scrub

MESSAGE_LENGTH = 300
CAUSES_AT_MOST = 6

RETRIED = re.compile(r"while retrying: HTTP (\d{3})\b")
STATUS = re.compile(r"\bHTTP (\d{3})\b|\breturned error (\d{3})\b")
KINDS: tuple[tuple[FailureKind, re.Pattern[str]], ...] = (
    ("key", re.compile(
        r"(?i)no api key|no authentication configured|api key (?:is empty|may only|must have|cannot start)"
        r"|are set, *which"
    )),
    ("absent", re.compile(
        r"(?i)could not find (?:project|run|entity)"
        r"|\b(?:project|run|entity|file)\b.{0,200}\b(?:not found|does not exist)"
    )),
    ("slow", re.compile(r"(?i)did not respond in time|timeout|timed out|deadline exceeded")),
    ("unreachable", re.compile(
        r"(?i)dial tcp|no such host|connection (?:refused|reset)|broken pipe|\bEOF\b|unreachable|tls:|x509|certificate"
        r"|proxyconnect|server misbehaving|malformed HTTP"
    )),
    ("unauthorized", re.compile(r"(?i)unauthorized|relogin required|invalid api key|not logged in")),
    ("forbidden", re.compile(r"(?i)permission denied|not authorized|forbidden")),
)  # fmt: skip
"""The kind by the message, if there is no status. The first match decides."""

KINDS_BY_STATUS: dict[int, FailureKind] = {
    401: "unauthorized", 403: "forbidden", 404: "absent", 408: "slow", 429: "busy", 504: "slow",
}  # fmt: skip
GONE = "the service process is not running"
FATAL = {"MailboxClosedError", "HandleAbandonedError", "BrokenPipeError", "ConnectionResetError"}
"""Errors after which wandb-core has ended. The SDK does not restart it."""

LOGIN = "log in with `wandb login`, or set WANDB_API_KEY"
HINTS: dict[FailureKind, str] = {
    "key": LOGIN,
    "unauthorized": "is this the key of an account of this server? " + LOGIN,
    "forbidden": "is this the key of an account that may read the project? ask the admin of its team",
    "absent": "are entity, project and run right, and may this account see them?",
    "unreachable": "can this machine reach it? WANDB_BASE_URL sets the address of a private server",
}
SENTENCES: dict[FailureKind, str] = {
    "busy": "W&B limits the request rate{code}",
    "server": "W&B's server failed{code}",
    "slow": "W&B did not answer in time{code}",
    "unreachable": "W&B cannot be reached: {message}",
    "unauthorized": "W&B rejects the API key{code}: {message}",
    "forbidden": "this W&B account has no access{code}: {message}",
    "key": "no API key for W&B: {message}",
}
"""The message for the operator. Other kinds show W&B's message alone."""

LOG_TAIL = 16_384
LOG_AT_MOST = 1 << 20
"""The maximum size of wandb-core's log in bytes."""


class NotFound(TrainmonError):
    """A project, a run or a file does not exist."""


class UnusableAnswer(TrainmonError):
    """An answer cannot be used."""


class LogLine(msgspec.Struct):
    """A line of wandb-core's log."""

    time: str = ""
    status: int | None = None


def request_failed(
    number: int, error: BaseException, *, key: str | None = None, status: int | None = None
) -> RequestFailed:
    """The error of the request with this id. `status`: the server's status, if it is known from elsewhere."""
    if is_fatal(error):
        return RequestFailed(id=number, kind="sdk", message="wandb-core, the SDK's own process, has ended")
    # The server's own message if there is one: the SDK wraps it in a longer one.
    answers = (getattr(getattr(cause, "response", None), "message", "") for cause in _chain(error))
    message = next((text for text in answers if isinstance(text, str) and text), str(error) or type(error).__name__)
    status = _status(error) or status or 0
    kind = _kind(error, message, status)
    if key and key.strip():
        message = message.replace(key, MASK)
    line = message.rsplit("while retrying: ", 1)[-1].replace("\n", " ")
    line = scrub(clean(last_state(line), MESSAGE_LENGTH)).strip()
    hint = getattr(error, "hint", None) or HINTS.get(kind)
    text = SENTENCES.get(kind, "{message}").format(code=f" ({status})" if status else "", message=line)
    return RequestFailed(id=number, kind=kind, message=text, hint=hint)


def is_fatal(error: BaseException) -> bool:
    """Whether the SDK cannot be used any more."""
    return any(GONE in str(cause) or type(cause).__name__ in FATAL for cause in _chain(error))


def _kind(error: BaseException, message: str, status: int) -> FailureKind:
    if isinstance(error, NotFound):
        return "absent"
    if isinstance(error, UnusableAnswer) or (isinstance(error, OSError) and not isinstance(error, TimeoutError)):
        return "sdk"  # for example, no permission to write to a directory
    if status:
        return KINDS_BY_STATUS.get(status, "server" if status >= 500 else "sdk")
    return next((kind for kind, pattern in KINDS if pattern.search(message)), "sdk")


def _status(error: BaseException) -> int:
    """The server's status: of the first answer, or of the retried one."""
    for cause in _chain(error):
        status = getattr(getattr(cause, "response", None), "http_status", 0)
        if isinstance(status, int) and status:
            return status
        found = RETRIED.search(str(cause)) or STATUS.search(str(cause))
        if found:
            return int(next(filter(None, found.groups())))
    return 0


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes; the SDK keeps some in `exc`."""
    cause: BaseException | None = error
    for _ in range(CAUSES_AT_MOST):
        if cause is None:
            return
        yield cause
        inner = getattr(cause, "exc", None)
        cause = cause.__cause__ or (inner if isinstance(inner, BaseException) else None) or cause.__context__


# ---- wandb-core's log --------------------------------------------------------------------------------------------


def last_status(directory: Path, since: Instant) -> int | None:
    """The HTTP status of the last request that wandb-core retries; None if there is none since then."""
    entries: list[tuple[Instant, int]] = []
    for log in _logs(directory):
        for text in log.read_bytes()[-LOG_TAIL:].splitlines():
            try:
                line = msgspec.json.decode(text, type=LogLine)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # cut off at the start, or another format
            at = instant(line.time[:26] + "Z" if line.time.endswith("Z") else line.time)
            if line.status and at is not None and at >= since:
                entries.append((at, line.status))
    return sorted(entries, key=lambda entry: entry[0])[-1][1] if entries else None


def keep_small(directory: Path) -> None:
    """Empty a log that grew too large: wandb-core never rotates it."""
    for log in _logs(directory):
        if log.stat().st_size > LOG_AT_MOST:
            os.truncate(log, 0)


def _logs(directory: Path) -> list[Path]:
    return sorted((directory / "wandb" / "logs").glob("core-debug*.log"))
