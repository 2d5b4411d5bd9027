"""The types of the W&B server's GraphQL, as far as the client asks for them: each field a function of the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.lab.wandb_filters import in_order, matches
from tests.lab.wandb_graphql import Fields
from tests.lab.wandb_store import LINES_AT_MOST, ConsoleLine, Store, StoredFile, StoredRun, iso, parsed

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Root:
    """Query and mutation: the whole server, and who asks."""

    store: Store
    now: float
    entity: str
    features: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Project:
    root: Root
    entity: str
    name: str

    @property
    def runs(self) -> list[StoredRun]:
        return self.root.store.of_project(self.entity, self.name)


@dataclass(frozen=True, slots=True)
class Record:
    """An object whose fields are what it holds."""

    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Connection:
    """A page of a list, with the cursors that lead on."""

    nodes: tuple[Any, ...]
    cursors: tuple[str, ...]
    has_next: bool


@dataclass(frozen=True, slots=True)
class Edge:
    node: Any
    cursor: str


def page(nodes: list[Any], arguments: Arguments) -> Connection:
    start = int(arguments.get("after") or 0)
    first = arguments.get("first")
    end = len(nodes) if first is None else min(start + int(first), len(nodes))
    return Connection(tuple(nodes[start:end]), tuple(str(at + 1) for at in range(start, end)), end < len(nodes))


def held(*names: str) -> Fields:
    """Fields of a record; one that it was made without is null."""
    return {name: _holding(name) for name in names}


def _holding(name: str) -> Callable[[Any, Arguments], Any]:
    return lambda record, _: record.values.get(name)


def _reading(name: str) -> Callable[[Any, Arguments], Any]:
    return lambda line, _: getattr(line, name)


# ---- runs ----------------------------------------------------------------------------------------------------------


def runs_of(project: Project, arguments: Arguments) -> list[StoredRun]:
    filters = json.loads(arguments.get("filters") or "{}")
    facts = [run.facts | {"run": run} for run in project.runs]
    return [each["run"] for each in in_order(arguments.get("order"), facts) if matches(filters, each)]


def history_of(run: StoredRun, arguments: Arguments) -> list[str]:
    low, high = arguments.get("minStep"), arguments.get("maxStep")
    rows = [
        row
        for row in run.history
        if (low is None or row["_step"] >= int(low)) and (high is None or row["_step"] < int(high))
    ]
    return [json.dumps(row) for row in rows[: int(arguments.get("samples") or 500)]]


def lines_of(run: StoredRun, arguments: Arguments) -> Connection:
    lines = [run.console[number] for number in sorted(run.console)]
    if arguments.get("last") is not None:
        lines = lines[-min(int(arguments["last"]), LINES_AT_MOST) :]
    return page(lines, {"first": LINES_AT_MOST} | {name: value for name, value in arguments.items() if value})


def files_of(run: StoredRun, arguments: Arguments) -> Connection:
    wanted, pattern = arguments.get("names") or (), arguments.get("pattern")
    found = [file for name, file in sorted(run.files.items()) if (not wanted or name in wanted)]
    if pattern:  # of SQL: % is anything
        start, _, end = pattern.partition("%")
        found = [file for file in found if file.name.startswith(start) and file.name.endswith(end)]
    return page(found, arguments)


RUN: Fields = {
    "id": lambda run, _: run.storage_id,
    "name": lambda run, _: run.id,
    "displayName": lambda run, _: run.display_name,
    "projectId": lambda run, _: "41",
    "project": lambda run, _: _project_of(run),
    "tags": lambda run, _: [*run.tags],
    "sweepName": lambda run, _: None,
    "state": lambda run, _: run.state,
    "config": lambda run, _: json.dumps(run.config),
    "wandbConfig": lambda run, _: json.dumps({"t": run.config.get("_wandb", {}).get("value", {}).get("t", {})}),
    "group": lambda run, _: run.group,
    "jobType": lambda run, _: run.job_type,
    "commit": lambda run, _: run.commit,
    "host": lambda run, _: run.host,
    "readOnly": lambda run, _: False,
    "createdAt": lambda run, _: iso(run.created_at) + "Z",  # the newer servers say it
    "heartbeatAt": lambda run, _: iso(run.heartbeat_at),
    "updatedAt": lambda run, _: iso(run.heartbeat_at),
    "description": lambda run, _: "",
    "notes": lambda run, _: run.notes,
    "systemMetrics": lambda run, _: json.dumps(run.events[-1] if run.events else {}),
    "summaryMetrics": lambda run, _: json.dumps(run.summary),
    "historyLineCount": lambda run, _: len(run.history),
    "eventsLineCount": lambda run, _: len(run.events),
    "logLineCount": lambda run, _: len(run.console),
    "historyTail": lambda run, _: json.dumps([json.dumps(row) for row in run.history[-1:]]),
    "eventsTail": lambda run, _: json.dumps([json.dumps(row) for row in run.events[-1:]]),
    "user": lambda run, _: Record({"name": run.username, "username": run.username}),
    "historyKeys": lambda run, _: run.history_keys,
    "history": history_of,
    "events": lambda run, arguments: [json.dumps(row) for row in run.events[-int(arguments.get("samples") or 500) :]],
    "sampledHistory": lambda run, arguments: [run.sampled(json.loads(spec)) for spec in arguments["specs"]],
    "parquetHistory": lambda run, _: Record({"parquetUrls": [], "liveData": [*run.history]}),
    "logLines": lines_of,
    "files": files_of,
    "fileCount": lambda run, _: len(run.files),
    "stopped": lambda run, _: run.stop_asked,
}


def _project_of(run: StoredRun) -> Record:
    entity = Record({"id": f"entity-{run.entity}", "name": run.entity})
    return Record({"id": f"project-{run.project}", "name": run.project, "entity": entity})


PROJECT: Fields = {
    "id": lambda project, _: f"project-{project.name}",
    "internalId": lambda project, _: "41",
    "name": lambda project, _: project.name,
    "entity": lambda project, _: Record({"id": f"entity-{project.entity}", "name": project.entity}),
    "readOnly": lambda project, _: False,
    "runCount": lambda project, arguments: len(runs_of(project, arguments)),
    "runs": lambda project, arguments: page(runs_of(project, arguments), arguments),
    "run": lambda project, arguments: project.root.store.find(project.entity, project.name, arguments["name"]),
    "bucket": lambda project, arguments: project.root.store.find(project.entity, project.name, arguments["name"]),
}

FILE: Fields = {
    "id": lambda file, _: f"file-{file.name}",
    "name": lambda file, _: file.name,
    "url": lambda file, _: file.url,
    "directUrl": lambda file, _: file.url,
    "sizeBytes": lambda file, _: len(file.content),
    "mimetype": lambda file, _: "application/octet-stream",
    "updatedAt": lambda file, _: iso(file.at),
    "md5": lambda file, _: None,
}


# ---- root ----------------------------------------------------------------------------------------------------------


def project_of(root: Root, arguments: Arguments) -> Project | None:
    entity, name = arguments.get("entityName") or root.entity, arguments.get("name") or ""
    return Project(root, entity, name) if (entity, name) in root.store.projects else None


def viewer_of(root: Root, _: Arguments) -> Record:
    node = Record({"name": root.entity, "node": Record({"name": root.entity})})
    return Record({
        "id": "viewer-1", "entity": root.entity, "username": "tester", "name": "tester", "email": "tester@example.org",
        "flags": "{}", "admin": False, "deletedAt": None, "teams": Record({"edges": [node]}),
        "apiKeys": Record({"edges": []}),
    })  # fmt: skip


def features_of(root: Root, _: Arguments) -> Record:
    features = [Record({"name": name, "isEnabled": True}) for name in root.features]
    return Record({"features": features, "cliVersionInfo": None, "latestLocalVersionInfo": None})


def upsert(root: Root, arguments: Arguments) -> Record:
    """A run begins, begins again, or has something new to tell of itself."""
    given = arguments["input"]
    entity, project = given.get("entityName") or root.entity, given.get("modelName") or "uncategorized"
    if given.get("id"):
        run = next((each for each in root.store.runs.values() if each.storage_id == given["id"]), None)
    else:
        run = root.store.find(entity, project, given.get("name") or "")
    is_new = run is None
    run = run or root.store.add(entity, project, given.get("name"), root.now)
    take_facts(run, given)
    if is_new or given.get("host"):  # its client begins, for the first time or again
        run.state, run.heartbeat_at, run.exit_code = given.get("state") or "running", root.now, None
    return Record({"bucket": run, "inserted": is_new})


def take_facts(run: StoredRun, given: Arguments) -> None:
    names = {
        "displayName": "display_name", "groupName": "group", "jobType": "job_type", "notes": "notes", "host": "host",
        "commit": "commit", "jobProgram": "program", "tags": "tags",
    }  # fmt: skip
    for name, ours in names.items():
        if given.get(name):
            setattr(run, ours, given[name])
    for name in ("config", "summaryMetrics"):
        if given.get(name):
            setattr(run, name.removesuffix("Metrics"), parsed(given[name]))


def upload_urls(root: Root, arguments: Arguments) -> Record:
    given = arguments["input"]
    path = f"{given.get('entityName')}/{given.get('projectName')}/{given.get('runName')}"
    run = root.store.runs.get(path)
    files = [Record({"name": name, "uploadUrl": f"{root.store.url}/stored/{path}/{name}"}) for name in given["files"]]
    return Record({"runID": run.storage_id if run else "", "uploadHeaders": [], "files": files if run else []})


def stop(root: Root, arguments: Arguments) -> Record:
    for run in root.store.runs.values():
        run.stop_asked |= run.storage_id == arguments["input"]["id"]
    return Record({"success": True, "clientMutationId": None})


ROOT: Fields = {
    "viewer": viewer_of,
    "serverInfo": features_of,
    "project": project_of,
    "model": project_of,
    "entity": lambda root, arguments: Record(
        {"id": "entity-1", "name": arguments.get("name"), "isTeam": True, "organization": None}
    ),
    "upsertBucket": upsert,
    "createRunFiles": upload_urls,
    "markRunFilesUploaded": lambda root, _: Record({"success": True}),
    "stopRun": stop,
}

TYPES: Mapping[type, Fields] = {
    Root: ROOT,
    Project: PROJECT,
    StoredRun: RUN,
    StoredFile: FILE,
    ConsoleLine: {name: _reading(name) for name in ("number", "timestamp", "level", "label", "line")},
    Connection: {
        "edges": lambda it, _: [Edge(node, cursor) for node, cursor in zip(it.nodes, it.cursors, strict=True)],
        "nodes": lambda it, _: [*it.nodes],
        "pageInfo": lambda it, _: Record(
            {"endCursor": it.cursors[-1] if it.cursors else None, "hasNextPage": it.has_next}
        ),
    },
    Edge: {"node": lambda edge, _: edge.node, "cursor": lambda edge, _: edge.cursor},
    Record: held(
        "id", "name", "username", "entity", "email", "flags", "admin", "deletedAt", "teams", "apiKeys", "edges", "node",
        "features", "isEnabled", "cliVersionInfo", "latestLocalVersionInfo", "bucket", "inserted", "runID", "files",
        "uploadHeaders", "uploadUrl", "success", "clientMutationId", "endCursor", "hasNextPage", "isTeam", "project",
        "organization", "parquetUrls", "liveData",
    ),
}  # fmt: skip
