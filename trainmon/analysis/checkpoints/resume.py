"""What a trainer would resume from, by its own rule, and what is wrong with that. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from trainmon.analysis.checkpoints.contents import Folder, FoundCheckpoint, number
from trainmon.analysis.checkpoints.layouts import TEMPORARY, TRACKER
from trainmon.model import Checkpoint, CheckpointEntry

NONE_FOUND = "no committed checkpoint found"
POINTERS = {
    "megatron": TRACKER, "deepspeed": "latest", "kempnerforge": "latest", "nanotron": "latest.txt",
    "idefics": "latest_opt_step_dir",
}  # fmt: skip
"""The pointer file of a trainer. Trainers without one resume from the highest number."""

MOVES_WITHIN = 60.0
"""Seconds that may pass between a commit and its pointer, or a pointer and the last file, without a problem."""


def is_being_written(entry: CheckpointEntry, t: float) -> bool:
    """Whether a pointer file has just been emptied, at the time `t` of its node: trainers truncate it, then write."""
    return entry.text == "" and t - entry.mtime < MOVES_WITHIN


class Resumption(NamedTuple):
    """The entry from which a restart would resume, and the pointer file that names it."""

    name: str | None = None
    pointer: str | None = None
    text: str = ""
    """The text of the pointer, if it names no checkpoint."""
    without_text: str = "is empty"
    """Why it has no text; empty while it is being written."""


def resumption(layout: str | None, all_found: Sequence[FoundCheckpoint], folder: Folder) -> Resumption:
    """By the rule of this layout; with nothing found, by whatever pointer is there."""
    layouts = [layout] if layout else [name for name, file in POINTERS.items() if file in folder]
    for one in layouts:
        pointer = POINTERS.get(one)
        if pointer is not None and pointer in folder:
            return _pointed(one, pointer, all_found, folder)
    return Resumption(_highest(layout or "", [one for one in all_found if one.layout == layout], folder))


def _pointed(layout: str, pointer: str, all_found: Sequence[FoundCheckpoint], folder: Folder) -> Resumption:
    entry = folder.contents[pointer].entry
    text = (entry.target or "") if entry.kind == "link" else (folder.text(pointer) or "")
    name = text.rstrip("/").rpartition("/")[2]
    if layout == "megatron" and name.isdecimal():
        by_step = {one.step: one.name for one in all_found if one.layout == layout}
        name = by_step.get(int(name), f"iter_{int(name):07d}")
    elif layout == "megatron" and name != "release":
        name = ""
    empty = "" if is_being_written(entry, folder.t) else Resumption().without_text
    return Resumption(name or None, pointer, text, entry.error or empty)


def _highest(layout: str, mine: Sequence[FoundCheckpoint], folder: Folder) -> str | None:
    """Of a trainer without a pointer (or that has lost it)."""
    if layout in POINTERS and layout != "kempnerforge":
        return None
    whole = [one for one in mine if not one.lacks]
    choices: Sequence[FoundCheckpoint] = whole
    if layout in {"hf", "kempnerforge"}:
        choices = [one for one in mine if one.lacks != TEMPORARY]  # neither checks that it is complete
    elif layout == "dcp":
        choices = [one for one in mine if folder.contents[one.name].like(r"(^|/)\.metadata$|\.safetensors\.index\.")]
    elif layout == "nemo":
        choices = [one for one in whole if "-last" in one.name] or whole
    elif layout == "lightning":
        requeued = [(n, one) for one in mine if (n := number(r"hpc_ckpt_(\d+)\.ckpt", one.name)) is not None]
        if requeued:
            return max(requeued, key=lambda pair: pair[0])[1].name
        last = folder.entry("last.ckpt")
        if last is not None:
            return last.target.rpartition("/")[2] if last.target else last.name
    newest = max(choices, key=lambda one: (-1 if one.step is None else one.step, one.newest), default=None)
    return None if newest is None else newest.name


def problem(
    taken: Resumption, known: Mapping[str, Checkpoint], others: Sequence[str], unclear: int, is_moving: bool
) -> str | None:
    """What is wrong, in a sentence: no committed checkpoint at all, or a restart that would fail or take a wreck.

    `known`: the checkpoints by name; `others`: names that are no checkpoints; `unclear`: how many were not examined;
    `is_moving`: whether a file was written within MOVES_WITHIN.
    """
    nothing = None if any(one.is_whole for one in known.values()) else _nothing(known, others, unclear, taken)
    return "; ".join(filter(None, (nothing, _pointer(taken, known, is_moving, unclear)))) or None


def stale(taken: Resumption, newest: FoundCheckpoint | None, folder: Folder) -> str | None:
    """That the pointer was not moved on after a commit, as where a quota ended its write: the work since would be done
    again. DeepSpeed's and nanotron's are part of the commit; KempnerForge moves its own with the next save."""
    if (
        newest is None
        or newest.layout not in {"megatron", "idefics"}
        or taken.pointer is None
        or taken.name in (None, newest.name)
        or taken.name not in folder
        or folder.t - newest.committed_at < MOVES_WITHIN
    ):
        return None
    last = newest.name if newest.step is None else f"step {newest.step}"
    return f"{taken.pointer} names {taken.name}, although {last} is complete: a restart would resume from the older one"


def not_examined(entries: int) -> str:
    """`1 entry was not examined`."""
    return "1 entry was not examined" if entries == 1 else f"{entries:,} entries were not examined"


def _nothing(known: Mapping[str, Checkpoint], others: Sequence[str], unclear: int, taken: Resumption) -> str | None:
    if any(one.state == "unknown" for one in known.values()):
        return None
    if unclear:
        return f"{NONE_FOUND} so far: {not_examined(unclear)}"
    if not known and (others or taken.pointer):
        like = next((name for name in others if re.search(r"\d", name)), "".join(others[:1]))
        names = f"{len(others)} other names, such as {like}" if others[1:] else f"{len(others)} other name"
        return f"{NONE_FOUND}: nothing here looks like a checkpoint ({names})"
    if not known:
        return f"{NONE_FOUND}: the directory is empty, nothing was saved yet"
    torn = [one for one in known.values() if one.state == "torn"]
    if not torn:
        return f"{NONE_FOUND} yet: {_called(next(iter(known.values())))} is being written"
    rest = f", and {len(torn) - 1} more" if len(torn) > 1 else ""
    return f"{NONE_FOUND}: {_called(torn[0])} is incomplete ({torn[0].why}){rest}"


def _called(one: Checkpoint) -> str:
    return one.path.rpartition("/")[2] if one.step is None else f"step {one.step}"


def _pointer(taken: Resumption, known: Mapping[str, Checkpoint], is_moving: bool, unclear: int) -> str | None:
    if taken.pointer and taken.name is None:
        wrong = f"says “{taken.text}”, which names no checkpoint" if taken.text else taken.without_text
        return f"{taken.pointer} {wrong}" if wrong else None
    whole = [one for one in known.values() if one.is_whole]
    if taken.name is None:
        return f"no pointer file: a restart would begin from scratch, although {_called(whole[0])} is complete" if (
            whole and not is_moving) else None  # fmt: skip
    who = f"{taken.pointer} names" if taken.pointer else "a restart would resume from"
    one = known.get(taken.name)
    if one is None:
        return None if unclear else f"{who} {taken.name}, which does not exist"
    if one.state == "torn":
        return f"{who} {taken.name}, which is incomplete: {one.why}"
    if one.state == "writing" and taken.pointer and not is_moving:
        return f"{who} {taken.name}, which is incomplete: {one.why}"
    return None
