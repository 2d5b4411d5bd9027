"""Runs: their settings, logs, progress, switches, throughput and memory, and what a training loop reports of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeVar

import msgspec

from trainmon.lib import Instant, Seconds
from trainmon.model.attempts import RetryPolicy
from trainmon.model.job import RankLook
from trainmon.model.probe_wire import CheckpointListing, OtherLog, OwnProcess, says
from trainmon.model.storage import Checkpoints, Evals
from trainmon.model.wandb import TRAINER_STATE, LossTrouble, Wandb, WandbFile, WandbSpec

# ---- what is read of a run's log -------------------------------------------------------------------------------------


class StepNumbers(NamedTuple):
    """What a line of a log says of the training."""

    step: int | None = None
    target_step: int | None = None
    loss: float | None = None


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """The followed log of a run: where it is and its last lines, clean of control characters."""

    host: str
    """The host that reads it; WANDB where it is the console log of W&B."""
    path: str | None = None
    path_before: str | None = None
    """The file whose lines come before the last LOG_MARK."""
    at: Instant | None = None
    """When new lines last came, by our clock."""
    modified_at: Instant | None = None
    """When the file was last written, by its own time: lines may be read late."""
    checked_at: Instant | None = None
    """When the file was last read."""
    began_at: Instant | None = None
    """When this file was first read; of one that was not there before, when the lines were written that it had then."""
    is_new: bool = False
    """Whether this file was not there before."""
    first_at: Instant | None = None
    """Of a file that was there before: when its writer began, by the times in its lines, or when it was created."""
    is_local: bool = False
    """Whether no other host sees this file: another one may have a file of the same path."""
    pause_s: Seconds = 0.0
    """The longest observed pause between two lines of this file."""
    size: int | None = None
    lines: tuple[str, ...] = ()
    """At most LOG_LINES. Line i has the number first + i, which never repeats for this run."""
    first: int = 0
    numbers: tuple[StepNumbers | None, ...] = ()
    """What each line says, up to the last line; null of one that says nothing of the training."""
    partial: str | None = None
    partial_numbers: StepNumbers | None = None
    dropped: int = 0
    """Lines that were never sent because they came too fast, since the start."""
    lines_per_s: float | None = None
    error: str | None = None
    others: tuple[OtherLog, ...] = ()
    """The other files that matched its pattern when this file was opened, the newest first; by our clock."""
    resync: bool = False
    """Whether its reader has restarted: the next lines repeat some that were read before."""

    @property
    def shown(self) -> tuple[str, ...]:
        """Its lines, and behind them the unfinished one."""
        return self.lines if self.partial is None else (*self.lines, self.partial)


LOG_PART = 64 * 1024
"""Bytes of a log that are read at a time: 1.6 s over a link of 40 KB/s."""


class LogPart(msgspec.Struct, frozen=True, kw_only=True):
    """Some lines of a log file, as a person has asked for."""

    start: int = 0
    """In bytes, as `end`, which is where the next line begins."""
    end: int = 0
    size: int = 0
    """Of the file."""
    lines: tuple[str, ...] = ()
    offsets: tuple[int, ...] = ()
    """Where each of them begins."""
    numbers: tuple[StepNumbers | None, ...] = ()
    found: int | None = None
    """The index of the line that was looked for."""
    error: str | None = None
    is_other: bool = False
    """Whether another file is there now, or another text in it: what was read before is of the past."""
    older: tuple[str, ...] = ()
    """Names of files beside it that may have its older lines, the newest first. Known where it begins with the file."""

    def __add__(self, later: LogPart) -> LogPart:
        """This part and the one that begins at its end."""
        return LogPart(
            start=self.start,
            older=self.older,
            end=later.end,
            size=max(self.size, later.size),
            lines=self.lines + later.lines,
            offsets=self.offsets + later.offsets,
            numbers=self.numbers + later.numbers,
        )

    def __getitem__(self, kept: slice) -> LogPart:
        """Only these lines."""
        offsets, stop = self.offsets[kept], kept.indices(len(self.offsets))[1]
        return msgspec.structs.replace(
            self,
            start=offsets[0] if offsets else self.start,
            end=self.offsets[stop] if stop < len(self.offsets) else self.end,
            lines=self.lines[kept],
            offsets=offsets,
            numbers=self.numbers[kept],
        )


class LogHits(msgspec.Struct, frozen=True, kw_only=True):
    """Where a text is in a log file, as far as it has been searched: from its end upwards."""

    offsets: tuple[int, ...] = ()
    """In bytes, ascending."""
    begin: int = 0
    """From here on, the file has been searched."""
    size: int = 0
    is_done: bool = False
    error: str | None = None
    older: tuple[str, ...] = ()
    """Names of files beside it that may have its older lines, the newest first: they are not searched."""


WANDB = "wandb"
"""The host of a console log in W&B. Its source is `wandb:<name of the run>`."""

LOG_MARK = "──── "
"""How the line begins that separates two logs of a run."""

LOG_LINES = 2_000
"""Lines of a log kept for the screen: 16 runs of 150-byte lines are 5 MB, and what step lines say is as much again."""


class Bar(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The nameless progress bar of the training, identified by its total. Evaluation draws such bars, too."""

    total: int | None
    step: int | None = None
    """Its last step while no loss has confirmed it."""
    confirmed: bool = False
    """Whether a loss was printed while it was followed. Before that, its steps do not count."""
    rival: int | None = None
    """The total of another bar that is drawn at the moment."""
    rival_losses: int = 0
    """How many losses were printed while the rival was drawn and the followed bar was not."""
    evaluations: tuple[int, ...] = ()
    """Totals of bars after which the results of an evaluation were printed."""


