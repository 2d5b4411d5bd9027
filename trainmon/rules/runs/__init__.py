"""Rules about runs, in the order of docs/alerts-and-rules.md."""

from __future__ import annotations

from trainmon.rules.base import Rule
from trainmon.rules.runs.checkpoints import CheckpointOverdue, CheckpointPointer, CheckpointTorn
from trainmon.rules.runs.ends import EndedEarly, Finished, RunDead, RunStopped
from trainmon.rules.runs.jobs import NoJobQueued, NotScheduled, TimeLimitNear
from trainmon.rules.runs.numbers import LossNan, LossScaleFloor, LossSpike, SkippedSteps
from trainmon.rules.runs.restarts import Restarted
from trainmon.rules.runs.silence import DataStall, LogUnread, RunHung, RunStalled
from trainmon.rules.runs.speed import SlowThroughput, Straggler
from trainmon.rules.runs.switches import KillSwitchLeft, SaveSwitchIgnored
from trainmon.rules.runs.wandb import WandbHeartbeatLost, WandbSeveralActive

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
