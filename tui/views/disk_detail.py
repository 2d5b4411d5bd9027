"""One disk in full, as lines: its space, when it is full, which runs write there, and what could be deleted. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainmon.analysis.disks import DAY, checkpoints_that_fit, is_on, saved_on
from trainmon.lib import Instant, clean, counted, shorten, shorten_start
from trainmon.model import Checkpoint, Log, Run, State
from tui.style import UNKNOWN, Span, age, bytes_used, count, duration, full_in, inodes_used, percent, size
from tui.views.disks import ShownDisk, doubt, notes, quota_sentence, unanswered
from tui.views.facts import LABEL, fact, linked_fact, more_fact, optional_fact, safe, wrapped_fact
from tui.widgets import Line, Link, Linked

SHOWN = 20
"""Runs, and checkpoints, that are listed."""


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
    left = disk.usable_free_bytes
    if ends is None and shown.has_only_a_rate and growth and growth > 0 and left is not None:
        text = f"{full_in(now + DAY * left / growth, now).text.rstrip('!')} if it goes on like that"
        yield fact("full in", text, width)
    elif ends is None:
        text = "not known yet" if disk.forecast is None else "it does not fill up at its present growth"
        yield fact("full in", text, width, "dim")
    else:
        text, style = full_in(ends, now)
        yield from wrapped_fact("full in", clean(f"{text.rstrip('!')}{doubt(shown, ends, now)}"), width, style)
    note = notes(shown, now)
    if note.text:
        yield fact("note", note.text, width, note.style)


def writers(shown: ShownDisk, state: State, width: int) -> Iterator[Line | Linked]:
    """The runs that write here: checkpoints and logs, with their sizes and how fast they come."""
    yield (Span("our runs that write here", "dim"),)
    disk, found = shown.disk, list[tuple[int, Run, str]]()
    for run in state.runs.values():
        saved, log, parts, total = run.checkpoints, run.log, list[str](), 0
        if saved is not None and is_on(disk, saved.path, saved.host, state.disks):
            total = sum(one.bytes or 0 for one in saved.list)
            pace = f", {size(saved.bytes)} every {duration(saved.every_s)}" if saved.every_s and saved.bytes else ""
            parts.append(f"{counted(len(saved.list), 'checkpoint')} {size(total)}{pace}")
        if log is not None and log.path is not None and is_on(disk, log.path, log.host, state.disks):
            total += log.size or 0
            parts.append(f"log {size(log.size)}{log_growth(log)}")
        if parts:
            found.append((total, run, "; ".join(parts)))
    if not found:
        yield (Span("None of the watched runs saves checkpoints or logs here.", "dim"),)
    longest = max((len(run.name) for _, run, _ in found), default=0)
    for _, run, text in sorted(found, key=lambda one: -one[0])[:SHOWN]:
        yield linked_fact("run", Link("run", run.name), f"{run.name:<{longest}}  {text}", width)
    yield from more_fact(len(found) - SHOWN, width)
    fitting = checkpoints_that_fit(disk, state.disks, state.runs.values())
    if fitting is not None:
        text = f"{counted(fitting, 'checkpoint')} of the largest size"
        yield fact("room for", text, width, "" if fitting > 1 else "warn")


def log_growth(log: Log) -> str:
    """`, 4.1M/day`: by its lines per second, and the usual length of a line."""
    if not log.lines_per_s or not log.lines:
        return ""
    return f", {size(DAY * log.lines_per_s * sum(len(line) + 1 for line in log.lines) / len(log.lines))}/day"


# ---- what could be deleted ---------------------------------------------------------------------------------------


def deletable(shown: ShownDisk, state: State, width: int) -> Iterator[Line]:
    """The checkpoints that no restart needs, the oldest first. trainmon-tui deletes nothing."""
    found = spares(shown, state)
    yield (Span("what could be deleted; trainmon-tui deletes nothing", "dim"),)
    if not found:
        saves = any(run.checkpoints.list for run in saved_on(shown.disk, state.disks, state.runs.values())
                    if run.checkpoints is not None)  # fmt: skip
        text = "each has only the checkpoint that a restart needs" if saves else "none of them has a checkpoint here"
        yield (Span(f"Nothing of the watched runs: {text}.", "dim"),)
        return
    total = sum(one.bytes or 0 for _, one in found)
    text = (
        f"{counted(len(found), 'checkpoint')}, {size(total)}: no restart needs {'it' if len(found) == 1 else 'them'}."
    )
    yield from wrapped_fact("in total", text, width)
    for run, one in found[:SHOWN]:
        yield spare_line(run, one, state.at, width)
    yield from more_fact(len(found) - SHOWN, width)


def spares(shown: ShownDisk, state: State) -> list[tuple[Run, Checkpoint]]:
    """The checkpoints on a disk that no restart of any run needs, the oldest first."""
    saved = [run.checkpoints for run in state.runs.values() if run.checkpoints is not None]
    needed = {path for one in saved for path in (one.resumes, one.committed and one.committed.path)}
    runs = saved_on(shown.disk, state.disks, state.runs.values())
    found = {one.path: (run, one) for run in runs for one in spare(run) if one.path not in needed}
    return sorted(found.values(), key=lambda pair: pair[1].at or 0.0)


def spare_line(run: Run, one: Checkpoint, now: Instant, width: int) -> Line:
    """`llm-7b        …/ckpt/step-1000   1.8T  2h old`."""
    about = f"{size(one.bytes):>5}  {age(now - one.at) if one.at else UNKNOWN:>3} old"
    about += f"  {one.state}: {clean(one.why)}" if one.state != "superseded" else ""
    path = shorten_start(safe(one.path), max(12, width - LABEL - len(about) - 3))
    return fact(shorten(clean(run.name), LABEL - 1), f"{path}  {about}", width)


def spare(run: Run) -> Sequence[Checkpoint]:
    """The superseded and torn checkpoints of a run. Without a committed one, nothing is spare."""
    saved = run.checkpoints
    if saved is None or saved.committed is None or saved.error is not None:
        return ()
    return [one for one in saved.list if one.state in ("superseded", "torn")]
