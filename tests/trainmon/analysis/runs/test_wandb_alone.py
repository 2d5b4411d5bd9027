"""The verdict by W&B's own word, where no log can be read."""

from __future__ import annotations

from msgspec.structs import replace

from tests.trainmon.analysis.runs.wandb_runs import (
    BARE,
    BUSY,
    EMPTY,
    GROUP,
    NOW,
    SPEC,
    SPINS,
    bare,
    heard,
    logged,
    source,
    told,
    with_job,
    wrun,
)
from tests.trainmon.ledger.records import record
from trainmon.analysis.runs.context import RunContext
from trainmon.analysis.runs.status import judge
from trainmon.analysis.runs.wandb_evidence import stopped_by
from trainmon.model import Log, Progress, Run, Switch


def test_without_a_log_w_and_bs_own_steps_decide() -> None:
    assert judge(bare(told(wrun())), heard(), NOW) == (
        "healthy",
        "W&B says: step 12,880 40s ago, usually every 4.1s",
    )
    verdict, why = judge(bare(told(wrun(), stepped=NOW - 1000)), heard(), NOW)
    assert (verdict, why) == (
        "stalled",
        "W&B shows no step for 17m, usually every 4.1s, the last was 12,880; W&B received its heartbeat 20s ago",
    )
    assert judge(bare(told(wrun(), stepped=NOW - 1000)), heard(SPINS), NOW).verdict == "hung"
    assert judge(bare(told(wrun(), stepped=NOW - 1000)), heard(EMPTY), NOW).verdict == "dead"


def test_a_log_that_cannot_be_read_now_leaves_w_and_b_to_decide() -> None:
    lost = replace(logged(told(wrun()), quiet=3600), log=Log(host="login", path="/l", error="permission denied"))
    assert judge(lost, heard(), NOW).why == "W&B says: step 12,880 40s ago"
    assert judge(replace(lost, wandb=None, spec=replace(SPEC, wandb=None)), heard(), NOW).why == "permission denied"


def test_a_run_without_a_step_is_starting_until_that_takes_too_long() -> None:
    young = told(wrun(step=None, created_at=NOW - 120), stepped=None)
    assert judge(bare(young), heard(), NOW) == ("starting", "llm-r1 has been up for 2m in W&B, no step yet")
    old = told(wrun(step=None, created_at=NOW - 1200), stepped=None)
    assert judge(bare(old), heard(), NOW).verdict == "stalled"


def test_a_nan_or_a_spike_is_reported_without_a_log_too() -> None:
    nan = told(wrun(), loss_state="nan", loss_why="loss has been NaN since step 9")
    assert judge(bare(nan), heard(), NOW).verdict == "diverged"
    spike = told(wrun(), loss_state="spike", loss_why="spike: 9.1 at step 9")
    assert judge(bare(spike), heard(), NOW).why.endswith("; spike: 9.1 at step 9")


def test_a_crash_and_a_failure_are_dead_and_say_that_the_restart_is_waited_for() -> None:
    crashed = judge(bare(told(wrun("crashed", NOW - 320))), heard(), NOW)
    assert crashed == ("dead", "W&B says that llm-r1 crashed at step 12,880; waiting for the restart")
    late = judge(bare(told(wrun("failed", NOW - 3600))), heard(), NOW)
    assert late == ("dead", "W&B says that llm-r1 failed at step 12,880; no new run has started for 60m")
    busy = judge(bare(told(wrun("crashed", NOW - 320))), heard(BUSY), NOW)
    assert busy.verdict == "stalled"


def test_running_without_a_heartbeat_is_not_believed_and_not_dead() -> None:
    verdict, why = judge(bare(told(wrun(beat=NOW - 660))), heard(), NOW)
    assert verdict == "stalled"
    assert "llm-r1 is running according to W&B, but sends no heartbeat, last at step 12,880" in why


def test_a_job_that_runs_is_given_the_time_in_which_w_and_b_is_initialised() -> None:
    crashed = replace(bare(told(wrun("crashed", NOW - 400))), jobs=("prod/88",))
    verdict, why = judge(crashed, with_job(), NOW)
    assert verdict == "starting"
    assert why.startswith("job 88 has been up for 60s, but W&B has no run of it yet; W&B says that llm-r1 crashed")
    verdict, why = judge(crashed, with_job(started=NOW - 9000), NOW)
    assert (verdict, why) == (
        "unknown",
        "job 88 is RUNNING, and W&B says that llm-r1 crashed at step 12,880",
    )


