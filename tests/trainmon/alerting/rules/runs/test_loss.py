"""What the steps teach: a loss that is no number, a spike, skipped steps, a loss scale at its floor."""

from __future__ import annotations

import math

from msgspec.structs import replace

from tests.trainmon.alerting.rules.asked import why_unknown
from tests.trainmon.alerting.rules.runs.states import (
    NOW,
    PROGRESS,
    READER,
    WANDB,
    WITH_WANDB,
    after,
    alert,
    blind,
    changed,
    found,
    lines,
    state,
    summary,
    wandb,
    watched,
    without,
)
from trainmon.alerting.pipeline.lifecycle import Evaluation, advance
from trainmon.alerting.rules.base import evaluate
from trainmon.alerting.rules.runs.steps import LossNan, LossScaleFloor, LossSpike, SkippedSteps
from trainmon.model import LossTrouble, Progress, RunMemory, State, WandbFile

LINE = (
    " iteration {:8d}/   20000 | elapsed time per iteration (ms): 4000.0 | {}loss scale: {} | "
    "number of skipped iterations: {:3d} | number of nan iterations: {:3d} |"
)


def line(step: int, *, loss: float | None = 2.0, scale: float = 65536.0, skipped: int = 0, nans: int = 0) -> str:
    """A line of Megatron's: it leaves the loss out when it is NaN, and when all was skipped."""
    shown = "" if loss is None else f"lm loss: {loss:.6E} | "
    return LINE.format(step, shown, scale, skipped, nans)


def stepped(seen: State, first: int, *text: str) -> tuple[State, float]:
    """The state after these lines, one every four seconds."""
    at = NOW
    for place, one in enumerate(text):
        at = NOW + 4.0 * (first + place)
        seen = after(seen, [lines(at, one)], at)
    return seen, at


def usual(count: int = 80) -> State:
    """A run whose loss is known for long."""
    return stepped(watched(), 0, *(line(step, loss=2.0 + 0.01 * (step % 7)) for step in range(count)))[0]


def test_a_loss_that_stays_nan_is_critical_and_says_since_which_step() -> None:
    seen, at = stepped(usual(), 80, *(line(80 + place, loss=None, nans=1) for place in range(3)))
    finding = found(LossNan(), seen, at)
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.summary == "the loss of llm has been NaN since step 80 (3 steps, 8s ago)"
    assert finding.since == NOW + 4.0 * 80
    assert finding.advice == (
        "end it without a save (K would save): end its processes on its nodes; then resume from a checkpoint from "
        "before step 80"
    )


def test_a_single_step_without_a_number_is_skipped_by_every_scaler() -> None:
    seen, at = stepped(usual(), 80, line(80, loss=None, nans=1))
    assert found(LossNan(), seen, at) is None
    assert found(LossNan(), seen, at + 61) is not None, "but for a minute it is none"
    seen, at = stepped(seen, 81, line(81))
    assert found(LossNan(), seen, at + 61) is None


def test_a_nan_that_only_w_and_b_shows_is_found_there() -> None:
    trouble = LossTrouble(state="nan", key="train/loss", value=math.nan, step=12_000, at=NOW - 90)
    seen = state(spec=WITH_WANDB, wandb=wandb(trouble=trouble), verdict="diverged", why="nan")
    assert summary(LossNan(), seen) == "the train/loss of llm has been NaN since step 12,000 (881 steps, 1m ago) in W&B"
    borrowed = changed(seen, progress=replace(PROGRESS, borrowed=("loss",)))
    quiet = without(changed(borrowed, wandb=wandb()), WANDB)
    assert blind(LossNan(), borrowed, quiet) == f"{WANDB}: no answer in 10s"


