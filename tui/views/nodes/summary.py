"""A node in one line: its problems as flags, and its summary numbers. Pure."""

from __future__ import annotations

from typing import NamedTuple

from trainmon.lib import Instant, Seconds, clean, duration
from trainmon.model import Gpu, Node, SchedulerNode
from tui.style import DAY, NOT_APPLICABLE, UNKNOWN, Span, age, heat, slowing
from tui.views.jobs import node_state

DOWN, LOST, HOT, THROTTLED, FAULTY, LATE, WELL, OFF = range(8)
"""Ranks of a node, worst first."""

XID_FOR = DAY
"""How long an Xid stays in a node's line."""

CLOCK_OFF: Seconds = 5.0
"""A larger clock skew is a flag: the dates of the node's logs and files cannot be compared with ours."""


class NodeSummary(NamedTuple):
    """The numbers and flags of one node's GPUs."""

    rank: int
    flags: tuple[Span, ...] = ()
    hottest_c: int | None = None
    utilization_pct: float | None = None
    no_utilization: str = UNKNOWN
    """The text for a missing utilization. MIG GPUs and nodes without GPUs have none."""
    no_memory: str = UNKNOWN
    memory_used_mib: int | None = None
    """Of the GPU that uses the most: it runs out of memory first."""


class _Tally:
    """Counts over the GPUs of one node, in one pass: 2,048 GPUs are counted every two seconds."""

    __slots__ = ("degrees", "ecc", "failed", "hot", "lost", "memory", "remap", "slow", "used", "warm", "xid")

    def __init__(self) -> None:
        self.degrees: list[int] = []
        self.used: list[int] = []
        self.memory: list[int] = []
        self.lost: list[int] = []
        self.failed: list[int] = []
        self.hot = self.warm = 0
        self.slow: dict[str, None] = {}
        self.ecc = 0
        self.remap = ""
        self.xid: Gpu | None = None

    def add(self, gpu: Gpu, now: Instant) -> None:
        if gpu.last_xid is not None:
            at = gpu.last_xid_at or 0.0
            if now - at < XID_FOR and (self.xid is None or at > (self.xid.last_xid_at or 0.0)):
                self.xid = gpu
        if gpu.state != "ok":
            (self.lost if gpu.state == "lost" else self.failed).append(gpu.index)
            return
        if gpu.temperature_c is not None:
            self.degrees.append(gpu.temperature_c)
        if gpu.utilization_pct is not None and not gpu.mig:
            self.used.append(gpu.utilization_pct)
        if gpu.memory_used_mib is not None:
            self.memory.append(gpu.memory_used_mib)
        warmth = heat(gpu)
        if warmth:
            self.hot += warmth == "crit"
            self.warm += warmth == "warn"
        if gpu.throttle and (reasons := slowing(gpu.throttle)):
            self.slow.update(dict.fromkeys(reasons))
        if gpu.ecc_uncorrected:
            self.ecc += gpu.ecc_uncorrected
        if gpu.remap_failed or gpu.remap_pending:
            self.remap = "failed" if gpu.remap_failed else self.remap or "pending"

    def flags(self, missing: int, now: Instant) -> list[Span]:
        found = []
        if self.lost or missing:
            found.append(Span("LOST " + (numbers(self.lost) if self.lost else f"{missing} GPU"), "crit"))
        if self.failed:
            found.append(Span("ERROR " + numbers(self.failed), "crit"))
        if self.hot:
            found.append(Span("HOT", "crit"))
        elif self.warm:
            found.append(Span("warm", "warn"))
        if self.slow:
            found.append(Span(f"THROTTLE {','.join(self.slow)}", "warn"))
        if self.xid is not None:
            found.append(Span(f"XID {self.xid.last_xid} {age(now - (self.xid.last_xid_at or now))}", "warn"))
        if self.ecc:
            found.append(Span(f"ECC {self.ecc}", "crit"))
        if self.remap:
            found.append(Span(f"REMAP {self.remap}", "crit" if self.remap == "failed" else "warn"))
        return found

    def rank(self, missing: int) -> int:
        if self.lost or self.failed or missing:
            return LOST
        if self.hot or self.warm:
            return HOT
        if self.slow:
            return THROTTLED
        return FAULTY if self.ecc or self.remap or self.xid is not None else WELL


def numbers(indexes: list[int]) -> str:
    """`gpu5`, or `gpu1,5`; of many only how many."""
    return f"gpu{','.join(map(str, indexes))}" if len(indexes) <= 3 else f"{len(indexes)} GPUs"


NO_DRIVER = "no GPU: neither NVIDIA's driver library nor nvidia-smi is installed"


def without_driver(node: Node) -> bool:
    """Whether nothing on the node can read GPUs."""
    return node.probe == "none" and not node.gpus


def missing(node: Node) -> int:
    """The number of GPUs that the driver or PCI lists and that were never seen."""
    return max(0, (node.gpus_expected or 0) - len(node.gpus))


def scheduler_flag(node: Node) -> Span | None:
    """`DRAINED fan 3 broken`: why its scheduler starts no jobs on it. A GPU that Slurm misses is critical."""
    if not node.scheduler_state:
        return None
    state, *flags = node.scheduler_state.split("+")
    scheduler = SchedulerNode(
        name=node.name, cluster=node.cluster, state=state, flags=tuple(flags), reason=node.scheduler_reason
    )
    if scheduler.is_usable:
        return None
    word, _, rest = node_state(scheduler).partition(", ")
    because = "; ".join(part for part in (rest, scheduler.reason) if part)
    return Span(clean(f"{word.upper()} {because}".strip(), 200), "crit" if scheduler.lost_gpus else "warn")


def clock_flag(node: Node) -> Span | None:
    """`CLOCK 7m ahead`: a large clock skew."""
    skew = node.clock_skew_s
    if skew is None or abs(skew) < CLOCK_OFF:
        return None
    return Span(f"CLOCK {duration(abs(skew))} {'ahead' if skew > 0 else 'behind'}", "warn")


def survey(node: Node, now: Instant) -> NodeSummary:
    """The summary of one node's GPUs, scheduler, clock and probe."""
    tally = _Tally()
    for gpu in node.gpus:
        tally.add(gpu, now)
    gone = missing(node)
    flags, rank = tally.flags(gone, now), tally.rank(gone)
    for part, trouble in node.troubles.items():
        flags.append(Span(clean(f"{part}: {trouble}", 200), "warn"))
        rank = min(rank, FAULTY)
    others = [flag for flag in (scheduler_flag(node), clock_flag(node)) if flag is not None]
    if others:
        flags += others
        rank = min(rank, FAULTY)
    has_none = without_driver(node) and node.host_at is not None and "gpu" not in node.troubles
    return NodeSummary(
        rank=rank,
        flags=tuple(flags),
        hottest_c=max(tally.degrees, default=None),
        utilization_pct=sum(tally.used) / len(tally.used) if tally.used else None,
        no_utilization=NOT_APPLICABLE if has_none or (node.gpus and all(gpu.mig for gpu in node.gpus)) else UNKNOWN,
        no_memory=NOT_APPLICABLE if has_none else UNKNOWN,
        memory_used_mib=max(tally.memory, default=None),
    )
