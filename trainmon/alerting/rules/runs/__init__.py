"""Rules about training runs: exits, stalls, loss, throughput, jobs, checkpoints, switches, W&B."""

from __future__ import annotations

from trainmon.alerting.rules.runs.base import LIVING
from trainmon.alerting.rules.runs.checkpoints import CheckpointOverdue, CheckpointPointer, CheckpointTorn
from trainmon.alerting.rules.runs.crash_loop import Restarted
from trainmon.alerting.rules.runs.exit import EndedEarly, Finished, RunDead, RunStopped
from trainmon.alerting.rules.runs.jobs import NoJobQueued, NotScheduled, TimeLimitNear
from trainmon.alerting.rules.runs.loss import LossNan, LossScaleFloor, LossSpike, SkippedSteps
from trainmon.alerting.rules.runs.stall import DataStall, LogUnread, RunHung, RunStalled
from trainmon.alerting.rules.runs.switches import KillSwitchLeft, SaveSwitchIgnored
from trainmon.alerting.rules.runs.throughput import SlowThroughput, Straggler
from trainmon.alerting.rules.runs.wandb import WandbHeartbeatLost, WandbSeveralActive

__all__ = [
    "LIVING",
    "CheckpointOverdue",
    "CheckpointPointer",
    "CheckpointTorn",
    "DataStall",
    "EndedEarly",
    "Finished",
    "KillSwitchLeft",
    "LogUnread",
    "LossNan",
    "LossScaleFloor",
    "LossSpike",
    "NoJobQueued",
    "NotScheduled",
    "Restarted",
    "RunDead",
    "RunHung",
    "RunStalled",
    "RunStopped",
    "SaveSwitchIgnored",
    "SkippedSteps",
    "SlowThroughput",
    "Straggler",
    "TimeLimitNear",
    "WandbHeartbeatLost",
    "WandbSeveralActive",
]
