"""What W&B says → State.runs."""

from __future__ import annotations

import math
from array import array
from typing import Any

from msgspec.structs import replace

from tests.trainmon.ledger.records import record
from trainmon.engine.reducers.reduce import reduce
from trainmon.model import (
    ActionChanged,
    ConsoleRead,
    CurvesGrew,
    Event,
    LogChunk,
    NodeReading,
    Points,
    Progress,
    Run,
    RunsChanged,
    RunSpec,
    Sample,
    SampleFetched,
    Source,
    SourceChanged,
    State,
    Switch,
    Wandb,
    WandbPolled,
    WandbRun,
    WandbSpec,
)

T = 1_000_000.0
SPEC = RunSpec(name="llm", cluster="prod", wandb=WandbSpec(project="t/p", group="g"))
LINE = " [2025-08-01 07:19:37] iteration {:8d}/    5000 | elapsed time per iteration (ms): 4100.0 | lm loss: 2.0E+00 |"
SUMMARY: dict[str, float | str] = {"train/loss": 2.1, "grad_norm": 0.3, "tokens_per_sec": 5e5, "lr": 3e-4}


def wrun(id_: str = "a", state: str = "running", step: int | None = 100, at: float = T, **more: Any) -> WandbRun:
    fields: dict[str, Any] = {"created_at": T - 7200, "heartbeat_at": at, "summary": SUMMARY, "name": id_}
    return WandbRun(entity="t", project="p", id=id_, state=state, step=step, **(fields | more))


def seen(*runs: WandbRun, at: float = T, **more: Any) -> WandbPolled:
    return WandbPolled(**{"run": "llm", "at": at, "runs": runs, "keys": ("train/loss", "grad_norm")} | more)


def grew(values: list[float], first: int = 0, at: float = T, *, every: float = 4.0, **more: Any) -> CurvesGrew:
    steps = [float(first + i) for i in range(len(values))]
    times = [at - every * (len(values) - 1 - i) for i in range(len(values))]
    points = {"train/loss": Points(array("d", steps), array("d", times), array("d", values))}
    return CurvesGrew(**{"run": "llm", "path": "t/p/a", "at": at, "points": points} | more)


def folded(*events: Event, state: State | None = None, now: float = T) -> State:
    return reduce(state or reduce(State(), [RunsChanged((SPEC,))], now), events, now)


def wandb_of(state: State) -> Wandb:
    wandb: Wandb | None = state.runs["llm"].wandb
    assert wandb is not None
    return wandb


def chunk(*lines: str, t: float = T, **more: Any) -> LogChunk:
    return LogChunk(**{"v": 1, "t": t, "id": "llm", "path": "/l.out", "lines": lines, "seen": len(lines)} | more)


def test_the_runs_of_a_group_are_known_with_the_active_one_its_keys_and_samples() -> None:
    sample = Sample(key="val", kind="image", file="media/val_1.png")
    state = folded(seen(wrun("b"), wrun("a", "crashed"), samples=(sample,)))
    wandb = wandb_of(state)
    assert (wandb.phase, wandb.active, wandb.keys, wandb.polled_at) == (
        "active",
        ("b",),
        ("train/loss", "grad_norm"),
        T,
    )
    assert wandb.samples == (sample,)


def test_a_run_that_is_not_watched_or_has_no_w_and_b_is_left_alone() -> None:
    plain = reduce(State(), [RunsChanged((RunSpec(name="llm", cluster="prod"),))], T)
    events = [seen(wrun()), grew([1.0]), SampleFetched("llm", "f", "/x"), seen(wrun(), run="other")]
    assert folded(*events, state=plain).runs == plain.runs
    assert "other" not in folded(*events).runs


def test_time_turns_waiting_into_overdue_and_an_old_heartbeat_into_none() -> None:
    state = folded(seen(wrun()))
    assert wandb_of(state).phase == "active"
    state = folded(state=state, now=T + 601)
    assert (wandb_of(state).phase, wandb_of(state).since) == ("waiting", T + 601)
    assert wandb_of(folded(state=state, now=T + 601 + 900)).phase == "waiting"
    assert wandb_of(folded(state=state, now=T + 601 + 901)).phase == "overdue"


