"""The wire format between a probe and this program, version 1: NDJSON, one tagged object per line.

The probe (collectors/probe/worker.py) prints them, `DECODER` reads them. Times are the node's own clock. A field that
a driver or kernel refuses is null, never 0. Samples that come every period are arrays, to keep a line in one packet.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import msgspec

# ---- what all lines of a probe have ----------------------------------------------------------------------------------

VERSION = 1


class Reading(msgspec.Struct, frozen=True, tag_field="k", gc=False):
    """One line of a probe, at the node's own time `t` (Unix seconds)."""

    v: Literal[1]
    t: float


# ---- readings of a host ----------------------------------------------------------------------------------------------

Probe = Literal["nvml", "nvidia-smi", "amdsmi", "sysfs", "rocm-smi", "sh", "none", "prometheus"]
"""How the GPUs of a node are read: by NVML, by nvidia-smi; AMD's by amdsmi, from sysfs, by rocm-smi; by the POSIX-sh
fallback, or not at all; or by an exporter that a Prometheus server scrapes. No probe sends the last one."""

COMPLETE_PROBES: tuple[Probe, ...] = ("nvml", "amdsmi", "sysfs")
"""Probes that list lost GPUs, too."""

PROBES_WITHOUT_GPUS: tuple[Probe, ...] = ("none", "sh")
"""Probes that report no GPUs. Without Python they report no logs and switches, either."""


class Hello(Reading, frozen=True, tag="hello", gc=False):
    """The first line: the host, and how its GPUs are read."""

    host: str
    python: str | None = None
    probe: Probe = "none"
    driver: str | None = None
    boot_time: float | None = None
    cpu_count: int | None = None
    memory_total_mib: int | None = None
    confined: bool = False
    """Whether the probe runs in a container or in a job's cgroup, where it may see only some GPUs, or none."""
    note: str | None = None
    """A sentence for the node's row, such as why the fallback is used."""


