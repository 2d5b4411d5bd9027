"""What a run's log said so far, line by line, on a clock of the test's own."""

import math
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmon.analysis.log_formats import FORMATS, StepLine, advance, parse_line
from trainmon.lib import Instant
from trainmon.model import Progress


def read(lines: Iterable[tuple[Instant, str]], progress: Progress | None = None) -> Progress:
    progress = progress or Progress()
    for at, line in lines:
        found = parse_line(line, FORMATS, prefer=progress.format)
        if found is not None:
            progress = advance(progress, *found, at)
    return progress


def megatron(step: int, *, loss: str = "lm loss: 2.0E+00 | ", skipped: int = 0, nans: int = 0) -> str:
    return (
        f" iteration {step:8d}/    5000 | consumed samples:         3200 | elapsed time per iteration (ms): 5000.0 | "
        f"global batch size:    16 | {loss}loss scale: 1.0 | grad norm: 2.203 | "
        f"number of skipped iterations: {skipped:3d} | number of nan iterations: {nans:3d} |"
    )


def dictionary(epoch: float, loss: float = 1.5) -> str:
    return f"{{'loss': {loss}, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': {epoch}}}"


def bar(step: int, total: int, rate: str = "2.00s/it") -> str:
    return f" {100 * step // total}%|█▏        | {step}/{total} [00:24<02:56,  {rate}]"


def titan(step: int, loss: str = "8.1", tps: str = "3,502") -> str:
    return f"[titan] 2025-10-30 14:32:58,897 - root - INFO - step: {step}  loss: {loss}  grad_norm: 3.6  tps: {tps}"


def test_a_step_that_advances_is_now() -> None:
    progress = read([(100.0, megatron(1)), (105.0, megatron(2))])
    assert (progress.step, progress.target_step, progress.at, progress.format) == (2, 5000, 105.0, "megatron")
    assert (progress.loss, progress.step_time_s, progress.cadence_s) == (2.0, 5.0, 5.0)


def test_the_cadence_is_the_median_of_the_recent_intervals() -> None:
    at, lines = 0.0, []
    for step, interval in enumerate([10.0] * 30 + [300.0] + [10.0] * 3):
        at += interval
        lines.append((at, titan(step)))
    progress = read(lines)
    assert progress.cadence_s == 10.0
    assert len(progress.intervals) == 15


def test_a_rank_that_repeats_a_line_changes_nothing() -> None:
    once = read([(100.0, titan(5))])
    again = read([(101.0, titan(5, loss="9.9", tps="1"))], once)
    assert again == once


def test_a_nan_of_any_rank_counts() -> None:
    progress = read([(100.0, titan(5)), (101.0, titan(5, loss="nan"))])
    assert progress.loss is not None
    assert math.isnan(progress.loss)
    assert progress.at == 100.0


def test_a_second_line_of_the_same_step_fills_what_was_missing() -> None:
    first = (
        "[2023-11-07 01:55:23,711] [INFO] [logging.py:96:log_dist] [Rank 0] step={}, skipped=4, lr=[5e-05], mom=[0.9]"
    )
    second = "[timer.py:260:stop] epoch=0/micro_step=40/global_step={}, RunningAvgSamplesPerSec=1, CurrSamplesPerSec={}"
    progress = read([(1.0, first.format(10)), (1.0, second.format(10, 25)), (9.0, first.format(20))])
    progress = read([(9.0, second.format(20, 30))], progress)
    assert (progress.step, progress.skipped, progress.samples_per_s) == (20, 4, 30.0)


def test_a_step_back_is_a_restart() -> None:
    progress = read([(t, megatron(int(t))) for t in (100.0, 101.0, 102.0)] + [(900.0, megatron(50))])
    assert (progress.step, progress.at, progress.cadence_s) == (50, 900.0, None)


def test_lines_of_one_chunk_do_not_make_a_cadence_of_zero() -> None:
    spoken = read([(100.0, megatron(step)) for step in range(0, 50, 10)])
    assert spoken.cadence_s == 50.0  # ten steps of 5 s each, by its own word
    silent = read([(100.0, titan(step)) for step in range(5)])
    assert silent.cadence_s is None
    assert read([(130.0, titan(6)), (130.0, titan(7))], silent).cadence_s == 15.0


