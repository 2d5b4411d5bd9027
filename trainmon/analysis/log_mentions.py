"""What a training log names: its W&B run, its files of metrics, and where it saves its checkpoints. Pure.

Logs are untrusted text: an address names no server to ask, and a directory counts only once it holds checkpoints.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from trainmon.analysis.checkpoints.layouts import GROWING, Folder, recognised
from trainmon.analysis.log_formats.read import plain
from trainmon.model import CheckpointListing, RunSpec, WandbSpec

MENTIONS = ("aving", "aved", "View run", "Syncing ", "ensor", "logging", "logger folder")
"""Each line that names a W&B run, files of metrics or a save contains one of these texts."""

NEXT_ATTEMPT = 86_400.0
"""Seconds that the next W&B run may take to appear. It has another id, which the log names only when it starts."""

DIRECTORIES = 3
"""The last named directories that are looked at: one that does not hold checkpoints yet may be saved to later."""

SLOW = 5.0
"""A listing in seconds after which a directory without checkpoints is left alone until it is named again."""

LONGEST = 4_000
"""Characters of a line that are examined, and of a path."""

PAGE = re.compile(
    r"(?:View run|Syncing)\b.{0,300}?https?://([\w.:\[\]-]+)/(?:[^\s/]+/)??([^\s/]+)/([^\s/]+)/runs/([^\s/?#]+)"
)
"""What W&B's client prints: `View run at`, and its old versions `Syncing to` (0.7.3)."""
FILES = re.compile(r"Run data is saved locally in\s+[`'\"]?(.+?)/(?:offline-)?run-\d{8}_\d{6}-")
"""The run directory of W&B's client, below the directory of all its runs."""
PATH = r"""(?:'([^']+)'|"([^"]+)"|(\S+))"""
SAVES = (
    re.compile(r"\bsav(?:ing|ed)\b.{0,200}?\bto:?\s+" + PATH, re.IGNORECASE),
    re.compile(r"(?:\[Torch\] Sav(?:ing|ed)|saving model checkpoint:|checkpoint saved|saving checkpoint at)\s+"
               + PATH, re.IGNORECASE),
)  # fmt: skip
"""`saving checkpoint to out`, and the lines of DeepSpeed and nanotron."""

METRICS = re.compile(
    r"""(?:--?|\b)(?:tensorboard|logging)[-_](?:log[-_])?dir(?:['"]?\s*[=:]\s*|[ .]* )['"]?"""
    r"""(?!None\b|\.{3})([^\s'",;)]+)"""
    r"|(?:tensorboard\b.{0,30}logs|logger folder)\b.{0,60}?[ '\"]((?:\.{0,2}/)[^\s'\",;)]+)", re.IGNORECASE,
)  # fmt: skip
"""`--tensorboard-dir PATH` of a command line, `tensorboard_dir ...... PATH` and `logging_dir='PATH'` of its settings,
`TensorBoard logs will be saved at PATH`, `Missing logger folder: PATH` (Lightning)."""

SUBJECT = re.compile(r"checkpoint|ckpt|model|state", re.IGNORECASE)
"""What is saved. Other lines are about results, configs and caches."""

FILE = re.compile(r".*\.(pt|pth|bin|ckpt|safetensors|distcp|json|nemo)", re.IGNORECASE)
CHECKPOINT = re.compile(
    r"(tmp-)?checkpoint-\d+|iter_\d+|global_step\d+|opt_step-\d+|step[-_]?\d+|epoch[-_]?\d+|.*(step|epoch)=\d.*",
    re.IGNORECASE,
)
"""A checkpoint. The directory of the checkpoints is above it."""

NUMBER = re.compile(r"\d+")
"""A checkpoint of nanotron."""


class WandbPage(NamedTuple):
    """The page of a W&B run."""

    host: str
    project: str
    """`entity/project`."""
    run: str


class Mentions(msgspec.Struct, frozen=True, kw_only=True):
    """What the log of one run has named so far."""

    page: WandbPage | None = None
    wandb_dir: str | None = None
    """Where W&B's client writes its files."""
    metrics: tuple[str, ...] = ()
    """Where it says that it writes metrics, the last first."""
    directories: tuple[str, ...] = ()
    """Where it says that it saves, the last first."""
    checkpoints: str | None = None
    """The one of them that is known to hold checkpoints."""


def is_mention(lines: str) -> bool:
    """Whether one or more lines may name a W&B run or a save."""
    return any(text in lines for text in MENTIONS)


