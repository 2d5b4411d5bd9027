"""Files that identify what an attempt trains with: which are still to be read, and what was read. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from trainmon.analysis.attempts import receipts
from trainmon.analysis.attempts.merge import merged
from trainmon.analysis.attempts.provenance import DIGITS, config_hash
from trainmon.analysis.attempts.settings import settings_of
from trainmon.lib import Instant, Seconds, clean, scrub
from trainmon.model import Attempt, AttemptFile, FileContent, FileSpec, State

AT_ONCE = 64
"""Files that are requested at a time on one cluster. Those that cannot be read come last."""

AFTER_END: Seconds = 120.0
"""How long the files of an attempt that has ended are still read: it may have ended within seconds."""

SETTINGS_AT_MOST = 5_000
"""More are no settings of a person."""
LONGEST_LINE = 200

DECODERS = {
    ".json": msgspec.json.decode, ".toml": msgspec.toml.decode,
    ".yaml": msgspec.yaml.decode, ".yml": msgspec.yaml.decode,
}  # fmt: skip


def files_to_read(state: State) -> Mapping[str, tuple[FileSpec, ...]]:
    """By cluster: the files of its attempts that were not read since these began."""
    found: dict[str, list[tuple[bool, FileSpec]]] = {}
    for one in state.attempts.values():
        for spec in _wanted(one, state):
            known = one.files.get(spec.id.partition(" ")[0])
            if known is None or known.error is not None:
                found.setdefault(one.cluster, []).append((known is not None, spec))
    ordered = ((cluster, sorted(files, key=lambda one: (one[0], one[1].id))) for cluster, files in found.items())
    return {cluster: tuple(spec for _, spec in files[:AT_ONCE]) for cluster, files in ordered}


def _wanted(attempt: Attempt, state: State) -> Iterator[FileSpec]:
    """The files of an attempt. What an old one trained with may have changed; the end of its log stays."""
    end = attempt.end
    if end is None or state.at - end.at <= AFTER_END:
        yield from (FileSpec(f"{field} {attempt.attempt_id}", path) for field, path in _paths(attempt, state))
    if end is None or state.at - end.noticed_at <= AFTER_END:
        tail = receipts.tail_to_read(attempt, state)
        yield from () if tail is None else (tail,)


def _paths(attempt: Attempt, state: State) -> Iterator[tuple[str, str]]:
    """The fields of an attempt that name files, with their absolute paths."""
    manifest = attempt.named.get("data_manifest", {}).get("config", "")
    if manifest.startswith("/"):
        yield "data_manifest", manifest
    named = attempt.named.get("config_path", {})
    config = named.get("config") or named.get("command")
    if config is None:
        return
    job, run = state.jobs.get(f"{attempt.cluster}/{attempt.job_id}"), state.runs.get(attempt.run_id)
    process = None if run is None else run.spec.process
    workdir = job.workdir if job is not None else process.workdir if process is not None else None
    if config.startswith(("/", "~")) or workdir is not None:
        yield "config_path", config if config.startswith("~") else posixpath.join(workdir or "/", config)


def with_file(known: Mapping[str, Attempt], content: FileContent, at: Instant, skew: Seconds) -> Mapping[str, Attempt]:
    """The attempts with what was read of a file of one of them. `skew` is how far the clock of its host is ahead."""
    field, _, name = content.id.partition(" ")
    attempt = known.get(name)
    if attempt is None:
        return known
    is_config = field == "config_path"
    named = attempt.named.get(field, {})
    line = "" if is_config else (content.text or "").strip()
    settings = settings_in(content.path or "", content.text or "") if is_config else None
    is_version = 0 < len(line) <= LONGEST_LINE and len(line.splitlines()) == 1
    file = AttemptFile(
        path=clean(content.path or named.get("config") or named.get("command") or ""),
        read_at=at,
        error=None if content.error is None else scrub(clean(content.error)),
        size=content.size,
        modified_at=None if content.mtime is None else content.mtime - skew,
        sha256=content.sha256,
        text=scrub(clean(line)) if is_version else None,
        settings_hash=None if settings is None else config_hash(settings),
        settings=None if settings is None else settings_of(settings),
    )
    return {**known, name: merged(attempt, replace(attempt, files={field: file}))}


def config_digest(path: str, sha256: str, text: str | None) -> str:
    """The hash of a config file as attempts have it: of its settings, else of all of it. `text`: null if it is long."""
    settings = settings_in(path, text or "")
    return (None if settings is None else config_hash(settings)) or sha256[:DIGITS]


def settings_in(path: str, text: str) -> Mapping[str, str] | None:
    """The settings in a YAML, JSON or TOML file; None if it is another file, or cannot be read."""
    decode: Any = DECODERS.get(posixpath.splitext(path)[1].lower())
    if decode is None:
        return None
    try:
        found = decode(text.encode())
        settings = tuple(islice(_settings(found), SETTINGS_AT_MOST + 1)) if isinstance(found, dict) else ()
    except (msgspec.MsgspecError, ImportError, RecursionError, ValueError):
        return None
    return dict(settings) if 0 < len(settings) <= SETTINGS_AT_MOST else None


def _settings(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The settings by their names; nested names are joined by dots. An empty list counts: many of them, nested, must
    not take forever."""
    if isinstance(value, Mapping) and value:
        for key, one in value.items():
            yield from _settings(one, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and value:
        for index, one in enumerate(value):
            yield from _settings(one, f"{name}.{index}")
    else:
        yield name, repr(value)
