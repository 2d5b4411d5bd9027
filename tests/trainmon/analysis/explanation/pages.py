"""The pages of attempts that the tests here read."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.trainmon.analysis.attempts.story import BEGIN, JOB, Story, ended
from trainmon.analysis.attempts.fold import resolved, with_named
from trainmon.analysis.explanation import AttemptRecords, Explanation, explain, page
from trainmon.model import Attempt, AttemptFile

OOM = "torch.OutOfMemoryError: CUDA out of memory."
DIED = ("Traceback (most recent call last):", '  File "train.py", line 5', OOM)
EXITED = "srun: error: n1: task 3: Exited with exit code 1"


def story(resumed_from: int = 20, **second: Any) -> tuple[Attempt, ...]:
    """Job 88 dies out of memory at step 30, and starts again from `resumed_from`."""
    told = Story().gpus(-50).queue(10, JOB).steps(20, 1, 2, 3).checkpoints(25, 10, 20).steps(30, 30).queue(40, JOB)
    told.queue(50, ended(JOB, 50, "FAILED", "1:0")).log(56, *DIED, EXITED).checkpoints(57, 10, 20, since=17)
    again = replace(JOB, submitted_at=BEGIN + 60, started_at=BEGIN + 70, restarts=1, **{"nodes": ("n2",), **second})
    told.queue(80, again).log(90, f"loading checkpoint from /fsx/ckpt at iteration {resumed_from}")
    return told.steps(95, resumed_from + 1, resumed_from + 2).queue(100, again).attempts


def explained(attempts: tuple[Attempt, ...], number: int = 0, **records: Any) -> Explanation:
    return explain(attempts[number], AttemptRecords(attempts=attempts, **records))


def rows(one: Explanation, title: str) -> list[tuple[str, str]]:
    (found,) = [section for section in page(one) if section.title.startswith(title)]
    return [(row.label, row.text) for row in found.rows]


def named(attempt: Attempt, **files: AttemptFile) -> Attempt:
    """The attempt whose config names its data and its config file, which were read."""
    values = {"data_manifest": "/fsx/m.json", "config_path": "/fsx/c.yaml"}
    return resolved(replace(with_named(attempt, "config", values), files=files))
