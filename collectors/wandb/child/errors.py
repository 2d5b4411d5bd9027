"""Errors of the SDK as RequestFailed with a message and a hint. Pure; no message contains the API key.

The server's HTTP status decides where the SDK passes it on. It does not for retried requests and failed connections:
there the message decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from collectors.wandb.wire import FailureKind, RequestFailed
from trainmon.lib import MASK, TrainmonError, clean, last_state, scrub

WORDS_LENGTH = 300
CAUSES_AT_MOST = 6

RETRIED = re.compile(r"while retrying: HTTP (\d{3})\b")
STATUS = re.compile(r"\bHTTP (\d{3})\b|\breturned error (\d{3})\b")
SLOW = re.compile(r"(?i)did not respond in time|timeout|timed out|deadline exceeded")
UNREACHABLE = re.compile(
    r"(?i)dial tcp|no such host|connection (?:refused|reset)|broken pipe|\bEOF\b|unreachable|tls:|x509|certificate"
    r"|proxyconnect|server misbehaving|malformed HTTP"
)
ABSENT = re.compile(
    r"(?i)could not find (?:project|run|entity)|\b(?:project|run|entity|file)\b.{0,200}\b(?:not found|does not exist)"
)
REFUSED = re.compile(r"(?i)unauthorized|relogin required|invalid api key|not logged in")
FORBIDDEN = re.compile(r"(?i)permission denied|not authorized|forbidden")
KEYLESS = re.compile(
    r"(?i)no api key|no authentication configured|api key (?:is empty|may only|must have|cannot start)|are set, *which"
)
GONE = "the service process is not running"
FATAL = {"MailboxClosedError", "HandleAbandonedError", "BrokenPipeError", "ConnectionResetError"}
"""Signs that wandb-core has ended: a message, an error without one, or a socket error. The SDK does not restart it."""

LOGIN = "log in with `wandb login`, or set WANDB_API_KEY"
HINTS: dict[FailureKind, str] = {
    "key": LOGIN,
    "unauthorized": "is this the key of an account of this server? " + LOGIN,
    "forbidden": "is this the key of an account that may read the project? its team's admin can say",
    "absent": "are entity, project and run right, and may this account see them?",
    "unreachable": "can this machine reach it? WANDB_BASE_URL says where a server of your own is",
}


class NotFound(TrainmonError):
    """A project, a run or a file does not exist."""


class UnusableAnswer(TrainmonError):
    """An answer cannot be used."""


def failed(number: int, error: BaseException, *, key: str | None = None, status: int | None = None) -> RequestFailed:
    """The error of the request with this id. `status`: the server's status, if it is known from elsewhere."""
    words, status = _words(error), _status(error) or status or 0
    if is_fatal(error):
        return RequestFailed(id=number, kind="sdk", words="wandb-core, which asks W&B for the SDK, has ended")
    kind = _kind(error, words, status)
    if key and key.strip():
        words = words.replace(key, MASK)
    hint = getattr(error, "hint", None) or HINTS.get(kind)
    code = f" ({status})" if status else ""
    sentence = SENTENCES.get(kind, "{message}").format(code=code, message=_short(words))
    return RequestFailed(id=number, kind=kind, words=sentence, hint=hint)


def is_fatal(error: BaseException) -> bool:
    """Whether the SDK cannot be used any more."""
    return any(GONE in str(one) or type(one).__name__ in FATAL for one in _chain(error))


def _kind(error: BaseException, words: str, status: int) -> FailureKind:
    if isinstance(error, NotFound):
        return "absent"
    if isinstance(error, UnusableAnswer) or (isinstance(error, OSError) and not isinstance(error, TimeoutError)):
        return "sdk"  # for example, no permission to write to a directory
    if status:
        return _kind_of_status(status)
    for kind, pattern in _READ:
        if pattern.search(words):
            return kind
    return "sdk"


def _kind_of_status(status: int) -> FailureKind:
    kinds: dict[int, FailureKind] = {
        401: "unauthorized", 403: "forbidden", 404: "absent", 408: "slow", 429: "busy", 504: "slow",
    }  # fmt: skip
    return kinds.get(status, "server" if status >= 500 else "sdk")


_READ: tuple[tuple[FailureKind, re.Pattern[str]], ...] = (
    ("key", KEYLESS),
    ("absent", ABSENT),
    ("slow", SLOW),
    ("unreachable", UNREACHABLE),
    ("unauthorized", REFUSED),
    ("forbidden", FORBIDDEN),
)


def _status(error: BaseException) -> int:
    """The server's status: of the first answer, or of the retried one."""
    for one in _chain(error):
        told = getattr(getattr(one, "response", None), "http_status", 0)
        if isinstance(told, int) and told:
            return told
        found = RETRIED.search(str(one)) or STATUS.search(str(one))
        if found:
            return int(next(filter(None, found.groups())))
    return 0


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes; the SDK keeps some in `exc`."""
    one: BaseException | None = error
    for _ in range(CAUSES_AT_MOST):
        if one is None:
            return
        yield one
        inner = getattr(one, "exc", None)
        one = one.__cause__ or (inner if isinstance(inner, BaseException) else None) or one.__context__


def _words(error: BaseException) -> str:
    """The server's own message if there is one: the SDK wraps it in a longer one."""
    told = (getattr(getattr(one, "response", None), "message", "") for one in _chain(error))
    return next((words for words in told if isinstance(words, str) and words), str(error) or type(error).__name__)


def _short(words: str) -> str:
    """On one line, without the SDK's count of retries."""
    line = words.rsplit("while retrying: ", 1)[-1]
    return scrub(clean(last_state(line.replace("\n", " ")), WORDS_LENGTH)).strip()


SENTENCES: dict[FailureKind, str] = {
    "busy": "W&B asks for fewer requests{code}",
    "server": "W&B's server fails{code}",
    "slow": "W&B does not answer in time{code}",
    "unreachable": "W&B cannot be reached: {message}",
    "unauthorized": "W&B refuses the key{code}: {message}",
    "forbidden": "W&B does not let this account see it{code}: {message}",
    "key": "no key for W&B: {message}",
}
"""The other kinds have the message alone."""
