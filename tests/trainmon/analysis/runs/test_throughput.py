"""How fast a run usually is: learnt minute by minute, without its first minutes and without what is plainly slower."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from trainmon.analysis.runs import throughput
from trainmon.model import MINUTES, RECENT_MINUTES, SLOW_AT_MOST, Gpu, Progress, Throughput

NOW = 1_000_000.0


def progress(at: float, tokens: float | None = 1_000.0, **changes: Any) -> Progress:
    usual: dict[str, Any] = {"step": int(at - NOW), "at": at, "tokens_per_s": tokens, "printed": ("tokens_per_s",)}
    return Progress(**usual | changes)


def run(
    known: Throughput, minutes: int, tokens: float | None, *, start: float, nodes: int = 2, **changes: Any
) -> Throughput:
    """So many minutes with a step every ten seconds."""
    for second in range(0, minutes * 60, 10):
        known = throughput.advance(known, progress(start + second, tokens, **changes), nodes, reset=False)
    return known


def test_the_first_minutes_of_an_attempt_count_for_nothing() -> None:
    first = throughput.advance(Throughput(), progress(NOW), 2, reset=True)
    slow = run(first, 5, 10.0, start=NOW + 10)
    assert slow.recent == ()
    warm = run(slow, 30, 1_000.0, start=NOW + 310)
    assert set(warm.recent) == {1_000.0}
    assert (warm.measure, warm.usual_rate) == ("tokens/s", 1_000.0)


def learnt(tokens: float | None = 1_000.0, **changes: Any) -> Throughput:
    return run(
        throughput.advance(Throughput(), progress(NOW, tokens, **changes), 2, reset=True),
        40,
        tokens,
        start=NOW,
        **changes,
    )


def test_a_slow_stretch_does_not_become_usual_for_half_a_day() -> None:
    slow = run(learnt(), 300, 700.0, start=NOW + 2_400)
    assert slow.usual_rate == 1_000.0
    assert slow.recent == (700.0,) * RECENT_MINUTES
    for_good = run(slow, SLOW_AT_MOST, 700.0, start=NOW + 2_400 + 18_000)
    assert for_good.usual_rate == 700.0


def test_one_slow_minute_is_forgotten_and_all_that_is_kept_is_bounded() -> None:
    dip = run(run(learnt(), 2, 500.0, start=NOW + 2_400), 2, 1_000.0, start=NOW + 2_520)
    assert (dip.usual_rate, dip.slow) == (1_000.0, ())
    long = replace(learnt(), usual=(1_000.0,) * MINUTES)
    assert len(run(long, 5, 1_000.0, start=NOW + 2_400).usual) == MINUTES


def test_another_number_of_nodes_is_another_pace() -> None:
    assert run(learnt(), 1, 500.0, start=NOW + 2_400, nodes=1).usual_rate is None


def test_steps_are_counted_where_no_line_says_its_speed() -> None:
    counted = learnt(None, printed=())
    assert counted.measure == "steps/s"
    assert counted.usual_rate == 1.0
    saving = run(counted, 3, None, start=NOW + 2_400, printed=(), doing_at=NOW + 2_400)
    assert len(saving.usual) - len(counted.usual) <= 2, "the minute in which it saved is left out"


def test_a_value_that_a_line_does_not_repeat_is_no_reading() -> None:
    stale = run(learnt(), 5, 1_000.0, start=NOW + 2_400, printed=("loss",))
    assert len(stale.usual) <= len(learnt().usual) + 1, "only the minute that had begun is closed"


def test_a_clock_that_is_set_back_begins_the_minutes_anew_and_keeps_what_is_usual() -> None:
    back = run(learnt(), 20, 1_000.0, start=NOW - 7_200)
    assert (back.usual_rate, len(back.recent)) == (1_000.0, RECENT_MINUTES)
    assert back.closed_at is not None
    assert back.closed_at < NOW


def gpu(power: float, clock: int = 1_980) -> Gpu:
    return Gpu(index=0, utilization_pct=100, power_w=power, sm_clock_mhz=clock, temperature_c=60)


def test_a_gpus_mean_follows_slowly_and_begins_anew_after_a_gap() -> None:
    mean = throughput.gpus((), (gpu(700.0),), NOW)
    for second in range(2, 12, 2):
        mean = throughput.gpus(mean, (gpu(100.0),), NOW + second)
    assert 600 < (mean[0].power_w or 0) < 700, "ten seconds of an evaluation"
    for second in range(12, 600, 2):
        mean = throughput.gpus(mean, (gpu(100.0),), NOW + second)
    assert round(mean[0].power_w or 0) in (100, 101)
    assert mean[0].since == NOW
    again = throughput.gpus(mean, (gpu(700.0),), NOW + 900)
    assert (again[0].since, again[0].power_w) == (NOW + 900, 700.0)


def test_a_gpu_that_is_lost_has_no_mean() -> None:
    assert throughput.gpus((), (replace(gpu(700.0), state="lost"),), NOW) == ()


def test_a_measure_that_is_no_longer_logged_gives_way_to_counted_steps() -> None:
    at_its_end = throughput.advance(Throughput(), progress(NOW), 2, reset=True)
    known = run(at_its_end, 60, 1_000.0, start=NOW + 10, printed=("loss",))
    assert (known.measure, known.usual_rate) == ("steps/s", 1.0)


def test_lines_that_take_turns_do_not_change_the_measure() -> None:
    known = learnt()
    for second in range(0, 600, 10):
        metrics = ("tokens_per_s",) if second % 20 else ("step_time_s",)
        known = throughput.advance(
            known, progress(NOW + 2_400 + second, printed=metrics, step_time_s=4.0), 2, reset=False
        )
    assert (known.measure, known.usual_rate) == ("tokens/s", 1_000.0)
