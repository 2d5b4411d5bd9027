"""What W&B says for or against the verdict of a run whose log is read."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.runs.judged import judge
from tests.trainmon.analysis.runs.wandb_runs import (
    BUSY,
    NAN,
    NOW,
    SPEC,
    SPIKE,
    SPINS,
    context,
    logged,
    source,
    summarized,
    with_job,
    wrun,
)
from trainmon.analysis.runs.context import RunContext
from trainmon.model import Switch


def test_a_run_that_w_and_b_receives_too_is_simply_healthy() -> None:
    assert judge(logged(summarized(wrun())), context(), NOW) == ("healthy", "step 12,880, 6s ago, usually every 4.1s")


@pytest.mark.parametrize("state", ["crashed", "killed", "failed", "running"])
def test_a_lost_heartbeat_while_the_log_steps_is_no_crash(state: str) -> None:
    verdict, why = judge(logged(summarized(wrun(state, NOW - 660))), context(), NOW)
    assert verdict == "healthy"
    assert "; W&B heartbeat lost (llm-r1 " in why
    assert why.endswith("), training goes on")


def test_a_crash_that_the_log_has_not_outlived_is_reported_and_not_believed_yet() -> None:
    verdict, why = judge(logged(summarized(wrun("crashed", NOW - 400)), quiet=400), context(), NOW)
    assert verdict == "healthy"
    assert why.endswith("; W&B: llm-r1 (a1) crashed at step 12,880; waiting up to 15m for the next W&B run")


def test_a_crash_is_believed_once_the_log_is_silent_and_no_job_runs() -> None:
    crashed = logged(summarized(wrun("crashed", NOW - 1000)), quiet=1000)
    verdict, why = judge(crashed, context(), NOW)
    assert verdict == "dead"
    assert why.startswith("W&B reports that llm-r1 crashed at step 12,880; no step for 17m")
    preempted = logged(summarized(wrun("preempted", NOW - 1000)), quiet=1000)
    assert judge(preempted, context(), NOW).verdict == verdict, "its attempt has ended, too"
    assert judge(crashed, context(BUSY), NOW).verdict == "stalled"
    assert judge(replace(crashed, jobs=("prod/88",)), with_job(started=NOW - 9000), NOW).verdict == "stalled"


def test_a_script_that_failed_is_dead_at_once_unless_its_log_its_job_or_its_gpus_go_on() -> None:
    failed = logged(summarized(wrun("failed", NOW - 30)), quiet=40)
    assert judge(failed, context(), NOW) == (
        "dead",
        "W&B reports that llm-r1 failed at step 12,880; step 12,880, 40s ago, usually every 4.1s",
    )
    assert judge(failed, context(BUSY), NOW).verdict == "healthy"
    assert judge(replace(failed, jobs=("prod/88",)), with_job(started=NOW - 9000), NOW).verdict == "healthy"
    assert judge(logged(summarized(wrun("failed", NOW - 300)), quiet=6), context(), NOW).verdict == "healthy"


def test_a_run_that_finished_in_w_and_b_is_finished_as_its_target_says() -> None:
    done = logged(summarized(wrun("finished", NOW - 30)), quiet=40)
    assert judge(done, context(), NOW).verdict == "finished"
    early = replace(done, spec=replace(SPEC, target_step=20_000))
    verdict, why = judge(early, context(), NOW)
    assert (verdict, why.split(";")[0]) == (
        "dead",
        "W&B reports that llm-r1 finished at step 12,880 of 20,000: not finished",
    )


def test_a_loss_that_is_no_number_in_w_and_b_alone_is_diverged_with_key_and_step() -> None:
    nan = summarized(wrun(), trouble=NAN)
    verdict, why = judge(logged(nan), context(), NOW)
    assert verdict == "diverged"
    assert why.startswith("W&B: train/loss has been NaN since step 12,870; step 12,880, 6s ago")
    borrowed = logged(nan, loss=math.nan, borrowed=("loss",))
    assert judge(borrowed, context(), NOW) == ("diverged", "W&B: train/loss has been NaN since step 12,870")
    both = logged(nan, loss=math.nan)
    assert judge(both, context(), NOW) == ("diverged", "the loss is NaN at step 12,880")
    gone = summarized(wrun("crashed"), trouble=NAN)
    assert judge(logged(gone), context(), NOW).verdict == "healthy"


def test_a_spike_is_reported_for_a_healthy_run() -> None:
    spike = summarized(wrun(), trouble=SPIKE)
    verdict, why = judge(logged(spike), context(), NOW)
    assert verdict == "healthy"
    assert why.endswith("; spike: 9.1 at step 12,870, usually 2.1 to 2.4")


def test_several_active_runs_are_named() -> None:
    both = summarized(wrun(id="b2", name="llm-r2"), wrun())
    verdict, why = judge(logged(both), context(), NOW)
    assert verdict == "healthy"
    assert "; W&B: 2 runs are active where one is expected: llm-r2 (b2), llm-r1 (a1), in t/p, group g" in why


def test_a_hang_with_a_heartbeat_says_so() -> None:
    verdict, why = judge(logged(summarized(wrun()), quiet=3600), context(SPINS), NOW)
    assert verdict == "hung"
    assert why.endswith("; W&B received its heartbeat 20s ago")


def test_while_w_and_b_does_not_answer_us_the_verdict_is_as_without_it() -> None:
    crashed = logged(summarized(wrun("crashed", NOW - 400)), quiet=400)
    for health in ("late", "down"):
        deaf = RunContext({}, {"wandb:llm": source(health, 1200)})
        assert judge(crashed, deaf, NOW) == judge(replace(crashed, wandb=None), deaf, NOW)


def test_a_stopped_or_finished_run_is_not_argued_with() -> None:
    stopped = replace(logged(summarized(wrun("crashed", NOW - 3000)), quiet=3000), kill=Switch(path="/k", exists=True))
    assert judge(stopped, context(), NOW).verdict == "stopped"
    done = logged(summarized(wrun("finished", NOW - 3000)), quiet=3000, spec=replace(SPEC, target_step=12_880))
    assert judge(done, context(), NOW) == (
        "finished", "reached step 12,880 of 12,880; W&B recorded exit code 0",
    )  # fmt: skip


@pytest.mark.parametrize(("state", "verdict"), [("crashed", "unknown"), ("failed", "dead")])
def test_a_target_reached_is_no_end_if_wandb_recorded_no_exit_code_0(state: str, verdict: str) -> None:
    done = logged(summarized(wrun(state, NOW - 3000)), quiet=3000, spec=replace(SPEC, target_step=12_880))
    assert judge(done, context(), NOW).verdict == verdict


def test_a_dead_job_says_that_no_run_has_followed_in_w_and_b() -> None:
    gone = replace(logged(summarized(wrun("crashed", NOW - 3600)), quiet=3600), jobs=("prod/88",))
    scene = with_job("FAILED", NOW - 9000, ends_at=NOW - 3500, nodes=("n1",))
    verdict, why = judge(gone, scene, NOW)
    assert verdict == "dead"
    assert why.endswith("; W&B: llm-r1 (a1) crashed at step 12,880, and no new run has started within 15m")


def test_steps_that_are_w_and_bs_because_the_log_shows_none_are_marked_as_such() -> None:
    run = logged(summarized(wrun()), format="wandb")
    assert judge(run, context(), NOW).why.endswith("; steps from W&B")
    lost = judge(logged(summarized(wrun("crashed", NOW - 400)), quiet=6, format="wandb"), context(), NOW)
    assert lost.verdict == "healthy"
    assert lost.why.endswith("), its log still grows")


def test_steps_that_only_w_and_b_counts_do_not_stall_when_our_network_fails() -> None:
    run = logged(summarized(wrun()), quiet=1800, format="wandb")
    verdict, why = judge(run, RunContext({}, {"wandb:llm": source("down", 1790)}), NOW)
    assert (verdict, why) == (
        "unknown",
        "no data from W&B for 30m, and its log shows no step; the last was step 12,880",
    )
