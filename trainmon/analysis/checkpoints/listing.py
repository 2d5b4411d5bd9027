"""A listing of a checkpoint directory → the state of each checkpoint, the one to resume from, save statistics. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise, zip_longest
from statistics import median, median_low
from typing import Any

from msgspec.structs import replace

from trainmon.analysis.checkpoints.contents import Folder, FoundCheckpoint, smaller
from trainmon.analysis.checkpoints.layouts import NOT_RECOGNISED, UNKNOWN, recognised, unrecognised
from trainmon.analysis.checkpoints.resume import (
    MOVES_WITHIN,
    NONE_FOUND,
    Resumption,
    is_being_written,
    not_examined,
    problem,
    resumption,
    stale,
)
from trainmon.lib import Instant, Seconds, clean, counted, duration
from trainmon.model import Checkpoint, CheckpointListing, Checkpoints, CheckpointState, says

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
    wrong = problem(taken, known, others, len(unclear) + listing.left_out, is_moving) or stale(taken, newest, folder)
    return Checkpoints(
        path=path,
        host=host,
        listed_at=at,
        note=_note(listing, unclear, ordered, layout),
        list=tuple(known.values()),
        resumes=None if taken.name is None else _below(path, taken.name),
        problem=None if wrong is None else clean(wrong),
        **statistics,
    )


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
    return Checkpoints(path=path, host=host, listed_at=at, error=error, problem=f"{NONE_FOUND}: the directory {error}")


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
    alike: dict[str, list[FoundCheckpoint]] = {}
    for one in all_found:
        if folder.contents[one.name].entry.kind == "file" and one.step is not None and one.bytes:
            alike.setdefault(re.sub(r"\d+", "#", one.name), []).append(one)
    pairs = (pair for same in alike.values() for pair in pairwise(sorted(same, key=lambda one: one.step or 0)))
    return {
        one.name: smaller("it", one.bytes or 0, before.bytes or 0)
        for before, one in pairs
        if (one.bytes or 0) < CUT * (before.bytes or 0)
    }


def _small(all_found: Sequence[FoundCheckpoint], folder: Folder) -> dict[str, str]:
    """Why files are too small, by name. Files with another name pattern may be of another kind, such as weights."""
    files = {one.name: one.bytes for one in all_found if folder.contents[one.name].entry.kind == "file" and one.bytes}
    alike: dict[str, list[int]] = {}
    for name, size in files.items():
        alike.setdefault(re.sub(r"\d+", "#", name), []).append(size)
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
