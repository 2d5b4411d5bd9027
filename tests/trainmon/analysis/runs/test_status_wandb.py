"""The verdict by W&B's own word, where no log can be read."""

from __future__ import annotations

from msgspec.structs import replace

from tests.trainmon.analysis.runs.judged import judge
from tests.trainmon.analysis.runs.wandb_runs import (
    BARE,
    BUSY,
    EMPTY,
    GROUP,
    NAN,
    NOW,
    SPEC,
    SPIKE,
    SPINS,
    bare,
    context,
    logged,
    source,
    summarized,
    with_job,
    wrun,
)
from tests.trainmon.ledger.records import record
from trainmon.analysis.runs import stopped_by
from trainmon.analysis.runs.context import RunContext
from trainmon.model import Log, Progress, Run, Switch


def test_without_a_log_w_and_bs_own_steps_decide() -> None:
    assert judge(bare(summarized(wrun())), context(), NOW) == (
        "healthy",
        "W&B shows step 12,880, 40s ago, usually every 4.1s",
    )
    verdict, why = judge(bare(summarized(wrun(), stepped=NOW - 1000)), context(), NOW)
    assert (verdict, why) == (
        "stalled",
        "W&B shows no step for 17m, usually every 4.1s, the last was 12,880; W&B received its heartbeat 20s ago",
    )
    assert judge(bare(summarized(wrun(), stepped=NOW - 1000)), context(SPINS), NOW).verdict == "hung"
    assert judge(bare(summarized(wrun(), stepped=NOW - 1000)), context(EMPTY), NOW).verdict == "dead"


def test_a_log_that_cannot_be_read_now_leaves_w_and_b_to_decide() -> None:
    lost = replace(logged(summarized(wrun()), quiet=3600), log=Log(host="login", path="/l", error="permission denied"))
    assert judge(lost, context(), NOW).why == "W&B shows step 12,880, 40s ago"
    assert judge(replace(lost, wandb=None, spec=replace(SPEC, wandb=None)), context(), NOW).why == "permission denied"


def test_a_run_without_a_step_is_starting_until_that_takes_too_long() -> None:
    young = summarized(wrun(step=None, created_at=NOW - 120), stepped=None)
    assert judge(bare(young), context(), NOW) == ("starting", "llm-r1 has been up for 2m in W&B, no step yet")
    old = summarized(wrun(step=None, created_at=NOW - 1200), stepped=None)
    assert judge(bare(old), context(), NOW).verdict == "stalled"


def test_a_nan_or_a_spike_is_reported_without_a_log_too() -> None:
    nan = summarized(wrun(), trouble=NAN)
    assert judge(bare(nan), context(), NOW).verdict == "diverged"
    spike = summarized(wrun(), trouble=SPIKE)
    assert judge(bare(spike), context(), NOW).why.endswith("; spike: 9.1 at step 12,870, usually 2.1 to 2.4")


def test_a_crash_and_a_failure_are_dead_and_say_that_the_restart_is_waited_for() -> None:
    crashed = judge(bare(summarized(wrun("crashed", NOW - 320))), context(), NOW)
    assert crashed == ("dead", "W&B reports that llm-r1 crashed at step 12,880; waiting for the next W&B run")
    own = wrun("crashed", NOW - 320, step=128, summary={"train/global_step": 12_800.0})
    assert "llm-r1 crashed at step 12,800; " in judge(bare(summarized(own)), context(), NOW).why, (
        "not the number of rows"
    )
    late = judge(bare(summarized(wrun("failed", NOW - 3600))), context(), NOW)
    assert late == ("dead", "W&B reports that llm-r1 failed at step 12,880; no new run has started for 1h")
    busy = judge(bare(summarized(wrun("crashed", NOW - 320))), context(BUSY), NOW)
    assert busy.verdict == "stalled"


def test_running_without_a_heartbeat_is_not_believed_and_not_dead() -> None:
    verdict, why = judge(bare(summarized(wrun(beat=NOW - 660))), context(), NOW)
    assert verdict == "stalled"
    assert "llm-r1 is running according to W&B, but sends no heartbeat, last at step 12,880" in why


def test_a_job_that_runs_is_given_the_time_in_which_w_and_b_is_initialised() -> None:
    crashed = replace(bare(summarized(wrun("crashed", NOW - 400))), jobs=("prod/88",))
    verdict, why = judge(crashed, with_job(), NOW)
    assert verdict == "starting"
    assert why.startswith("job 88 has been up for 60s, but W&B has no run of it yet; W&B reports that llm-r1 crashed")
    verdict, why = judge(crashed, with_job(started=NOW - 9000), NOW)
    assert (verdict, why) == (
        "unknown",
        "job 88 is RUNNING, and W&B reports that llm-r1 crashed at step 12,880",
    )


