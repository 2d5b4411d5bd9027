"""States to draw: a calm cluster, and one where everything that can go wrong does. Values only, the time is given."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from trainmon.model import Disk, Gpu, InfinibandPort, Node, Process, Source, State

NOW = 1_800_000_000.0
TIB, GIB = 2.0**40, 2.0**30

IDLE: dict[str, Any] = {"utilization_pct": 0, "memory_used_mib": 4, "temperature_c": 34}


def gpu(index: int, **facts: Any) -> Gpu:
    """A training H100 on an ordinary day."""
    usual = {
        "uuid": f"GPU-{index:04}", "name": "NVIDIA H100 80GB HBM3", "temperature_c": 60 + index % 4,
        "memory_temperature_c": 70, "temperature_margin_c": 26, "memory_used_mib": 79_800, "memory_total_mib": 81_559,
        "utilization_pct": 98, "power_w": 690.0, "power_limit_w": 700.0, "sm_clock_mhz": 1_755, "mig": False,
        "ecc_uncorrected": 0, "ecc_corrected": 0, "remap_pending": False, "remap_failed": False,
        "throttle": ("sw_power_cap",),
        "processes": (Process(4100 + index, "me", 79_000, "python3 train.py --config video-2b.yaml"),),
    }  # fmt: skip
    return Gpu(index=index, **(usual | facts))


def node(name: str, gpus: int = 8, changed: dict[int, dict[str, Any]] | None = None, **facts: Any) -> Node:
    """A node of eight; `changed` says what is different about some of its GPUs."""
    changed = changed or {}
    usual = {
        "cluster": "prod", "probe": "nvml", "driver": "580.95.05", "clock_skew_s": 0.01, "load1": 41.2,
        "cpu_count": 192,
        "memory_used_mib": 610_000, "memory_total_mib": 2_063_000, "boot_time": NOW - 12 * 86_400, "oom_kills": 0,
        "network_errors": 0, "infiniband": tuple(InfinibandPort(f"mlx5_{i}/1", "ACTIVE", 0, 0) for i in range(8)),
        "gpus_expected": gpus, "gpus": tuple(gpu(i, **changed.get(i, {})) for i in range(gpus)), "gpus_at": NOW - 1,
        "host_at": NOW - 1,
    }  # fmt: skip
    return Node(name=name, **(usual | facts))


def source(name: str, **facts: Any) -> Source:
    usual = {"health": "ok", "phase": "up", "answered_at": NOW - 1}
    return Source(name=f"node:{name}", kind="node", cluster="prod", **(usual | facts))


def state(*nodes: Node, sources: tuple[Source, ...] = (), disks: tuple[Disk, ...] = (), **facts: Any) -> State:
    """A State of these; a node without a source of its own gets one that is well."""
    named = {found.name: found for found in sources}
    for made in nodes:
        named.setdefault(f"node:{made.name}", source(made.name))
    return State(
        at=NOW, sources=named, nodes={made.name: made for made in nodes}, disks={disk.key: disk for disk in disks},
        **facts,
    )  # fmt: skip


def calm(nodes: int, gpus: int = 8) -> State:
    return state(*(node(f"node{i:02}", gpus) for i in range(1, nodes + 1)), disks=disks())


def rough(calm_nodes: int = 10) -> State:
    """Everything at once."""
    lost = dict.fromkeys(
        ("temperature_c", "memory_used_mib", "utilization_pct", "power_w", "temperature_margin_c", "sm_clock_mhz")
    )
    nodes = [
        *(node(f"node{i:02}") for i in range(20, 20 + calm_nodes)),
        node("node07", changed={5: {"temperature_c": 94, "temperature_margin_c": -1, "throttle": ("hw_thermal",)}}),
        node("node03", changed={2: {"state": "lost", "error": "GPU is lost", "last_xid": 79, "last_xid_at": NOW - 400.0}
                                | lost}),
        node("node09", gpus_expected=9),
        node("node11", changed={0: {"throttle": ("hw_slowdown", "hw_power_brake")}}),
        node("node12", changed={7: {"ecc_uncorrected": 2, "remap_pending": True}}),
        node("node13", changed=dict.fromkeys(range(8), IDLE)),
        node("node14", changed={i: {"mig": True, "utilization_pct": None} for i in range(8)}),
        node("node15"), node("node08"), node("node16"),
        node("node17", troubles={"disk": "statvfs of /scratch hangs"}),
        node("node18", changed={i: {"temperature_margin_c": 4, "temperature_c": 83} for i in (1, 2)}),
    ]  # fmt: skip
    sources = (
        source("node15", health="late", answered_at=NOW - 9),
        source("node08", health="down", phase="retrying", error="no answer in 10s", answered_at=NOW - 42,
               hint="try: ssh node08"),
        source("node16", health="down", phase="held", error="Permission denied (publickey,keyboard-interactive)"),
        source("node19", health="late", phase="connecting", answered_at=None),
    )  # fmt: skip
    return state(*nodes, sources=sources, disks=disks())


def disk(path: str, host: str = "login", **facts: Any) -> Disk:
    usual = {
        "at": NOW - 5, "mount": path, "filesystem": "xfs", "read_only": False, "total_bytes": int(100 * TIB),
        "free_bytes": int(40 * TIB), "usable_free_bytes": int(40 * TIB), "total_inodes": 1_000_000,
        "free_inodes": 880_000, "bytes_per_day": 0.2 * TIB,
    }  # fmt: skip
    return Disk(host=host, cluster="prod", path=path, **(usual | facts))


def disks() -> tuple[Disk, ...]:
    return (
        disk("/scratch", filesystem="lustre", total_bytes=int(10.5 * TIB), free_bytes=int(4.1 * TIB),
             free_inodes=30_000, usable_free_bytes=int(2.0 * TIB), bytes_per_day=19.0 * TIB, inodes_per_day=140_000.0,
             full_at=NOW + 18_000, inodes_full_at=NOW + 18_500),
        disk("/home", total_bytes=int(617 * GIB), free_bytes=int(210 * GIB), usable_free_bytes=int(210 * GIB),
             bytes_per_day=1.1 * GIB, full_at=NOW + 190 * 86_400),
        disk("/tmp", "node07", total_bytes=int(137 * GIB), free_bytes=int(11 * GIB),
             usable_free_bytes=int(11 * GIB), bytes_per_day=5 * GIB, full_at=NOW + 2.2 * 86_400),
        disk("/mnt/nfs", "node08", state="hung", at=NOW - 120, total_bytes=None, free_bytes=None,
             usable_free_bytes=None, total_inodes=None, free_inodes=None, bytes_per_day=None),
        disk("/data/archive/2026", "node09", state="error", error="No such file or directory", total_bytes=None,
             free_bytes=None, usable_free_bytes=None, total_inodes=None, free_inodes=None, bytes_per_day=None),
        disk("/opt", "node09", read_only=True, total_inodes=None, free_inodes=None, bytes_per_day=-0.1 * TIB),
    )  # fmt: skip


def changed_temperature(found: State, name: str, index: int, degrees: int) -> State:
    """The state a moment later: one GPU of one node is this warm."""
    was = found.nodes[name]
    gpus = tuple(replace(g, temperature_c=degrees) if g.index == index else g for g in was.gpus)
    return replace(found, nodes={**found.nodes, name: replace(was, gpus=gpus)})
