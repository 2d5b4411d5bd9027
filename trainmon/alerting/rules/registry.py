"""Every rule, in the order in which help and documents list them. A new rule is added here. Pure."""

from __future__ import annotations

from trainmon.alerting.rules.base import Rule
from trainmon.alerting.rules.disks.errors import DiskHung, DiskReadOnly
from trainmon.alerting.rules.disks.forecast import CheckpointsDoNotFit, DiskForecast
from trainmon.alerting.rules.disks.quota import QuotaUsed
from trainmon.alerting.rules.disks.usage import DiskFull, InodesFull
from trainmon.alerting.rules.gpus.faults import EccUncorrected, GpuLost, GpuMissing, RowRemap
from trainmon.alerting.rules.gpus.thermal import GpuHot, GpuSlowdown, PowerBrake
from trainmon.alerting.rules.gpus.utilization import GpuIdle, GpuLeftover, GpuMemoryFull
from trainmon.alerting.rules.gpus.xid import XidSeen
from trainmon.alerting.rules.monitoring import (
    ChannelFailing,
    ClockJumped,
    ClusterUnreachable,
    LedgerStuck,
    MonitorBlind,
    OutboxOld,
    RuleRaised,
    SourceDown,
    SourceLate,
    UnansweredTest,
)
from trainmon.alerting.rules.nodes.hosts import ClockSkew, NodeRebooted, NodeUnreachable
from trainmon.alerting.rules.nodes.infiniband import InfinibandDown, InfinibandFlapping
from trainmon.alerting.rules.nodes.memory import MemoryFull, MemoryLeak, OomKill
from trainmon.alerting.rules.nodes.slurm import NodeDrained, SparesFew
from trainmon.alerting.rules.runs.checkpoints import CheckpointOverdue, CheckpointPointer, CheckpointTorn
from trainmon.alerting.rules.runs.crash_loop import Restarted
from trainmon.alerting.rules.runs.exit import EndedEarly, Finished, RunDead, RunStopped
from trainmon.alerting.rules.runs.jobs import NoJobQueued, NotScheduled, TimeLimitNear
from trainmon.alerting.rules.runs.loss import LossNan, LossScaleFloor, LossSpike, SkippedSteps
from trainmon.alerting.rules.runs.stall import DataStall, LogUnread, RunHung, RunStalled
from trainmon.alerting.rules.runs.switches import KillSwitchLeft, SaveSwitchIgnored
from trainmon.alerting.rules.runs.throughput import SlowThroughput, Straggler
from trainmon.alerting.rules.runs.wandb import WandbHeartbeatLost, WandbSeveralActive

RUNS: tuple[type[Rule], ...] = (
    RunDead,
    EndedEarly,
    NotScheduled,
    RunStopped,
    Finished,
    Restarted,
    RunHung,
    RunStalled,
    DataStall,
    LogUnread,
    LossNan,
    LossSpike,
    SkippedSteps,
    LossScaleFloor,
    SlowThroughput,
    Straggler,
    NoJobQueued,
    TimeLimitNear,
    WandbSeveralActive,
    WandbHeartbeatLost,
    KillSwitchLeft,
    SaveSwitchIgnored,
    CheckpointOverdue,
    CheckpointTorn,
    CheckpointPointer,
)


NODES: tuple[type[Rule], ...] = (
    NodeUnreachable,
    NodeRebooted,
    ClockSkew,
    MemoryFull,
    MemoryLeak,
    OomKill,
    InfinibandDown,
    InfinibandFlapping,
    NodeDrained,
    SparesFew,
)


GPUS: tuple[type[Rule], ...] = (
    GpuHot,
    GpuSlowdown,
    PowerBrake,
    EccUncorrected,
    RowRemap,
    XidSeen,
    GpuLost,
    GpuMissing,
    GpuMemoryFull,
    GpuIdle,
    GpuLeftover,
)


DISKS: tuple[type[Rule], ...] = (
    DiskFull, InodesFull, QuotaUsed, DiskForecast, CheckpointsDoNotFit, DiskHung, DiskReadOnly,
)  # fmt: skip


OURSELVES: tuple[type[Rule], ...] = (
    MonitorBlind, ClusterUnreachable, SourceLate, SourceDown, ChannelFailing, OutboxOld, LedgerStuck, RuleRaised,
    ClockJumped, UnansweredTest,
)  # fmt: skip


RULES: tuple[type[Rule], ...] = (*RUNS, *GPUS, *NODES, *DISKS, *OURSELVES)
