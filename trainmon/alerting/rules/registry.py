"""Every rule, in the order in which help and documents list them. A new rule is added here. Pure."""

from __future__ import annotations

from trainmon.alerting.rules.base import Rule
from trainmon.alerting.rules.disks import (
    CheckpointsDoNotFit,
    DiskForecast,
    DiskFull,
    DiskHung,
    DiskReadOnly,
    InodesFull,
    QuotaUsed,
)
from trainmon.alerting.rules.gpus import (
    EccUncorrected,
    GpuHot,
    GpuIdle,
    GpuLeftover,
    GpuLost,
    GpuMemoryFull,
    GpuMissing,
    GpuSlowdown,
    PowerBrake,
    RowRemap,
    XidSeen,
)
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
from trainmon.alerting.rules.runs import (
    CheckpointOverdue,
    CheckpointPointer,
    CheckpointTorn,
    DataStall,
    EndedEarly,
    Finished,
    KillSwitchLeft,
    LogUnread,
    LossNan,
    LossScaleFloor,
    LossSpike,
    NoJobQueued,
    NotScheduled,
    Restarted,
    RunDead,
    RunHung,
    RunStalled,
    RunStopped,
    SaveSwitchIgnored,
    SkippedSteps,
    SlowThroughput,
    Straggler,
    TimeLimitNear,
    WandbHeartbeatLost,
    WandbSeveralActive,
)

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
