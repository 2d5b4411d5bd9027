"""The demo's queue at the start: a job of each run, array tasks that wait behind it, and jobs of other users."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from collectors.demo.model.inventory import ME, NODES, Trainer
from collectors.demo.slurm.jobs import TIME_LIMIT, JobQueue, SlurmJob
from collectors.demo.training.loop import START_TAKES, TrainingLoop
from trainmon.lib import Instant

HOUR = 3_600.0

BEHIND: dict[str, tuple[int | None, int]] = {
    "video-2b": (None, 4),
    "llm-7b": (3, 7),
    "sft-chat": (None, 0),
    "smol-3b": (None, 2),
    "moe-1b": (7, 5),
}
"""Per run: the index of its running array task (None: a single job), and how many array tasks wait behind it."""


def initial_queue(loops: Mapping[str, TrainingLoop], now: Instant) -> JobQueue:
    """The queue as the demo begins."""
    made = JobQueue(dict(loops), now, spares=tuple(NODES[-1:]))
    for loop in loops.values():
        made.jobs += _jobs_of(loop.trainer, now)
    made.jobs += [
        SlurmJob(
            418_352, "diffusion-9b", "lea", 8, now - 2 * HOUR, "/home/lea/train.sh", "/home/lea",
            begins_at=now + 3 * HOUR, reason="Priority",
        ),
        SlurmJob(
            418_360, "eval-sweep", ME, 1, now - HOUR, "/home/ana/eval.sh", "/home/ana", array=418_360,
            tasks=tuple(range(1, 21)), is_held=True, reason="JobHeldUser",
        ),
    ]  # fmt: skip
    return made


def _jobs_of(trainer: Trainer, now: Instant) -> Iterator[SlurmJob]:
    element, behind = BEHIND[trainer.run.name]
    array = trainer.job - element if element is not None else None
    started = now - trainer.age - START_TAKES
    yield _job(
        trainer, trainer.job, started, array=array, task=element, state="RUNNING", reason="None",
        restarts=trainer.job % 3, started_at=started, ends_at=started + TIME_LIMIT, nodes=trainer.run.nodes,
    )  # fmt: skip
    if behind and array is not None and element is not None:
        yield _job(trainer, array, started, array=array, tasks=tuple(range(element + 1, element + 1 + behind)))
    elif behind:
        yield _job(
            trainer, trainer.job + 1, started, array=trainer.job + 1, tasks=tuple(range(1, 1 + behind)),
            after=trainer.job, reason="Dependency",
        )  # fmt: skip


def _job(trainer: Trainer, number: int, at: Instant, **more: object) -> SlurmJob:
    script = trainer.run.script or ""
    return SlurmJob(
        number, trainer.run.name, trainer.user, len(trainer.run.nodes), at, script, script.rpartition("/")[0],
        **more,  # type: ignore[arg-type]
    )  # fmt: skip
