"""What the GPUs of a run's nodes say of it while no step comes: only of nodes that answer now. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from trainmon.lib import Instant, Seconds
from trainmon.model import Gpu, Node, Run, Source

BUSY_PCT = 90.0
IDLE_PCT = 10.0
LOW_POWER = 0.5
"""GPUs that wait in a collective are 100 % busy at less than half of their power limit; training GPUs are not."""

EMPTY_MIB = 1_500
"""The driver's own part of an idle GPU's memory is below this; a training's is not."""

NO_PYTHON = "no usable python3"
"""What a probe's note says where only the shell looks: it reads no log, no switch file and no checkpoints."""

FRESH: Seconds = 60.0
"""A GPU's numbers are no witness when they are older: its node may have lost the job, or us."""


class GpuActivity(NamedTuple):
    """The GPUs of a run that are read now, on so many of its nodes."""

    found: tuple[Gpu, ...] = ()
    answering: int = 0
    nodes: int = 0

    @property
    def are_all_empty(self) -> bool:
        """Whether all its nodes answer, and no GPU has a process or memory in use: a container hides processes."""
        return bool(self.found) and self.answering == self.nodes and all(is_empty(gpu) for gpu in self.found)

    @property
    def mean_pct(self) -> float | None:
        known = [gpu.utilization_pct for gpu in self.found if gpu.utilization_pct is not None]
        return sum(known) / len(known) if known else None

    @property
    def spin(self) -> str:
        """`its GPUs are 100 % busy at 20 % of their power limit`, if most are: typical of a stuck collective."""
        known = [gpu.utilization_pct for gpu in self.found if gpu.utilization_pct is not None]
        busy = [gpu for gpu in self.found if (gpu.utilization_pct or 0) >= BUSY_PCT]
        shares = [gpu.power_w / gpu.power_limit_w for gpu in busy if gpu.power_w is not None and gpu.power_limit_w]
        if not shares or median(known) < BUSY_PCT or median(shares) >= LOW_POWER:
            return ""
        which = "its GPUs" if len(busy) == len(known) else f"{len(busy)} of its {len(known)} GPUs"
        mean = sum(gpu.utilization_pct or 0 for gpu in busy) / len(busy)
        return f"{which} are {mean:.0f} % busy at {100 * median(shares):.0f} % of their power limit"

    @property
    def work(self) -> bool:
        """Whether most of them are at work, by the power that they draw: what waits in a collective draws less."""
        known = [gpu for gpu in self.found if gpu.utilization_pct is not None]
        shares = [gpu.power_w / gpu.power_limit_w for gpu in known if gpu.power_w is not None and gpu.power_limit_w]
        if not shares or len(shares) < len(known):
            return False
        return median(gpu.utilization_pct or 0 for gpu in known) >= BUSY_PCT and median(shares) >= LOW_POWER

    @property
    def silent_nodes(self) -> str:
        """`; 3 of its 4 nodes do not answer`, where some do."""
        silent = self.nodes - self.answering
        return f"; {silent} of its {self.nodes} nodes do not answer" if silent and self.answering else ""


def is_empty(gpu: Gpu) -> bool:
    return not gpu.processes and gpu.memory_used_mib is not None and gpu.memory_used_mib < EMPTY_MIB


def is_read(name: str, nodes: Mapping[str, Node], sources: Mapping[str, Source], now: Instant) -> bool:
    """Whether what is known of a node's GPUs is true now."""
    node = nodes.get(name)
    if node is None or not node.gpus:
        return False
    if node.gpus_at is not None:
        return now - node.gpus_at <= FRESH
    source = sources.get(f"node:{name}")
    return source is None or source.health == "ok"


def unread(cluster: str, nodes: Mapping[str, Node]) -> str:
    """Why no file of a cluster is read: none of its hosts that were heard has a python3. Nothing where one has."""
    notes = [node.note or "" for node in nodes.values() if node.cluster == cluster]
    is_mute = bool(notes) and all(NO_PYTHON in note for note in notes)
    return "not read: no host that answers has a usable python3" if is_mute else ""


def gpus_of(run: Run, nodes: Mapping[str, Node], sources: Mapping[str, Source], now: Instant) -> GpuActivity:
    """The GPUs of its nodes, as far as they are read now."""
    names = [name for name in run.spec.nodes if is_read(name, nodes, sources, now)]
    return GpuActivity(tuple(gpu for name in names for gpu in nodes[name].gpus), len(names), len(run.spec.nodes))