def test_while_w_and_b_does_not_answer_us_nothing_follows_from_it() -> None:
    source = Source(name="wandb:llm", kind="wandb", cluster="prod", period=60, phase="up", answered_at=T)
    state = folded(SourceChanged(source), seen(wrun()))
    lost = SourceChanged(replace(source, phase="retrying", error="no connection"))
    state = folded(lost, state=state, now=T + 60)
    state = folded(state=state, now=T + 86_400)
    assert (wandb_of(state).phase, wandb_of(state).active) == ("active", ("a",))
    state = folded(SourceChanged(replace(source, answered_at=T + 86_460)), state=state, now=T + 86_460)
    assert wandb_of(state).phase == "waiting"
    beats = seen(wrun(at=T + 86_455), at=T + 86_461)
    assert wandb_of(folded(beats, state=state, now=T + 86_461)).phase == "active"


def test_nothing_new_makes_no_new_value() -> None:
    state = folded(seen(wrun()), grew([2.0] * 100))
    assert folded(state=state, now=T + 1).runs["llm"].wandb is state.runs["llm"].wandb


def test_a_run_under_an_armed_kill_switch_has_ended_and_no_restart_is_waited_for() -> None:
    state = folded(seen(wrun()))
    armed = replace(state.runs["llm"], kill=Switch(path="/k", exists=True))
    state = replace(state, runs={"llm": armed})
    state = folded(seen(wrun(state="failed"), at=T + 60), state=state, now=T + 60)
    assert (wandb_of(state).phase, wandb_of(state).why) == ("ended", "a failed at step 100; the run was stopped")


def test_a_run_that_a_user_ended_is_not_waited_for() -> None:
    kill = record(status="done", done_at=T - 30)
    kill = replace(kill, action=replace(kill.action, verb="kill", run="llm"))
    state = folded(ActionChanged(kill), seen(wrun()))
    state = folded(seen(wrun(state="failed"), at=T + 60), state=state, now=T + 60)
    assert (wandb_of(state).phase, state.runs["llm"].verdict) == ("ended", "stopped")


def test_progress_comes_from_w_and_b_where_no_log_has_it() -> None:
    progress = folded(seen(wrun())).runs["llm"].progress
    assert (progress.step, progress.loss, progress.grad_norm, progress.tokens_per_s, progress.learning_rate) == (
        100, 2.1, 0.3, 5e5, 3e-4,
    )  # fmt: skip
    assert (progress.format, progress.at) == ("wandb", T)


def test_the_step_is_as_old_as_the_last_row_and_not_as_the_heartbeat() -> None:
    state = folded(seen(wrun()), grew([2.0] * 50, first=51, at=T - 3000))
    assert wandb_of(state).stepped_at == T - 3000
    assert state.runs["llm"].progress.at == T - 3000
    told_so = folded(seen(wrun(logged_at=T - 3000)))
    assert wandb_of(told_so).stepped_at == T - 3000


def test_a_step_that_advances_is_as_new_as_the_look_that_saw_it() -> None:
    state = folded(seen(wrun()))
    state = folded(seen(wrun(at=T + 60), at=T + 60), state=state, now=T + 60)
    assert state.runs["llm"].progress.at == T
    state = folded(seen(wrun(step=115, at=T + 120), at=T + 120), state=state, now=T + 120)
    assert (state.runs["llm"].progress.step, state.runs["llm"].progress.at) == (115, T + 120)
    late = wrun(step=130, at=T + 180, logged_at=T - 90_000)  # the clock of its host is a day behind
    state = folded(seen(late, at=T + 180), state=state, now=T + 180)
    assert state.runs["llm"].progress.at == T + 120


def test_the_pace_is_that_of_the_rows_and_not_of_our_polls() -> None:
    state = folded(seen(wrun()), grew([2.0] * 50, first=51, every=4.0))
    progress = state.runs["llm"].progress
    assert (progress.cadence_s, progress.step_time_s) == (4.0, 4.0)
    calls = folded(seen(wrun(summary=SUMMARY | {"train/global_step": 5000.0})), grew([2.0] * 50, every=4.0))
    progress = calls.runs["llm"].progress
    assert (progress.step, progress.cadence_s, progress.step_time_s) == (5000, 4.0, None)


