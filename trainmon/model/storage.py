"""Storage: disks, quotas, forecasts and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from trainmon.lib import Instant, Seconds
from trainmon.model.probe_wire import DiskSample


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """The quota of one user, group, project or fileset on a filesystem, and its use. A null limit means no limit."""

    owner: str = msgspec.field(name="whose")
    """`user me`, `group lab`, `fileset scratch`."""
    filesystem: str | None = None
    """The name that the command prints, if any: a mount point, a device, a name."""
    used_bytes: int | None = None
    soft_bytes: int | None = None
    hard_bytes: int | None = None
    bytes_grace: str | None = None
    """While the soft limit is exceeded: how long writes still succeed, as the command prints it, or `expired`."""
    used_inodes: int | None = None
    soft_inodes: int | None = None
    hard_inodes: int | None = None
    inodes_grace: str | None = None
    is_inexact: bool = False
    """Whether a server did not answer, so that more may be used."""

    @property
    def left_bytes(self) -> int | None:
        return left(self.used_bytes, self.hard_bytes)

    @property
    def left_inodes(self) -> int | None:
        return left(self.used_inodes, self.hard_inodes)


class Quota(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a quota command about one watched path."""

    cluster: str
    host: str
    """The host where the command ran."""
    path: str
    at: Instant
    allowances: tuple[Allowance, ...] = ()
    """Empty if no quota is set there."""
    trouble: str | None = None
    """A problem that the command reports with its answer, such as a server that is down."""
    source: str = ""
    """The name of its source in State.sources."""

    @property
    def left_bytes(self) -> int | None:
        """What may still be written, by the strictest allowance."""
        return min((n for one in self.allowances if (n := one.left_bytes) is not None), default=None)

    @property
    def left_inodes(self) -> int | None:
        return min((n for one in self.allowances if (n := one.left_inodes) is not None), default=None)


def left(used: int | None, limit: int | None) -> int | None:
    return None if used is None or limit is None else max(0, limit - used)


Basis = Literal["cycles", "stopped", "nothing-deleted"]
"""cycles: files are written and deleted again; the forecast uses what remains after each deletion. stopped: there were
deletions, and they have stopped. nothing-deleted: no deletion was observed, and none is assumed."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """When the disk or quota is full, and how reliable that is."""

    full_at: Instant | None = None
    """Null if the use does not grow."""
    basis: Basis = "nothing-deleted"
    span: Seconds = 0.0
    """The length of the history that it uses."""
    earliest: Instant | None = None
    latest: Instant | None = None
    """Half of all pairs of points give a time between these; null means never."""
    fit: float = 0.0
    """How much of the change is growth along one line: R², 0 to 1."""
    cycles: int = 0
    """The number of observed deletions."""
    per_day: float | None = None
    """Growth per day; negative when it shrinks."""
    of: Literal["disk", "quota"] = "disk"
    """Whether the disk or the quota is full then."""

    @property
    def description(self) -> str:
        """Its assumption, in a few words."""
        if self.basis == "cycles":
            return f"although files were deleted {self.cycles} times: what remains grows"
        return "deletions seem to have stopped" if self.basis == "stopped" else "assuming nothing is deleted"


class Disk(DiskSample, frozen=True, kw_only=True):
    """One watched path on one host: its latest sample, its quota and its forecast."""

    host: str
    cluster: str
    at: Instant
    writable_at: Instant | None = None
    """When it was last writable. If it is read-only since then, it was remounted."""
    lag: Seconds = 0.0
    """How old its statistics may be. Shorter changes are ignored."""
    quota: Quota | None = None
    """The last answer of the quota command for its path."""
    usable_free_bytes: int | None = None
    """Free bytes until the configured `usable` share of the disk is used; equal to free_bytes without one."""
    bytes_per_day: float | None = None
    """Growth of the used bytes over the recorded history (≥ 10 min of it), negative when shrinking."""
    recent_per_day: float | None = None
    """The same of the last two minutes, while there is less history, and while the disk is falling."""
    inodes_per_day: float | None = None
    full_at: Instant | None = None
    """When no more bytes can be written: the disk or its quota is full, whichever comes first."""
    inodes_full_at: Instant | None = None
    falling_full_at: Instant | None = None
    """When it is full at the rate of the last two minutes, if it lost a quarter of its free space in them. It is shown
    and is no reason for an alert: a checkpoint is written as fast."""
    forecast: Forecast | None = None
    """The forecast behind `full_at`."""
    inodes_forecast: Forecast | None = None

    @property
    def key(self) -> str:
        return f"{self.host}:{self.path}"

    @property
    def left_bytes(self) -> int | None:
        """What may still be written: the least of its usable share, its quota and its free space."""
        quota = None if self.quota is None else self.quota.left_bytes
        return min((n for n in (self.usable_free_bytes, quota) if n is not None), default=None)

    @property
    def left_inodes(self) -> int | None:
        quota = None if self.quota is None else self.quota.left_inodes
        return min((n for n in (self.free_inodes, quota) if n is not None), default=None)


CheckpointState = Literal["writing", "committed", "superseded", "torn", "unknown"]
"""writing: the trainer writes it. committed: complete, and the newest complete one. superseded: complete, and older.
torn: incomplete, and no process writes it any more. unknown: its format is not recognised."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint as the listing of its directory shows it. Its files are never opened."""

    step: int | None
    """Null if its name contains none (`last.ckpt`, `release`)."""
    state: CheckpointState
    path: str
    layout: str
    """megatron, deepspeed, hf, dcp, nanotron, lightning, nemo, kempnerforge, orbax, idefics or nanogpt; unknown if its
    format is not recognised."""
    bytes: int | None = None
    at: Instant | None = None
    """When it was committed, by our clock; if it is incomplete, when it was last written."""
    began_at: Instant | None = None
    why: str = ""
    """Why it is in this state: `no metadata.json yet`."""

    @property
    def title(self) -> str:
        """`step 12,500`, or the name of the file."""
        return self.path.rpartition("/")[2] if self.step is None else f"step {self.step:,}"

    @property
    def is_whole(self) -> bool:
        return self.state in {"committed", "superseded"}


