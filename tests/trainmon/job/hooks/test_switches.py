"""The switches: both ask the loop, within a second or a step; a path that cannot be used raises nothing."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trainmon.job.hooks.conftest import Make, status
from trainmon.job import trainmon_hooks


def test_a_save_switch_asks_once_and_is_removed(make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    hooks = make()
    assert hooks.step(1, 2.5) == ""
    (tmp_path / "save").touch()
    assert hooks.step(2, 2.4) == "save"
    assert status(tmp_path)["phase"] == "saving"
    hooks.saved(2)
    assert not (tmp_path / "save").exists()
    assert [hooks.step(3, 2.3), hooks.step(4, 2.2)] == ["", ""]
    assert capfd.readouterr().err == "trainmon: save, asked for by the save switch, at step 2\n"


def test_a_kill_switch_asks_to_stop_and_stays(make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    hooks = make()
    (tmp_path / "kill").touch()
    assert [hooks.step(1), hooks.step(2), hooks.poll()] == ["stop"] * 3
    assert (tmp_path / "kill").exists()
    hooks.saved(1)
    hooks.done(1)
    assert status(tmp_path)["ended"]["why"] == "stop: the kill switch"
    assert capfd.readouterr().err == (
        "trainmon: stop, asked for by the kill switch, at step 1\ntrainmon: ended at step 1: stop: the kill switch\n"
    )


def test_an_armed_kill_switch_stops_at_the_start(make: Make, tmp_path: Path) -> None:
    assert make().stop_at_start() is False
    (tmp_path / "kill").touch()
    (tmp_path / "save").touch()
    for rank in (0, 1):  # before the ranks know of each other, each looks
        assert make(rank=rank).stop_at_start() is True
    assert status(tmp_path)["phase"] == "ended"
    assert (tmp_path / "save").exists()


@pytest.mark.parametrize("step_s", [0.01, 0.3, 4.0])
@pytest.mark.parametrize("agree", [None, list], ids=["alone", "agreed"])
def test_a_switch_is_seen_within_a_second_or_a_step(
    step_s: float, agree: Any, make: Make, clock: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trainmon_hooks, "LOOK_EVERY", 0.5)
    hooks = make(agree=agree, every=1000)
    for number in range(400):
        clock.now += step_s
        assert hooks.step(number, 1.0) == ""
    (tmp_path / "save").touch()
    touched = clock.now
    for number in range(400):
        clock.now += step_s
        if hooks.step(number, 1.0) == "save":
            break
    assert clock.now - touched <= max(1.0, step_s)


def test_a_save_switch_that_cannot_be_removed_counts_once(
    make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "save").mkdir()  # unlink refuses a directory
    hooks = make()
    assert hooks.step(1) == "save"
    hooks.saved(1)
    assert hooks.step(2) == ""
    assert "the save switch cannot be removed" in capfd.readouterr().err
    (tmp_path / "save").rmdir()
    (tmp_path / "save").touch()
    assert hooks.step(3) == "save"


def test_a_request_whose_save_raises_is_kept_and_does_not_ask_again_in_each_step(make: Make, tmp_path: Path) -> None:
    hooks = make()
    (tmp_path / "save").touch()
    assert hooks.step(1) == "save"  # the save raises: `saved` is not called
    assert [hooks.step(2), hooks.step(3)] == ["", ""]
    assert (tmp_path / "save").exists()
    hooks.close()
    again = make()  # the next attempt obeys it
    assert again.step(1) == "save"
    again.saved(1)
    assert not (tmp_path / "save").exists()


def test_a_stop_whose_save_raises_is_asked_for_again(make: Make, tmp_path: Path) -> None:
    hooks = make()
    (tmp_path / "kill").touch()
    (tmp_path / "save").touch()
    assert [hooks.step(1), hooks.step(2)] == ["stop", "stop"]
    assert (tmp_path / "save").exists()
    hooks.saved(2)
    assert not (tmp_path / "save").exists()


def test_a_request_that_came_during_the_save_is_the_next_one(make: Make, tmp_path: Path) -> None:
    hooks = make()
    (tmp_path / "save").touch()
    assert hooks.step(1) == "save"
    (tmp_path / "save").unlink()
    (tmp_path / "save").write_text("another")
    os.utime(tmp_path / "save", (5000, 5000))
    hooks.saved(1)
    assert (tmp_path / "save").exists()
    assert hooks.step(2) == "save"


def test_nothing_raises_and_each_warning_comes_once(
    make: Make, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hooks = make(status=str(tmp_path / "no" / "status"), kill=str(tmp_path / ("n" * 300)))
    make()
    for step in range(3):
        hooks.step(step)
    hooks.saved(3)
    hooks.done(3)
    lines = capfd.readouterr().err.splitlines()
    assert [line.split(":")[2] for line in lines if "warning" in line] == [
        " a file cannot be written", " there are two Hooks", " a switch cannot be read",
    ]  # fmt: skip
