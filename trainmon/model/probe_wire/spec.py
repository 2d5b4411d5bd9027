"""What a probe is asked to watch."""

from __future__ import annotations

import msgspec

from trainmon.model.probe_wire.samples import VERSION

ON_NODE = "on its node: "
"""The id of the log of a run that is read on its node: this, and the name of the run."""


class LogSpec(msgspec.Struct, frozen=True):
    """A log to follow: an exact path or a glob, whose newest match is followed."""

    id: str
    pattern: str
    optional: bool = False
    """Whether it is no error that there is no such file."""
    without: str = ""
    """A regular expression of the paths that belong to other runs."""
    local: bool = False
    """Whether it is read only if no other host sees it: one host reads what all of them see."""
    own_since: float | None = None
    """Of a pattern with two stars that nobody has configured: only files and directories of the probe's own user count,
    written since then, and few names of each directory are looked at."""


class FileSpec(msgspec.Struct, frozen=True):
    """A file to read once: an exact path, or a glob that one file matches."""

    id: str
    pattern: str
    again: bool = False
    """Whether it is read again whenever it has changed: a small file that its writer replaces."""
    part: tuple[int, int | None] | None = None
    """Only the end of this part is read, as text: the offsets where it begins and ends; null: at the end of the
    file."""


class WandbDirectory(msgspec.Struct, frozen=True):
    """A directory of the W&B client, whose newest run is followed."""

    id: str
    """The name of our run."""
    directory: str
    charts: tuple[str, ...] = ()
    """The metrics that are sent; without them, those that match the pattern."""
    pattern: str = ""
    """A regular expression, searched in the names of the metrics in lower case."""


class Spec(msgspec.Struct, frozen=True):
    """What a probe watches: paths and periods, never a secret. It is sent again whenever it changes."""

    period: float = 2.0
    slow: float = 30.0
    disks: tuple[str, ...] = ()
    logs: tuple[LogSpec, ...] = ()
    switches: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()
    """Directories of checkpoints."""
    keep: str = ""
    """A Python regular expression: lines that may carry a step, kept when a burst must be dropped."""
    own: bool = False
    """Whether the user's own processes on the GPUs are described."""
    mentions: tuple[str, ...] = ()
    """Texts to search once in what a log holds when the probe starts."""
    followed: tuple[str, ...] = ()
    """The checkpoint directories that are listed in every period, because an action waits for a checkpoint there."""
    files: tuple[FileSpec, ...] = ()
    """Files whose content identifies what an attempt trains with."""
    receipts: tuple[str, ...] = ()
    """Directories of receipts of trainmon-run; empty text: where it keeps them without a setting."""
    every_receipt: bool = False
    """Whether the receipts of all hosts are read, not only those of this host."""
    wandb: tuple[WandbDirectory, ...] = ()
    v: int = VERSION
