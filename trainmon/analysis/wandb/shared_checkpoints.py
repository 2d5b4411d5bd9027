"""Whether several active W&B runs write their checkpoints to the same directory. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from trainmon.model import Checkpoints, WandbRun

DIRECTORY = re.compile(
    r"(?:out|output|save|ckpts?|checkpoints?|dump|default_root)_?(?:dir|directory|folder|path|root)?|dirpath"
)
"""Settings that name where a trainer saves: `output_dir` (Hugging Face), `out_dir` (nanoGPT), `save` (Megatron),
`checkpoints_path` (nanotron), `save_folder` (OLMo), `dump_folder` (torchtitan), `dirpath` (Lightning)."""


def shared_checkpoints(active: Sequence[WandbRun], checkpoints: Checkpoints | None) -> str | None:
    """What shows that two of these runs write the same checkpoints; None if nothing does."""
    named: dict[tuple[str, str], str] = {}
    for run in active:
        for key, path in _directories(run):
            if named.setdefault((key, path), run.id) != run.id:
                return f"both save to {path} ({key} in their W&B configs)"
    known = [{path for _, path in _directories(run)} for run in active]
    if checkpoints is None or all(known):  # each names a directory of its own
        return None
    began = max((run.created_at or 0.0 for run in active), default=0.0)
    saved = sorted(
        (one.at, one.step) for one in checkpoints.list if one.at is not None and one.at > began and one.step is not None
    )
    for (_, before), (_, after) in pairwise(saved):
        if after < before:
            return f"{checkpoints.path}: step {after:,} was saved after step {before:,}, while both were active"
    return None


def _directories(run: WandbRun) -> Iterable[tuple[str, str]]:
    for name, value in run.config.items():
        key = re.split(r"[./]", name)[-1]
        if DIRECTORY.fullmatch(key.lower().replace("-", "_")) and _is_path(key, value):
            yield key, value.rstrip("/")


def _is_path(key: str, value: str) -> bool:
    """Whether a setting is a path: `save` may be a switch, and `out_dir` may be a bare name."""
    return "/" in value or (bool(value) and key.lower().endswith(("dir", "folder", "directory")))
