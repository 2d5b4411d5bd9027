"""GPUs: what their activity shows about a run that makes no steps, who holds them, and the meaning of Xids. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Literal, NamedTuple

from trainmon.analysis.nodes import has_read_gpus
from trainmon.lib import Instant, Seconds, by_key, counted, group_by, listed
from trainmon.model import Gpu, GpuAverage, Job, Node, Run, Source, State, says

BUSY_PCT = 90.0
IDLE_PCT = 10.0
LOW_POWER = 0.5
"""GPUs that wait in a collective are 100% busy at less than half of their power limit; training GPUs are not."""

EMPTY_MIB = 1_500
"""The driver's own part of an idle GPU's memory is below this; a training's is not."""

WAITING_POWER = 1 / 3
"""On average, each GPU that does nothing but wait in a collective draws less than this share of its power limit: 15 to
30%. One that generates text, for example, is as busy, and mostly draws more."""

DISPLAY_MIB = 100
"""A display server without a desktop holds less memory of a GPU (MiB); the context of CUDA takes more."""

MOST_INSTANCES = 7
"""Of a GPU with MIG (MIG User Guide)."""

IDLE_GPU_PCT = 5
"""Utilization up to which one GPU is idle: a healthy training step never leaves it there for ten minutes."""

FRESH: Seconds = 60.0
"""Older numbers of a GPU are not used: its node may have lost the job or the connection."""


class GpuActivity(NamedTuple):
    """The GPUs of a run with current numbers, and how many of its nodes answer."""

    found: tuple[Gpu, ...] = ()
    answering: int = 0
    nodes: int = 0

    @property
    def are_all_empty(self) -> bool:
        """Whether all its nodes answer, and no GPU has a process or memory in use: a container hides processes."""
        return bool(self.found) and self.answering == self.nodes and all(is_empty(gpu) for gpu in self.found)

    @property
    def measured(self) -> tuple[Gpu, ...]:
        """Those with a utilization. None if one with MIG is in use: the run may be on its instances alone."""
        is_cut = any(gpu.mig and not is_empty(gpu) for gpu in self.found)
        return () if is_cut else tuple(gpu for gpu in self.found if gpu.utilization_pct is not None)

    @property
    def mean_pct(self) -> float | None:
        known = [gpu.utilization_pct or 0 for gpu in self.measured]
        return sum(known) / len(known) if known else None

    @property
    def spin(self) -> str:
        """`its GPUs are 100% busy at 20% of their power limit`, if most are: typical of a stuck collective."""
        known = [gpu.utilization_pct or 0 for gpu in self.measured]
        busy = [gpu for gpu in self.measured if (gpu.utilization_pct or 0) >= BUSY_PCT]
        shares = [gpu.power_w / gpu.power_limit_w for gpu in busy if gpu.power_w is not None and gpu.power_limit_w]
        if not shares or median(known) < BUSY_PCT or median(shares) >= LOW_POWER:
            return ""
        which = "its GPUs" if len(busy) == len(known) else f"{len(busy)} of its {len(known)} GPUs"
        mean = sum(gpu.utilization_pct or 0 for gpu in busy) / len(busy)
        return f"{which} are {mean:.0f}% busy at {100 * median(shares):.0f}% of their power limit"

    @property
    def work(self) -> bool:
        """Whether most of them work: GPUs that wait in a collective draw less power."""
        known = self.measured
        shares = [gpu.power_w / gpu.power_limit_w for gpu in known if gpu.power_w is not None and gpu.power_limit_w]
        is_known = bool(shares) and len(shares) == len(known)
        return (
            is_known and median(gpu.utilization_pct or 0 for gpu in known) >= BUSY_PCT and median(shares) >= LOW_POWER
        )

    @property
    def silent_nodes(self) -> str:
        """`; 3 of its 4 nodes do not answer`, where some do."""
        silent = self.nodes - self.answering
        return f"; {silent} of its {self.nodes} nodes are unreachable" if silent and self.answering else ""