def test_a_log_that_counts_steps_wins_and_w_and_b_fills_in_what_it_does_not_say() -> None:
    state = folded(seen(wrun()))
    state = folded(NodeReading("n1", "prod", T + 1, chunk(LINE.format(98), t=T + 1)), state=state, now=T + 1)
    progress = state.runs["llm"].progress
    assert (progress.step, progress.loss, progress.grad_norm, progress.format) == (98, 2.0, 0.3, "megatron")
    assert "loss" not in progress.borrowed
    later = seen(wrun(step=115, at=T + 60, summary=SUMMARY | {"grad_norm": 0.4, "train/loss": 9.9}), at=T + 60)
    progress = folded(later, state=state, now=T + 60).runs["llm"].progress
    assert (progress.step, progress.loss, progress.grad_norm) == (98, 2.0, 0.4)


def test_a_log_that_fell_silent_gives_way_and_takes_back_when_it_steps_again() -> None:
    state = folded(NodeReading("n1", "prod", T, chunk(LINE.format(98))), seen(wrun()))
    later = seen(wrun(step=400, at=T + 700), at=T + 700)
    state = folded(later, state=state, now=T + 700)
    assert (state.runs["llm"].progress.step, state.runs["llm"].progress.format) == (400, "wandb")
    state = folded(NodeReading("n1", "prod", T + 705, chunk(LINE.format(401), t=T + 705)), state=state, now=T + 705)
    assert (state.runs["llm"].progress.step, state.runs["llm"].progress.format) == (401, "megatron")


def test_a_word_of_the_log_without_a_step_does_not_stop_w_and_bs_count() -> None:
    state = folded(seen(wrun()), NodeReading("n1", "prod", T, chunk("***** Running Evaluation *****")))
    assert (state.runs["llm"].progress.doing, state.runs["llm"].progress.format) == ("eval", "wandb")
    state = folded(seen(wrun(step=110, at=T + 60), at=T + 60), state=state, now=T + 60)
    assert (state.runs["llm"].progress.doing, state.runs["llm"].progress.step) == ("train", 110)


def test_a_spike_is_reported_with_its_value_its_step_and_what_is_usual() -> None:
    usual = [2.2 + 0.1 * math.sin(i) for i in range(200)]
    state = folded(seen(wrun()), grew(usual))
    assert (wandb_of(state).loss_state, wandb_of(state).loss_why) == ("fine", "")
    spiky = [*usual[:10], 5.0, 9.12, 4.0, *usual[:10]]
    state = folded(grew(spiky, first=200, at=T + 60), state=state, now=T + 60)
    assert wandb_of(state).loss_state == "spike"
    assert wandb_of(state).loss_why == "spike: 9.12 at step 211, usually 2.1 to 2.3, and back since"
    assert wandb_of(folded(state=state, now=T + 9000)).loss_state == "spike"
    state = folded(grew(usual[:20], first=230, at=T + 120), state=state, now=T + 120)
    assert wandb_of(state).loss_state == "spike"
    assert wandb_of(folded(state=state, now=T + 660)).loss_state == "fine"


def test_a_loss_that_is_no_number_is_reported_with_its_first_step_until_it_is_one_again() -> None:
    state = folded(seen(wrun()), grew([2.0] * 50 + [math.nan] * 30))
    assert (wandb_of(state).loss_state, wandb_of(state).loss_why) == ("nan", "train/loss has been NaN since step 50")
    state = folded(grew([math.nan] * 30, first=80, at=T + 60), state=state, now=T + 60)
    assert wandb_of(state).loss_why == "train/loss has been NaN since step 50"
    state = folded(grew([2.0], first=110, at=T + 120), state=state, now=T + 120)
    assert wandb_of(state).loss_state == "fine"
    infinite = folded(seen(wrun(summary={"train/loss": math.inf})))
    assert wandb_of(infinite).loss_why == "train/loss has been infinite since step 100"
    well = folded(seen(wrun(step=101)), state=infinite)
    assert wandb_of(well).loss_state == "fine"
    assert wandb_of(folded(seen(), state=infinite)).loss_state == "fine", "no run of it is left"


