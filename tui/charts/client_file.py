"""What the file of the W&B client is shown to say: its age first, for its writer flushes blocks of 32 KiB. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from trainmon.analysis.wandb import client_file
from trainmon.lib import Instant, clean, counted, size
from trainmon.model import Run, Wandb, WandbFile
from tui.style import CRIT, DOT, WARN, Span, calm_age, count

INCOMPLETE = "the file ends in an incomplete record: its client has not written the rest"
WRITER = "The W&B client writes rows in blocks of 32 KiB."

UNREAD = 256 * 1024
"""Bytes that are still to be read, above which the progress is shown."""


def newest_row(file: WandbFile, now: Instant) -> str:
    """`6s old`."""
    return "none yet" if file.logged_at is None else f"{calm_age(max(0.0, now - file.logged_at))} old"


def file_spans(file: WandbFile, now: Instant) -> tuple[Span, ...]:
    """The line over the charts: `∙ from the file, newest row 6s old  step 12,880  exit code 0  on gpu-001`."""
    run = file.runs[0] if file.runs else None
    parts = (
        f"from the file, newest row {newest_row(file, now)}",
        "" if run is None or run.step is None else f"step {count(run.step)}",
        "" if file.exit_code is None else f"exit code {file.exit_code}",
        f"on {run.host}" if run is not None and run.host else "",
        clean(file.project),
    )
    return (Span(f"{DOT} ", "dim"), Span("  ".join(part for part in parts if part)))


def file_notes(run: Run, file: WandbFile, served: Wandb | None, now: Instant) -> Iterator[tuple[str, str]]:
    """The notes, each with its style: where the curves come from beside W&B's state, and what is amiss."""
    if served is not None and served.current is not None:
        yield f"{DOT} curves from the file, newest row {newest_row(file, now)}", "dim"
    if file.error:
        yield f"{CRIT} {clean(file.error)}", "crit"
    if file.is_behind and file.size - file.offset > UNREAD:
        yield f"{DOT} reading the file: {100 * file.offset // file.size}% of {size(file.size)}", "dim"
    if client_file.ends_incomplete(file, run.verdict):
        yield f"{DOT} {INCOMPLETE}", "dim"
    if file.damaged:
        yield f"{WARN} {counted(file.damaged, 'damaged part')} of the file skipped", "warn"
    if file.damaged_before:
        yield f"{DOT} {counted(file.damaged_before, 'damaged part')} of earlier files skipped", "dim"


def why_no_rows(run: Run) -> list[tuple[str, str]]:
    """The sentences that replace the charts of a run whose curves come only from a file."""
    name, file = clean(run.name), run.wandb_file
    if file is None or file.checked_at is None:
        return [(f"{name}: its W&B files have not been read yet: {clean(run.spec.wandb_dir or '')}.", "dim")]
    if file.error:
        return [(f"{name}: {clean(file.error)}", "crit")]
    is_over = client_file.ends_incomplete(file, run.verdict)
    return [
        (
            f"{name}: its newest W&B file has no row to chart{'' if is_over else ' yet'}: {clean(file.path or '')}.",
            "dim",
        ),
        (f"{INCOMPLETE[0].upper()}{INCOMPLETE[1:]}." if is_over else WRITER, "dim"),
    ]
