"""What the probe reads in the files of the W&B client."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from trainmon.model.probe_wire.samples import Reading


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