def is_empty(gpu: Gpu) -> bool:
    return not gpu.processes and gpu.memory_used_mib is not None and gpu.memory_used_mib < EMPTY_MIB


def is_read(name: str, nodes: Mapping[str, Node], sources: Mapping[str, Source], now: Instant) -> bool:
    """Whether the numbers of a node's GPUs are current."""
    node = nodes.get(name)
    if node is None or not node.gpus:
        return False
    if node.gpus_at is not None:
        return now - node.gpus_at <= FRESH
    source = sources.get(f"node:{name}")
    return source is None or source.health == "ok"


def unread(cluster: str, nodes: Mapping[str, Node]) -> str:
    """Why no file of a cluster is read, if no host that answers has a python3; otherwise empty."""
    notes = [node.note for node in nodes.values() if node.cluster == cluster]
    is_mute = bool(notes) and all(says(note, "no-python") for note in notes)
    return "not read: no reachable host has a usable python3" if is_mute else ""


def gpus_of(run: Run, nodes: Mapping[str, Node], sources: Mapping[str, Source], now: Instant) -> GpuActivity:
    """The GPUs of a run with current numbers."""
    names = [name for name in run.spec.nodes if is_read(name, nodes, sources, now)]
    return GpuActivity(tuple(gpu for name in names for gpu in nodes[name].gpus), len(names), len(run.spec.nodes))


SLOWED = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"})
"""Throttle reasons that are neither chosen by the owner nor the normal power limit."""


def averages_of(
    run: Run, nodes: Mapping[str, Node], sources: Mapping[str, Source], now: Instant
) -> list[tuple[GpuAverage, float]]:
    """The averages of each GPU of a run, and the share of its power limit that it draws. Empty where one of them is not
    known or shows something else: if it is slowed down, it draws little while it works, and another process may keep it
    busy. Then nothing follows for all of them."""
    if not all(is_read(name, nodes, sources, now) for name in run.spec.nodes):
        return []
    paces = {(name, pace.index): pace for name in run.spec.nodes for pace in nodes[name].paces}
    gpus = [(gpu, paces.get((name, gpu.index))) for name in run.spec.nodes for gpu in nodes[name].gpus]
    known = [
        (pace, pace.power_w / gpu.power_limit_w)
        for gpu, pace in gpus
        if pace is not None and pace.power_w is not None and gpu.power_limit_w
        and not gpu.mig and len(gpu.processes) < 2 and SLOWED.isdisjoint(gpu.throttle)
    ]  # fmt: skip
    return known if len(known) == len(gpus) else []


def all_wait(averages: Sequence[tuple[GpuAverage, float]], since: Instant, share: float = WAITING_POWER) -> bool:
    """Whether each of several GPUs has been busy since then, at less than this share of its power limit. Where ranks
    wait for one that saves, evaluates or reads, the GPU of that one is idle, or works."""
    return len(averages) > 1 and all(
        pace.since <= since and (pace.utilization_pct or 0.0) >= BUSY_PCT and power < share for pace, power in averages
    )


def did_work(averages: Sequence[tuple[GpuAverage, float]]) -> bool:
    """Whether the GPUs have drawn the power of work."""
    return bool(averages) and median(power for _, power in averages) >= LOW_POWER


# ---- who holds GPUs --------------------------------------------------------------------------------------------------

Uses = Mapping[tuple[str, int], tuple[bool | None, int | None]]
"""By node and index, the GPUs with current numbers: whether each is busy, and the memory in use there (MiB). `None`: it
is not measured. Busy is its average over the last minutes: between two steps, a training GPU is idle for a moment."""