def test_lines_that_come_faster_than_they_are_read_share_the_time_between_two_looks() -> None:
    five_a_second = read([(100.0 + step // 5, titan(step)) for step in range(100)])
    assert five_a_second.cadence_s == pytest.approx(0.2)
    assert len(five_a_second.intervals) == 15

    burst = read([(130.0, titan(step)) for step in range(100, 140)], five_a_second)
    assert burst.cadence_s == pytest.approx((130.0 - 119.0) / 40)
    assert read([(131.0, titan(140)), (132.0, titan(141))], burst).intervals[-2:] == (1.0, 1.0)


def test_a_step_with_a_vanished_loss_is_a_nan() -> None:
    progress = read([(1.0, megatron(1)), (2.0, megatron(2, loss=""))])
    assert progress.loss is not None
    assert math.isnan(progress.loss)
    assert read([(3.0, megatron(3))], progress).loss == 2.0


def test_a_step_whose_iterations_were_all_skipped_keeps_the_last_loss() -> None:
    progress = read([(1.0, megatron(1)), (2.0, megatron(2, loss="", skipped=1))])
    assert (progress.loss, progress.skipped, progress.step) == (2.0, 1, 2)


def test_iterations_that_are_all_skipped_have_a_beginning_and_an_end() -> None:
    skipping = read(
        [(1.0, megatron(1)), (2.0, megatron(2, loss="", skipped=1)), (3.0, megatron(3, loss="", skipped=1))]
    )
    assert skipping.skipping_since == 2.0
    assert read([(4.0, megatron(4))], skipping).skipping_since is None


def test_no_nan_iterations_is_no_nan_and_one_is() -> None:
    assert read([(1.0, megatron(1))]).loss == 2.0
    progress = read([(1.0, megatron(1, nans=1))])
    assert progress.loss is not None
    assert math.isnan(progress.loss)
    assert progress.nan_iterations == 1


def test_the_dict_has_the_loss_and_the_bar_the_step() -> None:
    progress = read([(10.0, bar(40, 4500)), (10.0, dictionary(0.1)), (12.0, bar(41, 4500))])
    assert (progress.step, progress.target_step, progress.loss, progress.at) == (41, 4500, 1.5, 12.0)
    assert (progress.step_time_s, progress.format) == (2.0, "hf-trainer")


def test_dicts_alone_are_progress_by_their_epoch() -> None:
    progress = read([(10.0, dictionary(0.1)), (40.0, dictionary(0.2)), (41.0, dictionary(0.2))])
    assert (progress.step, progress.loss, progress.at, progress.cadence_s) == (None, 1.5, 40.0, 30.0)


def test_the_bar_of_an_evaluation_is_not_the_training() -> None:
    trained = [(1.0, bar(99, 4500)), (2.0, dictionary(0.1)), (3.0, bar(100, 4500))]
    evaluating = read([*trained, *((4.0 + n, bar(n, 41)) for n in range(1, 42))])
    assert (evaluating.step, evaluating.target_step, evaluating.at) == (100, 4500, 3.0)
    assert (evaluating.doing, evaluating.doing_at) == ("eval", 45.0)
    back = read([(50.0, bar(101, 4500))], evaluating)
    assert (back.step, back.target_step, back.doing, back.at) == (101, 4500, "train", 50.0)


def test_a_bar_counts_at_once_in_a_log_that_has_shown_a_loss() -> None:
    """The dashboard is opened between two losses, which may be an hour apart."""
    progress = read([(1.0, dictionary(0.1)), (2.0, bar(100, 4500))])
    assert (progress.step, progress.target_step, progress.at) == (100, 4500, 2.0)


def test_the_bar_of_preparing_the_data_gives_way_and_is_never_an_end() -> None:
    preparing = read([(1.0, bar(500, 1000, "0.10s/it")), (2.0, bar(1000, 1000, "0.10s/it"))])
    assert (preparing.step, preparing.target_step) == (None, None), "a bar without a name counts when a loss joins it"
    training = read([(3.0, bar(0, 60)), (4.0, dictionary(0.1)), (5.0, bar(1, 60))], preparing)
    assert (training.step, training.target_step, training.at) == (1, 60, 5.0)


def test_a_bar_that_lasts_is_that_of_the_training_although_no_loss_was_logged() -> None:
    """A Hugging Face Trainer logs the first loss at step 500, unless told otherwise."""
    lines = [(6.0 * step, bar(step, 4500, "6.00s/it")) for step in range(101)]
    assert read(lines[:50]).step is None
    trained = read(lines)
    assert (trained.step, trained.target_step, trained.cadence_s) == (100, 4500, 6.0)
    evaluating = read([(610.0, bar(10, 41, "1.00s/it"))], trained)
    assert (evaluating.step, evaluating.target_step) == (None, None)
    back = read([(650.0, bar(101, 4500, "6.00s/it"))], evaluating)
    assert (back.step, back.target_step) == (101, 4500)


def test_a_bar_that_was_full_when_it_was_first_seen_is_no_step_until_a_loss_is_seen() -> None:
    """So stands the bar of any program's search behind it."""
    searched = read([(1.0, bar(30, 30, "15.36s/it"))])
    assert (searched.step, searched.target_step) == (None, None)
    trained = read([(2.0, dictionary(1.0))], searched)
    assert (trained.step, trained.target_step, trained.loss) == (30, 30, 1.5)


def test_the_bar_of_a_long_evaluation_is_neither_the_step_nor_the_target_after_its_results() -> None:
    """Such as the one before the first step (eval_on_start)."""
    evaluating = read([(6.0 * step, bar(step, 101, "6.00s/it")) for step in range(101)])
    assert read([(606.0, bar(101, 101, "6.00s/it"))], evaluating).target_step is None
    results = "{'eval_loss': 0.7, 'eval_runtime': 606.0, 'epoch': 0}"
    training = read([(607.0, results), (620.0, bar(1, 300, "2.00s/it"))], evaluating)
    assert (training.step, training.target_step) == (None, None)


def test_a_resumed_run_with_another_total_is_followed_after_two_losses() -> None:
    progress = read([(1.0, bar(99, 100)), (2.0, dictionary(0.99)), (3.0, bar(100, 100))])
    progress = read(
        [(20.0, bar(110, 200)), (21.0, dictionary(1.1)), (22.0, dictionary(1.2)), (23.0, bar(121, 200))], progress
    )
    assert (progress.step, progress.target_step) == (121, 200)


def test_a_loss_glued_to_a_bar_settles_which_bar_it_is() -> None:
    progress = read([(1.0, bar(99, 100)), (2.0, dictionary(0.99)), (3.0, bar(5, 200) + dictionary(1.0))])
    assert (progress.step, progress.target_step, progress.loss) == (5, 200, 1.5)


def test_a_short_run_ends_at_its_target_once_a_dict_has_shown_it() -> None:
    end = "{'train_runtime': 79.0, 'train_samples_per_second': 0.2, 'train_loss': 0.5, 'epoch': 3.0}"
    progress = read([(1.0, bar(29, 30)), (2.0, bar(30, 30)), (2.0, end)])
    assert (progress.step, progress.target_step) == (30, 30)


def test_bars_say_nothing_in_a_log_that_counts_its_steps() -> None:
    progress = read([(1.0, megatron(10)), (2.0, bar(3, 41)), (3.0, bar(4, 41))])
    assert (progress.step, progress.at, progress.format) == (10, 1.0, "megatron")


def test_the_logger_with_the_loss_counts_and_a_second_one_does_not_interfere() -> None:
    other = "[logging.py:96:log_dist] [Rank 0] step={}, skipped=0, lr=[5e-05], mom=[0.9]"
    progress = read([(1.0, other.format(1)), (2.0, titan(10)), (3.0, other.format(2)), (4.0, titan(11))])
    assert (progress.step, progress.format, progress.at, progress.loss) == (11, "torchtitan", 4.0, 8.1)
    assert progress.cadence_s == 2.0


def test_another_trainer_in_the_same_log_is_followed_once_the_first_is_quiet() -> None:
    progress = read([(1.0, megatron(10)), (2.0, titan(3)), (700.0, titan(4))])
    assert (progress.step, progress.format) == (4, "torchtitan")


@pytest.mark.parametrize(
    ("line", "doing"),
    [
        ("saving checkpoint at iteration      10 to /x in torch format", "save"),
        ("  successfully saved checkpoint from iteration      10 to /x", "train"),
        (" validation loss at iteration 10 | lm loss value: 2.3E+00 | lm loss PPL: 1.0E+01 |", "eval"),
    ],
)
def test_what_it_is_busy_with_is_known_and_ends_with_the_next_step(line: str, doing: str) -> None:
    busy = read([(1.0, megatron(10)), (2.0, line)])
    assert (busy.step, busy.loss, busy.at, busy.doing, busy.doing_at) == (10, 2.0, 1.0, doing, 2.0)
    assert read([(9.0, megatron(11))], busy).doing == "train"


def test_batches_of_lightning_grow_over_epochs() -> None:
    lines = [
        (1.0, "Epoch 0:  99%|█████████▉| 99/100 [00:09<00:01, 10.00it/s, v_num=0, train_loss=2.0]"),
        (2.0, "Epoch 1:   1%|          | 1/100 [00:09<00:01, 10.00it/s, v_num=0, train_loss=1.9]"),
    ]
    progress = read(lines)
    assert (progress.step, progress.epoch, progress.cadence_s) == (101, 1.0, 1.0)


def test_a_counter_without_a_total_goes_back_at_a_new_epoch() -> None:
    progress = read([(t, f"Epoch 0: |          | {int(t)}/? [00:52<00:00,  1.00it/s]") for t in (5.0, 6.0, 7.0)])
    assert progress.cadence_s == 1.0
    progress = read([(8.0, "Epoch 1: |          | 1/? [00:52<00:00,  1.00it/s]")], progress)
    assert (progress.step, progress.at, progress.cadence_s) == (1, 8.0, None)


def test_a_nan_line_without_metrics_is_a_step() -> None:
    lines = [
        (1.0, "[rank 0] INFO     [step 10] loss=2.3400 | lr=3.00e-04 | grad_norm=1.250 | tok/s=125,000"),
        (2.0, "[rank 0] WARNING  NaN/Inf loss at step 12 (consecutive=1, total=1, last_good_loss=2.3400 at step 11)"),
    ]
    progress = read(lines)
    assert (progress.step, progress.nan_iterations) == (12, 1)
    assert progress.loss is not None
    assert math.isnan(progress.loss)


def test_a_field_that_a_line_does_not_say_keeps_its_value() -> None:
    progress = advance(Progress(grad_norm=1.0, loss=2.0), "own", StepLine(step=1, tokens_per_s=5.0), 1.0)
    assert (progress.grad_norm, progress.loss, progress.tokens_per_s) == (1.0, 2.0, 5.0)


def begun(*at: Instant) -> Progress:
    """A log that says no more than which epoch begins."""
    progress = Progress()
    for epoch, when in enumerate(at, start=1):
        progress = advance(progress, "learned", StepLine(kind="epoch", epoch=epoch), when)
    return progress


def test_an_epoch_that_begins_is_shown_and_times_nothing_before_one_has_passed() -> None:
    """An epoch may take hours: how long its silence is a usual one is not known."""
    progress = begun(100.0)
    assert (progress.step, progress.target_step, progress.at, progress.format) == (1, None, None, None)
    assert begun(100.0, 100.0).at is None  # both were there at the first look
    progress = begun(100.0, 7_300.0)
    assert (progress.step, progress.at, progress.cadence_s) == (2, 7_300.0, 7_200.0)


def test_a_pause_before_the_epochs_begin_again_is_no_time_of_an_epoch() -> None:
    """A new attempt, hours after the last one, goes on from its checkpoint."""
    progress = advance(begun(0.0, 600.0, 1_200.0), "learned", StepLine(kind="epoch", epoch=1), 90_000.0)
    assert (progress.step, progress.at, progress.cadence_s) == (1, 90_000.0, 600.0)
    assert advance(begun(0.0), "learned", StepLine(kind="epoch", epoch=0), 90_000.0).at is None


@pytest.mark.parametrize("name", ["megatron", "own", "learned"])
def test_a_step_counts_before_the_epoch_that_begins(name: str) -> None:
    progress = advance(begun(100.0, 7_300.0), name, StepLine(step=40, loss=2.0), 7_310.0)
    assert (progress.step, progress.at, progress.cadence_s) == (40, 7_310.0, None)
    assert advance(progress, "learned", StepLine(kind="epoch", epoch=3), 7_400.0) == progress


def test_a_loss_without_a_step_leaves_none_of_an_epoch_that_begins() -> None:
    progress = read([(200.0, dictionary(0.4))], begun(100.0))
    assert (progress.step, progress.epoch, progress.at) == (None, 0.4, 200.0)


LINE = st.builds(
    StepLine,
    kind=st.sampled_from(["train", "bar", "epoch", "eval", "save", "note"]),
    step=st.none() | st.integers(0, 50),
    target_step=st.none() | st.integers(1, 3),
    loss=st.none() | st.just(1.0) | st.just(math.nan),
    step_time_s=st.none() | st.just(2.0),
    epoch=st.none() | st.floats(0, 3),
)


@given(st.lists(st.tuples(st.sampled_from(["hf-trainer", "megatron", "own"]), LINE, st.floats(0, 700)), max_size=60))
def test_whatever_the_lines_say_the_progress_stays_bounded_and_its_cadence_a_time(
    lines: list[tuple[str, StepLine, float]],
) -> None:
    progress, at = Progress(), 0.0
    for name, line, later in lines:
        at += later
        progress = advance(progress, name, line, at)
        assert len(progress.intervals) <= 15
        assert progress.cadence_s is None or progress.cadence_s > 0
        assert progress.at is None or progress.at <= at
        assert progress.step is None or progress.step >= 0


def test_what_evaluations_and_saves_take_is_learnt_from_the_log() -> None:
    progress = read([(1.0, megatron(1)), (2.0, "saving checkpoint at iteration       1 to /c")])
    assert (progress.doing, progress.busy_since, progress.saves) == ("save", 2.0, ())
    progress = read([(92.0, "successfully saved checkpoint at iteration       1 to /c")], progress)
    assert (progress.doing, progress.busy_since, progress.saves) == ("train", None, (90.0,))
