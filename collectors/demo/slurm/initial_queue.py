"""What is in the demo's queue at the start: a job of each run, some elements behind, and what others wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from collectors.demo.model.inventory import ME, NODES, Trainer
from collectors.demo.slurm.jobs import LIMIT, Book, Entry
from collectors.demo.training.loop import START_TAKES, Loop
from trainmon.lib import Instant

HOUR = 3_600.0

BEHIND: dict[str, tuple[int | None, int]] = {
    "video-2b": (None, 4),
    "llm-7b": (3, 7),
    "sft-chat": (None, 0),
    "smol-3b": (None, 2),
    "moe-1b": (7, 5),
}
"""Of each run: which element of an array runs, or none where it is a job of its own, and how many wait behind it."""


def book(loops: Mapping[str, Loop], now: Instant) -> Book:
    """The queue as the demo finds it."""
    made = Book(dict(loops), now, spares=tuple(NODES[-1:]))
    for loop in loops.values():
        made.entries += _of(loop.trainer, now)
    made.entries += _others(now)
    return made


def _of(trainer: Trainer, now: Instant) -> Iterator[Entry]:
    element, behind = BEHIND[trainer.run.name]
    array = trainer.job - element if element is not None else None
    started = now - trainer.age - START_TAKES
    yield _entry(
        trainer, trainer.job, started, array=array, task=element, state="RUNNING", reason="None",
        restarts=trainer.job % 3, started_at=started, ends_at=started + LIMIT, nodes=trainer.run.nodes,
    )  # fmt: skip
    if behind and array is not None and element is not None:
        yield _entry(trainer, array, started, array=array, tasks=tuple(range(element + 1, element + 1 + behind)))
    elif behind:
        yield _entry(
            trainer, trainer.job + 1, started, array=trainer.job + 1, tasks=tuple(range(1, 1 + behind)),
            after=trainer.job, reason="Dependency",
        )  # fmt: skip


def _entry(trainer: Trainer, number: int, at: Instant, **more: object) -> Entry:
    script = trainer.run.script or ""
    return Entry(
        number, trainer.run.name, trainer.user, len(trainer.run.nodes), at, script, script.rpartition("/")[0],
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def _others(now: Instant) -> Iterator[Entry]:
    """Somebody else's job that waits its turn, and an array of ours that is held."""
    yield Entry(
        418_352, "diffusion-9b", "lea", 8, now - 2 * HOUR, "/home/lea/train.sh", "/home/lea",
        begins_at=now + 3 * HOUR, reason="Priority",
    )  # fmt: skip
    yield Entry(
        418_360, "eval-sweep", ME, 1, now - HOUR, "/home/ana/eval.sh", "/home/ana", array=418_360,
        tasks=tuple(range(1, 21)), is_held=True, reason="JobHeldUser",
    )  # fmt: skip
