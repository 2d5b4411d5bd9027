"""Every alerting rule, in the order of help and documents: a struct of settings, and a pure function from a State to
findings. A new rule is added to the tuple of its family."""

from __future__ import annotations

from trainmon.alerting.rules.base import Rule, is_answering
from trainmon.alerting.rules.disks import (
    CheckpointsDoNotFit,
    DiskForecast,
    DiskFull,
    DiskHung,
    DiskReadOnly,
    InodesFull,
    QuotaUsed,
)
from trainmon.alerting.rules.gpus.faults import EccUncorrected, GpuLost, GpuMissing, RowRemap, XidSeen
from trainmon.alerting.rules.gpus.thermal import GpuHot, GpuIdle, GpuLeftover, GpuMemoryFull, GpuSlowdown, PowerBrake
from trainmon.alerting.rules.monitoring import (
    CHANNEL,
    TEST,
    ChannelFailing,
    ClockJumped,
    ClusterUnreachable,
    ConfigNotLoaded,
    LedgerStuck,
    MonitorBlind,
    OutboxOld,
    RuleRaised,
    SourceDown,
    SourceLate,
    UnansweredTest,
)
from trainmon.alerting.rules.nodes import (
    ClockSkew,
    InfinibandDown,
    InfinibandFlapping,
    MemoryFull,
    MemoryLeak,
    NodeDrained,
    NodeRebooted,
    NodeUnreachable,
    OomKill,
    SparesFew,
)
from trainmon.alerting.rules.runs.attempts import (
    AutoRequeued,
    EndedEarly,
    Finished,
    Restarted,
    RetryStorm,
    RunDead,
    RunStopped,
    SecondTrainer,
    StepsDiffer,
    WrongResume,
)
from trainmon.alerting.rules.runs.checkpoints import (
    CheckpointOverdue,
    CheckpointPointer,
    CheckpointTorn,
    KillSwitchLeft,
    SaveSwitchIgnored,
)
from trainmon.alerting.rules.runs.jobs import (
    NoJobQueued,
    NotScheduled,
    TimeLimitNear,
    WandbHeartbeatLost,
    WandbRunCrashed,
    WandbSeveralActive,
)
from trainmon.alerting.rules.runs.peers import SlowLink, StorageWait
from trainmon.alerting.rules.runs.steps import (
    DataStall,
    LogUnread,
    LossNan,
    LossScaleFloor,
    LossSpike,
    RunHung,
    RunStalled,
    SkippedSteps,
    SlowThroughput,
    Straggler,
)

__all__ = [
    "CHANNEL",
    "DISKS",
    "GPUS",
    "NODES",
    "RULES",
    "RUNS",
    "TEST",
    "ChannelFailing",
    "ClockJumped",
    "ClusterUnreachable",
    "ConfigNotLoaded",
    "LedgerStuck",
    "MonitorBlind",
    "OutboxOld",
    "Rule",
    "SourceDown",
    "SourceLate",
    "UnansweredTest",
    "is_answering",
]

RUNS: tuple[type[Rule], ...] = (
    RunDead, EndedEarly, NotScheduled, RunStopped, Finished, Restarted, RunHung, RunStalled, DataStall,
    LogUnread, LossNan, LossSpike, SkippedSteps, LossScaleFloor, SlowThroughput, Straggler, StorageWait, NoJobQueued,
    TimeLimitNear, WandbSeveralActive, WandbRunCrashed, WandbHeartbeatLost, KillSwitchLeft, SaveSwitchIgnored,
    CheckpointOverdue, CheckpointTorn, CheckpointPointer, AutoRequeued, RetryStorm, WrongResume, StepsDiffer,
    SecondTrainer,
)  # fmt: skip

GPUS: tuple[type[Rule], ...] = (
    GpuHot, GpuSlowdown, PowerBrake, EccUncorrected, RowRemap, XidSeen, GpuLost, GpuMissing, GpuMemoryFull, GpuIdle,
    GpuLeftover,
)  # fmt: skip

NODES: tuple[type[Rule], ...] = (
    NodeUnreachable, NodeRebooted, ClockSkew, MemoryFull, MemoryLeak, OomKill, InfinibandDown, InfinibandFlapping,
    SlowLink, NodeDrained, SparesFew,
)  # fmt: skip

DISKS: tuple[type[Rule], ...] = (
    DiskFull, InodesFull, QuotaUsed, DiskForecast, CheckpointsDoNotFit, DiskHung, DiskReadOnly,
)  # fmt: skip

MONITORING: tuple[type[Rule], ...] = (
    MonitorBlind, ClusterUnreachable, SourceLate, SourceDown, ChannelFailing, OutboxOld, LedgerStuck,
    ConfigNotLoaded, RuleRaised, ClockJumped, UnansweredTest,
)  # fmt: skip

RULES: tuple[type[Rule], ...] = (*RUNS, *GPUS, *NODES, *DISKS, *MONITORING)