class Checkpoints(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoint directory of a run: its checkpoints, and how its saves usually are."""

    path: str
    host: str
    listed_at: Instant
    """When it was last listed, by our clock."""
    error: str | None = None
    """Why it cannot be listed."""
    note: str | None = None
    """What the listing lacks, such as directories that were too large or too slow to list in time."""
    list: tuple[Checkpoint, ...] = ()
    """Newest first, by step."""
    resumes: str | None = None
    """The path of the checkpoint from which the trainer would resume, by its own rule: its pointer, or its newest."""
    problem: str | None = None
    """The problem with that, in a sentence: a pointer to nothing, or no committed checkpoint at all."""
    trouble: str | None = None
    """That problem without what is so at the beginning of every training."""
    save_s: Seconds | None = None
    """How long a save usually takes: the median."""
    every_s: Seconds | None = None
    """The usual time between two commits: the median."""
    every_steps: int | None = None
    bytes: int | None = None
    """The usual size of a checkpoint."""

    @property
    def committed(self) -> Checkpoint | None:
        return next((one for one in self.list if one.state == "committed"), None)

    @property
    def next_start(self) -> Checkpoint | None:
        """From which a restart would resume: the newest complete one may not be named by the pointer yet. The committed
        one where the trainer would take none that is complete: a person must help it then."""
        return next((one for one in self.list if one.is_whole and one.path == self.resumes), self.committed)

    @property
    def committed_age_s(self) -> Seconds | None:
        """The age of the last committed checkpoint at the last listing. What was saved since is not known yet, so only
        this shows whether a save is late."""
        return None if self.committed is None or self.committed.at is None else self.listed_at - self.committed.at

    @property
    def writing(self) -> Checkpoint | None:
        return next((one for one in self.list if one.state == "writing"), None)

    @property
    def unrecognised(self) -> Checkpoint | None:
        """The newest one whose format is not recognised, if none was committed after it: what a restart would resume
        from is not known."""
        since = -1.0 if self.committed is None else self.committed.at or 0.0
        found = (one for one in self.list if one.state == "unknown" and (one.at or 0.0) > since)
        return max(found, key=lambda one: one.at or 0.0, default=None)

    @property
    def share(self) -> float | None:
        """The share of the training time that saves take: 40 s every 3 h (BLOOM) are 0.0037."""
        return self.save_s / self.every_s if self.save_s is not None and self.every_s else None

    def at_risk(self, step: int | None) -> int | None:
        """How many steps a crash would lose now: those since the checkpoint from which a restart would resume, or all
        if there is none."""
        start = self.next_start
        if self.unrecognised is not None:
            return None
        if step is None or (self.error is not None and (start is not None or self.problem is None)):
            return None  # it cannot be listed; a missing directory has no checkpoints
        if start is None:
            return step
        return None if start.step is None else max(0, step - start.step)


class EvalResult(msgspec.Struct, frozen=True, kw_only=True):
    """What an evaluator wrote about one checkpoint: one line of a file of results. Null or empty is not recorded."""

    step: int | None = None
    """The step of the checkpoint."""
    checkpoint: str | None = None
    """Its path."""
    evaluator: str | None = None
    image_digest: str | None = None
    """The digest of the image of the evaluator."""
    task_set: str | None = None
    task_set_version: str | None = None
    decoding: Mapping[str, str | int | float | bool | None] | None = None
    """The decoding parameters, such as `temperature`."""
    judge: str | None = None
    """The model that judged, with its version; `none` without one."""
    rubric_version: str | None = None
    results: Mapping[str, str | int | float | bool | None] | None = None
    """The scores, by name."""
    raw_outputs: str | None = None
    """Where the raw outputs are: a path or a URL."""
    evaluated_at: str | None = None
    """When, as the evaluator writes it."""

    @property
    def missing(self) -> tuple[str, ...]:
        """The fields that a reader needs and that are not recorded. Without a judge, no rubric is needed."""
        needed = EVAL_FIELDS if self.judge != "none" else tuple(one for one in EVAL_FIELDS if one != "rubric_version")
        return tuple(name for name in needed if not getattr(self, name) and getattr(self, name) != {})


EVAL_FIELDS = (
    "evaluator", "image_digest", "task_set", "task_set_version", "decoding", "judge", "rubric_version", "results",
    "raw_outputs",
)  # fmt: skip
"""What belongs to a result."""


class Evals(msgspec.Struct, frozen=True, kw_only=True):
    """The results of the evaluators of a run, as its files of results show them."""

    results: tuple[EvalResult, ...] = ()
    """In the order in which they were read, the newest last."""
    errors: Mapping[str, str] = {}
    """Why a file of results cannot be read, by its pattern in the config."""
    invalid_lines: int = 0
    """Lines that are no result, since the start."""
