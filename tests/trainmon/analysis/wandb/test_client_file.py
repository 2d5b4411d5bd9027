"""The file of a W&B client fills in curves, and steps where nothing else counts them."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from msgspec.structs import replace

from trainmon.analysis.wandb import client_file, metric_names
from trainmon.engine.history import Curves
from trainmon.engine.reducers.reduce import reduce
from trainmon.model import (
    NodeReading,
    Points,
    RunsChanged,
    RunSpec,
    State,
    Verdict,
    Wandb,
    WandbFileRun,
    WandbRows,
    WandbRun,
)

NOW = 1_000_000.0
SPEC = RunSpec(name="llm", cluster="prod", wandb_dir="/fsx/wandb")
NEW = RunsChanged((SPEC,))
PATH = "/fsx/wandb/offline-run-20260101_120000-aaaa1111/run-aaaa1111.wandb"
BEGUN = WandbFileRun(id="aaaa1111", entity="team", project="video", name="warm-start-7", host="gpu-001", started_at=5e5)
CURVES = "file/llm/offline-run-20260101_120000-aaaa1111"


def rows(first: int, last: int, **more: Any) -> WandbRows:
    """The rows from one number to another, as a probe sends them."""
    points = tuple((n, n - 1.0, NOW - 100 + n, 3.0 - n / 100) for n in range(first, last + 1))
    fields: dict[str, Any] = {"v": 1, "t": NOW, "id": "llm", "path": PATH, "file": "7 5e5", "rows": last, "size": 9_000}
    fields |= {"step": last - 1.0, "logged_at": NOW - 100.0 + last, "keys": ("train/loss",), "offset": 90 * last}
    return WandbRows(**fields | {"points": points} | more)


def read(state: State, *readings: WandbRows, at: float = NOW, stand_in: bool = False) -> State:
    events = [NodeReading("login1", "prod", at, one, is_stand_in=stand_in) for one in readings]
    return reduce(state, events, at)


def file_of(state: State) -> Any:
    return state.runs["llm"].wandb_file


STATE = reduce(State(), [NEW], NOW)


def test_rows_become_curves_with_their_name_step_and_age():
    state = read(STATE, rows(1, 40, run=BEGUN), at=NOW + 2)
    file = file_of(state)
    assert (file.rows, file.points, file.keys, file.project) == (40, 40, ("train/loss",), "team/video")
    assert file.logged_at == NOW + 2 - 60, "by our clock: that of its host is 2 s behind"
    shown = client_file.shown(state.runs["llm"], is_failing=False)
    assert shown is not None
    assert client_file.is_from_file(shown)
    current = shown.current
    assert current is not None
    assert (current.name, current.path, current.step, current.host) == ("warm-start-7", CURVES, 39, "gpu-001")


def test_rows_that_are_repeated_by_another_reader_are_not_drawn_twice():
    curves = Curves()
    state = STATE
    for reading in (rows(1, 30, run=BEGUN), rows(31, 60), rows(1, 20, run=BEGUN), rows(21, 70)):
        state = read(state, reading)
        curves.follow_file(reading)
    assert list(curves.read(CURVES, "train/loss").steps) == [float(n) for n in range(70)]
    assert (file_of(state).rows, file_of(state).points) == (70, 70)


def test_while_another_reader_catches_up_the_newest_row_stays():
    state = read(STATE, rows(1, 60, run=BEGUN, summary={"train/global_step": "590"}))
    state = read(state, rows(1, 20, run=BEGUN, summary={"train/global_step": "190"}))
    assert (file_of(state).rows, file_of(state).logged_at) == (60, NOW - 40)
    assert (file_of(state).runs[0].step, state.runs["llm"].progress.step) == (59, 590)


def test_another_file_of_the_same_path_begins_its_curves_again():
    curves = Curves()
    for reading in (rows(1, 30), rows(1, 5, file="8 6e5")):
        curves.follow_file(reading)
    assert list(curves.read(CURVES, "train/loss").steps) == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_a_new_directory_is_a_new_curve_and_the_one_before_is_compared_with():
    second = PATH.replace("20260101_120000-aaaa1111", "20260101_130000-bbbb2222")
    state = read(STATE, rows(1, 30, run=BEGUN), rows(1, 4, path=second, file="9 7e5", run=BEGUN))
    shown = client_file.shown(state.runs["llm"], is_failing=False)
    assert shown is not None
    assert [(run.id[-8:], run.lines) for run in shown.runs] == [("bbbb2222", 4), ("aaaa1111", 30)]
    assert shown.before is not None
    assert shown.before.id.endswith("aaaa1111")
    for number in range(10):
        third = PATH.replace("120000-aaaa1111", f"15000{number}-cccc")
        state = read(state, rows(1, 2, path=third, file=str(number)))
    assert len(file_of(state).runs) == client_file.FILES_AT_MOST


SERVED = Wandb(
    runs=(WandbRun(entity="t", project="p", id="a", name="a", state="running"),),
    active=("a",), phase="active", keys=("loss",), points=5,
)  # fmt: skip


@pytest.mark.parametrize(
    ("served", "is_failing", "from_file"),
    [
        (None, False, True),
        (None, True, True),
        (replace(SERVED, points=0), False, True),
        (replace(SERVED, keys=()), False, True),
        (SERVED, True, True),
        (SERVED, False, False),
    ],
)
def test_the_file_fills_in_what_the_server_does_not_give(served: Wandb | None, is_failing: bool, from_file: bool):
    run = replace(read(STATE, rows(1, 9)).runs["llm"], wandb=served)
    assert client_file.is_from_file(client_file.shown(run, is_failing=is_failing)) is from_file
    assert client_file.shown(replace(run, wandb_file=None), is_failing=is_failing) == served


def test_settings_and_values_are_bounded_clean_and_masked():
    config = {"lr": "0.0003", "api_key": '"abc"', "opt": '{"beta1":0.9,"hf_token":"x"}', "long": '{"a":"' + "x" * 2000}
    summary = {"best": "1.5", "bad": "NaN", "note": '"a\\u001b[31mb"', "image": '{"_type":"image-file"}'}
    state = read(STATE, rows(1, 2, config=config, summary=summary), rows(3, 4, summary={"best": "2"}))
    run = file_of(state).runs[0]
    assert run.config == {"lr": "0.0003", "api_key": "***", "opt.beta1": "0.9", "opt.hf_token": "***", "long": "…"}
    assert (run.summary["best"], math.isnan(run.summary["bad"]), run.summary["note"]) == (2.0, True, "ab")
    assert "image" not in run.summary


def test_values_that_are_not_finite_are_numbers_and_gaps_are_no_points():
    points = ((1, 0, NOW, "NaN", 1.0), (2, 1, None, None, "Infinity"), (3, 2, NOW, 5.0))
    found = client_file.points_of(rows(1, 3, keys=("loss", "grad\x1b"), points=points))
    assert list(found) == ["loss"], "a name that must be cleaned is no curve"
    assert found["loss"] == Points((0, 2), (NOW, NOW), found["loss"].values)
    assert math.isnan(found["loss"].values[0])
    other = client_file.points_of(rows(1, 3, keys=("loss", "norm"), points=points))["norm"]
    assert (other.values, math.isnan(other.times[1])) == ((1.0, math.inf), True)


def test_the_name_of_a_directory_draws_nothing_of_its_own():
    strange = PATH.replace("aaaa1111", "a\x1b[2Ja")
    state = read(STATE, rows(1, 2, path=strange), rows(3, 4, path=strange))
    file = file_of(state)
    assert (file.rows, file.points) == (4, 4)
    assert "\x1b" not in f"{file.path} {file.runs[0].id} {file.runs[0].path}"
    assert client_file.path_of(rows(1, 2, path=strange)) == file.runs[0].path


def test_an_error_leaves_the_curves_and_a_stand_in_that_sees_nothing_is_not_believed():
    state = read(STATE, rows(1, 9, run=BEGUN))
    lost = WandbRows(v=1, t=NOW, id="llm", error="/fsx/wandb: no permission")
    assert (file_of(read(state, lost)).error, file_of(read(state, lost)).rows) == ("/fsx/wandb: no permission", 9)
    assert file_of(read(state, lost, stand_in=True)).error is None
    assert file_of(read(read(state, lost), rows(10, 11))).error is None


def test_another_directory_in_the_config_begins_again():
    state = read(STATE, rows(1, 9))
    assert file_of(reduce(state, [NEW], NOW)).rows == 9
    assert file_of(reduce(state, [RunsChanged((replace(SPEC, wandb_dir="/other"),))], NOW)) is None


def test_every_metric_with_a_role_is_sent():
    names = [name for known in metric_names.NAMES.values() for name in known]
    names += ["val/fvd", "eval_accuracy", "GRAD NORM", "lr-AdamW/pg1", "throughput(tps)", "nll", "Test/PPL"]
    pattern = client_file.directory_of("llm", "/w", ()).pattern
    unsent = [name for name in names if metric_names.role_of(name) != "other" and not _is_found(pattern, name)]
    assert unsent == []
    assert not _is_found(pattern, "epoch")


def _is_found(pattern: str, name: str) -> bool:
    return re.search(pattern, name.lower()) is not None


def losses(first: int, values: list[float], at: float = NOW, **more: Any) -> WandbRows:
    points = tuple((first + i, first + i - 1.0, at - len(values) + i, _sent(value)) for i, value in enumerate(values))
    last = first + len(values) - 1
    return rows(first, last, points=points, logged_at=at, **more)


def _sent(value: float) -> float | str:
    return value if math.isfinite(value) else "NaN"


def usual(count: int) -> list[float]:
    return [2.0 + 0.01 * (number % 7) for number in range(count)]


def test_a_loss_in_the_file_that_is_no_number_or_jumps_is_found_with_its_step():
    state = read(STATE, losses(1, usual(80), NOW - 60), at=NOW - 60)
    assert file_of(state).trouble is None
    high = read(state, losses(81, [9.1]))
    assert file_of(high).loss_why == "spike: 9.1 at step 80, usually 2 to 2.06"
    nan = read(state, losses(81, [math.nan, math.nan]))
    assert file_of(nan).loss_why == "train/loss has been NaN since step 80"
    shown = client_file.shown(nan.runs["llm"], is_failing=False)
    assert shown is not None
    assert (shown.loss_state, shown.loss_why) == ("nan", "train/loss has been NaN since step 80")
    back = read(nan, losses(83, usual(5)))
    assert (file_of(back).trouble, file_of(back).loss_why) == (None, "")


def test_a_spike_of_an_old_file_is_over_when_it_is_read_and_rows_that_are_repeated_are_judged_once():
    values = [*usual(80), 9.1, *usual(30)]
    old = read(STATE, losses(1, values[:100], NOW - 86_500), losses(101, values[100:], NOW - 86_400))
    assert file_of(reduce(old, [], NOW)).trouble is None
    now = read(read(STATE, losses(1, usual(80))), losses(81, [9.1]))
    again = read(now, losses(1, [*usual(80), 9.1]))
    assert file_of(again).trouble == file_of(now).trouble
    assert len(file_of(again).recent) == 81


def test_the_next_file_begins_a_new_band():
    nan = read(STATE, losses(1, [*usual(80), math.nan]))
    new = read(nan, losses(1, usual(5), path=PATH.replace("aaaa1111", "bbbb2222"), file="8 6e5"))
    assert (file_of(new).trouble, file_of(new).loss_why, len(file_of(new).recent)) == (None, "", 5)


def test_damage_of_the_file_before_is_not_forgotten_and_a_file_that_is_read_is_not_behind():
    state = read(STATE, rows(1, 40, damaged=2, more=True))
    assert (file_of(state).damaged, file_of(state).is_behind) == (2, True)
    state = read(state, rows(1, 5, path=PATH.replace("aaaa1111", "bbbb2222"), file="8 6e5"))
    assert (file_of(state).damaged, file_of(state).damaged_before, file_of(state).is_behind) == (0, 2, False)


@pytest.mark.parametrize(
    ("tail", "silent", "verdict", "is_cut"),
    [
        (1, 1_800.0, "healthy", False),
        (1, 30.0, "dead", False),
        (1, 61.0, "dead", True),
        (1, 61.0, "finished", True),
        (1, 61.0, "unknown", False),
        (1, 3_601.0, "unknown", True),
        (0, 90_000.0, "dead", False),
    ],
)
def test_a_cut_end_is_awaited_until_nothing_more_can_come(
    tail: int, silent: float, verdict: Verdict, is_cut: bool
) -> None:
    state = read(STATE, rows(1, 40, tail=tail, mtime=NOW - silent), at=NOW + 5)
    file = file_of(state)
    assert file.written_at == NOW + 5 - silent, "by our clock"
    assert client_file.ends_incomplete(file, verdict) is is_cut
    assert not client_file.ends_incomplete(replace(file, is_behind=True), verdict), "its end is not read yet"


def test_a_cut_end_is_no_sign_of_life_or_death() -> None:
    cut = read(STATE, rows(1, 40, tail=1, mtime=NOW - 90_000))
    whole = read(STATE, rows(1, 40, mtime=NOW - 90_000))
    assert (cut.runs["llm"].verdict, cut.runs["llm"].why) == (whole.runs["llm"].verdict, whole.runs["llm"].why)