def test_the_points_of_an_older_attempt_say_nothing_of_the_current_loss() -> None:
    state = folded(seen(wrun("b"), wrun("a", "crashed")), grew([math.nan] * 10))
    assert (wandb_of(state).loss_state, wandb_of(state).points, wandb_of(state).recent) == ("fine", 10, ())


def test_the_next_attempt_begins_with_a_clean_slate_and_knows_the_one_before() -> None:
    sample = Sample(key="val", kind="image", file="media/val_1.png")
    state = folded(seen(wrun(), samples=(sample,)), grew([2.0] * 50 + [math.nan]))
    state = folded(seen(wrun(state="crashed", step=50), at=T + 60), state=state, now=T + 60)
    assert wandb_of(state).loss_state == "nan"
    again = wrun("b", step=10, at=T + 900, created_at=T + 890)
    state = folded(seen(again, wrun(state="crashed"), at=T + 900), state=state, now=T + 900)
    wandb = wandb_of(state)
    assert (wandb.loss_state, wandb.recent, wandb.samples) == ("fine", (), ())
    assert wandb.before is not None
    assert wandb.before.id == "a"
    assert (state.runs["llm"].progress.step, state.runs["llm"].progress.at) == (10, T + 900)


def test_a_nan_of_the_attempt_before_is_not_that_of_the_next() -> None:
    state = folded(seen(wrun(summary={"train/loss": math.nan})))
    assert state.runs["llm"].verdict == "diverged"
    again = wrun("b", step=None, at=T + 900, created_at=T + 890, summary={})
    state = folded(seen(again, wrun(state="crashed"), at=T + 900), state=state, now=T + 900)
    run = state.runs["llm"]
    assert (run.progress.loss, run.progress.borrowed, run.verdict) == (None, (), "starting")


def test_a_sample_that_was_fetched_stays_fetched_until_a_newer_one_comes() -> None:
    sample = Sample(key="val", kind="image", file="media/val_1.png")
    state = folded(seen(wrun(), samples=(sample,)), SampleFetched("llm", "media/val_1.png", "/home/val_1.png"))
    assert wandb_of(state).samples[0].kept == "/home/val_1.png"
    state = folded(seen(wrun(), samples=(sample,)), state=state)
    assert wandb_of(state).samples[0].kept == "/home/val_1.png"
    newer = replace(sample, file="media/val_2.png")
    state = folded(seen(wrun(), samples=(newer,)), state=state)
    assert (wandb_of(state).samples[0].file, wandb_of(state).samples[0].kept) == ("media/val_2.png", None)


def test_console_lines_are_its_log_and_their_steps_its_progress() -> None:
    lines = chunk("start", LINE.format(98), LINE.format(99), path=None, id="whatever")
    state = folded(ConsoleRead("llm", T, lines))
    run: Run = state.runs["llm"]
    assert run.log is not None
    assert (run.log.host, len(run.log.lines), run.log.lines[0]) == ("wandb", 3, "start")
    assert (run.progress.step, run.progress.format) == (99, "megatron")
    assert folded(ConsoleRead("other", T, lines)).runs["llm"].log is None


def test_another_group_in_the_config_forgets_what_the_first_one_reported() -> None:
    state = folded(seen(wrun()))
    other = replace(SPEC, wandb=WandbSpec(project="t/p", group="h"))
    assert folded(RunsChanged((other,)), state=state).runs["llm"].wandb is None
    assert folded(RunsChanged((replace(SPEC, job="x"),)), state=state).runs["llm"].wandb is not None


def test_progress_of_another_run_of_the_state_is_not_touched() -> None:
    two = reduce(State(), [RunsChanged((SPEC, replace(SPEC, name="other")))], T)
    assert folded(seen(wrun()), state=two).runs["other"].progress == Progress()