Block = Literal["", "header", "dict", "box"]
"""Several lines that make one step: a header with indented values, a printed dict, a box with a row for each value."""


class LogShape(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of the step lines of a log whose trainer has no format of its own."""

    counter: str = ""
    """What counts its steps, once that is known; empty before."""
    example: str = ""
    """Its last step line, or the lines of the last step, joined."""
    steps: int = 0
    """Steps that were read by it."""
    step: int | None = None
    """The last of them."""
    candidates: tuple[tuple[str, int], ...] = ()
    """Counters that were seen once, with their values: the second time, one that has grown is believed."""
    others: int = 0
    """Steps by another counter since the last one of its own: many of them mean that the log has another shape now."""
    block: Block = ""
    text: str = ""
    """The lines of the block so far, joined."""
    block_lines: int = 0
    is_evaluation: bool = False
    """Whether the rest of the block is of an evaluation."""
    columns: tuple[str, ...] = ()
    """The heading of the table that the next rows belong to."""
    epoch: tuple[int, int | None] | None = None
    """The epoch that was announced in a line of its own, and how many there are."""
    epochs: int | None = None
    """How many epochs the trainer said that it will do, in a line without a number of one."""
    first_epoch: int | None = None
    """0 or 1: where this trainer begins to count epochs. Null until an epoch was seen."""
    position: tuple[int, int, int | None] | None = None
    """The epoch, its batch and its batches as printed; null where the trainer counts its steps over all epochs."""
    restarts: bool = False
    """Whether the step counter begins again in each epoch."""
    last: tuple[int, int] | None = None
    """The last epoch and its step as printed, where both are printed."""


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
    """How many iterations were skipped since the last real step."""
    skipping_since: Instant | None = None
    """Since when every iteration was skipped, without a loss."""
    at: Instant | None = None
    """When the step last advanced, by our clock."""
    cadence_s: Seconds | None = None
    """The usual time between advancing step lines: the median of `intervals`."""
    format: str | None = None
    """The name of the log format that counts the steps."""
    doing: Literal["train", "eval", "save"] = "train"
    """The current activity, by the last line about it."""
    doing_at: Instant | None = None
    """When that line was logged."""
    busy_since: Instant | None = None
    """Since when it evaluates or saves; null while it trains."""
    evals: tuple[Seconds, ...] = ()
    """The durations of recent evaluations and saves, by the log."""
    saves: tuple[Seconds, ...] = ()
    intervals: tuple[Seconds, ...] = ()
    """The recent times between advancing step lines."""
    together: int = 0
    """How many step lines arrived together at `at`: they share the time since the line before."""
    printed: tuple[str, ...] = ()
    """The fields that the log printed for the current step: the same line from another rank changes none of them."""
    borrowed: tuple[str, ...] = ()
    """The fields that come from W&B, because the log lacks them. If the steps do, too, `format` is WANDB."""
    bar: Bar | None = None
    begun_at: Instant | None = None
    """When the epoch began that stands for the step in a log that counts nothing else."""
    counts: Literal["run", "epoch", "nothing"] = "run"
    """What its counter counts to the end of. epoch: it began again after its end, so its total is not the target.
    nothing: its trainer has said that it ended, and what counts next is another start."""


# ---- what a training loop reports of itself --------------------------------------------------------------------------


class Asked(msgspec.Struct, frozen=True):
    """What a trainer was asked to do."""

    what: str
    """save or stop."""
    by: str
    """The kill switch, the save switch, the time limit, or a signal and its rank."""
    at: Instant
    step: int | None = None
    """The step at which it obeyed."""


class TrainerReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a training loop with trainmon_hooks writes into its status file; there, times are by its own clock."""

    at: Instant
    """When the loop wrote it."""
    phase: str
    step: int | None = None
    job: str | None = None
    deadline: Instant | None = None
    """When its job ends."""
    grace_s: Seconds = 0.0
    """How long before that it saves and stops."""
    kill: str | None = None
    """The switches that it looks at."""
    save: str | None = None
    signals: Mapping[str, str] = {}
    """Signal → save or stop."""
    is_task: bool = False
    """Whether its process is the task that Slurm has started, and so gets the signals of Slurm."""
    asked: Asked | None = None


class Trainer(TrainerReport, frozen=True, kw_only=True):
    """What a training loop reports of itself. Times are by our clock."""

    path: str
    """The status file, and the host that reads it."""
    host: str
    saved_step: int | None = None
    saved_at: Instant | None = None
    ended_at: Instant | None = None
    ended: str | None = None
    """Why it has ended."""


# ---- runs ------------------------------------------------------------------------------------------------------------

Verdict = Literal[
    "healthy", "starting", "evaluating", "saving", "stalled", "hung", "data-stall", "diverged", "dead", "stopped",
    "finished", "queued", "idle", "unknown",
]  # fmt: skip

GOING: frozenset[Verdict] = frozenset({"healthy", "evaluating", "saving"})
"""Of a run that makes steps, and will reach its target at its pace."""
ALIVE: frozenset[Verdict] = GOING | {"starting"}
SILENT: frozenset[Verdict] = frozenset({"stalled", "hung", "data-stall"})
"""Of a run that makes no step although it should."""
OVER: frozenset[Verdict] = frozenset({"dead", "stopped", "finished"})


WhyCode = Literal["", "unread", "of-job"]
"""What code must know of the reason for a verdict. unread: its log grows, and shows no known step line. of-job: the
reason names its job."""


class Stop(msgspec.Struct, frozen=True):
    """That a person ended a run."""

    by: str
    """Who, and how."""
    is_named: bool = True
    """Whether the person is known, or at least the means. Accounting may name who cancelled a job later."""


def verdict_text(verdict: Verdict) -> str:
    """The verdict as people read it: a dead run has failed."""
    return "failed" if verdict == "dead" else verdict


DIRECTORY = "a directory"

Words = TypeVar("Words")


def armed_by(owner: str, kind: str) -> str:
    """Who armed a switch; `kind` is what is there, if that is no regular file with one link: `ana with a FIFO`."""
    return f"{owner} with {kind}" if kind else owner


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """A kill or save switch file of a run. `armed_at` is its mtime while it exists."""

    path: str
    host: str | None = None
    """The host that observed it."""
    exists: bool | None = None
    armed_at: Instant | None = None
    by: str | None = None
    """Its owner, and what it is if that is no plain file. See armed_by."""
    why: str | None = None
    taken_at: Instant | None = None
    """When the file disappeared: a trainer removes the save switch when it obeys."""
    was_armed_at: Instant | None = None
    """When the file that disappeared was armed."""
    error: str | None = None

    @property
    def is_dangling(self) -> bool:
        """Whether it is a symbolic link to nothing: no trainer sees a file, and none can be created there."""
        return says(self.error, "dangling")

    @property
    def is_directory(self) -> bool:
        """Whether only a person can remove it: trainmon-tui removes files."""
        return (self.by or "").endswith(armed_by("", DIRECTORY))

    def removal(self, means: Words) -> Words | str:
        """How it is removed: by these means of trainmon-tui, unless it is a directory."""
        return f"a person must remove the directory {self.path}" if self.is_directory else means


STALL_AFTER: Seconds = 900.0


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the config, or one found by a job of ours. Its nodes and log may come from its job."""

    name: str
    cluster: str
    job: str | None = None
    """Its Slurm job name."""
    user: str | None = None
    """The owner of its jobs; null: any watched user. See job_matching.owner_of."""
    found: bool = False
    """Whether it was found by a running job of ours, and is not in the config."""
    only: str | None = None
    """The id of its only job, if several of our jobs ran under one name."""
    without: tuple[str, ...] = ()
    """The ids of jobs with its name that are separate runs."""
    script: str | None = None
    """The batch script that submits it."""
    log: str | None = None
    checkpoints: str | None = None
    evals: tuple[str, ...] = ()
    """The files of the results of its evaluators; may be globs."""
    eval_commands: tuple[tuple[str, ...], ...] = ()
    """The commands that evaluate one of its checkpoints, with placeholders."""
    kill_switch: str | None = None
    save_switch: str | None = None
    status: str | None = None
    """The status file of its trainer, if it has trainmon_hooks."""
    target_step: int | None = None
    stall_after: Seconds = STALL_AFTER
    may_hang_early: bool = True
    """Whether it may count as hung before `stall_after`: the config sets none."""
    nodes: tuple[str, ...] = ()
    wandb: WandbSpec | None = None
    wandb_dir: str | None = None
    """The directory of its W&B client, or of other files of metrics."""
    metrics_found: tuple[str, ...] = ()
    """Without a configured one: directories in which files of metrics may be."""
    metrics_since: Instant | None = None
    """Of these only files count that were written since then."""
    charts: tuple[str, ...] = ()
    """The metrics to chart; empty: metrics with common names."""
    process: OwnProcess | None = None
    """Its process, if it was found on the GPUs of this machine without a job."""
    ended_at: Instant | None = None
    """When that process was gone."""
    from_log: tuple[str, ...] = ()
    """Which of its settings were found in its log: checkpoints, wandb, wandb_dir. Checkpoints also on the disk."""
    model_family: str | None = None
    labels: Mapping[str, str] = {}
    config: str | None = None
    """The path of its config file, or a glob that one file matches."""
    data_manifest: str | None = None
    """The version of its data, or the path of their manifest."""
    retry: RetryPolicy = RetryPolicy()
    receipts: str | None = None
    """The directory of its receipts of trainmon-run."""

    @property
    def has_charts(self) -> bool:
        """Whether W&B's server or configured files have curves of it."""
        return self.wandb is not None or self.wandb_dir is not None


class Throughput(msgspec.Struct, frozen=True, kw_only=True):
    """The throughput of a run, per minute and usually."""

    measure: str = ""
    """The unit: `tokens/s`, `samples/s` or `steps/s`."""
    printed_at: Instant | None = None
    """When a line last printed it; counted steps need no such line."""
    nodes: int = 0
    """The number of nodes. With another number, measuring starts again."""
    warm_at: Instant | None = None
    """When measuring starts: the first minutes of an attempt compile and fill caches."""
    read_at: Instant | None = None
    """The time of the last step that was included."""
    since: Instant | None = None
    """The start of the current minute, and its step."""
    step: int | None = None
    readings: tuple[float, ...] = ()
    """The values within the current minute."""
    recent: tuple[float, ...] = ()
    """Medians of the last minutes, at most RECENT_MINUTES."""
    closed_at: Instant | None = None
    """When the last minute ended."""
    usual: tuple[float, ...] = ()
    """Medians of the minutes of a day, at most MINUTES, without those in `slow`."""
    slow: tuple[float, ...] = ()
    """The minutes since it has been clearly slower than usual. After SLOW_AT_MOST of them, they become the usual."""
    usual_rate: float | None = None
    """The median of `usual`; null while there are too few."""


class StepSpan(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of a log that follow each other without a pause, a restart or a step back."""

    first: int | None = None
    """Null while the log has only announced where it resumes."""
    first_at: Instant = 0.0
    first_line: int = 0
    """The number of the line of the log with which it begins."""
    written_at: Instant | None = None
    """When its first step was written, if its line says that; else it was read at `first_at`."""
    last: int | None = None
    last_at: Instant = 0.0
    is_start: bool = False
    """Whether the trainer started here: the log began or was restarted, it resumed, or its steps went back."""
    is_over: bool = False
    """Whether the trainer says that it has ended: its next step is of another start."""
    resumed_from: int | None = None
    resumed_words: str | None = None


class RunMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of one run between two States."""

    throughput: Throughput = Throughput()
    step: int | None = None
    """The last step that was included, and its time."""
    at: Instant | None = None
    cadence_s: Seconds | None = None
    """Its usual interval before that step: a step after a long silence widens it."""
    gpus_worked: bool = False
    """Whether its GPUs drew the power of work at that step."""
    hangs: bool = False
    """Whether all its GPUs have waited since that step, for longer than such a wait may last."""
    waited_s: Seconds = 0.0
    """The longest such wait that ended by itself."""
    wandb: str | None = None
    """The id of the W&B run that counted that step; null if the log did."""
    losses: tuple[float, ...] = ()
    """The recent losses of its log, for their usual band."""
    unjudged: tuple[tuple[int | None, float, Instant | None], ...] = ()
    """The steps and losses that its log has shown since they were last judged, and when those that are no number were
    written, by the times in their lines."""
    trouble: LossTrouble | None = None
    """Their last anomaly."""
    scale_peak: float | None = None
    """The highest loss scale of this attempt: a constant 1 (bf16) has not fallen to a floor."""
    overflows: int = 0
    """Lines about a skipped step since the last counted step. Such lines contain no step."""
    skipped_in_row: int = 0
    """How many steps in a row were skipped, by those lines."""
    back_at: Instant | None = None
    """When its steps last went back, and from which step: it was restarted from a checkpoint."""
    back_from: int | None = None
    stopped: str | None = None
    """Its position (step and job) when a person ended it. It counts as stopped while the position stays."""
    stopped_by: Stop | None = None
    """Who ended it. This outlives the switch file, and the action, which is dropped after an hour."""
    spans: tuple[StepSpan, ...] = ()
    """The newest spans of its steps, the newest last, at most SPANS."""
    commits: tuple[tuple[Instant, int, str], ...] = ()
    """The last commits in its directory of checkpoints, in their order: when, the step, and the layout and folder."""
    read_to: int = 0
    """The number of the next log line."""
    shape: LogShape = LogShape()
    """What was learned about the step lines of its log, if no format knows them."""
    exiting_at: Instant | None = None
    """When its log last announced its end."""
    floor_at: Instant | None = None
    """When its log last reported the minimum loss scale, and that line."""
    floor: str = ""


SPANS = 16
RECENT_MINUTES = 10
MINUTES = 1_440
SLOW_AT_MOST = 720
"""Half a day: a throughput that lasts this long is the new usual one."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One training run and everything known of it."""

    spec: RunSpec
    verdict: Verdict = "unknown"
    why: str = "nothing has been read yet"
    why_code: WhyCode = ""
    stop: Stop | None = None
    """Who ended it, if its verdict is `stopped`."""
    progress: Progress = Progress()
    log: Log | None = None
    kill: Switch | None = None
    save: Switch | None = None
    eta_at: Instant | None = None
    jobs: tuple[str, ...] = ()
    """The keys of its jobs: running, then waiting in queue order, then ended with the newest first."""
    queued_behind: int | None = None
    """How many jobs wait behind the running one, including array tasks; null if the queue is not known."""
    checkpoints: Checkpoints | None = None
    listing: CheckpointListing | None = None
    """The last listing of its checkpoint directory."""
    evals: Evals = Evals()
    wandb: Wandb | None = None
    wandb_file: WandbFile | None = None
    log_metrics: WandbFile | None = None
    """The curves of its log; each start of its trainer is a run of them."""
    trainer: Trainer | None = None
    memory: RunMemory = RunMemory()
    looks: tuple[RankLook, ...] = ()
    """What looks at its ranks have shown since its last step: the latest of each source."""

    @property
    def job(self) -> str | None:
        """The key of the running job, else of the next, else of the last."""
        return self.jobs[0] if self.jobs else None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def target_step(self) -> int | None:
        """The step at which it is complete: by the config, else by its log."""
        return self.spec.target_step or self.progress.target_step

    @property
    def has_metrics(self) -> bool:
        """Whether there are, or may be, curves of it beside those of its log: on W&B's server, or in a file."""
        return self.spec.has_charts or (self.wandb_file is not None and self.wandb_file.path is not None)

    @property
    def has_charts(self) -> bool:
        """Whether there are, or may be, curves of it."""
        return self.has_metrics or (self.log_metrics is not None and self.log_metrics.points > 0)

    @property
    def saved_step(self) -> int | None:
        """The step of the newest checkpoint of Hugging Face's Trainer, where nothing else shows steps: an old one."""
        found = None if self.checkpoints is None or self.progress.format is not None else self.checkpoints.committed
        return found.step if found is not None and found.layout == "hf" else None

    @property
    def saved_loss(self) -> float | None:
        """The last loss in the state of that checkpoint."""
        file, found = self.wandb_file, self.checkpoints
        if self.saved_step is None or file is None or found is None or file.format != TRAINER_STATE or not file.path:
            return None
        loss = file.runs[0].summary.get("loss") if file.path.startswith(found.path + "/") else None
        return loss if isinstance(loss, float) else None

    @property
    def step(self) -> int | None:
        """Its last known step: that of its newest checkpoint where nothing else shows steps."""
        return self.saved_step if self.progress.step is None else self.progress.step

    @property
    def loss(self) -> float | None:
        """Its last known loss: that of its newest checkpoint where nothing else shows steps."""
        return self.saved_loss if self.progress.loss is None else self.progress.loss


# ---- what the dashboard showed when it was last open -----------------------------------------------------------------


class SeenRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as far as a change of it is news."""

    verdict: Verdict
    step: int | None = None
    job: str | None = None
    """Run.job."""
    restarts: int = 0
    """Of that job, by Slurm."""
    attempt: str | None = None
    """WandbRun.path of its current W&B run."""


class SeenDisk(msgspec.Struct, frozen=True, kw_only=True):
    """The space of one disk."""

    state: str
    free_bytes: int | None = None
    total_bytes: int | None = None


class Arrangement(msgspec.Struct, frozen=True, kw_only=True):
    """How a person arranged the panes and their rows. Panes are named by their keys."""

    order: tuple[str, ...] = ()
    """The panes by their positions; empty: the usual order."""
    hidden: frozenset[str] = frozenset()
    larger: Mapping[str, int] = {}
    """How many times each was enlarged; negative: made smaller."""
    sorts: Mapping[str, str] = {}
    """The order of the rows of each pane that has not its usual one."""
    columns: Mapping[str, tuple[str, ...]] = {}
    """The columns of each pane that has not its usual ones, by their fields."""
    theme: str = ""
    """The chosen theme; empty: none was chosen."""


class LastSeen(msgspec.Struct, frozen=True, kw_only=True):
    """The runs and disks at one time, and how the panes were arranged."""

    at: Instant
    runs: Mapping[str, SeenRun] = {}
    disks: Mapping[str, SeenDisk] = {}
    """By `analysis.last_seen.disk_key`."""
    arrangement: Arrangement = Arrangement()
