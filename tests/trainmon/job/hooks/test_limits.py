"""The time limit of the job and a loss that is not finite stop the loop in time."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.trainmon.job.hooks.conftest import Make, status
from trainmon.job import trainmon_hooks

NAN = float("nan")


@pytest.mark.parametrize("given", ["environment", "number"])
def test_the_loop_is_asked_to_stop_before_the_time_limit(
    given: str, make: Make, clock: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = 1e9 + clock.now + 300
    if given == "environment":
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(end)))
    hooks = make(grace=60, **({"deadline": end} if given == "number" else {}))
    clock.now += 200
    assert hooks.step(1) == ""
    assert status(tmp_path)["deadline"] == end
    clock.now += 50
    assert hooks.step(2) == "stop"
    assert hooks.why == "stop: the time limit"


def test_a_short_job_trains_for_half_of_its_time(make: Make, clock: SimpleNamespace) -> None:
    hooks = make(deadline=1e9 + clock.now + 100)
    clock.now += 49
    assert hooks.step(1) == ""
    clock.now += 2
    assert hooks.step(2) == "stop"


def test_a_time_limit_that_is_no_number_is_none(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_END_TIME", "Unknown")
    monkeypatch.setenv("SLURM_PROCID", "")
    assert make().deadline is None


def test_a_setting_that_is_not_understood_is_said_at_the_start(
    make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hooks = make(nan="stpo", deadline="2h", signals={"SIGTERM": "stop", "SIGUSR2": "sotp"})
    assert capfd.readouterr().err.splitlines() == [
        f"trainmon: warning: {setting} is not understood and is ignored"
        for setting in ("nan=stpo", "SIGUSR2=sotp", "deadline=2h")
    ]
    assert (hooks.nan, hooks.deadline) == ("warn", None)
    assert status(tmp_path)["signals"] == {"SIGTERM": "stop"}


def test_a_loss_that_is_not_finite_warns_once_or_stops_after_some(
    make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hooks = make()
    assert [hooks.step(1, NAN), hooks.step(2, float("inf"))] == ["", ""]
    assert hooks.is_bad
    assert capfd.readouterr().err == "trainmon: warning: a loss is not finite\n"
    hooks.saved(2)
    assert status(tmp_path)["loss"] is None
    hooks.step(3, 1.0)
    assert not hooks.is_bad
    hooks.close()
    hooks = make(nan="stop", nan_after=3)
    assert [hooks.step(step, loss) for step, loss in enumerate((NAN, NAN, 2.0, NAN, NAN))] == [""] * 5
    assert hooks.step(6, NAN) == "stop"
    assert hooks.why == "stop: a loss that is not finite"
    assert make(nan="ignore").step(1, NAN) == ""


def test_one_rank_alone_stops_at_the_very_step_that_is_one_too_many(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainmon_hooks, "LOOK_EVERY", 1e6)
    hooks = make(nan="stop", nan_after=2)
    assert [hooks.step(step, loss) for step, loss in enumerate((2.0, NAN, 2.0, NAN, NAN))] == ["", "", "", "", "stop"]


def test_what_is_no_number_is_no_loss(make: Make) -> None:
    hooks = make()
    for loss in (None, "text", [1, 2], object()):
        assert hooks.step(1, loss) == ""
    assert not hooks.is_bad
