"""The nouns. All values are frozen; a change is a new value. `None` is "not known", never 0."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from trainmon.lib import Instant, Seconds
from trainmon.model.action import Record
from trainmon.model.alert import (
    Alert,
    AlertRequested,
    AlertsRecalled,
    AlertsReported,
    Channel,
    ChannelsChanged,
    Delivered,
    Leadership,
    LeadershipChanged,
    Silence,
)
from trainmon.model.checkpoint import Checkpoints
from trainmon.model.disk import Forecast, Quota, QuotaSeen
from trainmon.model.job import Cluster, Job, SchedulerNode
from trainmon.model.node_history import Past
from trainmon.model.probe_wire import AnyReading, CheckpointListing, InfinibandPort, LogChunk, Probe, Process
from trainmon.model.throughput import GpuPace, RunMemory
from trainmon.model.wandb import CurvesGrew, SampleKept, Wandb, WandbSeen, WandbSpec

Health = Literal["ok", "late", "down", "off"]
"""ok: answers. late: older than 3 periods. down: failed, see its error. off: not wanted now, no fault."""

SourceKind = Literal["node", "slurm", "wandb", "files", "daemon"]

Verdict = Literal[
    "healthy", "starting", "evaluating", "saving", "stalled", "hung", "data-stall", "diverged", "dead", "stopped",
    "finished", "queued", "idle", "unknown",
]  # fmt: skip


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One place that facts come from, such as `node:gpu-001`, with its health and age."""

    name: str
    kind: SourceKind
    cluster: str
    health: Health = "late"
    seen_at: Instant | None = None
    """When it last said something, by our clock."""
    period: Seconds = 2.0
    phase: Literal["waiting", "connecting", "prompting", "up", "retrying", "held", "off"] = "waiting"
    """What the collector is doing about it. held: not redialled until a person asks (login needed or refused)."""
    retry_at: Instant | None = None
    error: str | None = None
    hint: str | None = None
    bad_lines: int = 0
    """Lines that were not understood (not JSON, too long, another version) since the start."""
    stderr: str | None = None
    """The last line on the remote standard error."""


