"""Rules about training runs: exits, stalls, loss, throughput, jobs, checkpoints, switches, W&B."""

from __future__ import annotations

from trainmon.alerting.rules.base import Rule
from trainmon.alerting.rules.runs.base import LIVING
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
"""Every run rule, in the order of help and documents."""

__all__ = ["LIVING", "RUNS"]
