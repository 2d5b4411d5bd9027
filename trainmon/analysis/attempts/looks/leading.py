"""Of several looks at one run, the one that a person is told first. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from trainmon.model import LookSource, RankLook

NAMES: dict[LookSource, str] = {
    "nccl-ras": "NCCL", "flight-recorder": "PyTorch's flight recorder", "stacks": "the stacks", "proc": "/proc",
}  # fmt: skip
"""The sources as people read them, those that say most first."""

LABELS: dict[LookSource, str] = {
    "nccl-ras": "NCCL RAS", "proc": "/proc", "stacks": "stacks", "flight-recorder": "PyTorch dump",
}  # fmt: skip


def leading(looks: Iterable[RankLook]) -> RankLook | None:
    """The look that names ranks, else one that says what to do; of several, that of the source that says most. None if
    nothing of that was found."""
    useful = (look for look in looks if look.is_answer and (look.ranks or look.advice))
    return min(useful, key=lambda look: (not look.ranks, [*NAMES].index(look.source)), default=None)


def told(look: RankLook) -> str:
    """`510 of 512 ranks have launched AllReduce 6,650; … (by NCCL)`"""
    return f"{look.summary} (by {NAMES[look.source]})"