def test_finished_is_weighed_against_the_target() -> None:
    done = bare(summarized(wrun("finished", NOW - 400)))
    assert judge(done, context(), NOW).verdict == "finished"
    early = replace(done, spec=replace(BARE, target_step=20_000))
    assert judge(early, context(), NOW) == (
        "dead",
        "W&B reports that llm-r1 finished at step 12,880 of 20,000: not finished",
    )


def test_a_kill_switch_that_it_never_read_did_not_end_it() -> None:
    ended = summarized(wrun("failed", NOW - 60), active=())
    kill = Switch(path="/k", exists=True, armed_at=NOW - 9_000, by="ann")
    ignored = replace(bare(ended, kill=kill), progress=Progress(step=12_880, at=NOW - 60))
    assert stopped_by(ignored, {}, NOW) is None
    obeyed = replace(ignored, kill=replace(kill, armed_at=NOW - 900))
    assert stopped_by(obeyed, {}, NOW) == "the kill switch has been armed for 15m by ann"


def test_a_run_under_an_armed_kill_switch_was_stopped() -> None:
    ended = summarized(wrun("failed", NOW - 30), phase="ended")
    armed = bare(ended, kill=Switch(path="/k", exists=True, armed_at=NOW - 120, by="ann"))
    assert judge(armed, context(), NOW) == (
        "stopped",
        "the kill switch has been armed for 2m by ann; W&B reports that llm-r1 failed at step 12,880",
    )
    still = replace(armed, wandb=summarized(wrun()))
    assert judge(still, context(), NOW).why.endswith("; kill switch armed for 2m by ann")


def test_a_run_that_had_finished_is_not_called_stopped_when_its_end_is_untidy() -> None:
    done = replace(bare(summarized(wrun("crashed", NOW - 30), phase="ended")), verdict="finished")
    assert judge(done, context(), NOW) == (
        "finished",
        "it had finished; W&B reports that llm-r1 crashed at step 12,880",
    )
    stopped = replace(done, verdict="stopped")
    assert judge(stopped, context(), NOW).why.startswith("a person ended it; ")


def test_a_run_that_a_user_ended_was_stopped_and_says_by_whom() -> None:
    kill = record(status="done", done_at=NOW - 60)
    kill = replace(kill, action=replace(kill.action, verb="kill", run="llm", title="Arm the kill switch of llm"))
    scene = context()._replace(actions={"a1": kill})
    ended = summarized(wrun("failed", NOW - 30), phase="ended")
    words = "ana requested it: Arm the kill switch of llm; W&B reports that llm-r1 failed at step 12,880"
    assert judge(bare(ended), scene, NOW) == ("stopped", words)
    assert judge(logged(ended, quiet=40), scene, NOW) == ("stopped", words)
    assert stopped_by(bare(summarized(wrun("failed", NOW + 2000))), scene.actions, NOW) is None
    assert stopped_by(bare(summarized(wrun("failed", NOW - 2000))), scene.actions, NOW) is None


def test_a_network_failure_of_ours_is_unknown_and_never_a_crash() -> None:
    scene = RunContext({}, {"wandb:llm": source("down", 1200)})
    for wandb in (summarized(wrun(), at=NOW - 1200), summarized(wrun("crashed", NOW - 3000)), None):
        assert judge(bare(wandb), scene, NOW) == (
            "unknown",
            "no log is configured for it; no data from W&B for 20m",
        )
    assert judge(bare(None), RunContext(), NOW).why == "no log is configured for it; no data from W&B yet"


def test_a_project_without_a_matching_run_is_unknown_and_says_what_was_looked_for() -> None:
    assert judge(bare(summarized()), context(), NOW) == (
        "unknown",
        "no log is configured for it; W&B has no run that matches t/p, group g",
    )


def test_a_console_log_is_read_from_w_and_b_and_blind_with_it() -> None:
    console = replace(BARE, wandb=replace(GROUP, console=True))
    steps = Progress(step=12_880, at=NOW - 6, format="megatron")
    run = Run(spec=console, progress=steps, log=Log(host="wandb", at=NOW - 6), wandb=summarized(wrun()))
    assert judge(run, context(), NOW) == ("healthy", "step 12,880, 6s ago")
    down = RunContext({}, {"wandb:llm": source("down", 1200)})
    assert judge(run, down, NOW) == (
        "unknown",
        "no data for 20m from W&B, which has its log",
    )
    unread = replace(run, log=None)
    assert judge(unread, context(), NOW).why == "W&B shows step 12,880, 40s ago"