class GpuSample(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The fast numbers of one GPU. `error` is null while it answers, else the message of the driver."""

    index: int
    error: str | None = None
    lost: bool = False
    temperature_c: int | None = None
    memory_temperature_c: int | None = None
    memory_used_mib: int | None = None
    utilization_pct: int | None = None
    power_w: float | None = None
    sm_clock_mhz: int | None = None
    throttle_mask: int | None = None
    """NVML's bit mask of clock event reasons; `THROTTLE` names the bits. AMD's reasons are given as these."""
    edge_temperature_c: int | None = None
    """AMD: at the edge of the die. `temperature_c` is then that of the junction, the hottest spot."""


class GpuSamples(Reading, frozen=True, tag="gpu", gc=False):
    """Every period: the fast numbers of all GPUs that the probe knows, the lost ones included."""

    g: tuple[GpuSample, ...]


class Process(msgspec.Struct, frozen=True, gc=False):
    """A process that holds memory on a GPU. Its command is untrusted text."""

    pid: int
    user: str | None = None
    memory_mib: int | None = None
    command: str | None = None
    caught: int | None = None
    """The signals that it catches: SigCgt of /proc/PID/status, where bit n - 1 is signal n."""
    environment: Mapping[str, str] = {}
    """The few variables that name its data, container and job; see collectors/probe/gpu/card.py."""
    instance: str | None = None
    """The instance of the GPU on which it runs; null on a whole GPU."""


class GpuInstance(msgspec.Struct, frozen=True, gc=False):
    """A part of one GPU: a MIG instance, or a partition of an AMD GPU."""

    id: str
    """The number of the GPU instance, as GPU_I_ID of DCGM; `1/2` is its compute instance 2 if it has several."""
    profile: str | None = None
    """Such as `1g.10gb`, or `CPX`."""
    uuid: str | None = None
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    utilization: str = "not measured by NVML"
    """Why there is no utilization."""


class GpuLinks(msgspec.Struct, frozen=True, gc=False):
    """The links of a GPU, and their errors since the driver was loaded. Each vendor gives some of them."""

    pcie_gts: float | None = None
    """AMD: GT/s of each lane, now; a GPU without work may lower it."""
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    pcie_replays: int | None = None
    xgmi_width: int | None = None
    xgmi_gbps: int | None = None
    xgmi_errors: int | None = None
    pcie_gen: int | None = None
    """NVIDIA: the generation of PCIe, now; a GPU without work may lower it."""
    pcie_gen_max: int | None = None
    nvlinks: int | None = None
    nvlinks_up: int | None = None
    nvlink_errors: int | None = None
    """CRC errors, replays and recoveries of all its NVLinks."""


class GpuFacts(msgspec.Struct, frozen=True, gc=False):
    """What changes slowly about one GPU. Sent before the first sample, then every 30 s."""

    index: int
    uuid: str | None = None
    name: str | None = None
    memory_total_mib: int | None = None
    power_limit_w: float | None = None
    temperature_margin_c: int | None = None
    """Degrees left until the GPU slows itself down, where NVML gives it (Hopper and later). AMD: the least of its
    sensors, by the limits that the driver gives."""
    mig: bool | None = None
    ecc_uncorrected: int | None = None
    ecc_corrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    processes: tuple[Process, ...] = ()
    instances: tuple[GpuInstance, ...] = ()
    links: GpuLinks | None = None

    @property
    def is_amd(self) -> bool:
        """Whether it is known to be one of AMD, whose temperatures cannot be compared with those of NVIDIA."""
        return self.links is not None and self.links.pcie_gen_max is None


class OwnProcess(msgspec.Struct, frozen=True, gc=False):
    """A process of the probe's own user that holds memory on a GPU, or did so before. Untrusted texts."""

    pid: int
    command: str
    workdir: str | None = None
    stdout: str | None = None
    """The path of its standard output if that is a file."""
    started_s: float | None = None
    """When it started, in seconds after the boot."""
    parents: tuple[int, ...] = ()
    """The pids of its parent, of the parent of that, and so on."""


class GpuFactsAll(Reading, frozen=True, tag="gpus", gc=False):
    """The slow facts of all GPUs, and the number that the driver or PCI expects."""

    g: tuple[GpuFacts, ...]
    expected: int | None = None
    own: tuple[OwnProcess, ...] = ()


Launcher = Literal["torchrun", "environment", "mpi", "pmi", "slurm"]
"""What has set the rank of a process. The first one here counts: what started a launcher has numbered the launchers."""


class RankWait(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A process in state D."""

    pid: int
    seconds: float
    """For how long it has hardly run (a thousandth of the time), at least."""
    wchan: str = ""
    """The function of the kernel in which it waits; empty if that may not be read."""
    mount: str | None = None
    """The only mount of a network filesystem of which it has files open. Untrusted."""
    filesystem: str | None = None


class RankSteps(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What trainmon_hooks of a rank says of its last steps: means of at least 15 s, in µs."""

    step: int
    whole: int
    """How long a step takes: about the same on all ranks."""
    data: int
    """How long it waits for its data in a step; 0 if nothing tells that to the hooks."""
    vote: int
    """It waits so long in a vote of the hooks, which ends when the last rank comes. Nothing is known of other steps."""


class RankProcess(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A rank of a distributed training: the topmost process whose environment names it."""

    pid: int
    started_s: float
    """When it started, in seconds after the boot."""
    workers: tuple[int, ...]
    """The pids below it that have inherited its rank, such as those of a DataLoader."""
    launcher: Launcher
    rank: int
    ranks: int
    """How many there are in all."""
    local_rank: int | None = None
    job: int | None = None
    """SLURM_JOB_ID."""
    launch: str | None = None
    """The id of torchrun, which may be `none`. Untrusted."""
    waits: tuple[RankWait, ...] = ()
    """Its processes that wait without interruption, such as for a file server."""
    steps: RankSteps | None = None


class RankProcesses(Reading, frozen=True, tag="ranks", gc=False):
    """The ranks of the probe's user on this node; of root, all."""

    r: tuple[RankProcess, ...]
    user: str
    host_pids: bool = False
    """Whether the pids of the GPUs' driver are those of /proc. In a container they may be others."""


class Xid(Reading, frozen=True, tag="xid", gc=False):
    """An Xid, from an NVML event (index and uuid known), the kernel log (PCI address known) or Prometheus."""

    code: int
    index: int | None = None
    text: str | None = None
    source: Literal["nvml", "kernel", "prometheus"] = "nvml"


class InfinibandPort(msgspec.Struct, frozen=True, gc=False):
    """One port, as `mlx5_0/1`; `state` is the kernel's state, such as ACTIVE. Counters since the driver loaded."""

    port: str
    state: str | None = None
    link_downed: int | None = None
    errors: int | None = None
    """symbol_error + port_rcv_errors + link_error_recovery + local_link_integrity_errors."""
    rate: str | None = None
    """The kernel's text, such as `400 Gb/sec (4X NDR)`."""
    link_layer: str | None = None
    """`InfiniBand`, or `Ethernet` for RoCE."""
    bytes: int | None = None
    """Sent and received: port_xmit_data and port_rcv_data count words of four bytes."""
    counters: Mapping[str, int] = {}
    """Those of hw_counters that tell of retransmissions and congestion, by the names of the kernel."""


class HostSample(Reading, frozen=True, tag="host", gc=False):
    """Load, memory, and counters that should not grow."""

    load1: float | None = None
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    boot_time: float | None = None
    oom_kills: int | None = None
    """From /proc/vmstat, since boot; null before Linux 4.13."""
    network_errors: int | None = None
    """Sum of rx_errors and tx_errors over the physical interfaces, since boot."""
    infiniband: tuple[InfinibandPort, ...] | None = None
    """Null if they were not read this time: the probe reads them every 30 s."""


class DiskSample(msgspec.Struct, frozen=True, gc=False):
    """One path. `hung` means that its statvfs has not returned; the numbers are then null."""

    path: str
    state: Literal["ok", "hung", "error"] = "ok"
    error: str | None = None
    mount: str | None = None
    filesystem: str | None = None
    """The filesystem's type, as in /proc/self/mountinfo: xfs, lustre, nfs4 …"""
    read_only: bool | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    """What a user may still write (f_bavail), not what root may."""
    total_inodes: int | None = None
    """Null where the filesystem has no fixed number (btrfs, some network filesystems)."""
    free_inodes: int | None = None


class DiskSamples(Reading, frozen=True, tag="disk", gc=False):
    """All watched paths of the node."""

    d: tuple[DiskSample, ...]


class Trouble(Reading, frozen=True, tag="trouble", gc=False):
    """A part of the probe failed; the others go on. Null text ends it.

    Parts: gpu, host, disk, log, switch, ckpt, probe.
    """

    part: str
    text: str | None = None


class Bye(Reading, frozen=True, tag="bye", gc=False):
    """The probe's last line: why it ended."""

    why: str


THROTTLE: dict[int, str] = {
    0x1: "idle",
    0x2: "app_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display",
}
"""NVML's clock event reasons (nvml.h, nvmlClocksEventReason*), named as in nvidia-smi."""


@lru_cache(1024)
def throttle_names(mask: int | None) -> tuple[str, ...]:
    """Name the set bits of a clock-event mask; unknown bits come out as hex."""
    if not mask:
        return ()
    names = tuple(name for bit, name in THROTTLE.items() if mask & bit)
    unknown = mask & ~sum(THROTTLE)
    return (*names, hex(unknown)) if unknown else names


# ---- what a probe says in words --------------------------------------------------------------------------------------

DANGLING = "a dangling symbolic link"

Meaning = Literal[
    "missing", "dangling", "no-python", "nvml-fails", "no-library", "no-amdgpu", "not-loaded", "no-permission",
    "mismatch", "hidden",
]  # fmt: skip
"""missing: there is no such file or directory. dangling: the file is a symbolic link to nothing. no-python: nothing but
the POSIX-sh fallback runs there. nvml-fails: NVML does not start. no-library: the PCI bus shows GPUs, and there is
no NVML, or no-amdgpu: no driver of AMD's. not-loaded: its driver is not. mismatch: the driver was updated under
running programs: these go on, and new ones do not start. hidden: its step of a job sees none of its GPUs."""

WORDS: tuple[tuple[Meaning, str], ...] = (
    ("missing", "does not exist"),
    ("missing", "no file matches"),
    ("dangling", DANGLING),
    ("no-python", "no usable python3"),
    ("nvml-fails", "\nNVML: "),
    ("no-library", " GPUs, but no "),
    ("no-amdgpu", " AMD GPUs, but no "),
    ("not-loaded", "Driver Not Loaded"),
    ("no-permission", "Insufficient Permissions"),
    ("mismatch", "version mismatch"),
    ("hidden", "a cgroup hides"),
)
"""Behind a line feed: only at the beginning. nvidia-smi says it, too."""


def says(text: str | None, meaning: Meaning) -> bool:
    """Whether an error or a note has this meaning. Only here are words of a probe, of its shell and of NVML read."""
    return any(means == meaning and words in f"\n{text or ''}" for means, words in WORDS)


# ---- readings of files -----------------------------------------------------------------------------------------------


class OtherLog(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Another file that the pattern of a followed log matches."""

    path: str
    written_at: float


class LogChunk(Reading, frozen=True, tag="log", gc=False):
    """New lines of one followed log. Untrusted text; progress bars are already collapsed to their last state."""

    id: str
    """The spec's own name for this log: the run's name."""
    path: str | None = None
    size: int | None = None
    mtime: float | None = None
    lines: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    """Of the dropped lines, the last that looked like step lines; older than `lines`."""
    mentions: tuple[str, ...] = ()
    """Of the lines from before the probe started, some with a text of `Spec.mentions`."""
    dropped: int = 0
    seen: int = 0
    """Lines since the last chunk, including the dropped ones."""
    partial: str | None = None
    """The unfinished last line: its last state, and before it the last whole bar or step, with a carriage return
    between them, and behind them if the last one is whole; null when there is none."""
    restarted: Literal["truncated", "replaced", "newer"] | None = None
    error: str | None = None
    head: str | None = None
    """Of a file that was there before: its first line with a date and a time."""
    born: float | None = None
    """When the file was created, where the system says that."""
    local: bool = False
    """Whether no other host sees the file."""
    others: tuple[OtherLog, ...] = ()
    """When the file was opened: the other files that match, the newest first."""


class SwitchSample(msgspec.Struct, frozen=True, gc=False):
    """A switch file: whether it exists, its mtime, its owner, and its text (at most 500 bytes). Of a symbolic link, the
    times and the owner are those of the link."""

    path: str
    exists: bool | None = None
    """Null if that is unknown (a hung mount, no permission)."""
    mtime: float | None = None
    owner: str | None = None
    kind: str | None = None
    """What it is, if it is no regular file with one link: `a symbolic link`. Then its text is not read."""
    text: str | None = None
    error: str | None = None


class SwitchSamples(Reading, frozen=True, tag="switch", gc=False):
    """All watched switch files."""

    s: tuple[SwitchSample, ...]


class FileGroup(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Files of one checkpoint whose names differ only in numbers: 512 shards are one line, not 512."""

    pattern: str
    """The path below the checkpoint, each run of digits as `#`: `__#_#.distcp`, `optimizer/rank_#.pt`. A directory
    that was not walked ends in `/`."""
    count: int
    bytes: int
    oldest: float
    """The earliest mtime among them, and the latest."""
    newest: float
    example: str = ""
    """The last of them by name: `model-00003-of-00004.safetensors`."""
    folders: int = 1
    """How many directories contain them: as many for `pp#/.metadata` as for `pp#/__#_#.distcp` if all are complete."""
    shrunk: tuple[str, int, int] | None = None
    """A file that has less than a tenth of its size in the save before: its path, its size and that size."""


class CheckpointEntry(msgspec.Struct, frozen=True, gc=False):
    """One name in a checkpoint directory: a checkpoint, a pointer, a marker, or something else."""

    name: str
    kind: Literal["dir", "file", "link", "other"] = "dir"
    mtime: float = 0.0
    bytes: int | None = None
    """The size of the file, or of everything in the directory."""
    target: str | None = None
    """The target of a link."""
    groups: tuple[FileGroup, ...] = ()
    """The content of a directory, to a depth of eight."""
    text: str | None = None
    """The text of a small pointer file (at most 500 bytes), such as `latest` or `latest.txt`."""
    error: str | None = None
    cut: bool = False
    """Whether not all of it could be listed in time."""


class CheckpointListing(Reading, frozen=True, tag="ckpt", gc=False):
    """A checkpoint directory: sent when it changes, and every slow tick while its content changes. Untrusted names."""

    path: str
    entries: tuple[CheckpointEntry, ...] = ()
    error: str | None = None
    """Why it cannot be listed: it does not exist, or is not readable."""
    left_out: int = 0
    """How many entries were not examined: the oldest of too many, or those after the time limit."""
    took_s: float = 0.0
    real: str | None = None
    """The path without symbolic links."""


class FileContent(Reading, frozen=True, tag="file", gc=False):
    """A file of `Spec.files`: sent when it was read, and when the reason changes why it cannot be. Untrusted."""

    id: str
    path: str | None = None
    """The one file that matches."""
    size: int | None = None
    mtime: float | None = None
    sha256: str | None = None
    text: str | None = None
    """All of it, if it is text of at most 32 KiB; or the lines of the last 48 KiB of the requested part."""
    is_cut: bool = False
    """Whether the requested part has more lines."""
    error: str | None = None


class ReceiptFiles(msgspec.Struct, frozen=True, gc=False):
    """A receipt of trainmon-run as its files are. Untrusted texts."""

    name: str
    """The name of its directory: host, time and pid."""
    path: str
    start: str | None = None
    """The text of start.json."""
    end: str | None = None
    """The text of end.json."""
    gone: bool | None = None
    """Whether neither trainmon-run nor its command runs any more; null if this host cannot tell."""
    command_pid: int | None = None
    error: str | None = None


class Receipts(Reading, frozen=True, tag="receipts", gc=False):
    """The receipts of a directory that are new or have changed."""

    directory: str
    """As in `Spec.receipts`."""
    receipts: tuple[ReceiptFiles, ...] = ()
    error: str | None = None
    """Why the directory cannot be listed."""


# ---- what the probe reads in the files of the W&B client -------------------------------------------------------------


class WandbFileRun(msgspec.Struct, frozen=True, gc=False):
    """The W&B run of a file, as its client began it. Untrusted texts."""

    id: str = ""
    entity: str = ""
    project: str = ""
    group: str = ""
    name: str = ""
    host: str = ""
    tags: tuple[str, ...] = ()
    started_at: float | None = None


class WandbRows(Reading, frozen=True, tag="wandb", gc=False):
    """New rows of the newest files of metrics of a run, W&B's or others, and what else is new in them. A reader that
    starts again repeats them: rows have numbers. Untrusted texts."""

    id: str
    """The name of our run."""
    path: str | None = None
    file: str = ""
    """The same as long as it is the same file."""
    format: str = "W&B"
    """The name of its format: W&B, TensorBoard, JSON lines, CSV, trainer_state.json."""
    size: int = 0
    mtime: float | None = None
    offset: int = 0
    """How far it was read."""
    rows: int = 0
    """Rows of its history up to there."""
    damaged: int = 0
    """Blocks and records that were skipped, because they are damaged."""
    tail: int = 0
    """Incomplete parts at its end, for which more may come."""
    more: bool = False
    """Whether the rest of the file can be read at once: the reader reads so much per second."""
    step: float | None = None
    """W&B's own counter `_step` in the newest row."""
    logged_at: float | None = None
    """When the newest row was logged, by the run's own clock."""
    keys: tuple[str, ...] = ()
    points: tuple[tuple[float | str | None, ...], ...] = ()
    """The rows that are charted: number, step, time, and a value for each of the keys, null at the end left out."""
    summary: Mapping[str, str] = {}
    """Of the latest values those that have changed, in JSON."""
    config: Mapping[str, str] = {}
    """Of the settings those that have changed, in JSON."""
    run: WandbFileRun | None = None
    exit: tuple[int, int] | None = None
    """The exit code, and the runtime in seconds, once the client has written its end."""
    error: str | None = None


# ---- what a probe is asked to watch ----------------------------------------------------------------------------------

ON_NODE = "on its node: "
"""The id of the log of a run that is read on its node: this, and the name of the run."""


class LogSpec(msgspec.Struct, frozen=True):
    """A log to follow: an exact path or a glob, whose newest match is followed."""

    id: str
    pattern: str
    optional: bool = False
    """Whether it is no error that there is no such file."""
    without: str = ""
    """A regular expression of the paths that belong to other runs."""
    local: bool = False
    """Whether it is read only if no other host sees it: one host reads what all of them see."""


class FileSpec(msgspec.Struct, frozen=True):
    """A file to read once: an exact path, or a glob that one file matches."""

    id: str
    pattern: str
    again: bool = False
    """Whether it is read again whenever it has changed: a small file that its writer replaces."""
    part: tuple[int, int | None] | None = None
    """Only the end of this part is read, as text: the offsets where it begins and ends; null: at the end of the
    file."""


class WandbDirectory(msgspec.Struct, frozen=True):
    """Where the files of metrics of a run are, of which the newest are followed: those of the W&B client and others."""

    id: str
    """The name of our run."""
    directory: str
    """As the config names it, or empty."""
    charts: tuple[str, ...] = ()
    """The metrics that are sent; without them, those that match the pattern."""
    pattern: str = ""
    """A regular expression, searched in the names of the metrics in lower case."""
    found: tuple[str, ...] = ()
    """Without a named directory: where such files may be. It is no error if there are none."""
    since: float | None = None
    """Of these only files count that were written since then."""


class Spec(msgspec.Struct, frozen=True):
    """What a probe watches: paths and periods, never a secret. It is sent again whenever it changes."""

    period: float = 2.0
    slow: float = 30.0
    disks: tuple[str, ...] = ()
    logs: tuple[LogSpec, ...] = ()
    switches: tuple[str, ...] = ()
    checkpoints: tuple[str, ...] = ()
    """Directories of checkpoints."""
    keep: str = ""
    """A Python regular expression: lines that may carry a step, kept when a burst must be dropped."""
    own: bool = False
    """Whether the user's own processes on the GPUs are described."""
    ranks: bool = False
    """Whether the ranks of the user's own processes are read."""
    mentions: tuple[str, ...] = ()
    """Texts to search once in what a log holds when the probe starts."""
    followed: tuple[str, ...] = ()
    """The checkpoint directories that are listed in every period, because an action waits for a checkpoint there."""
    files: tuple[FileSpec, ...] = ()
    """Files whose content identifies what an attempt trains with."""
    receipts: tuple[str, ...] = ()
    """Directories of receipts of trainmon-run; empty text: where it keeps them without a setting."""
    every_receipt: bool = False
    """Whether the receipts of all hosts are read, not only those of this host."""
    wandb: tuple[WandbDirectory, ...] = ()
    v: int = VERSION


AnyReading = (
    Hello | GpuSamples | GpuFactsAll | RankProcesses | Xid | HostSample | DiskSamples | LogChunk | SwitchSamples
    | CheckpointListing | FileContent | Receipts | WandbRows | Trouble | Bye
)  # fmt: skip

DECODER: msgspec.json.Decoder[AnyReading] = msgspec.json.Decoder(AnyReading)