def test_a_nan_of_w_and_bs_that_the_log_denies_is_no_code_red() -> None:
    trouble = LossTrouble(state="nan", key="train/loss", value=math.nan, step=12_000, at=NOW - 90)
    logged = replace(PROGRESS, printed=("loss",))
    seen = state(spec=WITH_WANDB, wandb=wandb(trouble=trouble), progress=logged)
    finding = found(LossNan(), seen)
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.summary == (
        "the train/loss of llm has been NaN since step 12,000 (881 steps, 1m ago) in W&B, but its log shows 1.87 at "
        "step "
        "12,880"
    )
    before = changed(seen, progress=replace(logged, at=NOW - 100))
    assert found(LossNan(), before).severity == "critical", "its log may be behind"  # type: ignore[union-attr]


def test_a_spike_of_a_trainer_that_logs_rarely_is_reported_when_the_next_step_is_as_bad() -> None:
    seen, at = stepped(usual(), 80, line(80, loss=9.1))
    first = found(LossSpike(), seen, at)
    pending = replace(alert(first), phase="pending", pending_since=at)  # type: ignore[arg-type]
    assert advanced(replace(seen, alerts={pending.id: pending}), at + 600) == "pending", "a single step may come back"
    seen, at = stepped(seen, 81, line(81, loss=9.0))
    assert advanced(replace(seen, alerts={pending.id: pending}), at + 120) == "firing"


def advanced(seen: State, now: float) -> str | None:
    """The phase of the alert about the spike after an evaluation."""
    rule = LossSpike()
    evaluation = Evaluation(seen, evaluate([rule], seen, now), {rule.name: rule}, now, 1.0, lambda: "token")
    return next((one.phase for one in advance(seen.alerts, evaluation).alerts.values()), None)


def test_a_spike_is_found_with_its_first_step_also_if_this_program_has_just_begun() -> None:
    history = lines(NOW, *(line(step, loss=2.0 + 0.01 * (step % 7)) for step in range(80)))
    seen, at = stepped(after(watched(), [history], NOW), 1, line(80, loss=9.1))

    assert summary(LossSpike(), seen, at) == "the loss of llm rose to 9.1 at step 80 (usually 2 to 2.06) 0s ago"
    assert advanced(seen, at) == "pending"


def test_the_first_losses_of_a_training_that_begins_anew_are_no_spike_as_those_of_a_resumed_one_are() -> None:
    for first in (1, 300):
        seen, _ = stepped(watched(), 0, *(line(400 + step, loss=2.0 + 0.01 * (step % 7)) for step in range(80)))
        seen, at = stepped(seen, 80, *(line(first + step, loss=9.1) for step in range(3)))
        assert (found(LossSpike(), seen, at) is None) == (first == 1)


def test_every_step_of_a_chunk_is_judged() -> None:
    chunk = lines(NOW + 330, line(80, loss=9.1), line(81, loss=8.8), line(82, loss=8.7))
    assert "rose to 9.1 at step 80" in summary(LossSpike(), after(usual(), [chunk], NOW + 330), NOW + 330)


def test_w_and_bs_curve_counts_while_the_log_has_too_few_losses() -> None:
    trouble = LossTrouble(state="spike", key="loss", value=9.1, step=1_200, at=NOW - 60, low=2.1, high=2.4)
    seen = state(spec=WITH_WANDB, wandb=wandb(trouble=trouble), memory=RunMemory(losses=(2.1,) * 20))
    assert "rose to 9.1 at step 1,200" in summary(LossSpike(), seen)
    seen = state(spec=WITH_WANDB, wandb=wandb(trouble=trouble), memory=RunMemory(losses=(2.1,) * 64))
    assert found(LossSpike(), seen) is None


# ---- over a restart of this program ----


def anew(*text: str) -> tuple[State, float]:
    """This program began anew a while ago, and has read these lines since."""
    seen, at = stepped(watched(), 200, *text)
    return replace(seen, started_at=NOW + 4.0 * 199), at


