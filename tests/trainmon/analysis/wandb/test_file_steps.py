"""The file of a W&B client gives step, loss, cadence and the end of a run of which nothing else shows them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.wandb.test_client_file import BEGUN, NEW, NOW, PATH, SPEC, STATE, read, rows
from trainmon.analysis.runs.context import Judgement, RunContext
from trainmon.analysis.runs.status import without_a_log
from trainmon.engine.reducers.reduce import reduce
from trainmon.engine.snapshot import snapshot
from trainmon.model import Job, LogChunk, NodeReading, Run, RunsChanged, Source, SourceChanged, State

LAST = {"train/loss": "2.6", "lr": "0.0003"}
TRAINING = read(STATE, rows(1, 40, run=BEGUN, summary=LAST))
"""40 rows, one each second, the last one a minute ago."""


def run_of(state: State, later: float = 0.0) -> Run:
    """The run, after the probe has found nothing new in the file for so long."""
    file = state.runs["llm"].wandb_file
    assert file is not None
    same = rows(1, file.rows, t=NOW + later, points=(), logged_at=file.logged_at, more=file.is_behind)
    return (read(state, same, at=NOW + later) if later else state).runs["llm"]


def test_the_file_shows_step_loss_cadence_and_when():
    progress = run_of(TRAINING).progress
    assert (progress.step, progress.loss, progress.learning_rate) == (39, 2.6, 3e-4)
    assert (progress.cadence_s, progress.step_time_s, progress.at) == (1.0, 1.0, NOW - 60)
    assert (run_of(TRAINING).verdict, run_of(TRAINING).why) == (
        "healthy", "W&B shows step 39, 1m ago, usually every 1s",
    )  # fmt: skip
    found = snapshot(TRAINING, NOW)["runs"][0]
    assert (found["step"], found["loss"], found["last_step_at"]) == (39, 2.6, NOW - 60)
    assert (found["wandb"]["id"], found["wandb_file"]["latest"]["train/loss"]) == (None, 2.6)


def test_without_a_summary_the_loss_is_that_of_the_newest_row():
    assert run_of(read(STATE, rows(1, 30), rows(31, 40))).progress.loss == 2.6


def test_the_step_that_the_trainer_logs_counts():
    state = read(STATE, rows(1, 40, summary=LAST | {"train/global_step": "390"}))
    assert (run_of(state).progress.step, run_of(state).progress.step_time_s) == (390, None)


def test_rows_that_are_left_out_of_a_large_file_make_no_longer_cadence():
    points = tuple((n, n - 1.0, NOW - 400 + n, 2.0) for n in range(1, 401, 10))
    assert run_of(read(STATE, rows(1, 400, points=points))).progress.cadence_s == 1.0


def test_a_client_that_may_hold_rows_back_is_no_stalled_run():
    silent = run_of(TRAINING, 1_800.0)
    assert (silent.verdict, silent.progress.step) == ("unknown", 39)
    assert silent.why.endswith(
        "; the newest row of its W&B file is 31m old: its client may not have written newer ones yet"
    )
    assert run_of(TRAINING, 3_600.0).verdict == "stalled"


@pytest.mark.parametrize(
    ("code", "target", "verdict", "why"),
    [
        (0, None, "finished", "W&B reports that warm-start-7 finished at step 39; no target step is known"),
        (0, 39, "finished", "W&B reports that warm-start-7 finished at step 39 of 39"),
        (0, 80, "dead", "W&B reports that warm-start-7 finished at step 39 of 80: not finished"),
        (1, 80, "dead", "W&B reports that warm-start-7 failed at step 39"),
    ],
)
def test_a_recorded_end_ends_the_run(code: int, target: int | None, verdict: str, why: str):
    state = reduce(State(), [RunsChanged((replace(SPEC, target_step=target),))], NOW)
    run = run_of(read(state, rows(1, 40, run=BEGUN, exit=(code, 90))), 86_400.0)
    assert run.verdict == verdict
    assert run.why.startswith(why)


def test_the_next_directory_is_the_next_attempt():
    second = PATH.replace("20260101_120000-aaaa1111", "20260101_130000-bbbb2222")
    state = read(TRAINING, rows(41, 41, exit=(1, 90)))
    state = read(state, rows(1, 4, path=second, file="9 7e5", summary={"train/loss": "3.1"}))
    run = run_of(state)
    assert (run.verdict, run.progress.step, run.progress.loss, run.memory.back_at) == ("healthy", 3, 3.1, None)


def test_a_file_from_before_its_job_is_not_that_of_the_job():
    job = Job(id="7", number=7, cluster="prod", name="llm", user="ana", state="RUNNING", started_at=NOW - 30)
    judged = without_a_log(TRAINING.runs["llm"], Judgement("unknown", "no log"), RunContext(), job, NOW)
    assert judged.verdict == "starting"
    assert judged.why.startswith("job 7 has been up for 30s, but W&B has no run of it yet")
    events = read(reduce(State(), [NEW], NOW), rows(1, 40, format="TensorBoard")).runs["llm"]
    judged = without_a_log(events, Judgement("unknown", "no log"), RunContext(), job, NOW)
    assert judged.why.endswith("but TensorBoard has no run of it yet; the last step in its TensorBoard file is 39")


def test_a_file_that_is_not_read_to_its_end_proves_nothing():
    behind = read(STATE, rows(1, 40, more=True), at=NOW)
    assert run_of(behind, 86_400.0).why.endswith("; its W&B file is still being read")
    lost = reduce(
        TRAINING, [SourceChanged(Source(name="node:login1", kind="node", cluster="prod", health="down"))], NOW
    )
    assert run_of(lost).verdict == "unknown"
    assert run_of(lost).why.endswith("; login1, which reads its W&B file, is late or unreachable")


def test_a_log_that_shows_steps_without_a_loss_has_the_loss_of_the_file():
    state = reduce(State(), [RunsChanged((replace(SPEC, log="/fsx/log"),))], NOW)
    chunk = LogChunk(v=1, t=NOW, id="llm", path="/fsx/log", lines=("step 500 | lr 3e-4 | 1.2 s/it",), mtime=NOW)
    state = read(reduce(state, [NodeReading("login1", "prod", NOW, chunk)], NOW), rows(1, 40, summary=LAST))
    assert (run_of(state).progress.step, run_of(state).progress.loss) == (500, 2.6)


@pytest.mark.parametrize(
    ("lines", "step"),
    [(("Epoch 3/10 ━━━━━━━━━━━━━━━━━",), 39), (("step 500 | loss 2.1 | lr 3e-4",), 500)],
)
def test_only_a_log_without_steps_leaves_them_to_the_file(lines: tuple[str, ...], step: int):
    state = reduce(State(), [RunsChanged((replace(SPEC, log="/fsx/log"),))], NOW)
    chunk = LogChunk(v=1, t=NOW, id="llm", path="/fsx/log", lines=lines, mtime=NOW)
    state = read(reduce(state, [NodeReading("login1", "prod", NOW, chunk)], NOW), rows(1, 40, summary=LAST))
    assert (run_of(state).progress.step, run_of(state).verdict) == (step, "healthy")
