"""Ledgers whose truth is known: runs of a simulated cluster, by seed, as a program that watched them records them."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from msgspec.structs import replace

from trainmon.analysis.explanation.hours import Category
from trainmon.model import Attempt, AttemptEnd, CauseName, Classification

BEGIN = 1_700_000_000.0
HOUR = 3_600.0
STEP = 10.0
"""Seconds of a step."""
FAILURES: tuple[CauseName, ...] = ("node-fail", "nccl-timeout", "cuda-oom", "gpu-hardware", "python-exception")


Spent = defaultdict[Category, float]
"""Seconds, or GPU hours, by category."""


class Told(NamedTuple):
    """A ledger, and the GPU hours that it must give."""

    attempts: list[Attempt]
    gpu_hours: dict[Category, float]
    until: float
    failures: int


def told(seed: int, runs: int = 6, attempts: int = 8) -> Told:
    """Chains of requeues, chains of jobs, arrays whose tasks overlap, and runs without a scheduler."""
    dice, rows, truth = random.Random(seed), list[Attempt](), Spent(float)
    for number in range(runs):
        kind = ("requeued", "jobs", "array", "plain")[number % 4]
        gpus, nodes = 8 * (2 ** dice.randrange(4)), tuple(f"n{number}-{one}" for one in range(1 + number % 3))
        for own, spent in _run(dice, f"run-{number}", kind, gpus, nodes, attempts):
            rows.append(own)
            for name, seconds in spent.items():
                truth[name] += gpus * seconds / HOUR
    ended = [one for one in rows if one.end is not None and one.end.cause is not None]
    failures = sum(one.cause is not None and one.cause.cause in FAILURES for one in ended)
    return Told(rows, truth, max(one.seen_at for one in rows), failures)


def _run(
    dice: random.Random, name: str, kind: str, gpus: int, nodes: tuple[str, ...], count: int
) -> Iterator[tuple[Attempt, Spent]]:
    now, reached = BEGIN + dice.randrange(1000), 0
    covered = 0.0
    for number in range(count):
        is_last = number == count - 1
        pause = 0 if kind == "requeued" or number == 0 else dice.randrange(5_000)
        submitted = now + pause
        started = submitted + dice.randrange(3_000)
        if kind == "plain":
            submitted = started
        one, spent, ended, committed = _attempt(dice, started, reached, is_last=is_last)
        if kind == "array":  # its tasks were queued together, run at the same time, and train from the beginning
            submitted = BEGIN if number == 0 else submitted
            queued_from = max(covered, submitted)
            spent["queued"] = max(0.0, started - queued_from)
            now, committed = started + dice.randrange(int(ended - started)), 0
        else:
            spent["queued"] = started - submitted
            now = ended
        gap = max(0.0, (started if kind == "plain" else submitted) - covered) if covered else 0.0
        if gap:
            spent["down"] = gap  # belongs to the attempt before, which has as many GPUs
        covered, reached = max(covered, ended), committed
        job: dict[str, Any] = {"job_id": "88", "restart": number}
        if kind != "requeued":
            job = {"job_id": f"{nodes[0]}_{number}" if kind == "array" else f"{nodes[0]}{number}", "restart": 0}
        if kind == "plain":
            job = {"pid": number}
        yield replace(
            one, attempt_id=f"{name}/pid/{nodes[0]}/{number}", run_id=name, gpus=gpus, nodes=nodes,
            submitted_at=None if kind == "plain" else submitted, **job,
        ), spent  # fmt: skip


def _attempt(dice: random.Random, started: float, resumed: int, *, is_last: bool) -> tuple[Attempt, Spent, float, int]:
    """One that starts, trains, saves, perhaps hangs, and ends; where its time went, its end and its last commit."""
    spent = Spent(float, {"starting": float(dice.randrange(30, 900))})
    now, step, committed, saves = started + spent["starting"], resumed, resumed, 0
    hung_since: float | None = None
    for _ in range(dice.randrange(1, 6)):
        steps = dice.randrange(20, 400)
        spent["productive"] += STEP * steps
        now, step = now + STEP * steps, step + steps
        if dice.random() < 0.8:
            save = float(dice.randrange(30, 300))
            spent["saving"] += save
            now, committed, saves = now + save, step, saves + 1
    cause: CauseName = "completed" if is_last else dice.choice((*FAILURES, "preempted"))
    if cause == "nccl-timeout":
        hung_since, now = now, now + 600.0
        spent["hung"] = 600.0
    lost = 0.0 if is_last else STEP * (step - committed)
    made = spent["productive"]
    spent["lost"], spent["productive"] = lost, made - lost
    found = Classification(cause=cause, family="unknown", retry="unknown", confidence="high", fingerprint=cause)
    return Attempt(
        attempt_id="", run_id="", cluster="prod", started_at=started, first_step_at=started + spent["starting"],
        first_step=resumed + 1, resumed_from=resumed or None, last_step=step, last_committed_step=committed or None,
        has_checkpoints=True, seen_at=now, start_was_watched=True, watched_s=made + spent["saving"] + spent["hung"],
        saving_s=spent["saving"], saves=saves, hung_since=hung_since, target_step=step if is_last else None,
        end=AttemptEnd(at=now, source="queue", noticed_at=now, cause=found, log_tail="step"),
    ), spent, now, committed  # fmt: skip