class Holder(NamedTuple):
    """The GPUs that one job, or one user, holds. A GPU that two users share counts for each."""

    cluster: str
    user: str
    held: int
    """By Slurm's allocation. Without a job of the user on a node: the GPUs there with a process of the user."""
    jobs: tuple[Job, ...]
    uses: Uses
    nodes: tuple[str, ...]
    measured: int
    """How many have a known utilization."""
    busy: int | None
    """How many of these are busy; `None` if nothing is measured."""
    memory_mib: int | None
    """Of the user's processes; of whole cards where no process with its user and memory is known."""

    @property
    def idle(self) -> int | None:
        return None if self.busy is None else self.measured - self.busy

    @property
    def is_idle(self) -> bool:
        """Whether none of its GPUs is busy, and all of them are known."""
        return self.busy == 0 and self.measured >= self.held


def _holder(cluster: str, user: str, held: int, jobs: tuple[Job, ...], uses: Uses) -> Holder:
    loads = [is_busy for is_busy, _ in uses.values() if is_busy is not None]
    sizes = [memory for _, memory in uses.values() if memory is not None]
    nodes = tuple(dict.fromkeys((*(name for job in jobs for name in job.nodes), *(name for name, _ in uses))))
    busy, memory = sum(loads) if loads else None, sum(sizes) if sizes else None
    return Holder(cluster, user, held, jobs, uses, nodes, len(loads), busy, memory)


def holders(state: State) -> list[Holder]:
    """The jobs that hold GPUs, and of each user the GPUs with a process on nodes where no job of that user holds any;
    idle holders first, then those that hold most."""
    running = [job for job in state.jobs.values() if job.stage == "running" and job.gone_at is None and job.gpus_held]
    read = {name: node for name, node in state.nodes.items() if is_read(name, state.nodes, state.sources, state.at)}
    found = [
        _holder(job.cluster, job.user, job.gpus_held, (job,), {
            (name, gpu.index): _use(read[name], gpu, job.user)
            for name in job.nodes if name in read
            for gpu in _gpus_of(job, read[name], state)
        })
        for job in running
    ]  # fmt: skip
    on_jobs = {(job.user, name) for job in running for name in job.nodes}
    others = by_key(
        ((node.cluster, one.user), ((node.name, gpu.index), _use(node, gpu, one.user)))
        for node in read.values()
        for gpu in node.gpus
        for one in gpu.processes
        if one.user and (one.user, node.name) not in on_jobs
        if one.memory_mib is None or one.memory_mib >= DISPLAY_MIB
    )
    found += [_holder(*owner, len(dict(uses)), (), dict(uses)) for owner, uses in others.items()]
    return sorted(found, key=_idle_first)


def by_user(found: Iterable[Holder]) -> list[Holder]:
    """What each user holds in all, in the same order."""
    users = group_by(found, lambda one: (one.cluster, one.user))
    return sorted((
        _holder(
            cluster, user, sum(one.held for one in own), tuple(job for one in own for job in one.jobs),
            {place: use for one in own for place, use in one.uses.items()},
        )
        for (cluster, user), own in users.items()
    ), key=_idle_first)  # fmt: skip


def _idle_first(one: Holder) -> tuple[object, ...]:
    return not one.is_idle, -one.held, one.user, *(job.number for job in one.jobs)


def _use(node: Node, gpu: Gpu, user: str) -> tuple[bool | None, int | None]:
    averages = {one.index: one.utilization_pct for one in node.paces}
    used = averages.get(gpu.index, gpu.utilization_pct)
    known = [process for process in gpu.processes if process.user is not None and process.memory_mib is not None]
    own = sum(process.memory_mib or 0 for process in known if process.user == user)
    rest = (gpu.memory_used_mib or 0) - sum(process.memory_mib or 0 for process in known)
    is_busy = None if used is None or gpu.mig or gpu.state != "ok" else used > IDLE_GPU_PCT
    return is_busy, gpu.memory_used_mib if not known else own or (None if rest >= EMPTY_MIB else 0)


