"""Every rule, in the order of help and documents. A new rule is added to the tuple of its folder. Pure."""

from __future__ import annotations

from trainmon.alerting.rules.base import Rule
from trainmon.alerting.rules.disks.errors import DiskHung, DiskReadOnly, QuotaUsed
from trainmon.alerting.rules.disks.usage import CheckpointsDoNotFit, DiskForecast, DiskFull, InodesFull
from trainmon.alerting.rules.gpus.faults import EccUncorrected, GpuLost, GpuMissing, RowRemap, XidSeen
from trainmon.alerting.rules.gpus.thermal import GpuHot, GpuIdle, GpuLeftover, GpuMemoryFull, GpuSlowdown, PowerBrake
from trainmon.alerting.rules.monitoring import MONITORING
from trainmon.alerting.rules.nodes.hosts import ClockSkew, NodeDrained, NodeRebooted, NodeUnreachable, SparesFew
from trainmon.alerting.rules.nodes.memory import InfinibandDown, InfinibandFlapping, MemoryFull, MemoryLeak, OomKill
from trainmon.alerting.rules.runs.checkpoints import CheckpointOverdue, CheckpointPointer, CheckpointTorn
from trainmon.alerting.rules.runs.exit import EndedEarly, Finished, RunDead, RunStopped
from trainmon.alerting.rules.runs.jobs import (
    KillSwitchLeft,
    NoJobQueued,
    NotScheduled,
    SaveSwitchIgnored,
    TimeLimitNear,
)
from trainmon.alerting.rules.runs.loss import LossNan, LossScaleFloor, LossSpike, SkippedSteps
from trainmon.alerting.rules.runs.retries import AutoRequeued, Restarted, RetryStorm, SecondTrainer, WrongResume
from trainmon.alerting.rules.runs.throughput import DataStall, LogUnread, RunHung, RunStalled, SlowThroughput, Straggler
from trainmon.alerting.rules.runs.wandb import WandbHeartbeatLost, WandbRunCrashed, WandbSeveralActive

RUNS: tuple[type[Rule], ...] = (
    RunDead, EndedEarly, NotScheduled, RunStopped, Finished, Restarted, RunHung, RunStalled, DataStall,
    LogUnread, LossNan, LossSpike, SkippedSteps, LossScaleFloor, SlowThroughput, Straggler, NoJobQueued, TimeLimitNear,
    WandbSeveralActive, WandbRunCrashed, WandbHeartbeatLost, KillSwitchLeft, SaveSwitchIgnored, CheckpointOverdue,
    CheckpointTorn, CheckpointPointer, AutoRequeued, RetryStorm, WrongResume, SecondTrainer,
)  # fmt: skip

GPUS: tuple[type[Rule], ...] = (
    GpuHot, GpuSlowdown, PowerBrake, EccUncorrected, RowRemap, XidSeen, GpuLost, GpuMissing, GpuMemoryFull, GpuIdle,
    GpuLeftover,
)  # fmt: skip

NODES: tuple[type[Rule], ...] = (
    NodeUnreachable, NodeRebooted, ClockSkew, MemoryFull, MemoryLeak, OomKill, InfinibandDown, InfinibandFlapping,
    NodeDrained, SparesFew,
)  # fmt: skip

DISKS: tuple[type[Rule], ...] = (
    DiskFull, InodesFull, QuotaUsed, DiskForecast, CheckpointsDoNotFit, DiskHung, DiskReadOnly,
)  # fmt: skip

RULES: tuple[type[Rule], ...] = (*RUNS, *GPUS, *NODES, *DISKS, *MONITORING)