def read(before: Mentions, lines: Iterable[str], workdir: str | None) -> Mentions:
    """What is named after these lines. Relative paths are relative to `workdir`, the working directory of the job."""
    page, wandb_dir, named, metrics = before.page, before.wandb_dir, list(before.directories), before.metrics
    for line in filter(is_mention, lines):
        text = plain(line)[:LONGEST]
        page = wandb_page(text) or page
        if (files := FILES.search(text)) is not None:
            wandb_dir = _absolute(files[1], workdir) or wandb_dir
        metrics = metrics_directories(text, workdir) or metrics
        directory = checkpoint_directory(text, workdir)
        if directory is not None:
            named = [directory, *(name for name in named if name != directory)]
    kept = [name for name in named if name == before.checkpoints or name in named[:DIRECTORIES]]
    return replace(before, page=page, wandb_dir=wandb_dir, metrics=metrics, directories=tuple(kept))


def saved(before: Mentions, path: str) -> Mentions:
    """What is known after this file of a checkpoint was found: the checkpoint is in the directory that comes first."""
    directories = posixpath.dirname(posixpath.dirname(path)), *before.directories
    return replace(before, directories=tuple(dict.fromkeys(directories)))


def listed(before: Mentions, listing: CheckpointListing) -> Mentions:
    """What is known after the listing of a directory: it counts if a checkpoint of a known layout is there."""
    if listing.path not in before.directories:
        return before
    folder = Folder(listing.entries, listing.t)
    found = [one for contents in folder.contents.values() if (one := recognised(contents, folder)) is not None]
    holds = any(one.lacks in ("", GROWING) for one in found)
    is_newer = before.checkpoints not in before.directories[: before.directories.index(listing.path)]
    if holds:
        return replace(before, checkpoints=listing.path) if is_newer else before
    if listing.took_s < SLOW or listing.path == before.checkpoints:
        return before
    return replace(before, directories=tuple(path for path in before.directories if path != listing.path))


def with_mentions(spec: RunSpec, found: Mentions, page: WandbPage | None) -> RunSpec:
    """The run with what its log names. The config wins. `page`: its W&B run, if that may be asked for."""
    names = []
    if spec.checkpoints is None and found.checkpoints is not None:
        spec, names = replace(spec, checkpoints=found.checkpoints), ["checkpoints"]
    if spec.wandb is None and page is not None:
        wandb = WandbSpec(project=page.project, run=page.run, restart_grace=NEXT_ATTEMPT)
        spec, names = replace(spec, wandb=wandb), [*names, "wandb"]
    if spec.wandb_dir is None and found.wandb_dir is not None:
        spec, names = replace(spec, wandb_dir=found.wandb_dir), [*names, "wandb_dir"]
    return replace(spec, from_log=tuple(names)) if names else spec


def wandb_page(line: str) -> WandbPage | None:
    """The W&B run that a line of W&B's client names: `wandb: 🚀 View run at https://wandb.ai/team/project/runs/id`."""
    found = PAGE.search(line)
    if found is None:
        return None
    entity, project, run = (unquote(part) for part in found.groups()[1:])
    is_usable = all(part.isprintable() and "/" not in part for part in (entity, project, run))
    return WandbPage(found[1], f"{entity}/{project}", run) if is_usable else None


def metrics_directories(text: str, workdir: str | None) -> tuple[str, ...]:
    """The directories of metrics that a line of a log, or a command line, names."""
    found = (_absolute(match[1] or match[2], workdir) for match in METRICS.finditer(text))
    return tuple(path for path in found if path is not None and path != "/")


def _absolute(path: str, workdir: str | None) -> str | None:
    """The path from the root; None if it is that of no file, or relative to an unknown directory."""
    path = posixpath.join(workdir or "", path)
    is_usable = path.startswith("/") and "://" not in path and path.isprintable()
    return "/" + posixpath.normpath(path).lstrip("/") if is_usable else None


def checkpoint_directory(line: str, workdir: str | None) -> str | None:
    """The directory of the checkpoints that a line about a save names."""
    found = next((match for pattern in SAVES if (match := pattern.search(line)) is not None), None)
    if found is None or SUBJECT.search(line, 0, found.end()) is None:
        return None
    quoted, path = found[1] or found[2], (found[3] or "").rstrip(".,;:)")
    if (path := _absolute(quoted or path, workdir)) is None:
        return None
    for name in (FILE, CHECKPOINT, NUMBER if "aving checkpoint at" in line else CHECKPOINT):
        if name.fullmatch(posixpath.basename(path)):
            path = posixpath.dirname(path)
    is_above = path == "/" or (workdir or "").startswith(f"{path}/")  # it may hold everything of this user
    return None if is_above else path
