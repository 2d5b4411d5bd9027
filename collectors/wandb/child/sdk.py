"""Answers requests with the W&B SDK; its errors become RequestFailed with a message and a hint, without the API key.

Only the child process imports this module.

The server's HTTP status decides where the SDK passes it on. It does not for retried requests and failed connections:
there the message decides, or wandb-core's log. While wandb-core waits to retry, the SDK is silent, but the log gets a
line for each failed request.

The SDK's public API is used where one HTTP request is enough. `_run_at`, `sampled` and `core_process` use internals of
the SDK, each with a fallback.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import wandb
from wandb.apis import public
from wandb.sdk import wandb_setup

from collectors.wandb.child.convert import (
    filters,
    instant,
    is_safe_path,
    read_keys,
    read_metadata,
    read_points,
    read_run,
    read_samples,
    read_start,
)
from collectors.wandb.wire import (  # fmt: skip
    ActiveRuns,
    AnyAnswer,
    AnyRequest,
    ConsoleLines,
    FailureKind,
    FetchedFile,
    FetchFile,
    HistoryPoints,
    ListActive,
    ListRuns,
    PackedPoints,
    ReadConsole,
    ReadHistory,
    ReadMetadata,
    ReadViewer,
    RequestFailed,
    RunList,
    Viewer,
)
from trainmon.analysis.wandb.values import safe_text
from trainmon.lib import MASK, Instant, Seconds, TrainmonError, clean, last_state, scrub, size

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


# ---- answers requests with the W&B SDK -------------------------------------------------------------------------------

RUNS_KEPT = 200
"""The maximum number of cached run handles, of a few hundred bytes each."""

NEWEST_HEARTBEAT = "-heartbeat_at"
"""The order of a listing: in a large group, a resumed run may be older than all others, yet alive."""

NEWEST = "-created_at"
ACTIVE_AT_MOST = 50
"""Of more running runs, the newest are listed."""

TEAMS_AT_MOST = 50
FILE_AT_MOST = 200 << 20
METADATA = "wandb-metadata.json"
METADATA_AT_MOST = 1 << 20

SAMPLED_HISTORY = """
query RunSampledHistory($entity: String!, $project: String!, $name: String!, $specs: [JSONString!]!) {
    project(name: $project, entityName: $entity) { run(name: $name) { sampledHistory(specs: $specs) } }
}
"""


class Sdk:
    """Logs in with the first request. `directory` is for temporary files; `timeout` limits one HTTP request."""

    def __init__(self, directory: Path, timeout: Seconds) -> None:
        self._directory = directory
        self._timeout = max(1, int(timeout))
        self._api: public.Api | None = None
        self._runs: dict[str, public.Run] = {}

    @property
    def key(self) -> str | None:
        """The API key, which no answer may contain."""
        return self._api.api_key if self._api is not None else None

    def forget(self) -> None:
        """Log in again with the next request: the key may have changed."""
        self._api = None
        self._runs.clear()

    def answer(self, request: AnyRequest) -> AnyAnswer:
        """Send a request. Errors of the SDK pass through.

        Raises:
            NotFound: when there is no such run or file.
            UnusableAnswer: when the server's answer has another form.
        """
        match request:
            case ListRuns():
                return self._list(request)
            case ListActive():
                return self._list_active(request)
            case ReadHistory(id=number, path=path, keys=keys, since=since):
                rows = sampled(self._run_at(path), request)
                points = {key: read_points(key, rows[key], since.get(key)) for key in keys if key in rows}
                packed = {key: PackedPoints.of(new) for key, new in points.items() if new.steps}
                return HistoryPoints(id=number, path=path, points=packed)
            case ReadConsole(id=number, path=path, last=last):
                lines = list(self._run_at(path).console_logs(last=last))[-last:]
                return ConsoleLines(
                    id=number,
                    path=path,
                    numbers=tuple(line.number for line in lines),
                    lines=tuple(clean(line.content.rstrip("\n")) for line in lines),
                    times=tuple(line.timestamp.timestamp() if line.timestamp else None for line in lines),
                )
            case ReadMetadata(path=path):
                file = self._download(path, METADATA, METADATA_AT_MOST)
                try:
                    return read_metadata(request, json.loads(file.read_bytes()))
                except ValueError as error:
                    raise UnusableAnswer(f"{METADATA} of {path} is not JSON") from error
                finally:
                    file.unlink()
            case ReadViewer(id=number):
                viewer: Any = self._login("").viewer
                user, entity = (safe_text(getattr(viewer, name, None)) for name in ("username", "entity"))
                teams = tuple(filter(None, map(safe_text, viewer.teams[:TEAMS_AT_MOST])))
                return Viewer(id=number, user=user, entity=entity, teams=teams)
            case FetchFile(id=number, path=path, file=name, directory=directory):
                downloaded = self._download(path, name, FILE_AT_MOST)
                target = Path(directory, downloaded.name)  # the name is unique: the client puts a hash into it
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(downloaded, target)
                return FetchedFile(id=number, path=path, file=name, saved_as=str(target))

    def _login(self, entity: str) -> public.Api:
        """The login takes one request; a known entity saves another."""
        if self._api is None:
            self._api = wandb.Api(overrides={"entity": entity}, timeout=self._timeout)
        return self._api

    def _list(self, request: ListRuns) -> RunList:
        spec, limit = request.spec, request.limit
        api = self._login(spec.project.partition("/")[0])
        api.flush()  # type: ignore[no-untyped-call]  # otherwise it returns the last listing
        found = api.runs(spec.project, filters=filters(spec), order=NEWEST_HEARTBEAT, per_page=limit, lazy=False)
        runs = list(itertools.islice(found, limit))
        api.flush()  # type: ignore[no-untyped-call]  # free its copies
        # The configs of the response say how each run was started; the SDK's runs do not.
        response = found.last_response or {}
        edges = ((response.get("project") or {}).get("runs") or {}).get("edges") or []
        nodes = [edge.get("node") or {} for edge in edges]
        starts = {str(node.get("name")): read_start(node.get("config")) for node in nodes}
        listed = [read_run(run, spec, starts.get(str(run.id), {})) for run in runs]
        samples = {str(run.id): read_samples(run.summary_metrics) for run in runs}
        return RunList(
            id=request.id,
            runs=tuple(sorted(listed, key=lambda run: run.created_at or 0.0, reverse=True)),
            samples={name: some for name, some in samples.items() if some},
            history_keys={str(run.id): read_keys(run.history_keys) for run in runs},
        )

    def _list_active(self, request: ListActive) -> ActiveRuns:
        project = request.specs[0].project
        api = self._login(project.partition("/")[0])
        api.flush()  # type: ignore[no-untyped-call]  # otherwise it returns the last listing
        wanted = {"$and": [{"state": "running"}, {"$or": [filters(spec) for spec in request.specs]}]}
        found = api.runs(project, filters=wanted, order=NEWEST, per_page=ACTIVE_AT_MOST, lazy=True)
        names = tuple(str(run.id) for run in itertools.islice(found, ACTIVE_AT_MOST))
        api.flush()  # type: ignore[no-untyped-call]  # free its copies
        return ActiveRuns(id=request.id, names=names)

    def _download(self, path: str, name: str, at_most: int) -> Path:
        """Download a file of a run into our own directory: two requests."""
        if not is_safe_path(name):
            raise NotFound(f"{clean(name)} is not a valid file name")
        file = next(iter(self._run_at(path).files(names=[name], per_page=1)), None)
        if file is None:
            raise NotFound(f"{path} has no file {name}, or has not uploaded it yet")
        if file.size > at_most:
            raise UnusableAnswer(f"{name} is too large: {size(file.size)}, the limit is {size(at_most)}")
        file.download(root=str(self._directory / "files"), replace=True).close()
        return self._directory / "files" / name

    def _run_at(self, path: str) -> public.Run:
        """A handle for requests about a run; made without a request if the SDK allows it."""
        if path not in self._runs:
            entity, project, run = path.split("/")
            api = self._login(entity)
            service = getattr(api, "_service_api", None)
            while len(self._runs) >= RUNS_KEPT:
                del self._runs[next(iter(self._runs))]
            self._runs[path] = (
                api.run(path) if service is None else public.Run(service, entity, project, run, {"name": run})
            )
        return self._runs[path]


def core_process() -> int | None:
    """Start wandb-core if it does not run yet. Returns its process id; None if the SDK does not know it."""
    process = getattr(getattr(wandb_setup.singleton().ensure_service(), "_proc", None), "_process", None)
    pid = getattr(process, "pid", None)
    return pid if isinstance(pid, int) else None


def sampled(run: Any, request: ReadHistory) -> dict[str, list[Any]]:
    """The rows of each metric, all in one request. The SDK's own call needs one request per metric: it returns only
    rows that have all the metrics of the call.

    Raises:
        NotFound: when there is no such run.
    """
    specs: list[dict[str, Any]] = [
        {"keys": ["_step", "_timestamp", key], "samples": request.samples}
        | ({"minStep": int(request.since[key])} if key in request.since else {})
        for key in request.keys
    ]
    service: Any = getattr(run, "_service_api", None)
    if hasattr(service, "execute_graphql"):
        variables = {"entity": run.entity, "project": run.project, "name": run.id}
        response = service.execute_graphql(SAMPLED_HISTORY, variables | {"specs": list(map(json.dumps, specs))})
        found = ((response or {}).get("project") or {}).get("run")
        if found is None:
            raise NotFound(f"there is no run {request.path}")
        rows = found.get("sampledHistory") or []
        if len(rows) == len(specs):  # otherwise the server reads one spec per request only
            return dict(zip(request.keys, rows, strict=True))
    return {key: run.history(samples=request.samples, keys=["_timestamp", key], pandas=False) for key in request.keys}
