"""What a training loop of the demo does to the world around it, as values."""

from __future__ import annotations

import msgspec

from collectors.demo.model.metrics import Moment


class Wrote(msgspec.Struct, frozen=True):
    """Text for the end of the current log."""

    text: str


class NewLog(msgspec.Struct, frozen=True):
    """An attempt begins, with a log of its own."""

    job: int


class SaveBegan(msgspec.Struct, frozen=True):
    step: int


class SaveDone(msgspec.Struct, frozen=True):
    step: int


class Pruned(msgspec.Struct, frozen=True):
    step: int


class SwitchTaken(msgspec.Struct, frozen=True):
    """The save switch is removed, before the save, as IDEFICS does."""


class Logged(msgspec.Struct, frozen=True):
    """The metrics of a step go to W&B."""

    moment: Moment


class Validated(msgspec.Struct, frozen=True):
    """The model was tried on data that it does not train on, and samples were drawn."""

    moment: Moment


class Ended(msgspec.Struct, frozen=True):
    """The attempt's processes are gone."""

    exit_code: int
    silent: bool = False
    """Nobody could tell W&B: its heartbeat stops."""


Effect = Ended | Wrote | NewLog | SaveBegan | SaveDone | Pruned | SwitchTaken | Logged | Validated

TO_WANDB = (Logged, Validated)
"""What changes no file."""
