"""Converts what W&B's server returns about a run, and the SDK's errors, into our model: bounded, without secrets. Pure.

A `run` here is the SDK's own object. Only its public attributes are read; a server may leave any of them out.

An error becomes RequestFailed with a message and a hint. The server's HTTP status decides where the SDK passes it on.
It does not for retried requests and lost connections: there the message decides, or wandb-core's log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, TypeGuard

import msgspec

from collectors.wandb.login import LOGIN_HINT
from collectors.wandb.wire import FailureKind, ReadMetadata, RequestFailed, RunMetadata
from trainmon.analysis.wandb import metric_names
from trainmon.analysis.wandb.metric_names import (
    MEDIA,
    NAME_LENGTH,
    integer,
    leaves,
    mapping,
    number,
    read_config,
    read_summary,
    safe_text,
)
from trainmon.lib import MASK, Instant, TrainmonError, clean, last_state, scrub
from trainmon.model import Points, Sample, WandbRun, WandbSpec

# ---- converts what W&B's server returns about a run into our model ---------------------------------------------------

KEYS_AT_MOST = 1_000
"""The maximum number of metrics of a history."""

TAGS_AT_MOST = 50


def instant(text: object) -> Instant | None:
    """Unix seconds of `2026-01-31T12:00:00`; a time without a zone is UTC."""
    try:
        time = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    return None if time is None else (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def read_run(run: Any, spec: WandbSpec, start: Mapping[str, Any]) -> WandbRun:
    """A listed run. `start` is the result of `read_start`."""
    summary = mapping(getattr(run, "summary_metrics", None))
    step = integer(summary.get("_step"))
    tags = getattr(run, "tags", None)
    return WandbRun(
        entity=str(run.entity),
        project=str(run.project),
        id=str(run.id),
        name=safe_text(run.name) or str(run.id),
        state=safe_text(run.state, 40) or "unknown",
        group=safe_text(getattr(run, "group", None)),
        url=safe_text(run.url, 1_000),
        created_at=instant(getattr(run, "created_at", None)),
        heartbeat_at=instant(getattr(run, "heartbeat_at", None)),
        logged_at=number(summary.get("_timestamp")),
        step=step if step is not None else integer(mapping(getattr(run, "history_keys", None)).get("lastStep")),
        lines=integer(getattr(run, "history_line_count", None)),
        tags=tuple(filter(None, map(safe_text, tags[:TAGS_AT_MOST] if isinstance(tags, list | tuple) else ()))),
        user=safe_text(getattr(getattr(run, "user", None), "username", None)),
        host=safe_text(start.get("host")),
        commit=safe_text(getattr(run, "commit", None)) or safe_text(mapping(start.get("git")).get("commit")),
        summary=read_summary(summary, spec.charts),
        config=read_config(mapping(getattr(run, "config", None))),
    )


def read_keys(history_keys: object) -> tuple[str, ...]:
    """The numeric metrics of a history, by name. A name that must be cleaned is left out: it cannot be requested."""
    names = []
    for key, facts in sorted(mapping(mapping(history_keys).get("keys")).items()):
        counts = mapping(facts).get("typeCounts")
        types = [mapping(count).get("type") for count in counts] if isinstance(counts, list) else []
        if "number" in types and not key.startswith("_") and clean(key, NAME_LENGTH) == key:
            names.append(key)
    if len(names) > KEYS_AT_MOST:  # the loss must not be dropped for thousands of evaluation metrics
        names = list(dict.fromkeys((*metric_names.choose((), names), *names)))
    return tuple(names[:KEYS_AT_MOST])


def read_start(config: object) -> Mapping[str, Any]:
    """Where and from what a run was started. The client writes it into the config since 0.19.

    `config` is the server's text: the SDK drops this part when it decodes it.
    """
    try:
        decoded = msgspec.json.decode(config) if isinstance(config, str) else config
    except msgspec.DecodeError:
        return {}
    own = mapping(mapping(decoded).get("_wandb"))
    return next(map(mapping, mapping(mapping(own.get("value", own)).get("e")).values()), {})


def filters(spec: WandbSpec) -> dict[str, Any]:
    """The filter for the runs of a spec, as the server takes it: all conditions must hold."""
    display = None if spec.display is None else {"$regex": spec.display}
    named = (("group", spec.group), ("name", spec.run), ("display_name", display))
    wanted: list[dict[str, Any]] = [{"tags": {"$in": [tag]}} for tag in spec.tags]
    wanted += [{name: value} for name, value in named if value is not None]
    return wanted[0] if len(wanted) == 1 else {"$and": wanted} if wanted else {}


def read_points(key: str, rows: Iterable[Any] | None, since: float | None) -> Points:
    """A curve from the server's rows. A row without a number is left out; nan and infinities are numbers."""
    points: list[tuple[float, float, float]] = []
    for row in rows or ():
        if isinstance(row, Mapping):
            step, at, value = (number(row.get(name)) for name in ("_step", "_timestamp", key))
            if step is not None and at is not None and value is not None and (since is None or step >= since):
                points.append((step, at, value))
    return Points(*map(list, zip(*points, strict=True))) if points else Points([], [], [])


