"""Runs: their configuration, log, switches, progress and memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from trainmon.lib import Instant, Seconds
from trainmon.model.probe_wire import CheckpointListing
from trainmon.model.storage import Checkpoints
from trainmon.model.wandb import LossTrouble, Wandb, WandbSpec

Verdict = Literal[
    "healthy", "starting", "evaluating", "saving", "stalled", "hung", "data-stall", "diverged", "dead", "stopped",
    "finished", "queued", "idle", "unknown",
]  # fmt: skip


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


class TrainingMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers that a training log prints. `None` means "not printed"."""

    step: int | None = None
    target_step: int | None = None
    loss: float | None = None
    """nan if the line shows a NaN, or if the trainer hides one (Megatron drops the field)."""
    grad_norm: float | None = None
    tokens_per_s: float | None = None
    samples_per_s: float | None = None
    step_time_s: float | None = None
    learning_rate: float | None = None
    skipped: int | None = None
    nan_iterations: int | None = None
    loss_scale: float | None = None
    epoch: float | None = None
    """Some trainers print no step beside their loss. A growing epoch is then the only sign of progress."""


class Progress(TrainingMetrics, frozen=True, kw_only=True):
    """A run's training progress as its log shows it. Each field keeps its last known value."""

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
    """Whose jobs are meant; null: those of anybody who is watched. See job_matching.owner_of."""
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


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a run is, minute by minute, and how fast it usually is."""

    measure: str = ""
    """What is measured: `tokens/s`, `samples/s`, `steps/s`."""
    said_at: Instant | None = None
    """When a line last said it; counted steps need none."""
    nodes: int = 0
    """On how many nodes: on others it has another pace."""
    warm_at: Instant | None = None
    """From when on it counts: the first minutes of an attempt compile, and fill caches."""
    read_at: Instant | None = None
    """When the last step that was taken in was taken."""
    since: Instant | None = None
    """When the minute that is being read began, and at which step."""
    step: int | None = None
    readings: tuple[float, ...] = ()
    """Of the minute that is being read."""
    recent: tuple[float, ...] = ()
    """Medians of the last minutes, at most RECENT_MINUTES."""
    closed_at: Instant | None = None
    """When the last of them ended."""
    usual: tuple[float, ...] = ()
    """Medians of a day's minutes, at most MINUTES; without those in `slow`."""
    slow: tuple[float, ...] = ()
    """The minutes since it has been plainly slower than usual. After SLOW_AT_MOST of them, that is its usual."""
    usual_rate: float | None = None
    """The median of `usual`; null while too little is known."""


class RunMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What is remembered of one run."""

    throughput: Throughput = Throughput()
    step: int | None = None
    """The step that was taken in last."""
    at: Instant | None = None
    cadence_s: Seconds | None = None
    """Its usual interval before that step: one that comes after a long silence widens it."""
    losses: tuple[float, ...] = ()
    """The recent losses of its log, for their usual band."""
    trouble: LossTrouble | None = None
    """What was odd about them last."""
    scale_peak: float | None = None
    """The highest loss scale of this attempt: a constant 1 (bf16) is no floor that was reached."""
    overflows: int = 0
    """Lines that told of a skipped step, since the last step that they do not belong to: they say no step."""
    skipped_in_row: int = 0
    """How many steps in a row were skipped, by such lines."""
    back_at: Instant | None = None
    """When its steps last went back, and from where: it was restarted from a checkpoint."""
    back_from: int | None = None
    stopped: str | None = None
    """Where it stood when a person had ended it: the step, and the job. While it stands there, it is stopped."""
    stopped_by: str = ""
    """Who ended it, and how: the switch is taken back, and what was asked for here is forgotten after an hour."""
    read_to: int = 0
    """The number of the log's line that is read next."""
    exiting_at: Instant | None = None
    """When its log last said that it ends by itself, and in which line."""
    exiting: str = ""
    floor_at: Instant | None = None
    """When its log last said that its loss scale cannot sink further, and in which line."""
    floor: str = ""


RECENT_MINUTES = 10

MINUTES = 1_440

SLOW_AT_MOST = 720
"""Half a day: a pace that lasts so long is no trouble any more, but another training."""


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
