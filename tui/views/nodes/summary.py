"""A node in one line: its problems as flags, and its summary numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trainmon.lib import Instant, Seconds, clean, duration
from trainmon.model import Node, SchedulerNode
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


def numbers(indexes: list[int]) -> str:
    """`gpu5`, or `gpu1,5`; of many only how many."""
    return f"gpu{','.join(map(str, indexes))}" if len(indexes) <= 3 else f"{len(indexes)} GPUs"


NO_DRIVER = "no GPU: neither NVIDIA's driver library nor nvidia-smi is installed"


def without_driver(node: Node) -> bool:
    """Whether nothing on the node can read GPUs."""
    return node.probe == "none" and not node.gpus


def missing_gpus(node: Node) -> int:
    """The number of GPUs that the driver or PCI lists and that were never seen."""
    return max(0, (node.gpus_expected or 0) - len(node.gpus))


def host_flags(node: Node) -> Iterator[Span]:
    """`gpu: no answer`, `DRAINED fan 3 broken`, `CLOCK 7m ahead`: what fails in the probe, why its scheduler starts no
    jobs on it, and a large clock skew. A GPU that Slurm misses is critical."""
    for part, trouble in node.troubles.items():
        yield Span(clean(f"{part}: {trouble}", 200), "warn")
    state, *flags = (node.scheduler_state or "").split("+")
    because = node.scheduler_reason
    listed = SchedulerNode(name=node.name, cluster=node.cluster, state=state, flags=tuple(flags), reason=because)
    if state and not listed.is_usable:
        word, _, rest = node_state(listed).partition(", ")
        text = "; ".join(part for part in (rest, because) if part)
        yield Span(clean(f"{word.upper()} {text}".strip(), 200), "crit" if listed.lost_gpus else "warn")
    skew = node.clock_skew_s or 0.0
    if abs(skew) >= CLOCK_OFF:
        yield Span(f"CLOCK {duration(abs(skew))} {'ahead' if skew > 0 else 'behind'}", "warn")


def node_summary(node: Node, now: Instant) -> NodeSummary:
    """The summary of one node's GPUs, scheduler, clock and probe."""
    well = [gpu for gpu in node.gpus if gpu.state == "ok"]
    lost = [gpu.index for gpu in node.gpus if gpu.state == "lost"]
    failed = [gpu.index for gpu in node.gpus if gpu.state not in ("ok", "lost")]
    gone = missing_gpus(node)
    heats = {heat(gpu) for gpu in well}
    slow = dict.fromkeys(reason for gpu in well if gpu.throttle for reason in slowing(gpu.throttle))
    with_xid = (gpu for gpu in node.gpus if gpu.last_xid is not None and now - (gpu.last_xid_at or 0.0) < XID_FOR)
    xid = max(with_xid, key=lambda gpu: gpu.last_xid_at or 0.0, default=None)
    ecc = sum(gpu.ecc_uncorrected or 0 for gpu in well)
    remaps = {"failed" if gpu.remap_failed else "pending" for gpu in well if gpu.remap_failed or gpu.remap_pending}
    texts = (
        (f"LOST {numbers(lost) if lost else f'{gone} GPU'}" if lost or gone else "", "crit"),
        (f"ERROR {numbers(failed)}" if failed else "", "crit"),
        ("HOT", "crit") if "crit" in heats else ("warm" if "warn" in heats else "", "warn"),
        (f"THROTTLE {','.join(slow)}" if slow else "", "warn"),
        ("" if xid is None else f"XID {xid.last_xid} {age(now - (xid.last_xid_at or now))}", "warn"),
        (f"ECC {ecc}" if ecc else "", "crit"),
        ("REMAP failed", "crit") if "failed" in remaps else ("REMAP pending" if remaps else "", "warn"),
    )
    others = tuple(host_flags(node))
    faulty = ecc or remaps or xid is not None or others
    ranks = ((lost or failed or gone, LOST), (heats - {""}, HOT), (slow, THROTTLED), (faulty, FAULTY), (True, WELL))
    used = [gpu.utilization_pct for gpu in well if gpu.utilization_pct is not None and not gpu.mig]
    has_none = without_driver(node) and node.host_at is not None and "gpu" not in node.troubles
    return NodeSummary(
        rank=next(rank for applies, rank in ranks if applies),
        flags=(*(Span(text, style) for text, style in texts if text), *others),
        hottest_c=max((gpu.temperature_c for gpu in well if gpu.temperature_c is not None), default=None),
        utilization_pct=sum(used) / len(used) if used else None,
        no_utilization=NOT_APPLICABLE if has_none or (node.gpus and all(gpu.mig for gpu in node.gpus)) else UNKNOWN,
        no_memory=NOT_APPLICABLE if has_none else UNKNOWN,
        memory_used_mib=max((gpu.memory_used_mib for gpu in well if gpu.memory_used_mib is not None), default=None),
    )