def read_metadata(request: ReadMetadata, file: object) -> RunMetadata:
    """The content of `wandb-metadata.json`."""
    content = mapping(file)
    return RunMetadata(
        id=request.id,
        path=request.path,
        host=safe_text(content.get("host")),
        user=safe_text(content.get("username")),
        commit=safe_text(mapping(content.get("git")).get("commit")),
    )


# ---- the newest samples of a run, as its summary names them ----------------------------------------------------------

SAMPLES_AT_MOST = 50

SAMPLE_KINDS = {
    "image-file": "image", "images/separated": "image", "images": "image", "video-file": "video", "videos": "video",
    "table-file": "table", "audio-file": "audio", "audio": "audio", "html-file": "html", "object3D-file": "object3D",
}  # fmt: skip
"""The kind of a sample by the `_type` in W&B's summary."""

STEP = re.compile(r"_(\d{1,15})_[0-9a-f]{4,64}(?:\.[\w.]{1,40})?$")
"""`media/images/val_120_ab12cd.png`: the name contains the step and a hash."""


def read_samples(summary: Mapping[str, Any]) -> tuple[Sample, ...]:
    """The newest sample of each metric that has some, the latest step first."""
    media = ((key, value) for key, value in leaves(summary, MEDIA) if MEDIA in mapping(value))
    found = [sample for key, value in media if (sample := _sample(key, value)) is not None]
    found.sort(key=lambda sample: (-(sample.step if sample.step is not None else -1), sample.key))
    return tuple(found[:SAMPLES_AT_MOST])


def _sample(key: str, value: Mapping[str, Any]) -> Sample | None:
    files = next((value[name] for name in ("filenames", "videos", "audio") if _is_filled(value.get(name))), None)
    first = value if files is None else files[0] if isinstance(files[0], Mapping) else {**value, "path": files[0]}
    captions = value.get("captions")
    caption = captions[0] if _is_filled(captions) else value.get("caption")
    kind, path = SAMPLE_KINDS.get(str(value[MEDIA])), first.get("path")
    if kind is None or not isinstance(path, str) or not is_safe_path(path):
        return None
    step = STEP.search(path)
    notes = [f"the first of {len(files):,}"] if files is not None and len(files) > 1 else []
    if kind == "video":
        is_gif = path.lower().endswith(".gif")
        notes.append("a video: its first frame is shown" if is_gif else "a video: it cannot be drawn here")
    return Sample(
        key=safe_text(key) or "?",
        kind=kind,
        file=path,
        step=int(step[1]) if step else None,
        bytes=integer(first.get("size")),
        width=integer(first.get("width")),
        height=integer(first.get("height")),
        caption=safe_text(caption if caption is not None else first.get("caption")),
        note="; ".join(notes) or None,
    )


def _is_filled(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list) and len(value) > 0


def is_safe_path(path: str) -> bool:
    """Whether a file's name is safe to show, and stays below the run's own files."""
    parts = PurePosixPath(path)
    return clean(path) == path != "" and not parts.is_absolute() and ".." not in parts.parts and "\\" not in path


# ---- errors of the SDK as RequestFailed with a message and a hint ----------------------------------------------------

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

HINTS: dict[FailureKind, str] = {
    "key": LOGIN_HINT,
    "unauthorized": "use the key of an account of this server; " + LOGIN_HINT,
    "forbidden": "use the key of an account that may read the project, or ask the admin of its team",
    "absent": "check entity, project and run, and that this account may see them",
    "unreachable": "check that this machine can reach it; WANDB_BASE_URL sets the address of a private server",
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


class NotFound(TrainmonError):
    """A project, a run or a file does not exist."""


class UnusableAnswer(TrainmonError):
    """An answer cannot be used."""


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
