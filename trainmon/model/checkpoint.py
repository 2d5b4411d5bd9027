"""The nouns of checkpoints."""

from __future__ import annotations

from typing import Literal

import msgspec

from trainmon.lib import Instant, Seconds

CheckpointState = Literal["writing", "committed", "superseded", "torn"]
"""writing: its trainer is at it. committed: whole, and the newest of that kind. superseded: whole, and older than that.
torn: not whole, and nobody writes it any more."""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One checkpoint as its directory's listing shows it; nothing in it is ever opened."""

    step: int | None
    """Null where its name says none (`last.ckpt`, `release`)."""
    state: CheckpointState
    path: str
    layout: str
    """Whose: megatron, deepspeed, hf, dcp, nanotron, lightning, nemo, kempnerforge, orbax, idefics."""
    bytes: int | None = None
    at: Instant | None = None
    """When it was committed, by our clock; of one that is not, when last something was written."""
    began_at: Instant | None = None
    why: str = ""
    """Why it is in this state, in a few words: `no metadata.json yet`."""

    @property
    def is_whole(self) -> bool:
        return self.state in {"committed", "superseded"}


class Checkpoints(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoint directory of a run, and what was learnt from it."""

    path: str
    host: str
    looked_at: Instant
    """When it was last listed, by our clock."""
    error: str | None = None
    """Why it cannot be listed."""
    note: str | None = None
    """What was left out: a directory too large or too slow to list in time."""
    list: tuple[Checkpoint, ...] = ()
    """Newest first, by step."""
    resumes: str | None = None
    """The path of what the trainer would resume from, by its own rule (its pointer, or its newest)."""
    problem: str | None = None
    """What is wrong with that, in a sentence: a pointer to nothing, or no committed checkpoint at all."""
    save_s: Seconds | None = None
    """How long a save usually takes: a median over those here."""
    every_s: Seconds | None = None
    """How often one is committed: a median."""
    every_steps: int | None = None
    bytes: int | None = None
    """How large one usually is."""

    @property
    def committed(self) -> Checkpoint | None:
        return next((one for one in self.list if one.state == "committed"), None)

    @property
    def writing(self) -> Checkpoint | None:
        return next((one for one in self.list if one.state == "writing"), None)

    @property
    def share(self) -> float | None:
        """Saving as a share of the training's time: BLOOM's 40 s every 3 h are 0.0037."""
        return self.save_s / self.every_s if self.save_s is not None and self.every_s else None

    def at_risk(self, step: int | None) -> int | None:
        """How many steps would be lost now: those since the last committed one; all of them where there is none."""
        committed = self.committed
        if step is None or (self.error is not None and (committed is not None or self.problem is None)):
            return None  # it cannot be looked at; one that is not there holds nothing
        if committed is None:
            return step
        return None if committed.step is None else max(0, step - committed.step)
