"""Disks: their room, their quotas, and when nothing is left."""

from __future__ import annotations

from typing import Literal

import msgspec

from trainmon.lib import Instant, Seconds


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
    of: Literal["disk", "quota"] = "disk"
    """Whether it is the disk that is full then, or the quota used up."""

    @property
    def description(self) -> str:
        """What it assumes, in a few words."""
        if self.basis == "cycles":
            return f"after {self.cycles} deletions seen, what remains after each grows"
        if self.basis == "stopped":
            return "deletions seem to have stopped"
        return "assuming nothing is deleted"


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """One watched path on one host."""

    host: str
    cluster: str
    path: str
    at: Instant
    state: Literal["ok", "hung", "error"] = "ok"
    error: str | None = None
    mount: str | None = None
    filesystem: str | None = None
    read_only: bool | None = None
    writable_at: Instant | None = None
    """When it was last seen writable; one that is read-only since has been remounted."""
    lag: Seconds = 0.0
    """How old its statistics may be besides: a change is not judged finer than that."""
    quota: Quota | None = None
    """What the quota command of its path said last."""
    total_bytes: int | None = None
    free_bytes: int | None = None
    usable_free_bytes: int | None = None
    """Free bytes until the configured `usable` share of the disk is used; equal to free_bytes without one."""
    total_inodes: int | None = None
    free_inodes: int | None = None
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