def test_a_restart_of_this_program_ends_no_spike_until_the_loss_is_back() -> None:
    before, then = stepped(usual(), 80, line(80, loss=9.1), line(81, loss=8.8))
    fired = alert(found(LossSpike(), before, then))  # type: ignore[arg-type]
    high, at = anew(*(line(200 + place, loss=8.8) for place in range(90)))
    assert found(LossSpike(), high, at) is None
    still = found(LossSpike(), replace(high, alerts={fired.id: replace(fired, summary="in other words")}), at)
    assert still is not None
    assert still.summary.startswith("the loss of llm rose to 9.1 at step 80 (usually 2 to 2.06) ")
    assert still.summary.endswith(", and is 8.8 at step 289")
    for loss in (2.03, 2.09):
        back, at = anew(line(200, loss=loss))
        assert found(LossSpike(), replace(back, alerts={fired.id: fired}), at) is None
        assert why_unknown(LossSpike(), back, fired, at) is None


def test_a_loss_that_stays_high_is_not_over_because_its_band_has_followed_it() -> None:
    seen, at = stepped(usual(), 80, *(line(80 + place, loss=8.0) for place in range(3)))
    fired = replace(alert(found(LossSpike(), seen, at)), since=at)  # type: ignore[arg-type]
    seen, at = stepped(seen, 83, *(line(83 + place, loss=8.0 + 0.01 * (place % 7)) for place in range(200)))
    assert found(LossSpike(), seen, at) is None, "by itself it looks usual by now"
    seen = replace(seen, alerts={fired.id: fired})
    assert found(LossSpike(), seen, at) is not None
    assert found(LossSpike(), seen, at + 43_300) is None, "half a day later it is"
    back, later = stepped(seen, 283, line(283, loss=2.1))
    assert found(LossSpike(), back, later) is None


def test_a_restart_of_this_program_ends_no_floor_and_no_row_of_skipped_steps() -> None:
    before, then = stepped(watched(), 0, line(1), line(2, scale=1.0))
    fired = alert(found(LossScaleFloor(), before, then))  # type: ignore[arg-type]
    still, at = anew(line(200, scale=1.0))
    assert why_unknown(LossScaleFloor(), still, fired, at) == (
        "it is still 1; its value before this program started is not known"
    )  # fmt: skip
    risen, at = anew(line(200, scale=2.0))
    assert why_unknown(LossScaleFloor(), risen, fired, at) is None
    rows, then = stepped(watched(), 0, *(line(one, loss=None, skipped=1) for one in range(25)))
    skipping = alert(found(SkippedSteps(), rows, then))  # type: ignore[arg-type]
    few, at = anew(line(200), line(201, loss=None, skipped=1))
    assert why_unknown(SkippedSteps(), few, skipping, at) == "1 skipped iteration since this program started"
    taken, at = anew(line(200), line(201, loss=None, skipped=1), line(202))
    assert why_unknown(SkippedSteps(), taken, skipping, at) is None


def test_a_nan_that_began_before_this_program_is_not_over_while_the_next_lines_have_none() -> None:
    before, then = stepped(usual(), 80, *(line(80 + place, loss=None, nans=1) for place in range(3)))
    fired = alert(found(LossNan(), before, then))  # type: ignore[arg-type]
    still, at = anew(line(200, loss=None, nans=1))
    assert found(LossNan(), still, at) is None
    assert why_unknown(LossNan(), still, fired, at) == "its loss has just become NaN again"
    assert why_unknown(LossNan(), changed(still, verdict="dead", why="it failed"), fired, at) is None


def test_a_nan_is_over_by_a_number_and_not_by_silence() -> None:
    seen, at = stepped(usual(), 80, *(line(80 + place, loss=None, nans=1) for place in range(3)))
    hung = changed(seen, verdict="hung", why="no step for 1h")
    assert blind(LossNan(), seen, hung, at) == "llm is hung: no step for 1h"
    dark = changed(without(seen, READER), verdict="unknown")
    assert blind(LossNan(), seen, dark, at) == f"{READER}: no answer in 10s"
    better, later = stepped(seen, 83, line(83))
    finding = found(LossNan(), seen, at)
    assert finding is not None
    assert blind(LossNan(), seen, better, later) is None