class Gpu(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One GPU of a node. `state` lost: fell off the bus or vanished; error: answers with an error."""

    index: int
    uuid: str | None = None
    name: str | None = None
    state: Literal["ok", "lost", "error"] = "ok"
    error: str | None = None
    temperature_c: int | None = None
    memory_temperature_c: int | None = None
    temperature_margin_c: int | None = None
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    utilization_pct: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: int | None = None
    throttle: tuple[str, ...] = ()
    mig: bool | None = None
    ecc_uncorrected: int | None = None
    ecc_corrected: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    last_xid: int | None = None
    last_xid_at: Instant | None = None
    processes: tuple[Process, ...] = ()


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """One host and its GPUs. Its health and errors are those of the source `node:<name>`."""

    name: str
    cluster: str
    probe: Probe = "none"
    note: str | None = None
    greeted_at: Instant | None = None
    """When its probe last said what it is, by our clock: GPU numbers from before are of an earlier session."""
    confined: bool = False
    """Whether its probe may be shown some of its GPUs only: it is in a container, or in a job's cgroup."""
    driver: str | None = None
    clock_skew_s: Seconds | None = None
    """Their clock minus ours; data does not become stale by it."""
    load1: float | None = None
    cpu_count: int | None = None
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    boot_time: Instant | None = None
    oom_kills: int | None = None
    network_errors: int | None = None
    infiniband: tuple[InfinibandPort, ...] = ()
    gpus_expected: int | None = None
    gpus: tuple[Gpu, ...] = ()
    gpus_at: Instant | None = None
    """When the GPU numbers were last read, by our clock."""
    host_at: Instant | None = None
    troubles: Mapping[str, str] = {}
    """Parts of its probe that fail now, by part: gpu, host, disk, log, switch, probe."""
    scheduler_state: str | None = None
    scheduler_reason: str | None = None
    paces: tuple[GpuPace, ...] = ()
    """Its GPUs over the last minutes."""


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


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """The followed log of a run: where it is and its last lines, clean of control characters."""

    host: str
    """The host that reads it; WANDB where it is the console log of W&B."""
    path: str | None = None
    at: Instant | None = None
    """When new lines last came, by our clock."""
    checked_at: Instant | None = None
    """When the file was last looked at."""
    began_at: Instant | None = None
    """When this file was first read."""
    pause_s: Seconds = 0.0
    """The longest that this file was seen not to grow between two lines."""
    size: int | None = None
    lines: tuple[str, ...] = ()
    """At most LOG_LINES. Line i has the number first + i, which never repeats for this run."""
    first: int = 0
    partial: str | None = None
    dropped: int = 0
    """Lines that were never sent because they came too fast, since the start."""
    lines_per_s: float | None = None
    error: str | None = None
    resync: bool = False
    """Set when its reader starts anew: the next lines begin with some that were read before."""


WANDB = "wandb"
"""The host of a log that is W&B's console log; its source is `wandb:<name of the run>`."""

LOG_LINES = 2_000
"""Lines of a log kept for the screen: 16 runs of 150-byte lines are 5 MB."""


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """A kill or save switch file of a run. `armed_at` is its mtime while it exists."""

    path: str
    host: str | None = None
    """Where it was seen like this."""
    exists: bool | None = None
    armed_at: Instant | None = None
    by: str | None = None
    why: str | None = None
    taken_at: Instant | None = None
    """When a file that was there was seen gone (a trainer removes the save switch as it takes it)."""
    error: str | None = None


class Bar(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The nameless progress bar that is taken for training's, known by its total; evaluation draws such bars too."""

    total: int | None
    confirmed: bool = False
    """Whether a loss came while it was followed."""
    rival: int | None = None
    """The total of another bar that is drawn now."""
    rival_losses: int = 0
    """How many losses came while the rival was drawn and the followed bar was not."""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The latest a run's log says of its training. Each field keeps its last known value."""

    step: int | None = None
    target_step: int | None = None
    loss: float | None = None
    """nan when the line showed a NaN, or when the trainer hides one (Megatron drops the field)."""
    grad_norm: float | None = None
    tokens_per_s: float | None = None
    samples_per_s: float | None = None
    step_time_s: float | None = None
    learning_rate: float | None = None
    skipped: int | None = None
    nan_iterations: int | None = None
    loss_scale: float | None = None
    skipped_in_row: int = 0
    """How many iterations were skipped since the last that was taken."""
    skipping_since: Instant | None = None
    """Since when no step was taken: every iteration was skipped, and no loss is printed."""
    at: Instant | None = None
    """When the step last advanced, by our clock."""
    cadence_s: Seconds | None = None
    """The run's own usual time between step lines that advance: a median of the recent ones."""
    format: str | None = None
    """The name of the log format that counts the steps."""
    epoch: float | None = None
    """Some trainers print no step beside their loss, and an epoch that grows is then the only sign of progress."""
    doing: Literal["train", "eval", "save"] = "train"
    """What the log said last that it is busy with, since `doing_at`."""
    doing_at: Instant | None = None
    """When it said so last."""
    busy_since: Instant | None = None
    """Since when it evaluates or saves; null while it trains."""
    evals: tuple[Seconds, ...] = ()
    """How long its recent evaluations took, and its recent saves, as its log shows them."""
    saves: tuple[Seconds, ...] = ()
    intervals: tuple[Seconds, ...] = ()
    """The recent times between step lines that advance; `cadence_s` is their median."""
    together: int = 0
    """Step lines that came at once at `at`: they share the time since the one before."""
    said: tuple[str, ...] = ()
    """The fields that were said of the current step: a rank that repeats the line changes none of them."""
    borrowed: tuple[str, ...] = ()
    """The fields that W&B tells, because the log does not. Where W&B counts the steps, too, `format` is WANDB."""
    bar: Bar | None = None


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A run as the config names it, or as one of our jobs shows it; its nodes and log may come from its job."""

    name: str
    cluster: str
    job: str | None = None
    """Its Slurm job name."""
    user: str | None = None
    """Whose jobs are meant; null: those of anybody who is watched. See joining.owner_of."""
    found: bool = False
    """Whether it is in no config: one of our own jobs that was running."""
    only: str | None = None
    """The one job that it is, by id, where several of ours ran at once under one name."""
    without: tuple[str, ...] = ()
    """Jobs of its name that are runs of their own, by id."""
    script: str | None = None
    """The batch script that submits it."""
    log: str | None = None
    checkpoints: str | None = None
    kill_switch: str | None = None
    save_switch: str | None = None
    target_step: int | None = None
    stall_after: Seconds = 900.0
    nodes: tuple[str, ...] = ()
    wandb: WandbSpec | None = None
    labels: Mapping[str, str] = {}


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One training run and everything known of it."""

    spec: RunSpec
    verdict: Verdict = "unknown"
    why: str = "nothing has been read yet"
    progress: Progress = Progress()
    log: Log | None = None
    kill: Switch | None = None
    save: Switch | None = None
    eta_at: Instant | None = None
    jobs: tuple[str, ...] = ()
    """The keys of its jobs: those that run, those that wait in their order, those that ended with the newest first."""
    queued_behind: int | None = None
    """How many jobs wait behind the one that runs, array elements counted; null when the queue is not known."""
    checkpoints: Checkpoints | None = None
    listing: CheckpointListing | None = None
    """What the probe last said of its checkpoint directory."""
    wandb: Wandb | None = None
    memory: RunMemory = RunMemory()

    @property
    def job(self) -> str | None:
        """The key of the job that trains now, else of the next, else of the last."""
        return self.jobs[0] if self.jobs else None

    @property
    def name(self) -> str:
        return self.spec.name


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A question that a login asks. The answer never becomes part of any value."""

    id: int
    host: str
    title: str
    """What asks, such as: Password, Passphrase for ~/.ssh/id_ed25519, Duo two-factor."""
    instructions: str = ""
    fields: tuple[tuple[str, bool], ...] = ()
    """(text, echo) for each answer wanted."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known now. Owned by the engine; passed around by reference."""

    at: Instant = 0.0
    started_at: Instant = 0.0
    demo: bool = False
    read_only: bool = False
    sources: Mapping[str, Source] = {}
    nodes: Mapping[str, Node] = {}
    """By name. Two clusters may not share a node name."""
    pasts: Mapping[str, Past] = {}
    """By the name of the node: what is remembered of it."""
    disks: Mapping[str, Disk] = {}
    """By Disk.key."""
    handed_back: Mapping[str, Instant] = {}
    """By Disk.key, when a host that had looked at it in the place of another no longer did."""
    runs: Mapping[str, Run] = {}
    usable: Mapping[str, float] = {}
    """Of the disks whose path is a key, the share that may be used (0 to 1): there, that is the new 100 %."""
    lags: Mapping[str, Seconds] = {}
    """Of the disks whose path is a key, how old their statistics may be."""
    quotas: Mapping[str, Quota] = {}
    """By `host:path`, or by `cluster:path` where all hosts of a cluster share it."""
    prompts: tuple[Prompt, ...] = ()
    clusters: Mapping[str, Cluster] = {}
    jobs: Mapping[str, Job] = {}
    """By Job.key. One that the queue no longer lists stays for a day, with `gone_at`."""
    scheduler_nodes: Mapping[str, SchedulerNode] = {}
    """By name: what the scheduler says of the nodes, watched or not."""
    actions: Mapping[str, Record] = {}
    """By the action's id, oldest first: those that are watched, and those of the last hour."""
    ledger: str | None = None
    """What is wrong with the ledger, in a sentence."""
    alerts: Mapping[str, Alert] = {}
    """By id: those that are open, and those that ended within a day."""
    silences: Mapping[str, Silence] = {}
    """By id, those that have not ended."""
    channels: Mapping[str, Channel] = {}
    """By name."""
    duty: Leadership = Leadership()
    """Who tells people."""
    looked_at: Instant | None = None
    """When the rules were last gone through."""
    woke_at: Instant | None = None
    """When this program last found that it had slept, or that the clock had jumped: no age from before is believed."""
    woke_why: str | None = None
    """What that was, in a sentence."""


# ---- events: all that may change a State ---------------------------------------------------------------------------


class NodeReading(msgspec.Struct, frozen=True):
    """A probe said something. `received_at` is our clock."""

    node: str
    cluster: str
    received_at: Instant
    reading: AnyReading
    is_stand_in: bool = False
    """Whether it reads in the place of a host that does not answer. It may log in as another user, and see other
    mounts: that a file is not there, or must not be read, is not for it to say."""


class StandInEnded(msgspec.Struct, frozen=True):
    """A host no longer looks at these disks in the place of another."""

    node: str
    disks: tuple[str, ...]


class SourceChanged(msgspec.Struct, frozen=True):
    """A collector says how one of its sources is doing."""

    source: Source


class SourceGone(msgspec.Struct, frozen=True):
    """A source is no longer watched at all (its node left the config)."""

    name: str


class PromptsChanged(msgspec.Struct, frozen=True):
    """The questions that wait for a person now."""

    prompts: tuple[Prompt, ...]


class RunsChanged(msgspec.Struct, frozen=True):
    """The runs that are watched now."""

    specs: tuple[RunSpec, ...]


class DisksChanged(msgspec.Struct, frozen=True):
    """The usable share and the lag of each disk path that has one; see State.usable and State.lags."""

    usable: Mapping[str, float]
    lags: Mapping[str, Seconds] = {}


class ClustersChanged(msgspec.Struct, frozen=True):
    """What is known of some clusters as a whole; others stay."""

    clusters: tuple[Cluster, ...]


class JobsSeen(msgspec.Struct, frozen=True):
    """One look at a cluster's queue: all watched jobs that it lists. `at` is our clock."""

    cluster: str
    at: Instant
    jobs: tuple[Job, ...]


class JobChanged(msgspec.Struct, frozen=True):
    """More is known of one job: its details, or from accounting how it ended."""

    job: Job


class SchedulerNodesSeen(msgspec.Struct, frozen=True):
    """One look at a cluster's nodes."""

    cluster: str
    at: Instant
    nodes: tuple[SchedulerNode, ...]


class ActionChanged(msgspec.Struct, frozen=True):
    """An action was asked for, done, refused, or has failed."""

    record: Record


class LedgerTrouble(msgspec.Struct, frozen=True):
    """The ledger does not work, in a sentence; null when it does again."""

    words: str | None


class ConsoleRead(msgspec.Struct, frozen=True):
    """The newest lines of a run's console log in W&B, as a reader of its file would tell them."""

    run: str
    received_at: Instant
    chunk: LogChunk


Event = (
    NodeReading | StandInEnded | SourceChanged | SourceGone | PromptsChanged | RunsChanged | DisksChanged
    | ClustersChanged | JobsSeen | JobChanged | SchedulerNodesSeen | ActionChanged | LedgerTrouble | WandbSeen
    | CurvesGrew | SampleKept | ConsoleRead | QuotaSeen | AlertsRecalled | AlertRequested | Delivered | ChannelsChanged
    | LeadershipChanged | AlertsReported
)  # fmt: skip


class Series(msgspec.Struct, frozen=True):
    """A piece of history: when, in seconds from now (an hour ago is -3600; ascending to 0), and a value or nan."""

    offsets: tuple[float, ...]
    values: tuple[float, ...]


LATE_AFTER = 3.0
"""Periods without a word after which a source is late and its numbers are dimmed."""
