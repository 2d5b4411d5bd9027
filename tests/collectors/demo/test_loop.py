"""One training loop, as values: no files."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from collectors.demo.stories import TRAINERS, Trainer
from collectors.demo.training import (
    KEEP,
    CheckpointRemoved,
    Effect,
    LogStarted,
    RunFault,
    SaveFinished,
    SaveStarted,
    SaveSwitchRemoved,
    SwitchFiles,
    TrainingLoop,
)

NOW = 1_760_000_000.0
ALL = pytest.mark.parametrize("trainer", TRAINERS, ids=lambda trainer: trainer.format)


def scheduled(loop: TrainingLoop) -> TrainingLoop:
    """A loop whose next attempts start at once."""
    loop.next_attempt = lambda at: (loop.job + 1, loop.restarts + 1)
    return loop


def started(trainer: Trainer, seed: int = 7) -> TrainingLoop:
    return scheduled(TrainingLoop(trainer, seed))


def play(
    loop: TrainingLoop, seconds: int, switches: SwitchFiles | None = None, fault: RunFault | None = None
) -> list[Effect]:
    """Let whole seconds pass, with the switches and the trouble as given."""

    def effects() -> Iterator[Effect]:
        for second in range(seconds):
            yield from loop.advance(1.0, NOW + second, switches or SwitchFiles(), fault)

    return list(effects())


def phase(loop: TrainingLoop) -> str:
    return loop.phase


def text(effects: list[Effect]) -> str:
    return "".join(effect for effect in effects if isinstance(effect, str))


def only(effects: list[Effect], *kinds: type) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, kinds)]


@ALL
def test_it_steps_at_its_own_pace(trainer: Trainer) -> None:
    loop = started(trainer)
    play(loop, 20)
    assert loop.step - trainer.first_step == pytest.approx(20 / trainer.step_time, abs=2)


@ALL
def test_a_scheduled_save_begins_is_committed_and_prunes_the_oldest(trainer: Trainer) -> None:
    loop = started(trainer)
    oldest = loop.saved[0]
    effects = only(play(loop, 260), SaveStarted, SaveFinished, CheckpointRemoved)
    step = effects[0].step  # type: ignore[union-attr]
    assert effects[:3] == [SaveStarted(step), SaveFinished(step), CheckpointRemoved(oldest)]
    assert step % trainer.save_every == 0
    assert len(loop.saved) == KEEP


@ALL
def test_a_save_switch_is_removed_before_the_save_and_obeyed_once(trainer: Trainer) -> None:
    loop = started(trainer)
    effects = list(loop.advance(trainer.step_time * 1.1, NOW, SwitchFiles(save=True), None))
    step = trainer.first_step + 1
    assert only(effects, SaveSwitchRemoved, SaveStarted) == [SaveSwitchRemoved(), SaveStarted(step)]
    effects += play(loop, 16)
    assert only(effects, SaveSwitchRemoved, SaveStarted, SaveFinished) == [
        SaveSwitchRemoved(),
        SaveStarted(step),
        SaveFinished(step),
    ]
    assert "Save switch activated" in text(effects)
    assert phase(loop) == "training"


@ALL
def test_a_kill_switch_saves_says_so_and_ends_the_run(trainer: Trainer) -> None:
    loop = TrainingLoop(trainer, seed=7)
    effects = play(loop, 40, SwitchFiles(kill=True))
    step = trainer.first_step + 1
    assert only(effects, SaveStarted, SaveFinished) == [SaveStarted(step), SaveFinished(step)]
    assert text(effects).count(str(trainer.run.kill_switch)) == 1
    assert phase(loop) == "down"
    assert not play(loop, 120, SwitchFiles(kill=True)), "nothing is written while the scheduler starts no attempt"


@ALL
def test_with_the_kill_switch_removed_the_next_attempt_resumes_from_the_save(trainer: Trainer) -> None:
    loop = TrainingLoop(trainer, seed=7)
    play(loop, 40, SwitchFiles(kill=True))
    saved = loop.step
    effects = play(scheduled(loop), 30)
    assert only(effects, LogStarted) == [LogStarted(trainer.job + 1)]
    assert phase(loop) == "training"
    assert loop.step > saved


def test_an_attempt_that_starts_under_a_kill_switch_exits_at_once() -> None:
    loop = started(TRAINERS[0])
    play(loop, 2, fault="lost")
    effects = play(loop, 20, SwitchFiles(kill=True))
    assert only(effects, LogStarted, SaveStarted) == [LogStarted(TRAINERS[0].job + 1)]
    assert text(effects) == f"Detected kill switch at {TRAINERS[0].run.kill_switch}. Exiting\n"


@ALL
def test_a_hung_run_writes_nothing_and_is_ended_by_the_watchdog(trainer: Trainer) -> None:
    loop = started(trainer)
    assert play(loop, 90, SwitchFiles(kill=True, save=True), "hang") == [], "a hung run does not read its switches"
    assert phase(loop) == "hung"
    saved = loop.saved[-1]
    effects = play(loop, 60)
    assert "Watchdog caught collective operation timeout" in text(effects)
    assert phase(loop) == "training"
    assert saved <= loop.step < saved + 60 / trainer.step_time


@ALL
def test_a_run_on_a_lost_gpu_stays_down_until_the_gpu_is_back(trainer: Trainer) -> None:
    loop = started(trainer)
    effects = play(loop, 100, fault="lost")
    assert "CUDA error" in text(effects)
    assert phase(loop) == "down"
    play(loop, 40)
    assert phase(loop) == "training"


@ALL
def test_nothing_poisoned_is_saved_and_the_run_goes_back(trainer: Trainer) -> None:
    loop = started(trainer)
    saved = list(loop.saved)
    effects = play(loop, 300, fault="nan")
    assert not only(effects, SaveFinished)
    reached = loop.step
    effects = play(loop, 30)
    assert "going back to the last checkpoint" in text(effects)
    assert saved[-1] <= loop.step < reached


def test_a_burst_is_a_thousand_lines_a_second_and_training_goes_on() -> None:
    loop = started(TRAINERS[1])
    written = text(play(loop, 5, fault="burst"))
    assert written.count("UserWarning") == 5_000
    assert "step:" in written


def test_a_run_that_reaches_its_target_finishes_and_is_queued_anew() -> None:
    trainer = next(trainer for trainer in TRAINERS if trainer.format == "hf")
    loop = started(trainer)
    target = trainer.run.target_step or 0
    effects = play(loop, int((target - trainer.first_step) * trainer.step_time * 1.15))
    assert phase(loop) == "finished"
    assert loop.step == target
    assert "train_runtime" in text(effects)
    effects = play(loop, 150)
    assert only(effects, LogStarted)
    assert 0 < loop.step < 100


@ALL
def test_the_same_seed_writes_the_same_and_another_does_not(trainer: Trainer) -> None:
    one, same, other = (play(started(trainer, seed), 60) for seed in (7, 7, 8))
    assert one == same
    assert one != other


@ALL
def test_one_long_second_and_many_short_ones_do_the_same_amount(trainer: Trainer) -> None:
    loop = started(trainer)
    effects = list(loop.advance(600.0, NOW, SwitchFiles(save=True), None))
    assert len(only(effects, SaveSwitchRemoved)) == 1
    assert loop.step - trainer.first_step == pytest.approx(600 / trainer.step_time, rel=0.15)
