"""With what an attempt trained: its settings, where they come from, and the files that say so. Pure."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec
from msgspec.structs import replace

from trainmon.analysis.attempts import receipts
from trainmon.analysis.attempts.fold import DIGITS, ORDER, VALUE, merged, values_of, with_named
from trainmon.analysis.attempts.steps import run_of
from trainmon.lib import MASK, Instant, Seconds, by_key, clean, scrub
from trainmon.model import (
    Attempt,
    AttemptFile,
    FileContent,
    FileSpec,
    Node,
    Origin,
    Run,
    SettingChange,
    Settings,
    State,
    WandbRun,
)

# ---- the settings of an attempt, as they are stored, and which of them differ between two attempts -------------------

NAME = 200
"""Characters kept of the name of a setting."""

AT_MOST = 64 * 1024
"""Characters of all settings of one attempt."""


def settings_of(values: Mapping[str, str]) -> Settings:
    """The settings as they are stored: without secrets, and not too many."""
    return _stored(tuple(sorted(values.items())))


@lru_cache(256)
def _stored(pairs: tuple[tuple[str, str], ...]) -> Settings:
    kept: dict[str, str] = {}
    left = AT_MOST
    for name, value in pairs:
        shown = clean(scrub(value), VALUE)
        name, shown = clean(scrub(name), NAME), MASK if MASK in scrub(f"{name}={value}") else shown
        left -= len(name) + len(shown)
        if left < 0:
            break
        kept[name] = shown
    return Settings(values=kept, left_out=len(pairs) - len(kept))


def changed_settings(before: Attempt, after: Attempt) -> tuple[SettingChange, ...]:
    """The settings that differ: those of W&B, if both have them, else those of their config files."""
    files = (one.files.get("config_path") for one in (before, after))
    pairs = [(one.settings, file and file.settings) for one, file in zip((before, after), files, strict=True)]
    for was, now in zip(*pairs, strict=True):
        if was is None or now is None:
            continue
        both = was.left_out or now.left_out  # what one of them lacks may have been left out
        names = was.values.keys() & now.values.keys() if both else was.values.keys() | now.values.keys()
        found = ((name, was.values.get(name), now.values.get(name)) for name in sorted(names))
        return tuple(SettingChange(name=name, before=old, after=new) for name, old, new in found if old != new)
    return ()


# ---- what an attempt trained with ------------------------------------------------------------------------------------

CONFIG_PATH = re.compile(r"(?:^|[._/])(?:config(?:_?(?:file|path|name))?|cfg(?:_path)?)$", re.IGNORECASE)
CONTAINER = re.compile(
    r"(?:^|[._/])(?:(?:docker|container|oci|enroot)_?(?:image|digest)?|image_?digest)$", re.IGNORECASE
)
MANIFEST = re.compile(
    r"(?:^|[._/])(?:data(?:set)?_?)?(?:manifest|data(?:set)?_?version)(?:_?(?:path|hash|sha256))?$", re.I
)
EVALUATOR = re.compile(r"(?:^|[._/])(\w*eval\w*?)_?version$", re.IGNORECASE)
"""Names of W&B settings. Nested names are joined by dots."""

CONFIG_OPTION = re.compile(r"(?<!\S)--?(?:config|cfg)(?:[-_](?:file|path|name))?[ =](\S+)")

HEARTBEAT_GAP = 60.0
"""Seconds. A W&B run whose heartbeat is older than the start of the attempt by this much belongs to an earlier one."""

COLUMNS = {"container": "container_digest", "evaluators": "evaluator_versions"}
"""Fields of an attempt whose column in the ledger has a longer name."""


def has_same_config(one: Attempt, other: Attempt) -> bool | None:
    """Whether both had the same settings: by W&B, else by their config files. None if neither is known of both."""
    pairs = ((_hash_by(origin, one), _hash_by(origin, other)) for origin in ORDER["config_hash"])
    return next((first == second for first, second in pairs if None not in (first, second)), None)


def has_same_settings(one: Attempt, other: Attempt) -> bool | None:
    """Whether both had the same settings: by W&B, which also knows those on the command line; else by their config
    files and their command lines. None if that is not known: two batch scripts of one name may differ."""
    by_wandb = None not in (_hash_by("wandb", one), _hash_by("wandb", other))
    is_other_command = not by_wandb and by_same_origin(one, other, "command") is not None
    return False if is_other_command else has_same_config(one, other)


def config_in_file(attempt: Attempt) -> tuple[str, str] | None:
    """The path of its config file, and the hash that this had when the attempt began; None if it was not read."""
    file, found = attempt.files.get("config_path"), _hash_by("file", attempt)
    return None if file is None or found is None else (file.path, found)


def by_same_origin(one: Attempt, other: Attempt, field: str) -> tuple[str, str] | None:
    """The values of a field that differ by the same origin: Slurm knows the batch script, and a receipt the command in
    it."""
    first, second = (attempt.named.get(field, {}) for attempt in (one, other))
    pairs = ((first[origin], second[origin]) for origin in ORDER[field] if origin in first and origin in second)
    return next(((was, now) for was, now in pairs if was != now), None)


def _hash_by(origin: Origin, attempt: Attempt) -> str | None:
    """Older versions have recorded hashes without their origin: they are all by W&B."""
    known = values_of(attempt, "config_hash")
    return known.get(origin) if known or origin != "wandb" else attempt.config_hash


def config_hash(config: Mapping[str, str]) -> str | None:
    """The first digits of the SHA-256 of the settings; null without settings."""
    text = "\n".join(f"{name}={value}" for name, value in sorted(config.items()))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:DIGITS] if config else None


def with_wandb(attempt: Attempt, wandb: WandbRun) -> Attempt:
    """The attempt with what its W&B run knows."""
    config = wandb.config
    found = ((EVALUATOR.search(name), value) for name, value in config.items())
    evaluators = {one[1]: clean(scrub(value), VALUE) for one, value in found if one is not None}
    values = {
        "config_hash": config_hash(config),
        "config_path": _setting(config, CONFIG_PATH),
        "container": _setting(config, CONTAINER),
        "data_manifest": _setting(config, MANIFEST),
        "git_commit": wandb.commit,
    }
    attempt = replace(
        attempt,
        wandb_id=wandb.path,
        settings=settings_of(config) if config else attempt.settings,
        evaluators=evaluators or attempt.evaluators,
    )
    return with_named(attempt, "wandb", values)


CONTAINERS = ("TRAINMON_CONTAINER", "SLURM_CONTAINER", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")
"""Variables that name the container of a process."""


def with_environment(
    attempt: Attempt, nodes: Iterable[Node | None], *, job: int | None = None, pid: int | None = None
) -> Attempt:
    """The attempt with what the environment names: of a process on these GPUs of this job, or with this pid."""
    processes = (process for node in nodes if node is not None for gpu in node.gpus for process in gpu.processes)
    own = (one for one in processes if job is None or one.environment.get("SLURM_JOB_ID") == str(job))
    found = next((one.environment for one in own if job is not None or one.pid == pid), {})
    values = {
        "container": next((found[name] for name in CONTAINERS if name in found), None),
        "data_manifest": found.get("TRAINMON_DATA_MANIFEST"),
    }
    known = {name: clean(scrub(value), VALUE) for name, value in values.items() if value}
    return with_named(attempt, "environment", known)


def _setting(config: Mapping[str, str], pattern: re.Pattern[str]) -> str | None:
    """The value of the first setting with such a name."""
    found = (config[name] for name in sorted(config) if pattern.search(name) and config[name])
    value = next(found, None)
    return None if value is None else clean(scrub(value), VALUE)


def with_names(attempt: Attempt, run: Run, command: str | None) -> Attempt:
    """The attempt with what the config and its command line name."""
    found = CONFIG_OPTION.search(command or "")
    attempt = with_named(attempt, "command", {"config_path": None if found is None else found[1]})
    return with_named(attempt, "config", {"config_path": run.spec.config, "data_manifest": run.spec.data_manifest})


def wandb_during(run: Run, began: Instant | None, until: Instant) -> WandbRun | None:
    """The W&B run that was active in this time. A resumed one is older than the attempt."""
    current = None if run.wandb is None else run.wandb.current
    if current is None or current.heartbeat_at is None or began is None:
        return None
    is_early = current.heartbeat_at < began - HEARTBEAT_GAP
    return None if is_early or (current.created_at or began) > until + HEARTBEAT_GAP else current


def gpu_uuids(nodes: Iterable[Node | None], gpus: int | None) -> tuple[str, ...]:
    """The GPUs of an attempt that has its nodes to itself. Of a shared node, its GPUs are not known."""
    found = [gpu.uuid for node in nodes if node is not None for gpu in node.gpus]
    return tuple(uuid for uuid in found if uuid) if found and len(found) == gpus else ()


WANTED = (
    "model_family", "nodes", "gpu_uuids", "gpus", "gpu_seconds", "started_at", "first_step_at", "first_step",
    "last_step", "target_step", "last_committed_step", "command", "config_hash", "config_path",
    "git_commit", "container", "data_manifest", "evaluators", "wandb_id", "log_host", "log_path",
)  # fmt: skip
"""Fields that every attempt should have."""
OF_JOB = ("submitted_at", "restart")
"""Those that an attempt of a job should have."""
OF_END = ("steps_lost", "retry_decision", "budget_spent")
"""Those that an attempt should have once it has ended."""
OF_CAUSE = ("termination_reason", "cause_family", "confidence", "fingerprint", "advice", "retry")
"""Columns of its cause."""


def missing(attempt: Attempt) -> tuple[str, ...]:
    """The names of the columns that are not known of an attempt and should be."""
    end = attempt.end
    names = (*WANTED, *(OF_JOB if attempt.job_id is not None else ()), *(OF_END if end is not None else ()))
    unknown = [COLUMNS.get(name, name) for name in names if getattr(attempt, name) in (None, (), {})]
    if attempt.has_checkpoints and not attempt.may_have_later and attempt.last_committed_step is None:
        unknown.remove("last_committed_step")  # there is none
    if attempt.resumed_from is None and (attempt.first_step is None or attempt.restart):
        unknown += ["resumed_from", "resumed_words"]  # whether it resumed is not known
    if end is None:
        return tuple(unknown)
    of_end = {
        "exit_code": end.exit_code is None and end.signal is None,
        "scheduler_state": end.scheduler_state is None and attempt.job_id is not None,
        **dict.fromkeys(OF_CAUSE, end.cause is None),
        "log_tail": not end.log_tail,
    }
    return (*unknown, *(name for name, is_unknown in of_end.items() if is_unknown))


def why_missing(attempt: Attempt) -> Mapping[str, str]:
    """Why columns are missing, as far as that is known."""
    end, found = attempt.end, {}
    if attempt.counts_steps is False:
        found["steps_lost"] = "its checkpoints are named by epochs"
    elif attempt.may_have_later:
        found["steps_lost"] = "the format of its newest checkpoint is not recognised"
    elif not attempt.has_checkpoints:
        found["steps_lost"] = found["last_committed_step"] = "its checkpoints were not listed"
    elif attempt.last_step is None:
        found["steps_lost"] = "its log shows no step"
    elif attempt.may_have_gone_on:
        found["steps_lost"] = "its end was not watched, and its log was not read since"
    if attempt.log_by_srun and attempt.log_path is None:
        found["log_path"] = found["log_tail"] = "srun wrote its output, and Slurm does not record to which file"
    for field, file in attempt.files.items():
        if file.error is not None:
            found["log_tail" if field == "log_path" else field] = f"{file.path}: {file.error}"
    if attempt.receipt is not None and attempt.job_id is not None:
        found["submitted_at"] = "only its receipt has shown it"
    if end is not None and end.cut_receipt is not None:
        found["exit_code"] = "its command was killed together with trainmon-run"
    elif end is not None and end.source == "lost":
        found["exit_code"] = found["scheduler_state"] = "nothing has reported its end"
    unknown = missing(attempt)
    return {name: why for name, why in found.items() if name in unknown}


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
    wanted = ((one, spec) for one in state.attempts.values() for spec in _wanted(one, state))
    known = ((one.cluster, spec, one.files.get(spec.id.partition(" ")[0])) for one, spec in wanted)
    found = by_key(
        (cluster, (file is not None, spec)) for cluster, spec, file in known if file is None or file.error is not None
    )
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
    job, process = state.jobs.get(f"{attempt.cluster}/{attempt.job_id}"), run_of(attempt, state).spec.process
    workdir = job.workdir if job is not None else process.workdir if process is not None else None
    if config.startswith(("/", "~")) or workdir is not None:
        yield "config_path", config if config.startswith("~") else posixpath.join(workdir or "/", config)


def with_file(attempt: Attempt, content: FileContent, at: Instant, skew: Seconds) -> Attempt:
    """The attempt with what was read of a file that it names. `skew` is how far the clock of its host is ahead."""
    field, _, _ = content.id.partition(" ")
    is_config = field == "config_path"
    named = attempt.named.get(field, {})
    line = "" if is_config else (content.text or "").strip()
    settings = settings_in(content.path or "", content.text or "") if is_config else None
    is_version = 0 < len(line) <= LONGEST_LINE and len(line.splitlines()) == 1
    file = replace(
        file_of(content, named.get("config") or named.get("command") or "", at, skew),
        sha256=content.sha256,
        text=scrub(clean(line)) if is_version else None,
        settings_hash=config_hash(settings or {}),
        settings=None if settings is None else settings_of(settings),
    )
    return merged(attempt, replace(attempt, files={field: file}))


def file_of(content: FileContent, path: str, at: Instant, skew: Seconds) -> AttemptFile:
    """What is kept of every file that was read; `path`, if the content does not say it."""
    return AttemptFile(
        path=clean(content.path or path),
        read_at=at,
        error=None if content.error is None else scrub(clean(content.error)),
        size=content.size,
        modified_at=None if content.mtime is None else content.mtime - skew,
    )


def config_digest(path: str, sha256: str, text: str | None) -> str:
    """The hash of a config file as attempts have it: of its settings, else of all of it. `text`: null if it is long."""
    return config_hash(settings_in(path, text or "") or {}) or sha256[:DIGITS]


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
