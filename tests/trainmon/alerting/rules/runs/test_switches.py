"""Switch files: a kill switch that was left, a save switch that nobody takes or that led to nothing."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.trainmon.alerting.rules.runs.states import (
    NOW,
    PROGRESS,
    READER,
    blind,
    changed,
    checkpoint,
    checkpoints,
    ended,
    found,
    job,
    state,
    summary,
    without,
)
from trainmon.alerting.rules.runs.base import how_to_requeue
from trainmon.alerting.rules.runs.checkpoints import KillSwitchLeft, SaveSwitchIgnored
from trainmon.model import Action, Record, RemoveFile, Switch

ARMED = Switch(path="/fsx/kill", exists=True, armed_at=NOW - 3_600, by="ann", why="ann: enough")
SAVE = Switch(path="/fsx/save", exists=True, armed_at=NOW - 1_200, by="ann")
TAKEN = Switch(path="/fsx/save", exists=False, taken_at=NOW - 1_200)
BEFORE = checkpoints(checkpoint(12_500, 4_000))
STOPPED: dict[str, Any] = {"verdict": "stopped", "why": "the kill switch is armed"}
LEFT = state(job(89, state="PENDING", started_at=None), ended("CANCELLED"), kill=ARMED, **STOPPED)


def test_a_kill_switch_under_a_waiting_job_burns_it() -> None:
    finding = found(KillSwitchLeft(), LEFT)
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.summary == (
        "the kill switch of llm has been armed for 1h by ann; job 89 is pending, and will end as soon as it starts"
    )
    assert (finding.since, finding.evidence) == (NOW - 3_600, ("/fsx/kill", "ann: enough"))
    assert "trainmon-tui unkill llm" in finding.advice


def test_a_kill_switch_with_nothing_behind_it_is_an_information() -> None:
    finding = found(KillSwitchLeft(), state(ended("CANCELLED"), kill=ARMED, **STOPPED))
    assert finding is not None
    assert finding.severity == "info"


def test_a_trainer_that_goes_on_under_its_kill_switch_does_not_read_it() -> None:
    finding = found(KillSwitchLeft(), state(job(), kill=ARMED))
    assert finding is not None
    assert "its trainer has not ended: it ignores the switch" in finding.summary
    assert "trainmon-tui cancel llm" in finding.advice


def test_a_directory_is_not_removed_with_u() -> None:
    folder = replace(ARMED, by="ann with a directory")
    kill = found(KillSwitchLeft(), state(job(), kill=folder))
    assert kill is not None
    advice = (
        "a person must remove the directory /fsx/kill; to end it anyway, C cancels the job: trainmon-tui cancel llm"
    )
    assert kill.advice == advice
    save = found(SaveSwitchIgnored(), state(job(), checkpoints=BEFORE, save=replace(SAVE, by="ann with a directory")))
    assert save is not None
    assert "a person must remove the directory /fsx/save; T signals" in save.advice
    assert how_to_requeue(LEFT, replace(LEFT.runs["llm"], kill=folder)).startswith(
        "a person must remove the directory /fsx/kill; then "
    )


def test_no_trainer_reads_a_switch_while_it_evaluates_or_saves() -> None:
    for verdict in ("evaluating", "saving"):
        busy = changed(state(job(), kill=ARMED, save=SAVE), verdict=verdict, why=f"{verdict} for 20m")
        words = f"llm is {verdict}, and ignores its switches meanwhile"
        assert blind(KillSwitchLeft(), state(job(), kill=ARMED, save=SAVE), busy) == words
        assert blind(SaveSwitchIgnored(), state(job(), kill=ARMED, save=SAVE), busy) == words
        gone = changed(busy, kill=replace(ARMED, exists=False))
        assert blind(KillSwitchLeft(), state(job(), kill=ARMED), gone) is None
    assert KillSwitchLeft().for_ >= 60, "it reads it at its next step"
    assert SaveSwitchIgnored().for_ >= 60


def test_a_kill_switch_that_was_just_armed_and_one_that_is_gone_are_fine() -> None:
    assert found(KillSwitchLeft(), state(job(), kill=replace(ARMED, armed_at=NOW - 300))) is None
    assert found(KillSwitchLeft(), state(job(), kill=replace(ARMED, exists=False))) is None
    assert found(KillSwitchLeft(), state(job())) is None


def test_a_switch_that_cannot_be_seen_is_not_gone() -> None:
    unseen = changed(LEFT, kill=Switch(path="/fsx/kill", exists=None, error="permission denied"))
    assert blind(KillSwitchLeft(), LEFT, unseen) == "/fsx/kill cannot be seen: permission denied"
    assert blind(KillSwitchLeft(), LEFT, changed(without(LEFT, READER), kill=None)) == f"{READER}: no answer in 10s"
    assert blind(KillSwitchLeft(), LEFT, changed(LEFT, kill=replace(ARMED, exists=False))) is None


def test_a_save_switch_that_a_training_run_does_not_take_is_a_warning() -> None:
    finding = found(SaveSwitchIgnored(), state(job(), save=SAVE))
    assert finding is not None
    assert finding.severity == "warning"
    assert (
        finding.summary == "the save switch of llm has been armed for 20m by ann, and its trainer has not consumed it"
    )
    assert "trainmon-tui signal llm" in finding.advice
    hangs = state(job(), save=SAVE, verdict="hung", why="no step", progress=replace(PROGRESS, at=NOW - 3_600))
    assert summary(SaveSwitchIgnored(), hangs).endswith("and its trainer has not consumed it; there was no step for 1h")


def test_a_save_switch_that_is_gone_cannot_be_removed() -> None:
    offered = found(SaveSwitchIgnored(), state(job(), save=TAKEN, checkpoints=BEFORE))
    assert offered is not None
    assert offered.advice == (
        "see whether its disk is full (key 3), and look at its log (key 4); T signals its trainer: "
        "trainmon-tui signal llm"
    )


def test_a_save_switch_is_given_ten_of_the_runs_own_intervals() -> None:
    slow = replace(PROGRESS, cadence_s=300.0)
    assert found(SaveSwitchIgnored(), state(job(), save=SAVE, progress=slow)) is None
    assert found(SaveSwitchIgnored(), state(job(), save=replace(SAVE, armed_at=NOW - 60))) is None
    assert found(SaveSwitchIgnored(), state(ended(), save=SAVE, verdict="dead", why="x")) is None, (
        "nobody could take it"
    )


def test_a_switch_that_was_taken_and_no_checkpoint_came_of_it() -> None:
    seen = state(job(), save=TAKEN, checkpoints=BEFORE)
    assert summary(SaveSwitchIgnored(), seen) == (
        "llm consumed its save switch 20m ago, but committed no checkpoint; the last one is of step 12,500"
    )
    saved = changed(seen, checkpoints=checkpoints(checkpoint(12_600, 1_100), checkpoint(12_500, 4_000)))
    assert found(SaveSwitchIgnored(), saved) is None
    slow = changed(seen, checkpoints=checkpoints(checkpoint(12_500, 4_000), save_s=900.0))
    assert found(SaveSwitchIgnored(), slow) is None, "twice its usual save is not over"


def test_a_switch_that_a_person_took_back_led_to_nothing_on_purpose() -> None:
    action = Action(
        id="a1",
        verb="unsave",
        subject="llm",
        cluster="prod",
        host="login",
        operation=RemoveFile("/fsx/save"),
        title="",
        run="llm",
    )
    back = Record(action=action, status="done", done_at=NOW - 1_205)
    assert found(SaveSwitchIgnored(), state(job(), save=TAKEN, checkpoints=BEFORE, actions={"a1": back})) is None


def test_a_save_that_cannot_be_seen_is_not_done() -> None:
    seen = state(job(), save=SAVE)
    assert blind(SaveSwitchIgnored(), seen, without(changed(seen, save=None), READER)) == f"{READER}: no answer in 10s"
    assert blind(SaveSwitchIgnored(), seen, changed(seen, verdict="unknown")) == "llm is unknown: it steps"
    assert blind(SaveSwitchIgnored(), seen, changed(seen, save=TAKEN)) is None
