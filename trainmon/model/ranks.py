"""What a look at the ranks of a run has shown: which of them hold it up."""

from __future__ import annotations

from typing import Literal

import msgspec

from trainmon.lib import Instant

LookSource = Literal["nccl-ras", "proc", "stacks", "flight-recorder"]
"""What was asked: NCCL's RAS service, /proc of the nodes, the stacks of the processes, the dumps of PyTorch."""


class RankLook(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one look. Ranks are those of the whole training."""

    source: LookSource
    at: Instant
    """When it was made, by our clock: of two samples, the second."""
    summary: str
    """One sentence that stands alone, without a full stop."""
    ranks: tuple[int, ...] = ()
    """The ranks that it names, ascending. Empty: nobody is named."""
    since: Instant | None = None
    """Since when it is as the summary says, by our clock, as far as that is known."""
    step: int | None = None
    """The step of the run during which it is so."""
    count: int | None = None
    """The number of the collective operation."""
    lines: tuple[str, ...] = ()
    """The evidence and its details, for who wants to check. They may hold untrusted text."""
    advice: str = ""
    """What to do next, in a sentence."""
    is_answer: bool = True
    """False: it could not look, and the summary says why."""


class RankWay(msgspec.Struct, frozen=True, kw_only=True):
    """How the stack of a rank can be read, or why it cannot."""

    rank: int
    node: str
    pid: int
    started_s: float
    """When the process started, in seconds after the boot of its node: it must still be the same one."""
    way: Literal["py-spy", "signal", ""] = ""
    """By the py-spy of its own environment, or by a signal to its trainmon_hooks; empty: not at all."""
    why: str = ""
    """Why it cannot be read."""


class LookReply(msgspec.Struct, frozen=True):
    """What a person who asked for looks is told. The last reply to a request is done."""

    text: str
    """Progress, the summary of a look, or why there is none. Empty: nothing new."""
    look: RankLook | None = None
    is_done: bool = False
