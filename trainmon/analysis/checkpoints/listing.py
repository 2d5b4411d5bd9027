"""A listing of a checkpoint directory → the state of each checkpoint, the one to resume from, save statistics. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise, zip_longest
from statistics import median, median_low
from typing import Any, NamedTuple

from msgspec.structs import replace

from trainmon.analysis.checkpoints.layouts import (
    NOT_RECOGNISED,
    TEMPORARY,
    TRACKER,
    UNKNOWN,
    Folder,
    FoundCheckpoint,
    number,
    recognised,
    smaller,
    unrecognised,
)
from trainmon.lib import Instant, Seconds, by_key, clean, counted, duration, group_by
from trainmon.model import Checkpoint, CheckpointEntry, CheckpointListing, Checkpoints, CheckpointState, says

# ---- what a trainer would resume from, by its own rule, and what is wrong with that ----------------------------------

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


class Wrong(NamedTuple):
    """One thing that is wrong."""

    text: str
    is_usual: bool = False
    """Whether it is so at the beginning of every training, or as long as some files have not been read."""


def wrong(
    taken: Resumption, known: Mapping[str, Checkpoint], others: Sequence[str], unclear: int, is_moving: bool
) -> list[Wrong]:
    """What is wrong: no committed checkpoint at all, or a restart that would fail or take a wreck.

    `known`: the checkpoints by name; `others`: names that are no checkpoints; `unclear`: how many were not examined;
    `is_moving`: whether a file was written within MOVES_WITHIN.
    """
    nothing = None if any(one.is_whole for one in known.values()) else _nothing(known, others, unclear, taken)
    pointer = _pointer(taken, known, is_moving, unclear)
    return [*([nothing] if nothing is not None else []), *([Wrong(pointer)] if pointer is not None else [])]


def stale(taken: Resumption, newest: FoundCheckpoint | None, folder: Folder) -> list[Wrong]:
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
        return []
    last, names = newest.name if newest.step is None else f"step {newest.step:,}", f"{taken.pointer} names {taken.name}"
    return [Wrong(f"{names}, although {last} is complete: a restart would resume from the older one")]


def not_examined(entries: int) -> str:
    """`1 entry was not examined`."""
    return "1 entry was not examined" if entries == 1 else f"{entries:,} entries were not examined"


def _nothing(known: Mapping[str, Checkpoint], others: Sequence[str], unclear: int, taken: Resumption) -> Wrong | None:
    if any(one.state == "unknown" for one in known.values()):
        return None
    if unclear:
        return Wrong(f"{NONE_FOUND} so far: {not_examined(unclear)}", is_usual=True)
    if not known and (others or taken.pointer):
        like = next((name for name in others if re.search(r"\d", name)), "".join(others[:1]))
        names = f"{len(others)} other names, such as {like}" if others[1:] else f"{len(others)} other name"
        return Wrong(f"{NONE_FOUND}: nothing here looks like a checkpoint ({names})")
    if not known:
        return Wrong(f"{NONE_FOUND}: the directory is empty, nothing was saved yet", is_usual=True)
    torn = [one for one in known.values() if one.state == "torn"]
    if not torn:
        return Wrong(f"{NONE_FOUND} yet: {next(iter(known.values())).title} is being written", is_usual=True)
    rest = f", and {len(torn) - 1} more" if len(torn) > 1 else ""
    return Wrong(f"{NONE_FOUND}: {torn[0].title} is incomplete ({torn[0].why}){rest}")


def _pointer(taken: Resumption, known: Mapping[str, Checkpoint], is_moving: bool, unclear: int) -> str | None:
    if taken.pointer and taken.name is None:
        wrong = f"contains “{taken.text}”, which names no checkpoint" if taken.text else taken.without_text
        return f"{taken.pointer} {wrong}" if wrong else None
    whole = [one for one in known.values() if one.is_whole]
    if taken.name is None:
        return f"no pointer file: a restart would begin from scratch, although {whole[0].title} is complete" if (
            whole and not is_moving) else None  # fmt: skip
    who = f"{taken.pointer} names" if taken.pointer else "a restart would resume from"
    one = known.get(taken.name)
    if one is None:
        return None if unclear else f"{who} {taken.name}, which does not exist"
    is_left = one.state == "writing" and taken.pointer and not is_moving
    return f"{who} {taken.name}, which is incomplete: {one.why}" if one.state == "torn" or is_left else None


# ---- the state of each checkpoint of a listing -----------------------------------------------------------------------

TORN_AFTER = 600.0
"""Seconds without a write after which a save has failed: saves of the 2 TB model took 290 s on the shared disk."""

TIMES_USUAL = 4
"""And at least so many times as long as a save usually takes."""

OVERTAKEN = 120.0
"""Seconds without a write that are enough when a later one is whole already."""

LONGEST_SAVE = 12 * 3600.0
"""Files copied with their old times make a save look longer than it was."""

BESIDE = 120.0
"""A checkpoint without a step in its name (last.ckpt) that is so much newer than those with one is newer."""

MOVED_BACK = 60.0
"""Seconds after the last write of a newer one from which on a pointer to an older one was moved there on purpose."""

RECENT = 12
"""Checkpoints that are learnt from: older ones are thinned out by retention rules."""

QUIET = 8.0
"""Seconds without a write after which an equal size says that a file is complete: a followed directory is listed every
2 s, a writer may pause for longer, and NFS shows sizes that are some seconds old."""

CUT = 0.1
"""Of the size of the save before: a file that has less was cut short."""

SHRUNK = 0.9
"""Of the usual size of files that should be equally large; one that is smaller was cut short."""

DEEPER = re.compile(
    r"((?:[^/]+/){0,3}?)(?:(?:step[-_]|checkpoint-|iter_|global_step|opt_step-)#/|[^/]*(?:step|epoch)[^/]*\.ckpt$)"
)
SLOW = 5.0


def read(
    listing: CheckpointListing,
    *,
    host: str,
    at: Instant,
    is_running: bool | None,
    now: Instant,
    skew: Seconds,
    before: Checkpoints | None,
) -> Checkpoints:
    """The directory as it is. `at`: when it was listed, by our clock; `skew`: how far the node's clock is ahead.

    `is_running`: whether a job or process that may write it lives; None when that is not known. `before`: the last
    answer, from the same listing or an earlier one.
    """
    path = clean(listing.path)
    before = before if before is not None and before.path == path else None
    if listing.error is not None:
        return _without_listing(path, host, at, clean(listing.error), before)
    folder = Folder(listing.entries, listing.t, _steady(listing, at, is_running, before), listing.path)
    everything = _everything(folder)
    unclear = [one for one in everything if one.is_unclear]
    clear = [one for one in everything if not one.is_unclear]
    compared = _compared(clear, folder)
    ordered = _ordered([one for one in compared if not _is_leaving(one, compared, folder)])
    statistics = _statistics([one for one in ordered if not one.lacks])
    last = max((one for one in ordered if one.layout != UNKNOWN), key=lambda one: one.newest, default=None)
    layout = None if last is None else last.layout
    taken = resumption(layout, ordered, folder)
    newest = _committed(ordered, taken, folder)
    known = {
        one.name: _checkpoint(
            one, path, _state(one, ordered, newest, statistics["save_s"], is_running, folder.t), skew, now
        )
        for one in ordered
    }
    others = [name for name in folder.contents if name not in {one.name for one in everything}]
    is_moving = last is not None and folder.t - last.newest < MOVES_WITHIN
    found = wrong(taken, known, others, len(unclear) + listing.left_out, is_moving) or stale(taken, newest, folder)
    return Checkpoints(
        path=path,
        host=host,
        listed_at=at,
        note=_note(listing, unclear, ordered, layout),
        list=tuple(known.values()),
        resumes=None if taken.name is None else _below(path, taken.name),
        problem=_joined(one.text for one in found),
        trouble=_joined(one.text for one in found if not one.is_usual),
        **statistics,
    )


def _joined(texts: Iterable[str]) -> str | None:
    return clean("; ".join(texts)) or None


def with_pointers(listing: CheckpointListing, before: CheckpointListing | None) -> CheckpointListing:
    """The listing in which a pointer that is being written still says what it said before: it moves a moment later."""
    if before is None or before.path != listing.path:
        return listing
    texts = {entry.name: entry.text for entry in before.entries}
    entries = (
        replace(entry, text=texts.get(entry.name)) if is_being_written(entry, listing.t) else entry
        for entry in listing.entries
    )
    return replace(listing, entries=tuple(entries))


def _everything(folder: Folder) -> list[FoundCheckpoint]:
    """What is a checkpoint, of a known format or not."""
    found = {name: recognised(contents, folder) for name, contents in folder.contents.items()}
    is_alone = all(one is None for one in found.values())
    every = (one or unrecognised(folder.contents[name], is_alone=is_alone) for name, one in found.items())
    return [one for one in every if one is not None]


def _compared(clear: list[FoundCheckpoint], folder: Folder) -> list[FoundCheckpoint]:
    """The checkpoints with what each lacks beside the others."""
    cut = _cut(clear, folder)
    lacks = {**_small(clear, folder), **_short(clear), **cut}
    return [
        one if one.lacks else replace(one, lacks=lacks.get(one.name, ""), is_cut_short=one.name in cut) for one in clear
    ]


def _without_listing(path: str, host: str, at: Instant, error: str, before: Checkpoints | None) -> Checkpoints:
    """A directory that cannot be listed keeps its last listing; a missing directory has no checkpoints."""
    if not says(error, "missing"):
        return replace(before, error=error) if before is not None else Checkpoints(
            path=path, host=host, listed_at=at, error=error)  # fmt: skip
    problem = f"{NONE_FOUND}: the directory {error}"
    return Checkpoints(path=path, host=host, listed_at=at, error=error, problem=problem, trouble=problem)


def _steady(
    listing: CheckpointListing, at: Instant, is_running: bool | None, before: Checkpoints | None
) -> frozenset[str]:
    """The single files that no longer grow: their size is that of an earlier listing, or no writer is left."""
    if is_running is False:
        return frozenset(entry.name for entry in listing.entries)
    if before is None:
        return frozenset()
    is_same = before.listed_at == at  # the same listing: the states are known
    is_soon = at - before.listed_at < QUIET
    known = {one.path: one for one in before.list}
    sizes = ((entry, known.get(_below(before.path, entry.name))) for entry in listing.entries if entry.kind == "file")
    return frozenset(
        entry.name
        for entry, one in sizes
        if one
        and (one.is_whole if is_same else one.bytes == entry.bytes)
        and (one.is_whole or not is_soon or listing.t - entry.mtime >= QUIET)
    )


def _cut(all_found: Sequence[FoundCheckpoint], folder: Folder) -> dict[str, str]:
    """Why single files are cut short: they have less than a tenth of the size of the save before."""
    files = (
        one
        for one in all_found
        if folder.contents[one.name].entry.kind == "file" and one.step is not None and one.bytes
    )
    alike = group_by(files, lambda one: re.sub(r"\d+", "#", one.name)).values()
    pairs = (pair for same in alike for pair in pairwise(sorted(same, key=lambda one: one.step or 0)))
    return {
        one.name: smaller("it", one.bytes or 0, before.bytes or 0)
        for before, one in pairs
        if (one.bytes or 0) < CUT * (before.bytes or 0)
    }


def _small(all_found: Sequence[FoundCheckpoint], folder: Folder) -> dict[str, str]:
    """Why files are too small, by name. Files with another name pattern may be of another kind, such as weights."""
    files = {one.name: one.bytes for one in all_found if folder.contents[one.name].entry.kind == "file" and one.bytes}
    alike = by_key((re.sub(r"\d+", "#", name), size) for name, size in files.items())
    usual = max(alike.values(), key=len, default=[])
    alike |= {kind: usual for kind in alike if kind.startswith(("last", "hpc_ckpt"))}
    least = {kind: SHRUNK * median(sizes) if len(sizes) > 2 else 0 for kind, sizes in alike.items()}
    why = "smaller than the others: truncated"
    return {name: why for name, size in files.items() if size < least[re.sub(r"\d+", "#", name)]}


def _short(all_found: Sequence[FoundCheckpoint]) -> dict[str, str]:
    """Why checkpoints have too few shards, by name. If the next has as few, the run has another size since."""
    short, previous = {}, 0
    sharded = sorted((one for one in all_found if one.shards), key=lambda one: (one.step or 0, one.newest))
    for one, after in zip_longest(sharded, [other.shards for other in sharded[1:]]):
        count = one.shards or 0
        if count < previous and count != after:
            short[one.name] = f"{counted(count, 'shard')}, but the checkpoint before has {previous}"
        else:
            previous = count
    return short


def _is_leaving(one: FoundCheckpoint, all_found: Sequence[FoundCheckpoint], folder: Folder) -> bool:
    """Whether it is being deleted, as retention does all the time: its folder changes, and no file in it is new."""
    entry = folder.contents[one.name].entry
    is_emptied = entry.kind == "dir" and entry.mtime - one.newest > OVERTAKEN and folder.t - entry.mtime < TORN_AFTER
    return bool(one.lacks) and is_emptied and _is_overtaken(one, all_found)


def _is_overtaken(one: FoundCheckpoint, all_found: Sequence[FoundCheckpoint]) -> bool:
    return any(not other.lacks and other.newest > one.newest for other in all_found)


def _ordered(all_found: Sequence[FoundCheckpoint]) -> list[FoundCheckpoint]:
    """Newest first: by step, then by time; one without a step by time alone."""
    ordered = sorted(
        (one for one in all_found if one.step is not None), key=lambda one: (one.step or 0, one.newest), reverse=True
    )
    for one in sorted((one for one in all_found if one.step is None), key=lambda one: one.newest):
        newer = (i for i, other in enumerate(ordered) if one.newest > other.newest + BESIDE)
        ordered.insert(next(newer, len(ordered)), one)
    return ordered


def _committed(ordered: Sequence[FoundCheckpoint], taken: Resumption, folder: Folder) -> FoundCheckpoint | None:
    """The newest that is whole; after a rollback the one that the pointer names, though others have higher steps: a
    trainer has committed it since, or a person has moved the pointer back."""
    whole = [one for one in ordered if not one.lacks]
    pointed = next((one for one in whole if taken.pointer and one.name == taken.name), None)
    if pointed is None:
        return whole[0] if whole else None
    moved_at = folder.contents[taken.pointer or ""].entry.mtime
    is_back = pointed.committed_at > whole[0].committed_at or moved_at > whole[0].newest + MOVED_BACK
    return pointed if is_back else whole[0]


def _state(
    one: FoundCheckpoint,
    ordered: Sequence[FoundCheckpoint],
    newest: FoundCheckpoint | None,
    save_s: Seconds | None,
    is_running: bool | None,
    t: float,
) -> CheckpointState:
    if not one.lacks:
        return "committed" if one is newest else "superseded"
    if one.lacks == NOT_RECOGNISED:
        return "unknown"
    quiet = t - one.newest
    if one.is_cut_short and quiet > QUIET:
        return "torn"  # nothing is missing: its trainer has ended the save
    has_failed = is_running is False or quiet > max(TORN_AFTER, TIMES_USUAL * (save_s or 0.0))
    return "torn" if has_failed or (quiet > OVERTAKEN and _is_overtaken(one, ordered)) else "writing"


def _checkpoint(one: FoundCheckpoint, path: str, state: CheckpointState, skew: Seconds, now: Instant) -> Checkpoint:
    written = one.newest if one.lacks else one.committed_at
    return Checkpoint(
        step=one.step,
        state=state,
        path=_below(path, one.name),
        layout=one.layout,
        bytes=one.bytes,
        at=min(now, written - skew),
        began_at=None if one.began is None else min(now, one.began - skew),
        why=clean(one.lacks or one.why),
    )


def _below(path: str, name: str) -> str:
    return clean(f"{path.rstrip('/')}/{name}")


def _statistics(whole: Sequence[FoundCheckpoint]) -> dict[str, Any]:
    """How long, how often and how large saves are: the fields of Checkpoints."""
    recent = whole[:RECENT]
    saves = [one.committed_at - one.began for one in recent if one.began is not None]
    saves = [seconds for seconds in saves if 0 <= seconds < LONGEST_SAVE]
    sizes = [one.bytes for one in recent if one.bytes]
    commits = [(one.step, one.committed_at) for one in recent if one.step is not None]
    pairs = [(newer[0] - older[0], newer[1] - older[1]) for newer, older in pairwise(commits)]
    pairs = [(steps, seconds) for steps, seconds in pairs if steps > 0 and seconds > 0]
    every_steps = median_low(steps for steps, _ in pairs) if pairs else None
    return {
        "save_s": median(saves) if saves else None,
        "every_s": median_low(seconds for steps, seconds in pairs if steps == every_steps) if pairs else None,
        "every_steps": every_steps,
        "bytes": median_low(sizes) if sizes else None,
    }


def _note(
    listing: CheckpointListing,
    unclear: Sequence[FoundCheckpoint],
    ordered: Sequence[FoundCheckpoint],
    layout: str | None,
) -> str | None:
    """What was left out, and what else is here."""
    failed = [entry for entry in listing.entries if entry.error is not None]
    more = f", and {len(failed) - 1} more" if failed[1:] else ""
    cut = len([one for one in unclear if one.name not in {entry.name for entry in failed}])
    others = sorted({one.layout for one in ordered} - {layout, UNKNOWN})
    deeper = "" if ordered else next(_deeper(listing), "")
    notes = (
        f"{not_examined(listing.left_out)}: too many, or too slow" if listing.left_out else "",
        f"{failed[0].name} {failed[0].error}{more}" if failed else "",
        f"{cut} not fully listed yet" if cut else "",
        f"listing it took {duration(listing.took_s)}" if listing.took_s > SLOW else "",
        f"also checkpoints of {' and '.join(others)}" if others else "",
        f"did you mean the subdirectory {deeper}?" if deeper else "",
    )
    return clean("; ".join(filter(None, notes))) or None


def _deeper(listing: CheckpointListing) -> Iterator[str]:
    """Subdirectories that seem to contain checkpoints."""
    for entry in listing.entries:
        for group in entry.groups:
            found = DEEPER.match(group.pattern)
            if found is not None:
                yield "/".join((entry.name, *group.example.split("/")[: found.group(1).count("/")]))
