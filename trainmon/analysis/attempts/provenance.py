"""What an attempt trained with: config, code, container, data, evaluators, GPUs. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from trainmon.lib import Instant, clean, scrub
from trainmon.model import Attempt, Node, Run, WandbRun

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

VALUE = 500
"""Characters kept of a value."""


def config_hash(config: Mapping[str, str]) -> str | None:
    """The first 12 digits of the SHA-256 of the settings; null without settings."""
    text = "\n".join(f"{name}={value}" for name, value in sorted(config.items()))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12] if config else None


def from_wandb(wandb: WandbRun) -> dict[str, Any]:
    """The fields of an attempt that its W&B run knows."""
    config = wandb.config
    evaluators = {found[1]: value for name, value in config.items() if (found := EVALUATOR.search(name))}
    return {
        "wandb_id": wandb.path,
        "config_hash": config_hash(config),
        "config_path": _named(config, CONFIG_PATH),
        "git_commit": wandb.commit,
        "container": _named(config, CONTAINER),
        "data_manifest": _named(config, MANIFEST),
        "evaluators": {name: clean(scrub(value), VALUE) for name, value in evaluators.items()},
    }


CONTAINERS = ("TRAINMON_CONTAINER", "SLURM_CONTAINER", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")
"""Variables that name the container of a process."""


def from_environment(nodes: Iterable[Node | None], *, job: int | None = None, pid: int | None = None) -> dict[str, Any]:
    """The fields that the environment names: of a process on these GPUs of this job, or with this pid."""
    processes = (process for node in nodes if node is not None for gpu in node.gpus for process in gpu.processes)
    for process in processes:
        found = process.environment
        if found.get("SLURM_JOB_ID") == str(job) if job is not None else process.pid == pid:
            values = {
                "container": next((found[name] for name in CONTAINERS if name in found), None),
                "data_manifest": found.get("TRAINMON_DATA_MANIFEST"),
            }
            return {name: clean(scrub(value), VALUE) for name, value in values.items() if value}
    return {}


def _named(config: Mapping[str, str], pattern: re.Pattern[str]) -> str | None:
    """The value of the first setting with such a name."""
    found = (config[name] for name in sorted(config) if pattern.search(name) and config[name])
    value = next(found, None)
    return None if value is None else clean(scrub(value), VALUE)


def config_of(command: str | None) -> str | None:
    """The config file that a command line names."""
    found = CONFIG_OPTION.search(command or "")
    return None if found is None else found[1]


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


def missing(attempt: Attempt) -> tuple[str, ...]:
    """The names of the columns that are not known of an attempt and should be, once it has ended."""
    names = (
        "model_family", "nodes", "gpu_uuids", "gpus", "started_at", "first_step", "last_step", "target_step",
        "last_committed_step", "config_hash", "config_path", "git_commit", "container", "data_manifest", "evaluators",
        "wandb_id", "log_path",
    )  # fmt: skip
    unknown = [COLUMNS.get(name, name) for name in names if getattr(attempt, name) in (None, (), {})]
    end = attempt.end
    if end is not None and end.exit_code is None and end.signal is None:
        unknown.append("exit_code")
    return tuple(unknown)