def test_a_spike_names_the_usual_band_and_is_over_when_the_loss_is_back() -> None:
    seen, at = stepped(usual(), 80, line(80, loss=9.1), line(81, loss=8.8))
    finding = found(LossSpike(), seen, at)
    assert finding is not None
    assert finding.severity == "warning"
    assert finding.summary == "the loss of llm rose to 9.1 at step 80 (usually 2 to 2.06) 4s ago, and is 8.8 at step 81"
    back, later = stepped(seen, 82, line(82))
    assert found(LossSpike(), back, later) is None
    assert LossSpike().for_ > 60, "a step that comes back at once says nothing"


def test_a_nan_in_the_file_of_the_client_is_critical_beside_a_log_without_losses_and_alone() -> None:
    trouble = LossTrouble(state="nan", key="train/loss", value=math.nan, step=12_000, at=NOW - 90)
    file = WandbFile(host="login", logged_at=NOW - 20, trouble=trouble)
    beside = state(progress=replace(PROGRESS, loss=None), wandb_file=file)
    assert (
        summary(LossNan(), beside) == "the train/loss of llm has been NaN since step 12,000 (881 steps, 1m ago) in W&B"
    )
    alone = changed(beside, verdict="diverged", why="the loss is NaN", log=None, progress=Progress())
    finding = found(LossNan(), alone)
    assert finding is not None
    assert (finding.severity, finding.sources) == ("critical", (READER,)), "stale with the host that reads the file"
    for gone in (replace(file, exit_code=1), replace(file, host="login", trouble=None)):
        assert found(LossNan(), changed(alone, wandb_file=gone)) is None
    old = changed(alone, wandb_file=replace(file, logged_at=NOW - 7_200), verdict="stalled", why="no step for 2h")
    assert found(LossNan(), old) is None


def test_the_file_of_an_earlier_attempt_says_nothing_of_the_next_one() -> None:
    trouble = LossTrouble(state="nan", key="train/loss", value=math.nan, step=12_000, at=NOW - 90)
    file = WandbFile(host="login", logged_at=NOW - 60, trouble=trouble)
    seen = state(wandb_file=file, progress=replace(PROGRESS, loss=None))
    assert found(LossNan(), changed(seen, memory=RunMemory(back_at=NOW - 30))) is None


def test_a_spike_that_only_the_file_of_the_client_shows_is_found() -> None:
    trouble = LossTrouble(state="spike", key="loss", value=9.1, step=1_200, at=NOW - 60, low=2.1, high=2.4)
    file = WandbFile(host="login", logged_at=NOW - 20, trouble=trouble, recent=(2.2, 9.1))
    fired = state(progress=replace(PROGRESS, loss=9.1, borrowed=("loss",)), wandb_file=file)
    text = "rose to 9.1 at step 1,200 (usually 2.1 to 2.4) 1m ago in W&B, and is 9.1"
    assert text in summary(LossSpike(), fired)


def test_a_loss_inside_its_band_is_no_spike_and_w_and_bs_curve_counts_where_no_log_shows_it() -> None:
    seen, at = stepped(usual(), 80, line(80, loss=2.05))
    assert found(LossSpike(), seen, at) is None
    trouble = LossTrouble(state="spike", key="loss", value=9.1, step=1_200, at=NOW - 60, low=2.1, high=2.4)
    fired = state(spec=WITH_WANDB, wandb=wandb(trouble=trouble))
    assert "rose to 9.1 at step 1,200 (usually 2.1 to 2.4) 1m ago" in summary(LossSpike(), fired)
    over = replace(trouble, after=1)
    assert found(LossSpike(), state(spec=WITH_WANDB, wandb=wandb(trouble=over))) is None


def test_a_spike_is_not_over_because_its_log_is_silent() -> None:
    seen, at = stepped(usual(), 80, line(80, loss=9.1), line(81, loss=9.0))
    assert blind(LossSpike(), seen, changed(seen, verdict="stalled", why="no step"), at) == "llm is stalled: no step"


