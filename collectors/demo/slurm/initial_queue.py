"""The demo's queue at the start: a job of each run, array tasks that wait behind it, and jobs of other users."""

from __future__ import annotations

from collections.abc import Mapping

from collectors.demo.model.inventory import ME, NODES
from collectors.demo.slurm.jobs import TIME_LIMIT, JobQueue, SlurmJob, job_of
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
"""Per run: the index of its running array task (None: a single job), and the number of array tasks that wait."""


def initial_queue(loops: Mapping[str, TrainingLoop], now: Instant) -> JobQueue:
    """The queue at the start of the demo."""
    queue = JobQueue(dict(loops), now, spares=tuple(NODES[-1:]))
    for name, loop in loops.items():
        task, behind = BEHIND[name]
        trainer, number = loop.trainer, loop.trainer.job
        array = number - task if task is not None else None
        started = now - trainer.age - START_TAKES
        queue.jobs.append(job_of(
            trainer, number, started, array=array, task=task, state="RUNNING", reason="None", restarts=number % 3,
            started_at=started, ends_at=started + TIME_LIMIT, nodes=trainer.run.nodes,
        ))  # fmt: skip
        if behind and array is not None and task is not None:
            tasks = tuple(range(task + 1, task + 1 + behind))
            queue.jobs.append(job_of(trainer, array, started, array=array, tasks=tasks))
        elif behind:
            queue.jobs.append(job_of(
                trainer, number + 1, started, array=number + 1, tasks=tuple(range(1, 1 + behind)), after=number,
                reason="Dependency",
            ))  # fmt: skip
    queue.jobs += [
        SlurmJob(
            418_352, "diffusion-9b", "lea", 8, now - 2 * HOUR, "/home/lea/train.sh", "/home/lea",
            begins_at=now + 3 * HOUR, reason="Priority",
        ),
        SlurmJob(
            418_360, "eval-sweep", ME, 1, now - HOUR, "/home/ana/eval.sh", "/home/ana", array=418_360,
            tasks=tuple(range(1, 21)), is_held=True, reason="JobHeldUser",
        ),
    ]  # fmt: skip
    return queue
