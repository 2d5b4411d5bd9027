"""What W&B says for or against a verdict, and the verdict where no log can be read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.ledger.records import record
from trainmon.model import Gpu, Log, Node, Progress, Run, RunSpec, Source, Switch
from trainmon.model_jobs import Job
from trainmon.model_wandb import Wandb, WandbRun, WandbSpec
from trainmon.scene import Scene
from trainmon.verdicts import judge
from trainmon.wandb_group import read
from trainmon.wandb_witness import stopped_by

NOW = 100_000.0
GROUP = WandbSpec(project="t/p", group="g")
SPEC = RunSpec(name="llm", cluster="prod", log="/fsx/llm.out", stall_after=900, nodes=("n1",), wandb=GROUP)
BARE = replace(SPEC, log=None)
BUSY = {"n1": Node(name="n1", cluster="prod", gpus=(Gpu(index=0, utilization_pct=98, power_w=650, power_limit_w=700),))}
SPINS = {
    "n1": Node(name="n1", cluster="prod", gpus=(Gpu(index=0, utilization_pct=100, power_w=140, power_limit_w=700),))
}
EMPTY = {"n1": Node(name="n1", cluster="prod", gpus=(Gpu(index=0, utilization_pct=0, memory_used_mib=4),))}


def wrun(state: str = "running", beat: float = NOW - 20, **more: Any) -> WandbRun:
    said: dict[str, Any] = {"id": "a1", "name": "llm-r1", "created_at": NOW - 7200, "step": 12_880}
    return WandbRun(entity="t", project="p", state=state, heartbeat_at=beat, **(said | more))


def told(*runs: WandbRun, stepped: float | None = NOW - 40, at: float = NOW, **more: Any) -> Wandb:
    return Wandb(**(
        {"looked_at": at, "runs": runs, "stepped_at": stepped} | read(GROUP, runs, None, at, False)._asdict() | more
    ))  # fmt: skip


def logged(wandb: Wandb, quiet: float = 6.0, spec: RunSpec = SPEC, **progress: Any) -> Run:
    steps = Progress(**({"step": 12_880, "loss": 1.9, "at": NOW - quiet, "cadence_s": 4.1, "format": "x"} | progress))
    return Run(spec=spec, progress=steps, log=Log(host="login", path="/fsx/llm.out", at=NOW - quiet), wandb=wandb)


def bare(wandb: Wandb | None, spec: RunSpec = BARE, **more: Any) -> Run:
    return Run(spec=spec, wandb=wandb, progress=Progress(step=12_880, format="wandb", cadence_s=4.1), **more)


def source(health: Any = "ok", ago: float = 5) -> Source:
    return Source(name="wandb:llm", kind="wandb", cluster="prod", health=health, period=60, seen_at=NOW - ago)


def heard(nodes: Mapping[str, Node] | None = None) -> Scene:
    return Scene(nodes or {}, {"wandb:llm": source()})


def with_job(state: str = "RUNNING", started: float = NOW - 60, **more: Any) -> Scene:
    job = Job(cluster="prod", id="88", number=88, name="llm", state=state, started_at=started, **more)
    slurm = Source(name="slurm:prod", kind="slurm", cluster="prod", health="ok", seen_at=NOW)
    return Scene({}, {"wandb:llm": source(), "slurm:prod": slurm}, {"prod/88": job})


# ---- beside a log --------------------------------------------------------------------------------------------------


def test_a_run_that_w_and_b_hears_too_is_simply_healthy() -> None:
    assert judge(logged(told(wrun())), heard(), NOW) == ("healthy", "step 12,880 6s ago, usually every 4.1s")


@pytest.mark.parametrize("state", ["crashed", "killed", "failed", "running"])
def test_a_lost_heartbeat_while_the_log_steps_is_no_crash(state: str) -> None:
    verdict, why = judge(logged(told(wrun(state, NOW - 660))), heard(), NOW)
    assert verdict == "healthy"
    assert "; W&B heartbeat lost (llm-r1 " in why
    assert why.endswith("), training goes on")


def test_a_crash_that_the_log_has_not_outlived_is_told_and_not_believed_yet() -> None:
    verdict, why = judge(logged(told(wrun("crashed", NOW - 400)), quiet=400), heard(), NOW)
    assert verdict == "healthy"
    assert why.endswith(
        "; W&B: waiting for the restart: llm-r1 (a1) crashed at step 12,880, the next is expected within 15m"
    )


def test_a_crash_is_believed_once_the_log_is_silent_and_no_job_runs() -> None:
    crashed = logged(told(wrun("crashed", NOW - 1000)), quiet=1000)
    verdict, why = judge(crashed, heard(), NOW)
    assert verdict == "dead"
    assert why.startswith("W&B says that llm-r1 crashed at step 12,880; no step for 17m")
    assert judge(crashed, heard(BUSY), NOW).verdict == "stalled"
    assert judge(replace(crashed, jobs=("prod/88",)), with_job(started=NOW - 9000), NOW).verdict == "stalled"


def test_a_script_that_failed_is_dead_at_once_unless_its_log_its_job_or_its_gpus_go_on() -> None:
    failed = logged(told(wrun("failed", NOW - 30)), quiet=40)
    assert judge(failed, heard(), NOW) == (
        "dead",
        "W&B says that llm-r1 failed at step 12,880; step 12,880 40s ago, usually every 4.1s",
    )
    assert judge(failed, heard(BUSY), NOW).verdict == "healthy"
    assert judge(replace(failed, jobs=("prod/88",)), with_job(started=NOW - 9000), NOW).verdict == "healthy"
    assert judge(logged(told(wrun("failed", NOW - 300)), quiet=6), heard(), NOW).verdict == "healthy"


def test_a_run_that_finished_in_w_and_b_is_finished_as_its_target_says() -> None:
    done = logged(told(wrun("finished", NOW - 30)), quiet=40)
    assert judge(done, heard(), NOW).verdict == "finished"
    early = replace(done, spec=replace(SPEC, target_step=20_000))
    verdict, why = judge(early, heard(), NOW)
    assert (verdict, why.split(";")[0]) == (
        "dead",
        "W&B says that llm-r1 finished at step 12,880 of 20,000: not finished",
    )


def test_a_loss_that_is_no_number_in_w_and_b_alone_is_diverged_with_key_and_step() -> None:
    nan = told(wrun(), loss_state="nan", loss_why="train/loss is NaN since step 12,870")
    verdict, why = judge(logged(nan), heard(), NOW)
    assert verdict == "diverged"
    assert why.startswith("W&B: train/loss is NaN since step 12,870; step 12,880 6s ago")
    borrowed = logged(nan, loss=math.nan, borrowed=("loss",))
    assert judge(borrowed, heard(), NOW) == ("diverged", "W&B: train/loss is NaN since step 12,870")
    both = logged(nan, loss=math.nan)
    assert judge(both, heard(), NOW) == ("diverged", "the loss is NaN at step 12,880")
    gone = told(wrun("crashed"), loss_state="nan", loss_why="train/loss is NaN since step 12,870")
    assert judge(logged(gone), heard(), NOW).verdict == "healthy"


def test_a_spike_is_told_of_a_healthy_run() -> None:
    spike = told(wrun(), loss_state="spike", loss_why="spike: 9.1 at step 12,870, usually 2.1 to 2.4")
    verdict, why = judge(logged(spike), heard(), NOW)
    assert verdict == "healthy"
    assert why.endswith("; spike: 9.1 at step 12,870, usually 2.1 to 2.4")


def test_several_active_runs_are_named() -> None:
    both = told(wrun(id="b2", name="llm-r2"), wrun())
    verdict, why = judge(logged(both), heard(), NOW)
    assert verdict == "healthy"
    assert "; W&B: 2 runs are active where one is expected: llm-r2 (b2), llm-r1 (a1) (t/p, group g)" in why


def test_a_hang_with_a_heartbeat_says_so() -> None:
    verdict, why = judge(logged(told(wrun()), quiet=3600), heard(SPINS), NOW)
    assert verdict == "hung"
    assert why.endswith("; W&B still hears its heartbeat")


def test_while_w_and_b_does_not_answer_us_the_verdict_is_as_without_it() -> None:
    crashed = logged(told(wrun("crashed", NOW - 400)), quiet=400)
    for health in ("late", "down"):
        deaf = Scene({}, {"wandb:llm": source(health, 1200)})
        assert judge(crashed, deaf, NOW) == judge(replace(crashed, wandb=None), deaf, NOW)


def test_a_stopped_or_finished_run_is_not_argued_with() -> None:
    stopped = replace(logged(told(wrun("crashed", NOW - 3000)), quiet=3000), kill=Switch(path="/k", exists=True))
    assert judge(stopped, heard(), NOW).verdict == "stopped"
    done = logged(told(wrun("crashed", NOW - 3000)), quiet=3000, spec=replace(SPEC, target_step=12_880))
    assert judge(done, heard(), NOW) == ("finished", "reached step 12,880 of 12,880")


def test_a_dead_job_says_that_no_run_has_followed_in_w_and_b() -> None:
    gone = replace(logged(told(wrun("crashed", NOW - 3600)), quiet=3600), jobs=("prod/88",))
    scene = with_job("FAILED", NOW - 9000, ends_at=NOW - 3500, nodes=("n1",))
    verdict, why = judge(gone, scene, NOW)
    assert verdict == "dead"
    assert why.endswith("; W&B: llm-r1 (a1) crashed at step 12,880, and none has followed in 15m")


def test_steps_that_are_w_and_bs_because_the_log_shows_none_are_said_to_be() -> None:
    run = logged(told(wrun()), format="wandb")
    assert judge(run, heard(), NOW).why.endswith("; the steps are W&B's")
    lost = judge(logged(told(wrun("crashed", NOW - 400)), quiet=6, format="wandb"), heard(), NOW)
    assert lost.verdict == "healthy"
    assert lost.why.endswith("), its log still grows")


def test_steps_that_only_w_and_b_counts_do_not_stall_when_our_network_fails() -> None:
    run = logged(told(wrun()), quiet=1800, format="wandb")
    verdict, why = judge(run, Scene({}, {"wandb:llm": source("down", 1790)}), NOW)
    assert (verdict, why) == (
        "unknown",
        "W&B has not answered for 30m, and no log of it shows a step; the last was step 12,880",
    )


# ---- without a log -------------------------------------------------------------------------------------------------


def test_without_a_log_w_and_bs_own_steps_tell() -> None:
    assert judge(bare(told(wrun())), heard(), NOW) == (
        "healthy",
        "W&B says: step 12,880 40s ago, usually every 4.1s",
    )
    verdict, why = judge(bare(told(wrun(), stepped=NOW - 1000)), heard(), NOW)
    assert (verdict, why) == (
        "stalled",
        "W&B shows no step for 17m, usually every 4.1s, the last was 12,880; W&B still hears its heartbeat",
    )
    assert judge(bare(told(wrun(), stepped=NOW - 1000)), heard(SPINS), NOW).verdict == "hung"
    assert judge(bare(told(wrun(), stepped=NOW - 1000)), heard(EMPTY), NOW).verdict == "dead"


def test_a_log_that_cannot_be_read_now_leaves_w_and_b_to_tell() -> None:
    lost = replace(logged(told(wrun()), quiet=3600), log=Log(host="login", path="/l", error="permission denied"))
    assert judge(lost, heard(), NOW).why == "W&B says: step 12,880 40s ago"
    assert judge(replace(lost, wandb=None, spec=replace(SPEC, wandb=None)), heard(), NOW).why == "permission denied"


def test_a_run_without_a_step_is_starting_until_that_takes_too_long() -> None:
    young = told(wrun(step=None, created_at=NOW - 120), stepped=None)
    assert judge(bare(young), heard(), NOW) == ("starting", "llm-r1 is up for 2m in W&B, no step yet")
    old = told(wrun(step=None, created_at=NOW - 1200), stepped=None)
    assert judge(bare(old), heard(), NOW).verdict == "stalled"


def test_a_nan_or_a_spike_is_told_without_a_log_too() -> None:
    nan = told(wrun(), loss_state="nan", loss_why="loss is NaN since step 9")
    assert judge(bare(nan), heard(), NOW).verdict == "diverged"
    spike = told(wrun(), loss_state="spike", loss_why="spike: 9.1 at step 9")
    assert judge(bare(spike), heard(), NOW).why.endswith("; spike: 9.1 at step 9")


def test_a_crash_and_a_failure_are_dead_and_say_that_the_restart_is_waited_for() -> None:
    crashed = judge(bare(told(wrun("crashed", NOW - 320))), heard(), NOW)
    assert crashed == ("dead", "W&B says that llm-r1 crashed at step 12,880; waiting for the restart")
    late = judge(bare(told(wrun("failed", NOW - 3600))), heard(), NOW)
    assert late == ("dead", "W&B says that llm-r1 failed at step 12,880; none has followed in 60m")
    busy = judge(bare(told(wrun("crashed", NOW - 320))), heard(BUSY), NOW)
    assert busy.verdict == "stalled"


def test_running_without_a_heartbeat_is_not_believed_and_not_dead() -> None:
    verdict, why = judge(bare(told(wrun(beat=NOW - 660))), heard(), NOW)
    assert verdict == "stalled"
    assert "llm-r1 is running to W&B and sends no heartbeat, last at step 12,880" in why


def test_a_job_that_runs_is_given_the_time_in_which_w_and_b_is_initialised() -> None:
    crashed = replace(bare(told(wrun("crashed", NOW - 400))), jobs=("prod/88",))
    verdict, why = judge(crashed, with_job(), NOW)
    assert verdict == "starting"
    assert why.startswith("job 88 is up for 60s, W&B has no run of it yet; W&B says that llm-r1 crashed")
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


def test_a_run_under_an_armed_kill_switch_was_stopped() -> None:
    ended = told(wrun("failed", NOW - 30), phase="ended")
    armed = bare(ended, kill=Switch(path="/k", exists=True, armed_at=NOW - 120, by="ann"))
    assert judge(armed, heard(), NOW) == (
        "stopped",
        "the kill switch is armed since 2m by ann; W&B says that llm-r1 failed at step 12,880",
    )
    still = replace(armed, wandb=told(wrun()))
    assert judge(still, heard(), NOW).why.endswith("; kill switch armed since 2m by ann")


def test_a_run_that_we_were_asked_to_end_was_stopped_and_says_by_whom() -> None:
    kill = record(status="done", done_at=NOW - 60)
    kill = replace(kill, action=replace(kill.action, verb="kill", run="llm", title="Arm the kill switch of llm"))
    scene = heard()._replace(actions={"a1": kill})
    ended = told(wrun("failed", NOW - 30), phase="ended")
    words = "ana asked for it: Arm the kill switch of llm; W&B says that llm-r1 failed at step 12,880"
    assert judge(bare(ended), scene, NOW) == ("stopped", words)
    assert judge(logged(ended, quiet=40), scene, NOW) == ("stopped", words)
    assert stopped_by(bare(told(wrun("failed", NOW + 2000))), scene.actions, NOW) is None
    assert stopped_by(bare(told(wrun("failed", NOW - 2000))), scene.actions, NOW) is None


def test_a_network_failure_of_ours_is_unknown_and_never_a_crash() -> None:
    scene = Scene({}, {"wandb:llm": source("down", 1200)})
    for wandb in (told(wrun(), at=NOW - 1200), told(wrun("crashed", NOW - 3000)), None):
        assert judge(bare(wandb), scene, NOW) == (
            "unknown",
            "no log is configured for it; W&B has not answered for 20m",
        )
    assert judge(bare(None), Scene(), NOW).why == "no log is configured for it; W&B has not answered yet"


def test_a_project_without_a_matching_run_is_unknown_and_says_what_was_looked_for() -> None:
    assert judge(bare(told()), heard(), NOW) == (
        "unknown",
        "no log is configured for it; W&B has no run of t/p, group g",
    )


def test_a_console_log_is_read_from_w_and_b_and_blind_with_it() -> None:
    console = replace(BARE, wandb=replace(GROUP, console=True))
    steps = Progress(step=12_880, at=NOW - 6, format="megatron")
    run = Run(spec=console, progress=steps, log=Log(host="wandb", at=NOW - 6), wandb=told(wrun()))
    assert judge(run, heard(), NOW) == ("healthy", "step 12,880 6s ago")
    down = Scene({}, {"wandb:llm": source("down", 1200)})
    assert judge(run, down, NOW) == (
        "unknown",
        "W&B, where its log is read, has not answered for 20m",
    )
    unread = replace(run, log=None)
    assert judge(unread, heard(), NOW).why == "W&B says: step 12,880 40s ago"
