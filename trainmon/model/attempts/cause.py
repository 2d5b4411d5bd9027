"""Why attempts end, and what was decided about a retry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from trainmon.lib import Seconds

# ---- why an attempt ended --------------------------------------------------------------------------------------------

CauseName = Literal[
    "completed",
    "cuda-oom", "host-oom",
    "nccl-timeout", "nccl-network", "rendezvous", "hang",
    "gpu-hardware", "cuda-illegal-access", "device-assert", "cuda-error", "driver-mismatch", "segfault", "node-fail",
    "diverged",
    "disk-full", "quota", "inodes-full", "storage-io", "checkpoint-corrupt", "checkpoint-mismatch",
    "preempted", "requeued", "time-limit", "cancelled-by-user", "kill-switch", "no-restart",
    "import-error", "config-error", "missing-file", "permission",
    "data-error", "dataloader-worker", "network-or-auth", "evaluator",
    "python-exception", "assertion", "device-mismatch",
    "unknown",
]  # fmt: skip
"""The cause of an end. The ledger stores these names as text."""

CAUSES: tuple[CauseName, ...] = get_args(CauseName)

Family = Literal[
    "resources", "hardware", "network", "storage", "numerics", "code", "config", "data", "scheduler", "human", "none",
    "unknown",
]  # fmt: skip
Retry = Literal["now", "after-node-swap", "after-change", "never", "unknown"]
"""Whether a retry can help, and after what. `never` also means that none is needed."""

Confidence = Literal["high", "low"]


class LogExcerpt(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive lines of a log."""

    text: str
    first_line: int = 1
    """The number of its first line. Negative numbers count from the end of the log: -1 is its last line."""
    file: str | None = None
    """Its file, if an attempt has several logs."""


class NodeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What happened on a node of the attempt, between its start and its end."""

    name: str
    xids: tuple[int, ...] = ()
    oom_kills: int = 0
    lost_gpus: int = 0
    full_disks: tuple[str, ...] = ()
    """Mount points."""
    rebooted: bool = False
    drained: str | None = None
    """How Slurm lists it, with the reason, if it is DOWN or drained: `DOWN in Slurm (Not responding)`. An administrator
    may do that while the job still runs well."""


class CauseFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of the end of one attempt. What is not known is null or empty."""

    log: tuple[LogExcerpt, ...] = ()
    """Its head and its tail, in order. A short log is one excerpt. Of several logs, those of one after the other."""
    exit_code: int | None = None
    """As the shell or Slurm says it; -9 means signal 9."""
    signal: int | None = None
    is_exact: bool = False
    """Whether trainmon-run has seen the exit code itself."""
    scheduler_state: str | None = None
    """Slurm's state as sacct writes it, such as `CANCELLED by 1000`."""
    nodes: tuple[NodeFacts, ...] = ()
    wandb_state: str | None = None
    kill_switch: bool = False
    """Whether a kill switch of the run was set before the end."""
    checkpoint_committed: bool = False
    last_step: int | None = None
    target_step: int | None = None
    silent_s: Seconds | None = None
    """Seconds from its last step to its end."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the log, or a fact from elsewhere."""

    text: str
    """Without escape sequences and secrets."""
    line: int | None = None
    """As LogExcerpt counts lines; null for a fact that is not from the log."""
    rank: str | None = None
    """The rank that wrote it, as the log writes it."""
    file: str | msgspec.UnsetType = msgspec.UNSET
    """The file that the line stands in, if an attempt has several logs."""


class Classification(msgspec.Struct, frozen=True, kw_only=True):
    """Why the attempt ended."""

    cause: CauseName
    family: Family
    retry: Retry
    confidence: Confidence
    fingerprint: str
    """Equal for the same failure: it does not depend on numbers, addresses, paths, hosts and times."""
    evidence: tuple[Evidence, ...] = ()
    advice: str = ""
    exception: str | None = None
    """The type of the Python exception that ended it, if one did."""
    rank: str | None = None
    """The rank on which it happened first, as the log writes it."""


# ---- whether and how often a run is retried --------------------------------------------------------------------------

RequeueMode = Literal["off", "suggest", "on"]

RetryChange = Literal["batch", "checkpointing", "placement"]
"""What may change between two attempts: the batch size, activation checkpointing, the nodes and GPUs."""

RetryChoice = Literal["now", "after-change", "after-node-swap", "evaluator", "stop", "none"]
"""What to do after an attempt. evaluator: run only the evaluator again. none: nothing needs to be retried."""


class RetryLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How often a run is retried after one cause without net progress."""

    times: int
    within: Seconds | None = None
    """The period in which retries count; null: any time."""
    after_change: tuple[RetryChange, ...] = ()
    """A retry needs a change of one of these."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What the config says of the retries of a run."""

    auto_requeue: RequeueMode = "off"
    is_own: bool = False
    """Whether the table of the run sets that, and not `[retry]`. Only then it counts for another user's job."""
    limits: Mapping[str, RetryLimit] = {}
    """By cause: the limits that differ from the defaults."""
