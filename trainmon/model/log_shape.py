"""What was learned of a log's step lines: their shape, and what the next line needs of those before."""

from __future__ import annotations

from typing import Literal

import msgspec

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