def _gpus_of(job: Job, node: Node, state: State) -> list[Gpu]:
    """The GPUs of a node that a job holds: those that Slurm names, all if it holds all, else those with a process of
    its user. In a container or a job, the driver numbers only the visible ones; Slurm numbers instances, too."""
    indices = job.gpu_indices.get(node.name)
    if indices is not None and not node.confined and not any(gpu.instances for gpu in node.gpus):
        return [gpu for gpu in node.gpus if gpu.index in indices]
    is_all = has_all_gpus(job, state) if indices is None else _units(node) == len(indices)
    return [gpu for gpu in node.gpus if is_all or any(process.user == job.user for process in gpu.processes)]


def _units(node: Node) -> int:
    """How many GPUs of a node Slurm allocates: an instance is one; without a list of them, as many as there can be."""
    return sum(len(gpu.instances) or (MOST_INSTANCES if gpu.mig else 1) for gpu in node.gpus)


def has_all_gpus(job: Job | None, state: State) -> bool:
    """Whether Slurm allocated all GPUs of its nodes to a job. A node that is not watched counts as the largest one."""
    if job is None or job.gpus is None or not job.nodes:
        return False
    known = [_units(state.nodes[name]) for name in job.nodes if name in state.nodes]
    return bool(known) and job.gpus >= sum(known) + (len(job.nodes) - len(known)) * max(known)


def unread_nodes(found: Iterable[Holder], state: State) -> list[str]:
    """The nodes of jobs that hold GPUs, and the watched ones, without current numbers of their GPUs."""
    watched = [one.name.removeprefix("node:") for one in state.sources.values() if one.kind == "node"]
    without = {name for name, node in state.nodes.items() if not node.gpus and has_read_gpus(node)}
    names = {*watched, *(name for one in found for name in one.nodes)} - without
    return sorted(name for name in names if not is_read(name, state.nodes, state.sources, state.at))


def gaps(found: Sequence[Holder], state: State) -> str:
    """What is missing in the list of holders, in a sentence; empty: nothing."""
    silent, held = unread_nodes(found, state), {place for one in found for place in one.uses}
    new = sum(job.stage == "running" and job.detail_at is None and job.gone_at is None for job in state.jobs.values())
    unclaimed = sum(
        (name, gpu.index) not in held and name not in silent and (gpu.memory_used_mib or 0) >= EMPTY_MIB
        for name, node in state.nodes.items()
        for gpu in node.gpus
    )
    parts = (
        f"{counted(len(silent), 'node')} without current numbers: {listed(silent, 3)}" if silent else "",
        f"{counted(new, 'job')} whose GPUs are not read yet" if new else "",
        f"{counted(unclaimed, 'GPU')} in use by no known job or user" if unclaimed else "",
    )
    return "; ".join(filter(None, parts))


# ---- Xids and SXids --------------------------------------------------------------------------------------------------
#
# An Xid is a fault code of the GPU driver, an SXid one of an NVSwitch. The classes follow NVIDIA's catalogue and what
# operators page for (Meta gcm, nvidia_gpu_exporter, Azure, leptonai gpud).

Kind = Literal["hardware", "watch", "application", "ignored", "unknown"]
"""hardware: reset or replace the GPU. watch: a hardware fault after which the GPU goes on. application: a fault of a
program. ignored: never a cause by itself. unknown: in no list."""


class XidMeaning(NamedTuple):
    """The class and the name of a fault, and what to do."""

    kind: Kind
    name: str
    advice: str = ""


RESET = "drain the node; reset the GPU (nvidia-smi -r) or reboot the node; if the error returns, replace the GPU"
REBOOT = "drain the node and reboot it; if the error returns, replace the GPU or its slot"
NVLINK = "drain the node; nvidia-smi nvlink -e shows the link; reboot the node; if the error returns, replace the part"
RESTART = "probably a bug in the program; if other programs get it on this GPU too, drain the node"
POWER = "drain the node and check the power cable of the GPU"

