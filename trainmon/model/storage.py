"""Storage: disks, quotas, forecasts and checkpoints."""

from __future__ import annotations

from typing import Literal

import msgspec

from trainmon.lib import Instant, Seconds
from trainmon.model.probe_wire import DiskSample


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What one user, group, project or fileset may use of a filesystem, and uses. A limit that is null is none."""

    whose: str
    """`user me`, `group lab`, `fileset scratch`."""
    filesystem: str | None = None
    """As the command calls it, where it does: a mount point, a device, a name."""
    used_bytes: int | None = None
    soft_bytes: int | None = None
    hard_bytes: int | None = None
    bytes_grace: str | None = None
    """While more than the soft limit is used: how long writes still succeed, as the command says it; `expired`."""
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
    """What a quota command said of one watched path."""

    cluster: str
    host: str
    """Where it was asked."""
    path: str
    at: Instant
    allowances: tuple[Allowance, ...] = ()
    """None at all: no quota is set there."""
    trouble: str | None = None
    """What the command complains of while it answers: a server that is away."""
    source: str = ""
    """The name of its source in State.sources."""

    @property
    def left_bytes(self) -> int | None:
        """What may still be written, by the tightest of them."""
        return min((n for one in self.allowances if (n := one.left_bytes) is not None), default=None)

    @property
    def left_inodes(self) -> int | None:
        return min((n for one in self.allowances if (n := one.left_inodes) is not None), default=None)


def left(used: int | None, limit: int | None) -> int | None:
    return None if used is None or limit is None else max(0, limit - used)


Basis = Literal["cycles", "stopped", "nothing-deleted"]
"""cycles: what is written is deleted again, and what remains after each deletion was looked at. stopped: the deletions
that there were have stopped. nothing-deleted: none were seen, and none are assumed."""


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """When nothing is left, and how far that can be believed."""

    full_at: Instant | None = None
    """Null where nothing grows."""
    basis: Basis = "nothing-deleted"
    span: Seconds = 0.0
    """How much history it rests on."""
    earliest: Instant | None = None
    latest: Instant | None = None
    """Half of all pairs of points say a time between these; null where they say never."""
    fit: float = 0.0
    """How much of the change is growth along one line: R², 0 to 1."""
    cycles: int = 0
    """Deletions that were seen."""
    per_day: float | None = None
    """Growth per day; negative when it shrinks."""
    of: Literal["disk", "quota"] = "disk"
    """Whether it is the disk that is full then, or the quota used up."""

    @property
    def description(self) -> str:
        """What it assumes, in a few words."""
        if self.basis == "cycles":
            return f"after {self.cycles} deletions seen, what remains after each grows"
        return "deletions seem to have stopped" if self.basis == "stopped" else "assuming nothing is deleted"


class Disk(DiskSample, frozen=True, kw_only=True):
    """One watched path on one host: its latest sample, its quota and its forecast."""

    host: str
    cluster: str
    at: Instant
    writable_at: Instant | None = None
    """When it was last seen writable; one that is read-only since has been remounted."""
    lag: Seconds = 0.0
    """How old its statistics may be besides: a change is not judged finer than that."""
    quota: Quota | None = None
    """What the quota command of its path said last."""
    usable_free_bytes: int | None = None
    """Free bytes until the configured `usable` share of the disk is used; equal to free_bytes without one."""
    bytes_per_day: float | None = None
    """Growth of the used bytes over the recorded history (≥ 10 min of it), negative when shrinking."""
    inodes_per_day: float | None = None
    full_at: Instant | None = None
    """When nothing may be written any more: of the disk or its quota, what comes first."""
    inodes_full_at: Instant | None = None
    forecast: Forecast | None = None
    """What `full_at` rests on."""
    inodes_forecast: Forecast | None = None

    @property
    def key(self) -> str:
        return f"{self.host}:{self.path}"

    @property
    def left_bytes(self) -> int | None:
        """What may still be written: the least of its usable share, its quota, and what is free."""
        quota = None if self.quota is None else self.quota.left_bytes
        return min((n for n in (self.usable_free_bytes, quota) if n is not None), default=None)

    @property
    def left_inodes(self) -> int | None:
        quota = None if self.quota is None else self.quota.left_inodes
        return min((n for n in (self.free_inodes, quota) if n is not None), default=None)


CheckpointState = Literal["writing", "committed", "superseded", "torn"]
"""writing: its trainer is at it. committed: whole, and the newest of that kind. superseded: whole, and older than that.
torn: not whole, and nobody writes it any more."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint as its directory's listing shows it; nothing in it is ever opened."""

    step: int | None
    """Null where its name says none (`last.ckpt`, `release`)."""
    state: CheckpointState
    path: str
    layout: str
    """Whose: megatron, deepspeed, hf, dcp, nanotron, lightning, nemo, kempnerforge, orbax, idefics."""
    bytes: int | None = None
    at: Instant | None = None
    """When it was committed, by our clock; of one that is not, when last something was written."""
    began_at: Instant | None = None
    why: str = ""
    """Why it is in this state, in a few words: `no metadata.json yet`."""

    @property
    def is_whole(self) -> bool:
        return self.state in {"committed", "superseded"}


class Checkpoints(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoint directory of a run, and what was learnt from it."""

    path: str
    host: str
    looked_at: Instant
    """When it was last listed, by our clock."""
    error: str | None = None
    """Why it cannot be listed."""
    note: str | None = None
    """What was left out: a directory too large or too slow to list in time."""
    list: tuple[Checkpoint, ...] = ()
    """Newest first, by step."""
    resumes: str | None = None
    """The path of what the trainer would resume from, by its own rule (its pointer, or its newest)."""
    problem: str | None = None
    """What is wrong with that, in a sentence: a pointer to nothing, or no committed checkpoint at all."""
    save_s: Seconds | None = None
    """How long a save usually takes: a median over those here."""
    every_s: Seconds | None = None
    """How often one is committed: a median."""
    every_steps: int | None = None
    bytes: int | None = None
    """How large one usually is."""

    @property
    def committed(self) -> Checkpoint | None:
        return next((one for one in self.list if one.state == "committed"), None)

    @property
    def writing(self) -> Checkpoint | None:
        return next((one for one in self.list if one.state == "writing"), None)

    @property
    def share(self) -> float | None:
        """Saving as a share of the training's time: BLOOM's 40 s every 3 h are 0.0037."""
        return self.save_s / self.every_s if self.save_s is not None and self.every_s else None

    def at_risk(self, step: int | None) -> int | None:
        """How many steps would be lost now: those since the last committed one; all of them where there is none."""
        committed = self.committed
        if step is None or (self.error is not None and (committed is not None or self.problem is None)):
            return None  # it cannot be looked at; one that is not there holds nothing
        if committed is None:
            return step
        return None if committed.step is None else max(0, step - committed.step)
