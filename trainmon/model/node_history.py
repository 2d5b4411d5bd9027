"""What is remembered of a node beside its latest numbers: counters that grew, faults, restarts. All of it bounded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from trainmon.lib import Instant


class Growth(NamedTuple):
    """A counter grew from `first` to `last`, at most a minute, by so much."""

    first: Instant
    last: Instant
    by: int


class Counter(msgspec.Struct, frozen=True, gc=False):
    """A counter that should not grow. One that fell was set anew (a reboot, a driver loaded), and is counted from
    there."""

    value: int
    grown: tuple[Growth, ...] = ()
    """The newest last, at most GROWTHS."""

    def since(self, at: Instant) -> int:
        """How much it grew since then."""
        return sum(growth.by for growth in self.grown if growth.last >= at)


class Fault(msgspec.Struct, frozen=True, gc=False):
    """One fault code of one GPU, from its first to its last of a burst: no more than FAULT_GAP apart."""

    code: int
    index: int | None
    """The GPU; null for an NVSwitch, or where the driver does not say."""
    first_at: Instant
    last_at: Instant
    count: int = 1
    text: str | None = None
    """What the kernel log said with the last; null where only NVML told it."""
    is_switch: bool = False
    """Whether it is an SXid."""


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """Of one node, what its readings told one after another."""

    counters: Mapping[str, Counter] = {}
    """By name: `oom_kills`, `ecc 3`, `link_downed mlx5_0/1`, `errors mlx5_0/1`."""
    faults: tuple[Fault, ...] = ()
    """The newest last, at most FAULTS."""
    booted_at: Instant | None = None
    """When it booted last, by our clock, and by its own: a clock that is set anew moves only one of them."""
    boot_time: Instant | None = None
    rebooted_at: Instant | None = None
    """When it booted while we watched: the boot before was another."""
    links: tuple[str, ...] = ()
    """InfiniBand ports that were ACTIVE once: one that never was is no fault."""
    gpus_most: int = 0
    """The most GPUs that it ever listed."""
    margins: Mapping[int, tuple[tuple[Instant, int], ...]] = {}
    """By GPU, its recent margins: those below WARM, without a break, the newest last."""
    slowed: Mapping[tuple[int, str], Instant] = {}
    """Since when a GPU is slowed down for a reason: (3, hw_thermal)."""
    emptied: Mapping[int, Instant] = {}
    """By GPU, when the last of its memory was let go."""
    floors: tuple[tuple[Instant, int], ...] = ()
    """Of each FLOOR_EVERY seconds the least memory (MiB) that was in use, the newest last, at most FLOORS."""


GROWTHS = 16
SAME_GROWTH = 60.0
"""Growth within so many seconds is one entry: a port that errs all the time is seen for a quarter of an hour."""

FAULTS = 64
FAULT_GAP = 600.0
"""A fault that comes again within ten minutes is the same burst; nvidia_gpu_exporter looks back as far."""

WARM = 15
"""Degrees of margin from which on margins are remembered: a GPU that is well costs nothing."""
MARGINS = 16

FLOOR_EVERY = 600.0
FLOORS = 37
"""Six hours, and the ten minutes that are not over."""
