"""Answers requests with the W&B SDK. Only the child process imports this module, with the first request.

The SDK's public API is used where one HTTP request is enough. `_run_at`, `sampled` and `core_process` use internals of
the SDK, each with a fallback.
"""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import wandb
from wandb.apis import public
from wandb.sdk import wandb_setup

from collectors.wandb.convert import (
    NotFound,
    UnusableAnswer,
    filters,
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
    RunList,
    Viewer,
)
from trainmon.analysis.wandb.metric_names import safe_text
from trainmon.lib import Seconds, clean, size

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
