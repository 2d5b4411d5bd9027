"""One disk in full, as lines: its space, when it is full, which runs write there, and what could be deleted. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainmon.analysis.disks import DAY, checkpoints_that_fit, is_on
from trainmon.lib import clean, counted, shorten_start
from trainmon.model import Checkpoint, Run, State
from tui.style import Span, bytes_used, count, full_in, inodes_used, percent, size
from tui.views.disks import ShownDisk, doubt, notes, quota_sentence, unanswered
from tui.views.facts import LABEL, fact, linked_fact, more_fact, optional_fact, wrapped_fact
from tui.widgets import Line, Link, Linked

SHOWN = 12
"""Runs, and checkpoints of a run, that are listed."""


def disk_lines(shown: ShownDisk | None, state: State, width: int) -> Iterator[Line | Linked]:
    """Everything known of one disk."""
    if shown is None:
        yield (Span("This disk is no longer watched.", "dim"),)
        return
    yield from space(shown, state, width)
    yield ()
    yield from writers(shown, state, width)
    yield ()
    yield from deletable(shown, state, width)


def space(shown: ShownDisk, state: State, width: int) -> Iterator[Line]:
    """The size, what is used, the growth, and when it is full."""
    disk, now = shown.disk, state.at
    where = f"{len(shown.hosts)} hosts" if len(shown.hosts) > 1 else disk.host
    if disk.state != "ok":
        yield from optional_fact("problem", unanswered(disk, now), width, "crit")
    kind = disk.filesystem or "unknown filesystem"
    yield fact("mounted", clean(f"{kind} at {disk.mount or disk.path} on {where}"), width)
    free = f"{size(disk.free_bytes)} of {size(disk.total_bytes)} free"
    yield fact("space", f"{percent(bytes_used(disk), 1.0)} used: {free}", width)
    if shown.usable:
        yield fact("usable", f"{size(disk.usable_free_bytes)} until the usable share is used", width)
    if disk.total_inodes is not None:
        free = f"{count(disk.free_inodes)} of {count(disk.total_inodes)} free"
        yield fact("inodes", f"{percent(inodes_used(disk), 1.0)} used: {free}", width)
    if disk.quota is not None:
        yield from wrapped_fact("quota", clean(quota_sentence(disk.quota, now)), width)
    growth = shown.per_day
    base = ", from the last two minutes" if shown.has_only_a_rate else ""
    text = "not known yet" if growth is None else f"{'+' if growth > 0 else ''}{size(growth)}{base}"
    yield fact("per day", text, width)
    ends = shown.full_at or disk.full_at
    if ends is None:
        text = "not known yet" if disk.forecast is None else "it does not fill up at its present growth"
        yield fact("full in", text, width, "dim")
    else:
        text, style = full_in(ends, now)
        yield from wrapped_fact("full in", clean(f"{text.rstrip('!')}{doubt(shown, ends, now)}"), width, style)
    note = notes(shown, now)
    if note.text:
        yield fact("note", note.text, width, note.style)


def writers(shown: ShownDisk, state: State, width: int) -> Iterator[Line | Linked]:
    """The runs that write here: checkpoints and logs, with their sizes."""
    yield (Span("our runs that write here", "dim"),)
    disk, found = shown.disk, list[tuple[int, Run, str]]()
    for run in state.runs.values():
        saved, log, parts, total = run.checkpoints, run.log, list[str](), 0
        if saved is not None and is_on(disk, saved.path, saved.host, state.disks):
            total = sum(one.bytes or 0 for one in saved.list)
            growth = f", {size(DAY / saved.every_s * saved.bytes)} per day" if saved.every_s and saved.bytes else ""
            parts.append(f"{counted(len(saved.list), 'checkpoint')} {size(total)}{growth}")
        if log is not None and log.path is not None and is_on(disk, log.path, log.host, state.disks):
            total += log.size or 0
            parts.append(f"log {size(log.size)}")
        if parts:
            found.append((total, run, "; ".join(parts)))
    if not found:
        yield (Span("None of the watched runs saves checkpoints or logs here.", "dim"),)
    for _, run, text in sorted(found, key=lambda one: -one[0])[:SHOWN]:
        yield linked_fact("run", Link("run", run.name), f"{run.name}  {text}", width)
    yield from more_fact(len(found) - SHOWN, width)
    fitting = checkpoints_that_fit(disk, state.disks, state.runs.values())
    if fitting is not None:
        text = f"{counted(fitting, 'checkpoint')} of the largest size"
        yield fact("room for", text, width, "" if fitting > 1 else "warn")


def deletable(shown: ShownDisk, state: State, width: int) -> Iterator[Line | Linked]:
    """The checkpoints that no restart needs, the oldest first. trainmon-tui deletes nothing."""
    runs = [
        (run, spare(run)) for run in state.runs.values()
        if run.checkpoints is not None
        and is_on(shown.disk, run.checkpoints.path, run.checkpoints.host, state.disks)
    ]  # fmt: skip
    total = sum(one.bytes or 0 for _, found in runs for one in found)
    number = sum(len(found) for _, found in runs)
    yield (Span("what could be deleted", "dim"),)
    if not number:
        yield (Span("Nothing of the watched runs: each has only the checkpoint that a restart needs.", "dim"),)
        return
    text = f"{counted(number, 'checkpoint')}, {size(total)}: a restart needs none. trainmon-tui deletes nothing."
    yield from wrapped_fact("in total", text, width)
    for run, found in runs:
        for index, one in enumerate(found[:SHOWN]):
            state_of = one.state if one.state == "superseded" else f"{one.state}: {one.why}"
            path = shorten_start(clean(one.path), max(12, width - LABEL - 30))
            label = clean(run.name) if index == 0 else ""
            yield fact(label[: LABEL - 1], f"{path}  {size(one.bytes)}  {clean(state_of)}", width)
        yield from more_fact(len(found) - SHOWN, width)


def spare(run: Run) -> Sequence[Checkpoint]:
    """The superseded and torn checkpoints of a run, the oldest first, without the one that a restart takes. Without a
    committed one, nothing is spare."""
    saved = run.checkpoints
    if saved is None or saved.committed is None or saved.error is not None:
        return ()
    return [one for one in reversed(saved.list) if one.state in ("superseded", "torn") and one.path != saved.resumes]
