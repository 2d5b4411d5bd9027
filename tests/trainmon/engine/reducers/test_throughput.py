"""What is remembered of a run as its log goes on: that it leaves, that its scale sinks, that it went back."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.rules.runs.states import (
    NOW,
    SLURM,
    STEP,
    WITH_WANDB,
    after,
    job,
    lines,
    source,
    state,
    wandb,
    watched,
)
from trainmon.analysis.runs import loss_scale
from trainmon.engine.reducers.reduce import reduce
from trainmon.engine.reducers.runs import EXITING
from trainmon.model import JobsListed, RunMemory, SourceChanged, State


def stepping(seen: State | None = None) -> State:
    return after(watched() if seen is None else seen, [lines(NOW, STEP.format(100))], NOW)


def memory(seen: State) -> RunMemory:
    return seen.runs["llm"].memory


@pytest.mark.parametrize(
    "line",
    [
        "[exiting program after 5990.2 minutes] datetime: 2026-09-21 19:54:10",
        "exiting program after receiving SIGTERM.",
        "[2024-04-17 09:44:36,551] [INFO] [launch.py:324:sigkill_handler] Main process received SIGTERM, exiting",
        "Received signal 15, initiating graceful stop",
        "Handling SIGUSR1 signal: saving and requeueing",
    ],
)
def test_a_log_that_says_that_its_trainer_leaves_is_remembered(line: str) -> None:
    seen = after(stepping(), [lines(NOW + 60, line)], NOW + 60)
    assert memory(seen).exiting_at == NOW + 60


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd: error: *** JOB 88 ON n1 CANCELLED AT 2026-09-21T16:41:06 DUE TO TIME LIMIT ***",
        "saving checkpoint at iteration     100 to /fsx/ckpt",
        "the loss exceeded its limit",
        "PULSE: llm is running for 1-07:27:33",
    ],
)
def test_what_others_write_is_no_leave(line: str) -> None:
    assert EXITING.search(line) is None


def test_the_end_of_an_old_log_is_not_reported_as_new_and_an_attempt_that_goes_on_has_not_left() -> None:
    old = after(watched(), [lines(NOW, STEP.format(100), "exiting program after 90 minutes")], NOW)
    assert memory(old).exiting_at is None
    left = after(stepping(), [lines(NOW + 60, "exiting program after 90 minutes")], NOW + 60)
    back = after(left, [lines(NOW + 300, STEP.format(90))], NOW + 300)
    assert (memory(back).exiting_at, memory(back).back_at, memory(back).back_from) == (None, NOW + 300, 100)
    later = after(left, [lines(NOW + 3_000, STEP.format(101))], NOW + 3_000)
    assert memory(later).exiting_at is None


def test_the_loss_scale_is_that_of_its_log_or_of_w_and_b() -> None:
    result = state(spec=WITH_WANDB, wandb=wandb())
    assert loss_scale(result.runs["llm"]) is None
    current = replace(wandb().runs[0], summary={"loss-scale": 1024.0})
    result = state(spec=WITH_WANDB, wandb=wandb(runs=(current,)))
    assert loss_scale(result.runs["llm"]) == 1024.0


def test_only_a_run_that_goes_on_as_it_is_has_a_time_when_it_is_done() -> None:
    seen = stepping()
    assert seen.runs["llm"].eta_at == pytest.approx(NOW + 19_900 * 4.1)
    nan = after(seen, [lines(NOW + 4, STEP.format(101).replace("2.0E+00", "NaN"))], NOW + 4)
    assert (nan.runs["llm"].verdict, nan.runs["llm"].eta_at) == ("diverged", None)
    listed = JobsListed("prod", NOW + 4, (job(started_at=NOW + 3, restarts=1),))
    again = after(seen, [SourceChanged(source(SLURM)), listed, lines(NOW + 4, "loading the checkpoint")], NOW + 4).runs[
        "llm"
    ]
    assert (again.verdict, again.eta_at) == ("starting", None), "that is the pace of the attempt before"


def test_a_run_that_should_be_done_and_makes_no_steps_has_no_time_when_it_is_done() -> None:
    near = after(watched(), [lines(NOW, STEP.format(19_999))], NOW)
    assert near.runs["llm"].eta_at == pytest.approx(NOW + 4.1)
    assert after(near, [], NOW + 5).runs["llm"].eta_at is None


def test_nothing_new_is_nothing_remembered() -> None:
    seen = stepping()
    assert reduce(seen, [], NOW + 1).runs["llm"].memory is memory(seen)


def test_a_bar_that_begins_anew_with_every_epoch_is_no_restart() -> None:
    seen = watched()
    for second, step in enumerate((10, 20, 30, 49, 5, 15)):
        at = NOW + 10.0 * second
        seen = after(seen, [lines(at, f" {2 * step}%|####      | {step}/50 [00:{step}<00:40, 1.00it/s, loss=2.1]")], at)
    assert seen.runs["llm"].progress.step == 15
    assert memory(seen).back_at is None


def test_deepspeed_counts_its_skipped_steps_from_the_start() -> None:
    line = (
        "[2026-09-21 10:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step={}, skipped={}, lr=[1e-05], mom=[0.9]"
    )
    seen = watched()
    in_row = []
    for place, (step, skipped) in enumerate(((10, 8), (20, 18), (30, 28), (40, 30), (50, 40), (20, 5))):
        at = NOW + 10.0 * place
        seen = after(seen, [lines(at, line.format(step, skipped))], at)
        in_row.append(seen.runs["llm"].progress.skipped_in_row)
    assert in_row == [0, 10, 20, 0, 10, 0]
