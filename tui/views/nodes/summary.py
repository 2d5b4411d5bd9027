"""A node in one line: its problems as flags, and its summary numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
    if node.scheduler_state:
        state, *flags = node.scheduler_state.split("+")
        because = node.scheduler_reason
        listed = SchedulerNode(name=node.name, cluster=node.cluster, state=state, flags=tuple(flags), reason=because)
        if not listed.is_usable:
            word, _, rest = node_state(listed).partition(", ")
            text = "; ".join(part for part in (rest, because) if part)
            yield Span(clean(f"{word.upper()} {text}".strip(), 200), "crit" if listed.lost_gpus else "warn")
    skew = node.clock_skew_s or 0.0
    if abs(skew) >= CLOCK_OFF:
        yield Span(f"CLOCK {duration(abs(skew))} {'ahead' if skew > 0 else 'behind'}", "warn")


def has_errors(gpu: Gpu) -> bool:
    return bool(gpu.last_xid is not None or gpu.ecc_uncorrected or gpu.remap_failed or gpu.remap_pending)


def gpu_flags(odd: list[Gpu], gone: int, heats: set[str], slow: Iterable[str], now: Instant) -> tuple[int, list[Span]]:
    """The rank and the flags of a node by its GPUs. `odd`: those that do not answer or have errors."""
    lost = [gpu.index for gpu in odd if gpu.state == "lost"]
    failed = [gpu.index for gpu in odd if gpu.state not in ("ok", "lost")]
    with_xid = (gpu for gpu in odd if gpu.last_xid is not None and now - (gpu.last_xid_at or 0.0) < XID_FOR)
    xid = max(with_xid, key=lambda gpu: gpu.last_xid_at or 0.0, default=None)
    answering = [gpu for gpu in odd if gpu.state == "ok"]
    ecc = sum(gpu.ecc_uncorrected or 0 for gpu in answering)
    remaps = {"failed" if gpu.remap_failed else "pending" for gpu in answering if gpu.remap_failed or gpu.remap_pending}
    texts = (
        (LOST, f"LOST {numbers(lost) if lost else f'{gone} GPU'}" if lost or gone else "", "crit"),
        (LOST, f"ERROR {numbers(failed)}" if failed else "", "crit"),
        (HOT, "HOT", "crit") if "crit" in heats else (HOT, "warm" if "warn" in heats else "", "warn"),
        (THROTTLED, f"THROTTLE {','.join(slow)}" if slow else "", "warn"),
        (FAULTY, "" if xid is None else f"XID {xid.last_xid} {age(now - (xid.last_xid_at or now))}", "warn"),
        (FAULTY, f"ECC {ecc}" if ecc else "", "crit"),
        (FAULTY, "REMAP failed", "crit") if "failed" in remaps else (FAULTY, "REMAP pending" if remaps else "", "warn"),
    )
    flags = [Span(text, style) for _, text, style in texts if text]
    return min((rank for rank, text, _ in texts if text), default=WELL), flags


def node_summary(node: Node, now: Instant) -> NodeSummary:
    """The summary of one node's GPUs, scheduler, clock and probe. One pass: 2,048 GPUs are read every two seconds."""
    degrees: list[int] = []
    used: list[int] = []
    memory: list[int] = []
    heats: set[str] = set()
    slow: dict[str, None] = {}
    odd: list[Gpu] = []
    for gpu in node.gpus:
        if gpu.state != "ok" or has_errors(gpu):
            odd.append(gpu)
        if gpu.state == "ok":
            heats.add(heat(gpu))
            if gpu.temperature_c is not None:
                degrees.append(gpu.temperature_c)
            if gpu.utilization_pct is not None and not gpu.mig:
                used.append(gpu.utilization_pct)
            if gpu.memory_used_mib is not None:
                memory.append(gpu.memory_used_mib)
            if gpu.throttle and (reasons := slowing(gpu.throttle)):
                slow.update(dict.fromkeys(reasons))
    gone, others = missing_gpus(node), list(host_flags(node))
    rank, flags = gpu_flags(odd, gone, heats, slow, now) if odd or gone or slow or heats - {""} else (WELL, [])
    has_none = without_driver(node) and node.host_at is not None and "gpu" not in node.troubles
    return NodeSummary(
        rank=min(rank, FAULTY) if others else rank,
        flags=(*flags, *others),
        hottest_c=max(degrees, default=None),
        utilization_pct=sum(used) / len(used) if used else None,
        no_utilization=NOT_APPLICABLE if has_none or (node.gpus and all(gpu.mig for gpu in node.gpus)) else UNKNOWN,
        no_memory=NOT_APPLICABLE if has_none else UNKNOWN,
        memory_used_mib=max(memory, default=None),
    )
