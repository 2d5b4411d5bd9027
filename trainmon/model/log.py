"""What is read of a run's log: its lines, their shape, and the progress they show."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from trainmon.lib import Instant, Seconds
from trainmon.model.probe_wire import OtherLog


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