def test_finished_is_weighed_against_the_target() -> None:
    done = bare(told(wrun("finished", NOW - 400)))
    assert judge(done, heard(), NOW).verdict == "finished"
    early = replace(done, spec=replace(BARE, target_step=20_000))
    assert judge(early, heard(), NOW) == (
        "dead",
        "W&B says that llm-r1 finished at step 12,880 of 20,000: not finished",
    )


def test_a_kill_switch_that_it_never_read_did_not_end_it() -> None:
    ended = told(wrun("failed", NOW - 60), active=())
    kill = Switch(path="/k", exists=True, armed_at=NOW - 9_000, by="ann")
    ignored = replace(bare(ended, kill=kill), progress=Progress(step=12_880, at=NOW - 60))
    assert stopped_by(ignored, {}, NOW) is None
    obeyed = replace(ignored, kill=replace(kill, armed_at=NOW - 900))
    assert stopped_by(obeyed, {}, NOW) == "the kill switch has been armed for 15m by ann"


def test_a_run_under_an_armed_kill_switch_was_stopped() -> None:
    ended = told(wrun("failed", NOW - 30), phase="ended")
    armed = bare(ended, kill=Switch(path="/k", exists=True, armed_at=NOW - 120, by="ann"))
    assert judge(armed, heard(), NOW) == (
        "stopped",
        "the kill switch has been armed for 2m by ann; W&B says that llm-r1 failed at step 12,880",
    )
    still = replace(armed, wandb=told(wrun()))
    assert judge(still, heard(), NOW).why.endswith("; kill switch armed for 2m by ann")


def test_a_run_that_had_finished_is_not_called_stopped_when_its_end_is_untidy() -> None:
    done = replace(bare(told(wrun("crashed", NOW - 30), phase="ended")), verdict="finished")
    assert judge(done, heard(), NOW) == ("finished", "it had finished; W&B says that llm-r1 crashed at step 12,880")
    stopped = replace(done, verdict="stopped")
    assert judge(stopped, heard(), NOW).why.startswith("a person ended it; ")


def test_a_run_that_a_user_ended_was_stopped_and_says_by_whom() -> None:
    kill = record(status="done", done_at=NOW - 60)
    kill = replace(kill, action=replace(kill.action, verb="kill", run="llm", title="Arm the kill switch of llm"))
    scene = heard()._replace(actions={"a1": kill})
    ended = told(wrun("failed", NOW - 30), phase="ended")
    words = "ana requested it: Arm the kill switch of llm; W&B says that llm-r1 failed at step 12,880"
    assert judge(bare(ended), scene, NOW) == ("stopped", words)
    assert judge(logged(ended, quiet=40), scene, NOW) == ("stopped", words)
    assert stopped_by(bare(told(wrun("failed", NOW + 2000))), scene.actions, NOW) is None
    assert stopped_by(bare(told(wrun("failed", NOW - 2000))), scene.actions, NOW) is None


def test_a_network_failure_of_ours_is_unknown_and_never_a_crash() -> None:
    scene = RunContext({}, {"wandb:llm": source("down", 1200)})
    for wandb in (told(wrun(), at=NOW - 1200), told(wrun("crashed", NOW - 3000)), None):
        assert judge(bare(wandb), scene, NOW) == (
            "unknown",
            "no log is configured for it; W&B has not answered for 20m",
        )
    assert judge(bare(None), RunContext(), NOW).why == "no log is configured for it; W&B has not answered yet"


def test_a_project_without_a_matching_run_is_unknown_and_says_what_was_looked_for() -> None:
    assert judge(bare(told()), heard(), NOW) == (
        "unknown",
        "no log is configured for it; W&B has no run that matches t/p, group g",
    )


def test_a_console_log_is_read_from_w_and_b_and_blind_with_it() -> None:
    console = replace(BARE, wandb=replace(GROUP, console=True))
    steps = Progress(step=12_880, at=NOW - 6, format="megatron")
    run = Run(spec=console, progress=steps, log=Log(host="wandb", at=NOW - 6), wandb=told(wrun()))
    assert judge(run, heard(), NOW) == ("healthy", "step 12,880 6s ago")
    down = RunContext({}, {"wandb:llm": source("down", 1200)})
    assert judge(run, down, NOW) == (
        "unknown",
        "W&B, which has its log, has not answered for 20m",
    )
    unread = replace(run, log=None)
    assert judge(unread, heard(), NOW).why == "W&B says: step 12,880 40s ago"
