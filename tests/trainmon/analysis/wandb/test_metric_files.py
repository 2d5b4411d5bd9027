"""Files of metrics of other writers than W&B give a run its step, loss, cadence and target, and name themselves."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.wandb.test_client_file import NOW, SPEC, file_of, read, rows
from trainmon.alerting.rules.runs.steps import LossNan
from trainmon.analysis.runs import trouble_of
from trainmon.engine.history import Curves
from trainmon.engine.reducers.reduce import reduce
from trainmon.engine.snapshot import snapshot
from trainmon.model import Progress, Run, RunsChanged, State, WandbRows

FOUND = reduce(State(), [RunsChanged((replace(SPEC, wandb_dir=None, metrics_found=("/fsx/out",)),))], NOW)
EVENTS = "/fsx/out/tb/events.out.tfevents.1.host"
STATES = "/fsx/out/checkpoint-{}/trainer_state.json"


def tensorboard(first: int, last: int, **more: Any) -> WandbRows:
    return rows(first, last, **{"path": EVENTS, "format": "TensorBoard"} | more)


def run_of(state: State) -> Run:
    return state.runs["llm"]


def test_a_found_event_file_shows_the_run_and_names_itself():
    state = read(FOUND, tensorboard(1, 40))
    run = run_of(state)
    assert (run.verdict, run.why) == ("healthy", "TensorBoard shows step 39, 1m ago, usually every 1s")
    assert (run.progress.loss, run.progress.step) == (2.6, 39)
    assert run.has_charts
    assert snapshot(state, NOW)["runs"][0]["wandb_file"]["format"] == "TensorBoard"


def test_a_directory_without_any_file_changes_nothing():
    state = read(FOUND, WandbRows(v=1, t=NOW, id="llm"))
    assert not run_of(state).has_charts
    assert file_of(state).error is None


@pytest.mark.parametrize(
    ("form", "quiet", "verdict"),
    [
        ("TensorBoard", 1_800.0, "stalled"),
        ("CSV", 1_800.0, "unknown"),
        ("CSV", 3_700.0, "stalled"),
    ],
)
def test_a_file_is_not_late_while_its_writer_may_keep_rows(form: str, quiet: float, verdict: str):
    state = read(FOUND, rows(1, 40, format=form))
    same = rows(1, 40, format=form, points=(), t=NOW + quiet, logged_at=NOW - 60)
    run = run_of(read(state, same, at=NOW + quiet))
    assert run.verdict == verdict
    assert (f"the newest row of its {form} file is" in run.why) == (verdict == "unknown")


def test_the_tensorboard_that_flushes_every_two_minutes_makes_no_run_late():
    spec = replace(SPEC, stall_after=60.0)
    state = read(reduce(State(), [RunsChanged((spec,))], NOW), tensorboard(1, 40))
    later = tensorboard(1, 40, points=(), t=NOW + 50, logged_at=NOW - 60)
    assert run_of(read(state, later, at=NOW + 50)).verdict == "unknown"


def test_rows_that_come_one_by_one_show_the_pace():
    state = FOUND
    for number in (1, 2, 3, 4):
        at = NOW + 30 * number
        points = ((number, 10.0 * number, at, 2.0),)
        state = read(state, tensorboard(number, number, points=points, step=10.0 * number, t=at, logged_at=at), at=at)
    progress = run_of(state).progress
    assert (progress.cadence_s, progress.step_time_s) == (30.0, 3.0)


def test_the_number_of_steps_in_the_file_is_the_target_where_nothing_else_names_one():
    state = read(FOUND, tensorboard(1, 2, config={"max_steps": "500.0"}))
    assert run_of(state).progress.target_step == 500
    for text in ("None", "-1", "0", '"x"'):
        assert run_of(read(FOUND, tensorboard(1, 2, config={"max_steps": text}))).progress.target_step is None


def test_the_state_of_the_next_checkpoint_begins_the_same_curves_again():
    curves, state = Curves(), FOUND
    first = rows(1, 2, path=STATES.format(2), format="trainer_state.json", file="1 a")
    for reading in (first, rows(1, 4, path=STATES.format(4), format="trainer_state.json", file="2 b")):
        state = read(state, reading)
        curves.follow_file(reading)
    assert list(curves.read("file/llm/out", "train/loss").steps) == [0, 1, 2, 3]
    assert [one.id for one in file_of(state).runs] == ["out"]


def test_a_nan_is_named_by_its_source_and_the_fresher_source_counts():
    points = tuple((n, n - 1.0, NOW - 100 + n, "NaN" if n > 30 else 2.0) for n in range(1, 41))
    state = read(FOUND, tensorboard(1, 40, points=points))
    run = run_of(state)
    trouble = trouble_of(run, "nan")
    assert trouble is not None
    assert (trouble.source, trouble.step) == ("TensorBoard", 30)
    assert run.verdict == "diverged"
    [finding] = list(LossNan().check_run(state, run, NOW))
    assert finding.summary == "the train/loss of llm has been NaN since step 30 (10 steps, 1m ago) in TensorBoard"  # type: ignore[union-attr]
    by_log = replace(trouble, source="", step=7.0)
    printed = replace(run, memory=replace(run.memory, trouble=by_log), progress=Progress(format="megatron"))
    assert trouble_of(printed, "nan") == by_log, "while the log shows steps, it counts"
    went_on = replace(printed, progress=run.progress)
    assert trouble_of(went_on, "nan") == trouble, "it has stopped, and the file goes on"
    assert math.isnan(trouble.value)


@pytest.mark.parametrize("quiet", [100.0, 86_400.0])
def test_the_state_in_a_checkpoint_never_says_whether_a_run_trains(quiet: float):
    before = run_of(FOUND)
    run = run_of(read(FOUND, rows(1, 40, path=STATES.format(40), format="trainer_state.json"), at=NOW + quiet))
    assert (run.verdict, run.why, run.progress) == (before.verdict, before.why, before.progress)
    assert run.has_charts


def test_rows_of_a_validation_alone_do_not_keep_a_run_healthy():
    keys = ("train/loss", "eval/loss")
    state = read(FOUND, tensorboard(1, 40, keys=keys))
    for number in range(41, 60):
        at = NOW + 60.0 * (number - 40)
        points = ((number, 500.0 + number, at, None, 2.0),)
        more: dict[str, Any] = {"keys": keys, "points": points, "step": 500.0 + number, "logged_at": at, "t": at}
        state = read(state, tensorboard(number, number, **more), at=at)
    run = run_of(state)
    assert (run.progress.step, run.progress.at, run.verdict) == (39, NOW - 60, "stalled")


def test_a_validation_that_goes_on_while_its_run_hangs_does_not_hide_that():
    """Its clock is ahead of that of the node; and at our start its rows come before those of the training."""
    keys, late = ("train/loss", "eval/loss"), NOW + 1_800.0
    validated = ((1, 900.0, late, None, 2.0),)
    more: dict[str, Any] = {"keys": keys, "step": 900.0, "t": late, "logged_at": late}
    ahead = tensorboard(41, 41, **more | {"points": ((41, 900.0, late + 2, None, 2.0),)})
    trained = tensorboard(2, 41, **more)
    for parts in ((tensorboard(1, 40, keys=keys), ahead), (tensorboard(1, 1, **more | {"points": validated}), trained)):
        state = FOUND
        for part in parts:
            state = read(state, part, at=part.t)
        last = parts[0].step if parts[1] is ahead else 40.0
        assert (run_of(state).progress.step, run_of(state).verdict) == (last, "stalled")


def test_after_a_step_back_the_losses_before_are_not_the_usual_ones():
    before = tuple((n, n - 1.0, NOW - 200 + n, 2.0 + n % 5 / 50) for n in range(1, 100))
    again = tuple((n, n - 100.0, NOW - 200 + n, 11.0) for n in range(100, 105))
    for parts in ((before + again,), (before, again)):
        state = FOUND
        for part in parts:
            state = read(state, tensorboard(1, int(part[-1][0]), points=part, step=part[-1][1]))
        assert file_of(state).trouble is None
    spike = read(state, tensorboard(105, 105, points=((105, 5.0, NOW - 90, 99.0),), step=5.0))
    assert (file_of(spike).trouble, file_of(spike).recent) == (None, (11.0,) * 5 + (99.0,)), "too few make a band"


def test_a_file_that_is_written_every_hundred_rows_does_not_take_over_from_a_log_that_stopped():
    printed = Progress(step=30, at=NOW - 5_000, format="nanogpt", cadence_s=1.0)
    state = replace(FOUND, runs={"llm": replace(FOUND.runs["llm"], progress=printed)})
    late, soon = (read(state, rows(1, 40, format=form)) for form in ("CSV", "JSON lines"))
    assert (run_of(late).progress.step, run_of(late).progress.loss, run_of(soon).progress.step) == (30, 2.6, 39)


def test_what_a_restart_repeats_takes_the_place_of_what_was_orphaned():
    curves, points = Curves(), [(n + 1, float(n), NOW - 900 + n, 1.0) for n in range(360)]
    again = [(n + 61, float(n), NOW - 500 + n, 2.0) for n in range(300, 340)]
    for part in (points, again):  # a restart adds a file to its directory
        curves.follow_file(tensorboard(1, part[-1][0], points=tuple(part)))
    curve = curves.read("file/llm/tb", "train/loss")
    assert list(curve.steps) == [float(n) for n in range(340)]
    assert list(curve.values) == [1.0] * 300 + [2.0] * 40
    whole = Curves()
    whole.follow_file(tensorboard(1, 400, points=(*points, *again)))
    assert whole.read("file/llm/tb", "train/loss").steps == curve.steps


def test_a_restart_that_adds_a_file_goes_on_the_run_and_counts_no_damage_twice():
    state = read(FOUND, tensorboard(1, 40, damaged=2))
    state = read(state, tensorboard(41, 60, damaged=2, path=EVENTS + ".2"))
    file = file_of(state)
    assert (file.damaged, file.damaged_before, len(file.runs), file.rows) == (2, 0, 1, 60)


def test_what_a_second_writer_has_kept_for_a_while_is_no_step_back():
    keys = ("lr", "eval/runtime", "train/loss")
    state, kept = FOUND, tuple((n, n - 1.0, NOW - 100 + n, None, None, 2.0) for n in range(1, 30))
    state = read(state, tensorboard(1, 29, keys=keys, points=kept), tensorboard(30, 60, keys=keys))
    assert file_of(state).runs[0].step == 59
    late = tuple((n, n - 31.0, NOW - 131 + n, None, None, 2.0) for n in range(61, 71))
    file = file_of(read(state, tensorboard(61, 70, keys=keys, points=late, step=59.0, logged_at=NOW - 40)))
    assert (file.runs[0].step, file.logged_at, file.recent) == (59, NOW - 40, (2.0,) * 39)
    evaluated = tensorboard(71, 71, keys=keys, points=((71, 900.0, NOW, None, 3.0),), step=900.0, logged_at=NOW)
    assert file_of(read(state, evaluated)).runs[0].step == 59


def test_the_directories_of_one_run_have_its_name():
    for part in ("train", "validation", "checkpoint-5"):
        state = read(FOUND, rows(1, 2, path=f"/fsx/run7/{part}/events.out.tfevents.1.host", format="TensorBoard"))
        assert [one.id for one in file_of(state).runs] == ["run7"]
