"""Readings of files: logs, switches, checkpoints, receipts, contents, and the files of the W&B client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from trainmon.model.probe_wire.samples import Reading

# ---- readings of files -----------------------------------------------------------------------------------------------


class OtherLog(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Another file that the pattern of a followed log matches."""

    path: str
    written_at: float


class LogChunk(Reading, frozen=True, tag="log", gc=False):
    """New lines of one followed log. Untrusted text; progress bars are already collapsed to their last state."""

    id: str
    """The spec's own name for this log: the run's name."""
    path: str | None = None
    size: int | None = None
    mtime: float | None = None
    lines: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Of the dropped lines, the last that looked like step lines; older than `lines`."""
    mentions: tuple[str, ...] = ()
    """Of the lines from before the probe started, some with a text of `Spec.mentions`."""
    dropped: int = 0
    seen: int = 0
    """Lines since the last chunk, including the dropped ones."""
    partial: str | None = None
    """The unfinished last line: its last state, and before it the last whole bar or step, with a carriage return
    between them, and behind them if the last one is whole; null when there is none."""
    restarted: Literal["truncated", "replaced", "newer"] | None = None
    error: str | None = None
    head: str | None = None
    """Of a file that was there before: its first line with a date and a time."""
    born: float | None = None
    """When the file was created, where the system says that."""
    local: bool = False
    """Whether no other host sees the file."""
    others: tuple[OtherLog, ...] = ()
    """When the file was opened: the other files that match, the newest first."""


class SwitchSample(msgspec.Struct, frozen=True, gc=False):
    """A switch file: whether it exists, its mtime, its owner, and its text (at most 500 bytes). Of a symbolic link, the
    times and the owner are those of the link."""

    path: str
    exists: bool | None = None
    """Null if that is unknown (a hung mount, no permission)."""
    mtime: float | None = None
    owner: str | None = None
    kind: str | None = None
    """What it is, if it is no regular file with one link: `a symbolic link`. Then its text is not read."""
    text: str | None = None
    error: str | None = None


class SwitchSamples(Reading, frozen=True, tag="switch", gc=False):
    """All watched switch files."""

    s: tuple[SwitchSample, ...]


class FileGroup(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Files of one checkpoint whose names differ only in numbers: 512 shards are one line, not 512."""

    pattern: str
    """The path below the checkpoint, each run of digits as `#`: `__#_#.distcp`, `optimizer/rank_#.pt`. A directory
    that was not walked ends in `/`."""
    count: int
    bytes: int
    oldest: float
    """The earliest mtime among them, and the latest."""
    newest: float
    example: str = ""
    """The last of them by name: `model-00003-of-00004.safetensors`."""
    folders: int = 1
    """How many directories contain them: as many for `pp#/.metadata` as for `pp#/__#_#.distcp` if all are complete."""
    shrunk: tuple[str, int, int] | None = None
    """A file that has less than a tenth of its size in the save before: its path, its size and that size."""


class CheckpointEntry(msgspec.Struct, frozen=True, gc=False):
    """One name in a checkpoint directory: a checkpoint, a pointer, a marker, or something else."""

    name: str
    kind: Literal["dir", "file", "link", "other"] = "dir"
    mtime: float = 0.0
    bytes: int | None = None
    """The size of the file, or of everything in the directory."""
    target: str | None = None
    """The target of a link."""
    groups: tuple[FileGroup, ...] = ()
    """The content of a directory, to a depth of eight."""
    text: str | None = None
    """The text of a small pointer file (at most 500 bytes), such as `latest` or `latest.txt`."""
    error: str | None = None
    cut: bool = False
    """Whether not all of it could be listed in time."""


class CheckpointListing(Reading, frozen=True, tag="ckpt", gc=False):
    """A checkpoint directory: sent when it changes, and every slow tick while its content changes. Untrusted names."""

    path: str
    entries: tuple[CheckpointEntry, ...] = ()
    error: str | None = None
    """Why it cannot be listed: it does not exist, or is not readable."""
    left_out: int = 0
    """How many entries were not examined: the oldest of too many, or those after the time limit."""
    took_s: float = 0.0
    real: str | None = None
    """The path without symbolic links."""


class FileContent(Reading, frozen=True, tag="file", gc=False):
    """A file of `Spec.files`: sent when it was read, and when the reason changes why it cannot be. Untrusted."""

    id: str
    path: str | None = None
    """The one file that matches."""
    size: int | None = None
    mtime: float | None = None
    sha256: str | None = None
    text: str | None = None
    """All of it, if it is text of at most 32 KiB; or the last 48 KiB of the requested part."""
    error: str | None = None


class ReceiptFiles(msgspec.Struct, frozen=True, gc=False):
    """A receipt of trainmon-run as its files are. Untrusted texts."""

    name: str
    """The name of its directory: host, time and pid."""
    path: str
    start: str | None = None
    """The text of start.json."""
    end: str | None = None
    """The text of end.json."""
    gone: bool | None = None
    """Whether neither trainmon-run nor its command runs any more; null if this host cannot tell."""
    command_pid: int | None = None
    error: str | None = None


class Receipts(Reading, frozen=True, tag="receipts", gc=False):
    """The receipts of a directory that are new or have changed."""

    directory: str
    """As in `Spec.receipts`."""
    receipts: tuple[ReceiptFiles, ...] = ()
    error: str | None = None
    """Why the directory cannot be listed."""


# ---- what the probe reads in the files of the W&B client -------------------------------------------------------------


class WandbFileRun(msgspec.Struct, frozen=True, gc=False):
    """The W&B run of a file, as its client began it. Untrusted texts."""

    id: str = ""
    entity: str = ""
    project: str = ""
    group: str = ""
    name: str = ""
    host: str = ""
    tags: tuple[str, ...] = ()
    started_at: float | None = None


class WandbRows(Reading, frozen=True, tag="wandb", gc=False):
    """New rows of the newest file of a directory, and what else is new in it. A reader that starts again repeats them:
    rows have numbers. Untrusted texts."""

    id: str
    """The name of our run."""
    path: str | None = None
    file: str = ""
    """The same as long as it is the same file."""
    size: int = 0
    mtime: float | None = None
    offset: int = 0
    """How far it was read."""
    rows: int = 0
    """Rows of its history up to there."""
    damaged: int = 0
    """Blocks and records that were skipped, because they are damaged."""
    tail: int = 0
    """Incomplete parts at its end, for which more may come."""
    more: bool = False
    """Whether the rest of the file can be read at once: the reader reads so much per second."""
    step: float | None = None
    """W&B's own counter `_step` in the newest row."""
    logged_at: float | None = None
    """When the newest row was logged, by the run's own clock."""
    keys: tuple[str, ...] = ()
    points: tuple[tuple[float | str | None, ...], ...] = ()
    """The rows that are charted: number, step, time, and a value for each of the keys, null at the end left out."""
    summary: Mapping[str, str] = {}
    """Of the latest values those that have changed, in JSON."""
    config: Mapping[str, str] = {}
    """Of the settings those that have changed, in JSON."""
    run: WandbFileRun | None = None
    exit: tuple[int, int] | None = None
    """The exit code, and the runtime in seconds, once the client has written its end."""
    error: str | None = None
