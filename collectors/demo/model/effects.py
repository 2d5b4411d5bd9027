"""The effects of a training loop on its files, its job and its W&B run, as values."""

from __future__ import annotations

import msgspec

from collectors.demo.model.metrics import StepMetrics


class LogWritten(msgspec.Struct, frozen=True):
    """Text appended to the current log."""

    text: str


class LogStarted(msgspec.Struct, frozen=True):
    """An attempt begins with a new log."""

    job: int


class SaveStarted(msgspec.Struct, frozen=True):
    step: int


class SaveFinished(msgspec.Struct, frozen=True):
    step: int


class CheckpointRemoved(msgspec.Struct, frozen=True):
    step: int


class SaveSwitchRemoved(msgspec.Struct, frozen=True):
    """The trainer removes the save switch before it saves, as IDEFICS does."""


class WasAsked(msgspec.Struct, frozen=True):
    """The training loop obeys: it saves, or saves and stops."""

    what: str
    by: str


class MetricsLogged(msgspec.Struct, frozen=True):
    """The trainer logs the metrics of a step to W&B."""

    metrics: StepMetrics


class Validated(msgspec.Struct, frozen=True):
    """The trainer validated the model and logged samples."""

    metrics: StepMetrics


class AttemptEnded(msgspec.Struct, frozen=True):
    """The attempt's processes have ended."""

    exit_code: int
    silent: bool = False
    """Whether the process could not finish its W&B run, so that only the heartbeat stops."""


Effect = (
    AttemptEnded
    | LogWritten
    | LogStarted
    | SaveStarted
    | SaveFinished
    | CheckpointRemoved
    | SaveSwitchRemoved
    | WasAsked
    | MetricsLogged
    | Validated
)

WANDB_EFFECTS = (MetricsLogged, Validated)
"""Effects that change no file."""