HARDWARE: dict[int, tuple[str, str]] = {
    46: ("GPU stopped processing", RESET),
    48: ("double-bit ECC error", RESET),
    54: ("auxiliary power is not connected", POWER),
    62: ("micro-controller halted", RESET),
    64: ("row remapping failed", RESET),
    74: ("NVLink error", NVLINK),
    79: ("GPU has fallen off the bus", REBOOT),
    95: ("uncontained ECC error", RESET),
    110: ("security fault", RESET),
    119: ("GSP does not answer", RESET),
    120: ("GSP error", RESET),
    136: ("link training failed", RESET),
    140: ("unrecovered ECC error", RESET),
    143: ("GPU could not be initialised", RESET),
    144: ("NVLink SAW error", NVLINK),
    145: ("NVLink RLW error", NVLINK),
    146: ("NVLink TLW error", NVLINK),
    147: ("NVLink TREX error", NVLINK),
    148: ("NVLink NVLPW_CTRL error", NVLINK),
    149: ("NVLink NETIR error", NVLINK),
    150: ("NVLink MSE error", NVLINK),
    155: ("NVLink software-defined error", NVLINK),
    156: ("resource retirement", RESET),
    158: ("GPU fatal timeout", RESET),
    167: ("PCIe fatal timeout", REBOOT),
    169: ("SEC2 micro-controller halted", RESET),
    171: ("uncorrectable DRAM error", RESET),
    172: ("uncorrectable SRAM error", RESET),
}
"""After these the GPU cannot be relied on: RESET_GPU and RESTART_BM of the catalogue, and its NVLink workflows."""

MILD = "the GPU goes on; if it repeats, nvidia-smi nvlink -e shows the link"
COPED = "restart the program if it died; reset the GPU before the next job; if the error returns, drain the node"

CONTAINED = 94

WATCH: dict[int, str] = {
    92: "high rate of single-bit ECC errors",
    CONTAINED: "contained ECC error",
    109: "context switch timeout",
    121: "corrected error of the C2C link",
    157: "resource retirement failed: no spare is left",
    161: "channel retirement failed: no spare is left",
    163: "power smoothing is off",
    164: "power smoothing circuit is wearing out",
    165: "power smoothing circuit is worn out",
    168: "less GPU memory than it should have",
}
"""Hardware faults after which the GPU goes on. 109 is RESET_GPU in the catalogue, but mostly a program causes it: Meta
does not page for it."""

APPLICATION: dict[int, str] = dict.fromkeys(
    (*range(39, 42), *range(70, 73), *range(75, 78), *range(83, 86), *range(88, 90), *range(96, 106), *range(126, 136)),
    "engine exception",  # copy and video engines, numbered through
) | {
    8: "GPU stopped processing: watchdog",
    11: "invalid or corrupted push buffer",
    13: "graphics engine exception",
    25: "invalid or illegal push buffer",
    31: "GPU memory page fault",
    32: "invalid or corrupted push buffer stream",
    60: "video processor exception",
    68: "video decoder exception",
    69: "graphics engine class error",
    80: "corrupted data sent to the GPU",
    82: "JPEG engine error",
    86: "optical flow engine exception",
    139: "optical flow engine exception",
}
"""RESTART_APP of the catalogue: in most cases an illegal access or a bad kernel of the program."""

IGNORED: dict[int, str] = {
    14: "unused",
    37: "driver firmware warning",
    38: "driver firmware error",
    43: "GPU channel stopped after a program's fault",
    44: "context switch fault after a program's fault",
    45: "clean-up after a program ended or another fault",
    63: "row remapping recorded",
    66: "illegal access by the driver",
    67: "illegal access by the driver",
    93: "InfoROM written too often",
    106: "management bus test",
    107: "management bus test",
    137: "NVLink access without permission",
    141: "channel fast path",
    152: "deep-learning accelerator fault",
    153: "deep-learning accelerator timeout",
    160: "memory channel retired",
}
"""IGNORE of the catalogue; 45 follows every killed program, and 63 is covered by the rule on row remapping."""

