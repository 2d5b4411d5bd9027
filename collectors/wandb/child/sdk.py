"""W&B's own client, asked for what one request of ours wants. Only the child of collectors/wandb_child.py imports it.

The public API is used where it does the job in one HTTP request. What of its inside is touched is in `_of_path`,
`sampled` and `sidecar`, each with a way on where a later SDK has it no more.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb
from wandb.apis import public
from wandb.sdk import wandb_setup

from collectors.wandb.child.convert import (
    filters,
    newest_first,
    read_facts,
    read_keys,
    read_points,
    read_run,
    read_start,
    shown,
)
from collectors.wandb.child.errors import NotFound, UnusableAnswer
from collectors.wandb.child.media import is_tame, read_samples
from collectors.wandb.wire import (  # fmt: skip
    AnyAnswer,
    AnyRequest,
    ConsoleLines,
    FetchedFile,
    FetchFile,
    HistoryPoints,
    ListRuns,
    PackedPoints,
    ReadConsole,
    ReadHistory,
    ReadMetadata,
    ReadViewer,
    RunList,
    RunMetadata,
    Viewer,
)
from trainmon.lib import Seconds, clean

RUNS_KEPT = 200
"""Handles of runs: a few hundred bytes each."""

BEATING = "-heartbeat_at"
"""Of a large group the runs that live, or lived last: one that was resumed may be older than all that is listed."""

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
    """A login, made with the first request. `directory` is where files may lie for a moment, `timeout` that of one
    HTTP request."""

    def __init__(self, directory: Path, timeout: Seconds) -> None:
        self._directory = directory
        self._timeout = max(1, int(timeout))
        self._api: public.Api | None = None
        self._runs: dict[str, public.Run] = {}

    @property
    def key(self) -> str | None:
        """What must be in no answer."""
        return self._api.api_key if self._api is not None else None

    def forget(self) -> None:
        """Log in anew with the next request: the key may be another by then."""
        self._api = None
        self._runs.clear()

    def answer(self, asked: AnyRequest) -> AnyAnswer:
        if isinstance(asked, ListRuns):
            return self._list(asked)
        if isinstance(asked, ReadHistory):
            return self._history(asked)
        if isinstance(asked, ReadConsole):
            return self._console(asked)
        if isinstance(asked, ReadMetadata):
            return self._facts(asked)
        if isinstance(asked, ReadViewer):
            return self._viewer(asked)
        return self._fetch(asked)

    def _login(self, entity: str) -> public.Api:
        """The login takes a request of its own; an entity saves another."""
        if self._api is None:
            self._api = wandb.Api(overrides={"entity": entity}, timeout=self._timeout)
        return self._api

    def _list(self, asked: ListRuns) -> RunList:
        spec = asked.spec
        api = self._login(spec.project.partition("/")[0])
        api.flush()  # type: ignore[no-untyped-call]  # it would tell the runs of last time
        found = api.runs(spec.project, filters=filters(spec), order=BEATING, per_page=asked.limit, lazy=False)
        runs = list(itertools.islice(found, asked.limit))
        api.flush()  # type: ignore[no-untyped-call]  # nor need it keep these
        starts = _starts(found.last_response)
        samples = {str(run.id): read_samples(run.summary_metrics) for run in runs}
        return RunList(
            id=asked.id,
            runs=newest_first(read_run(run, spec, starts.get(str(run.id), {})) for run in runs),
            samples={run: seen for run, seen in samples.items() if seen},
            history_keys={str(run.id): read_keys(run.history_keys) for run in runs},
        )

    def _history(self, asked: ReadHistory) -> HistoryPoints:
        run = self._of_path(asked.path)
        rows = sampled(run, asked)
        points = {key: read_points(key, rows[key], asked.since.get(key)) for key in asked.keys if key in rows}
        return HistoryPoints(
            id=asked.id,
            path=asked.path,
            points={key: PackedPoints.of(some) for key, some in points.items() if some.steps},
        )

    def _console(self, asked: ReadConsole) -> ConsoleLines:
        told = list(self._of_path(asked.path).console_logs(last=asked.last))[-asked.last :]
        return ConsoleLines(
            id=asked.id,
            path=asked.path,
            numbers=tuple(line.number for line in told),
            lines=tuple(clean(line.content.rstrip("\n")) for line in told),
            times=tuple(line.timestamp.timestamp() if line.timestamp else None for line in told),
        )

    def _facts(self, asked: ReadMetadata) -> RunMetadata:
        kept = self._download(asked.path, METADATA, METADATA_AT_MOST)
        try:
            told = json.loads(kept.read_bytes())
        except ValueError as error:
            raise UnusableAnswer(f"{METADATA} of {asked.path} is no JSON") from error
        finally:
            kept.unlink()
        return read_facts(asked, told)

    def _viewer(self, asked: ReadViewer) -> Viewer:
        told: Any = self._login("").viewer
        teams = (shown(team) for team in told.teams[:TEAMS_AT_MOST])
        return Viewer(
            id=asked.id,
            user=shown(getattr(told, "username", None)),
            entity=shown(getattr(told, "entity", None)),
            teams=tuple(team for team in teams if team),
        )

    def _fetch(self, asked: FetchFile) -> FetchedFile:
        """One file under its own last name: the client puts a hash into the names of media."""
        kept = self._download(asked.path, asked.file, FILE_AT_MOST)
        there = Path(asked.directory, kept.name)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(kept, there)
        return FetchedFile(id=asked.id, path=asked.path, file=asked.file, kept=str(there))

    def _download(self, path: str, name: str, at_most: int) -> Path:
        """A file of a run in our own directory: two requests."""
        if not is_tame(name):
            raise NotFound(f"{clean(name)} is no name of a run's file")
        found = next(iter(self._of_path(path).files(names=[name], per_page=1)), None)
        if found is None:
            raise NotFound(f"{path} has no file {name}, or has not sent it yet")
        if found.size > at_most:
            raise UnusableAnswer(f"{name} has {found.size:,} bytes: more than {at_most:,} are not fetched")
        found.download(root=str(self._directory / "files"), replace=True).close()
        return self._directory / "files" / name

    def _of_path(self, path: str) -> public.Run:
        """A run to ask of: made without a request where the SDK lets us, and without what it knows of itself."""
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


def sidecar() -> int | None:
    """Start wandb-core, if it does not run yet, and say its process; None where the SDK does not tell."""
    process = getattr(getattr(wandb_setup.singleton().ensure_service(), "_proc", None), "_process", None)
    pid = getattr(process, "pid", None)
    return pid if isinstance(pid, int) else None


def _starts(told: Any) -> dict[str, Mapping[str, Any]]:
    """By the run's id, what the configs of a listing say of its start; they are not in the SDK's runs."""
    edges = (((told or {}).get("project") or {}).get("runs") or {}).get("edges") or []
    nodes = [edge.get("node") or {} for edge in edges]
    return {str(node.get("name")): read_start(node.get("config")) for node in nodes}


def sampled(run: Any, asked: ReadHistory) -> dict[str, list[Any]]:
    """The rows of each metric. The SDK's own call asks for one set of metrics that were logged together; several
    specs in one request are several curves for the price of one."""
    service: Any = getattr(run, "_service_api", None)
    if not hasattr(service, "execute_graphql"):
        return _one_by_one(run, asked)
    specs = [json.dumps(_spec(key, asked)) for key in asked.keys]
    of = {"entity": run.entity, "project": run.project, "name": run.id, "specs": specs}
    told = service.execute_graphql(SAMPLED_HISTORY, of)
    found = ((told or {}).get("project") or {}).get("run")
    if found is None:
        raise NotFound(f"there is no run {asked.path}")
    rows = found.get("sampledHistory") or []
    if len(rows) != len(specs):  # a server that knows of one spec a request, as the SDK sends it
        return _one_by_one(run, asked)
    return dict(zip(asked.keys, rows, strict=True))


def _one_by_one(run: Any, asked: ReadHistory) -> dict[str, list[Any]]:
    """The SDK's own way, a request a curve."""
    return {key: run.history(samples=asked.samples, keys=["_timestamp", key], pandas=False) for key in asked.keys}


def _spec(key: str, asked: ReadHistory) -> dict[str, Any]:
    spec: dict[str, Any] = {"keys": ["_step", "_timestamp", key], "samples": asked.samples}
    if key in asked.since:
        spec["minStep"] = int(asked.since[key])
    return spec
