"""What is read once of an attempt: files that identify what it trains with, and its log if it ended unseen. Pure."""

from __future__ import annotations

import glob
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from trainmon.analysis.attempts import receipts
from trainmon.analysis.attempts.ending import closed
from trainmon.analysis.attempts.fold import merged
from trainmon.analysis.attempts.observed import with_own_lines
from trainmon.analysis.attempts.provenance import DIGITS, config_hash, settings_of
from trainmon.analysis.attempts.steps import NUMBERS
from trainmon.analysis.runs import last_attempts, named_files
from trainmon.lib import Instant, Seconds, clean, scrub
from trainmon.model import (
    Attempt,
    AttemptEnd,
    AttemptFile,
    FileContent,
    FileSpec,
    LogSpec,
    Run,
    State,
)

# ---- files that identify what an attempt trains with -----------------------------------------------------------------

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


# ---- the logs of attempts that ended unseen, before the newest one of their run --------------------------------------

PREFIX = "log of "
"""Of the name of such a log, as the probe sends it back."""

LOGS_AT_ONCE = 20
"""Logs that are requested at a time on one cluster. The probe reads the last 64 KiB of each."""

LOGS_AT_MOST = 100
"""Logs of one cluster. A sweep that ended unseen may have thousands."""

GIVE_UP: Seconds = 600.0
"""How long a log that cannot be read is tried."""


def is_wanted(attempt: Attempt, state: State) -> bool:
    """Whether the log of an earlier attempt of a run is still to be read."""
    end = attempt.end
    if end is None or not end.awaits_log or end.log_tail is not None or "log_path" in attempt.files:
        return False
    if attempt.job_id is None and not (names_log(attempt, end) and _is_last_writer(attempt, state)):
        return False
    return state.at - max(end.noticed_at, state.started_at) < GIVE_UP


def names_log(attempt: Attempt, end: AttemptEnd) -> bool:
    """Whether the log of an attempt without a job shows its end, and nothing else does."""
    return end.source == "lost" and attempt.receipt is None and (attempt.log_path or "").startswith("/")


def _is_last_writer(attempt: Attempt, state: State) -> bool:
    """Whether no later attempt of its run writes the same log."""
    file = (attempt.run_id, attempt.log_path)
    others = (one for one in state.attempts.values() if (one.run_id, one.log_path) == file)
    return max(others, key=lambda one: one.start, default=attempt).attempt_id == attempt.attempt_id


def logs_to_read(state: State) -> Mapping[str, tuple[LogSpec, ...]]:
    """By cluster: the logs of attempts that ended, the newest first. The log that a run follows is not one of them."""
    last = last_attempts(state.attempts.values())
    earlier = [one for one in state.attempts.values() if one.run_id in state.runs and one is not last[one.run_id]]
    found: dict[str, list[Attempt]] = {}
    for one in earlier:
        if "log_path" in one.files or is_wanted(one, state):
            found.setdefault(one.cluster, []).append(one)
    specs = ((cluster, tuple(_specs(attempts, state))[:LOGS_AT_ONCE]) for cluster, attempts in found.items())
    return {cluster: wanted for cluster, wanted in specs if wanted}


def read_once(state: State) -> Mapping[str, tuple[FileSpec | LogSpec, ...]]:
    """By cluster: the files and logs of attempts that are still to be read, and status files that processes name."""
    parts: tuple[Mapping[str, tuple[FileSpec | LogSpec, ...]], ...]
    parts = files_to_read(state), logs_to_read(state), named_files(state)
    clusters = dict.fromkeys(cluster for part in parts for cluster in part)
    return {cluster: tuple(one for part in parts for one in part.get(cluster, ())) for cluster in clusters}


def _specs(attempts: Iterable[Attempt], state: State) -> Iterator[LogSpec]:
    for one in sorted(attempts, key=lambda one: one.ended_at or 0.0, reverse=True)[:LOGS_AT_MOST]:
        log, path = state.runs[one.run_id].log, _log_path(one, state)
        if is_wanted(one, state) and path is not None and (log is None or path != log.path):
            yield LogSpec(id=f"{PREFIX}{one.attempt_id}", pattern=glob.escape(path))


def _log_path(attempt: Attempt, state: State) -> str | None:
    """Where its log is. Accounting does not say that: of two jobs of a run, the names of the files differ only by their
    numbers."""
    if attempt.log_path is not None or attempt.job_id is None:
        return attempt.log_path if (attempt.log_path or "").startswith("/") else None
    for one in reversed([*state.attempts.values()]):
        folder, name = posixpath.split(one.log_path or "")
        if one.run_id == attempt.run_id and one.job_id is not None and one.job_id in NUMBERS.findall(name):
            number = re.compile(rf"(?<!\d){re.escape(one.job_id)}(?!\d)")
            return posixpath.join(folder, number.sub(attempt.job_id, name))
    return None


def attempt_of_log(name: str, attempts: Mapping[str, Attempt]) -> Attempt | None:
    """The attempt that ended whose log has this name, if it is one."""
    return attempts.get(name.removeprefix(PREFIX)) if name.startswith(PREFIX) else None


def with_unseen_log(attempt: Attempt, run: Run, state: State) -> Attempt:
    """The attempt after its log was read, as if that were the log of this run: its steps, its last lines and its cause.
    The log of a job that was written after its end has the end of another attempt."""
    log = run.log
    if attempt.end is None or not is_wanted(attempt, state) or log is None or log.path is None or log.error is not None:
        return attempt
    end = replace(attempt.end, awaits_log=False)
    if attempt.job_id is None:  # it wrote on after it was seen last
        end = replace(end, at=max(end.at, log.at or 0.0))
    seen = replace(attempt, log_path=log.path, end=end)
    seen, lines = with_own_lines(seen, run, state, state.attempts, is_newest=True)
    file = AttemptFile(path=log.path, read_at=state.at, size=log.size, modified_at=log.at)
    if not lines:
        file = replace(file, error="it was not written while this attempt ran")
        return merged(attempt, replace(attempt, files={**attempt.files, "log_path": file}))
    if seen.started_at is None and log.first_at is not None:
        others = (one for one in state.attempts.values() if (one.run_id, one is attempt) == (seen.run_id, False))
        before = (one.ended_at or one.seen_at for one in others if one.seen_at < seen.seen_at)
        began = min(max(log.first_at, *before, 0.0), end.at)
        seen = replace(seen, started_at=began, start_is_estimated=True)
    return closed(replace(seen, files={**attempt.files, "log_path": file}), lines, before=attempt, state=state)