OTHER: dict[int, str] = {
    78: "vGPU could not start",
    142: "video encoder error",
    151: "key rotation error",
    159: "C2C non-data error",
    166: "traffic before the link was encrypted",
    170: "interrupt in confidential mode",
}
"""In the catalogue, but in no class that matters for training."""

UNSAID = range(144, 151)
"""NVLink errors of which only the text says whether they are fatal."""

NONFATAL = re.compile(r"\bnon-?\s?fatal\b", re.IGNORECASE)
"""The driver's own word for a fault after which the GPU goes on: `145, RLW_RXPIPE Nonfatal XC0 i0 Link 13`."""

RECOVERY = 154
RECOVERED = re.compile(r"\bto\s+(?:0x[0-9a-fA-F]+\s*)?\(\s*(?P<action>[^()]{1,60}?)\s*\)", re.IGNORECASE)
"""Finds the new action in `GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)`."""

ALWAYS_FATAL = frozenset({10003, 12020, 22003, 22011, *range(23001, 23018)})
"""SXids after which no link of the NVSwitch works: the host must be rebooted."""

BREAKING_XIDS = frozenset(HARDWARE) | {CONTAINED, RECOVERY}
"""Those that end a program: the GPU, or the memory that the program used, is broken."""

LOOK_IT_UP = "look it up: docs.nvidia.com/deploy/xid-errors"


MEANINGS: dict[int, XidMeaning] = {
    **{code: XidMeaning("hardware", name, advice) for code, (name, advice) in HARDWARE.items()},
    **{code: XidMeaning("watch", name, COPED) for code, name in WATCH.items()},
    **{code: XidMeaning("application", name, RESTART) for code, name in APPLICATION.items()},
    **{code: XidMeaning("ignored", name) for code, name in IGNORED.items()},
    **{code: XidMeaning("unknown", name, LOOK_IT_UP) for code, name in OTHER.items()},
}


def is_nonfatal(text: str | None) -> bool:
    """Whether the driver itself says that the GPU goes on."""
    return NONFATAL.search(text or "") is not None


def meaning(code: int, text: str | None = None) -> XidMeaning:
    """The meaning of an Xid. Xid 154 sums up other faults: its text says how to recover the GPU. NVML and Prometheus
    give no text."""
    if is_nonfatal(text):
        return XidMeaning("watch", f"{MEANINGS[code].name if code in MEANINGS else 'fault'}, nonfatal", MILD)
    if code in UNSAID and not text:
        advice = "the kernel's log shows whether it is fatal: only then drain the node and reboot it"
        return XidMeaning("watch", f"{MEANINGS[code].name}, fatal or not", advice)
    if code != RECOVERY:
        return MEANINGS.get(code) or XidMeaning("unknown", "not in NVIDIA's catalogue", LOOK_IT_UP)
    found = RECOVERED.search(text or "")
    if found is None:
        return XidMeaning("watch", "GPU recovery action changed", "nvidia-smi -q shows the GPU Recovery Action")
    action = found["action"]
    if action.lower() == "none":
        return XidMeaning("ignored", "GPU recovery action: none")
    return XidMeaning("hardware", f"the driver recommends: {action}", f"drain the node and follow the driver: {action}")


def switch_meaning(code: int, text: str | None = None) -> XidMeaning:
    """What an SXid means: the driver's own text says whether it is fatal."""
    words = (text or "").lower()
    if code in ALWAYS_FATAL:
        return XidMeaning("hardware", "fatal to the whole NVSwitch fabric", "drain the node and reboot it")
    if is_nonfatal(text):
        return XidMeaning("watch", "NVSwitch, non-fatal", "a job may end with Xid 45 when a link retrains: restart it")
    if "fatal" in words:
        return XidMeaning("hardware", "fatal to a link of the NVSwitch", NVLINK)
    return XidMeaning("unknown", "NVSwitch fault", LOOK_IT_UP)