def test_iterations_that_are_all_skipped_are_counted_over_lines_of_one_chunk() -> None:
    seen = usual()
    text = [line(80 + place, loss=None, skipped=1, scale=65536.0 / 2**place) for place in range(20)]
    seen = after(seen, [lines(NOW + 330, *text[:5])], NOW + 330)
    seen = after(seen, [lines(NOW + 400, *text[5:])], NOW + 400)
    finding = found(SkippedSteps(), seen, NOW + 400)
    assert finding is not None
    assert finding.summary == "llm has skipped 20 iterations in a row, until step 99; the loss scale is 0.125"
    taken, at = stepped(seen, 101, line(100))
    assert found(SkippedSteps(), taken, at) is None


def test_a_loss_scale_that_settles_at_the_start_is_no_trouble() -> None:
    text = [line(place, loss=None, skipped=1, scale=2.0 ** (32 - place)) for place in range(16)]
    seen, at = stepped(watched(), 0, *text)
    assert found(SkippedSteps(), seen, at) is None
    some, at = stepped(usual(), 80, *(line(80 + 100 * place, skipped=14) for place in range(5)))
    assert found(SkippedSteps(), some, at) is None, "most of a hundred were taken"


def test_skipped_steps_are_not_over_because_no_step_comes() -> None:
    skipping = state(progress=replace(PROGRESS, skipped_in_row=40), verdict="diverged", why="skipped")
    silent = changed(skipping, verdict="hung", why="no step for 20m")
    assert blind(SkippedSteps(), skipping, silent) == "llm is hung: no step for 20m"


def test_a_loss_scale_that_has_sunk_to_its_floor_is_critical() -> None:
    seen, at = stepped(usual(), 80, line(80, scale=1.0))
    finding = found(LossScaleFloor(), seen, at)
    assert finding is not None
    assert finding.severity == "critical"
    assert finding.summary == "the loss scale of llm is at its floor: it is 1 at step 80, and was 65536"
    assert found(LossScaleFloor(), stepped(seen, 81, line(81, scale=2.0))[0], at) is None


def test_the_constant_scale_of_bf16_is_no_floor() -> None:
    seen, at = stepped(watched(), 0, *(line(place, scale=1.0) for place in range(10)))
    assert found(LossScaleFloor(), seen, at) is None


def test_a_log_that_says_that_the_scale_cannot_sink_is_believed() -> None:
    words = "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run."
    seen = after(usual(), [lines(NOW + 330, words)], NOW + 330)
    finding = found(LossScaleFloor(), changed(seen, verdict="dead"), NOW + 390)
    assert finding is not None
    assert "1m ago its log said that it cannot be reduced further" in finding.summary
    assert finding.evidence[0] == words


def test_a_floor_is_not_over_because_its_log_is_not_read() -> None:
    seen, at = stepped(usual(), 80, line(80, scale=1.0))
    dark = changed(without(seen, READER), verdict="unknown")
    assert blind(LossScaleFloor(), seen, dark, at) == f"{READER}: no answer in 10s"


def test_steps_that_deepspeed_skips_beside_a_bar_are_counted() -> None:
    overflow = "[deepspeed] OVERFLOW! Rank 0 Skipping step. Attempted loss scale: 4096, reducing to 2048"
    bar = " {}%|####      | {}/900 [00:{}<00:40, 1.00it/s]"
    begun = [bar.format(1, 14, 14), "{'loss': 2.5, 'grad_norm': 1.0, 'learning_rate': 0.1, 'epoch': 0.1}"]
    seen, at = after(watched(), [lines(NOW, *begun)], NOW), NOW
    for step in range(15, 40):
        at = NOW + 4.0 * step
        fired = [bar.format(step // 9, step, step)] if step < 18 else [overflow, bar.format(step // 9, step, step)]
        seen = after(seen, [lines(at, *fired)], at)
    assert summary(SkippedSteps(), seen, at) == "llm has skipped 22 iterations in a row, until step 39"
    seen = after(seen, [lines(at + 4, bar.format(4, 40, 40))], at + 4)
    assert found(SkippedSteps(), seen, at + 4) is None
