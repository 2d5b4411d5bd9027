"""A run and its jobs: what it is doing, what it waits for, how it ended, and who ended it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.runs.judged import judge
from trainmon.analysis.runs.context import RunContext
from trainmon.model import (
    Action,
    Checkpoint,
    Checkpoints,
    Execute,
    Gpu,
    Job,
    Log,
    Node,
    Process,
    Progress,
    Record,
    Run,
    RunSpec,
    Source,
    Switch,
)

NOW = 100_000.0
SPEC = RunSpec(name="llm", cluster="prod", log="/fsx/llm.out", target_step=20_000, stall_after=900, nodes=("n1",))
PROGRESS = Progress(step=12_880, loss=1.87, at=NOW - 6, cadence_s=4.0, step_time_s=4.0)
SLURM = {"slurm:prod": Source(name="slurm:prod", kind="slurm", cluster="prod", health="ok", answered_at=NOW)}


def run(*jobs: str, progress: Progress = PROGRESS, **changes: Any) -> Run:
    log = Log(host="login", path="/fsx/llm.out", at=NOW - 6)
    return Run(**{"spec": SPEC, "progress": progress, "log": log, "jobs": jobs} | changes)


def job(number: int = 88, **changes: Any) -> Job:
    usual = {"cluster": "prod", "id": str(number), "number": number, "name": "llm", "user": "ana", "state": "RUNNING"}
    return Job(**usual | {"started_at": NOW - 7200} | changes)


def ended(state: str = "FAILED", **changes: Any) -> Job:
    return job(**{"state": state, "ends_at": NOW - 720, "exit_code": "1:0"} | changes)


def seen(*jobs: Job, **more: Any) -> RunContext:
    return RunContext(**{"sources": SLURM, "jobs": {job.key: job for job in jobs}} | more)


LAST = replace(PROGRESS, at=NOW - 730)


def judged(
    *jobs: Job, progress: Progress = LAST, scene: dict[str, Any] | None = None, **changes: Any
) -> tuple[str, str]:
    own = tuple(job.key for job in jobs)
    return tuple(judge(run(*own, progress=progress, **changes), seen(*jobs, **scene or {}), NOW))  # type: ignore[return-value]


def test_a_job_that_runs_and_steps_is_healthy() -> None:
    assert judged(job(), progress=PROGRESS) == ("healthy", "step 12,880, 6s ago, usually every 4s")


def test_a_new_attempt_is_starting_until_its_first_step_and_then_stalled() -> None:
    assert judged(job(started_at=NOW - 120, restarts=1)) == (
        "starting", "job 88 has been up for 2m, restart 1, no step yet",
    )  # fmt: skip
    old = replace(PROGRESS, at=NOW - 3000)
    assert judged(job(started_at=NOW - 1200), progress=old) == (
        "stalled", "job 88 has been up for 20m, and no step was logged",
    )  # fmt: skip


def test_a_failed_job_with_nothing_behind_it_is_dead() -> None:
    assert judged(ended()) == ("dead", "job 88: exited with code 1, 12m ago, at step 12,880")


def test_a_failed_job_with_another_behind_it_is_queued_and_says_how_the_last_ended() -> None:
    nxt = job(89, state="PENDING", reason="Resources", started_at=None)
    assert judged(nxt, ended()) == (
        "queued", "job 89 is pending: no free nodes; before it, job 88: exited with code 1, 12m ago",
    )  # fmt: skip


def test_a_requeued_job_says_when_it_starts() -> None:
    again = job(state="PENDING", reason="BeginTime", starts_at=NOW + 119, started_at=None)
    assert judged(again) == ("queued", "job 88 is pending: starts in 2m")


def test_completed_below_the_target_is_not_finished() -> None:
    assert judged(ended("COMPLETED", exit_code="0:0")) == (
        "dead", "job 88: exited with code 0, 12m ago, at step 12,880 of 20,000: not finished",
    )  # fmt: skip


def test_completed_without_a_known_target_is_not_called_finished_either() -> None:
    spec = replace(SPEC, target_step=None)
    verdict, why = judged(ended("COMPLETED", exit_code="0:0"), spec=spec)
    assert verdict == "unknown"
    assert why.endswith("no target step is known")


def test_the_target_reached_is_finished_only_if_the_job_completed() -> None:
    done = replace(LAST, step=20_000)
    assert judged(ended("COMPLETED", exit_code="0:0"), progress=done) == ("finished", "reached step 20,000 of 20,000")
    verdict, why = judged(ended(), progress=done)
    assert (verdict, why) == ("dead", "job 88: exited with code 1, 12m ago, at step 20,000, its target")
    for state in ("TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"):
        assert judged(ended(state), progress=done)[0] == "dead"
    vanished = job(gone_at=NOW - 720)
    assert judged(vanished, progress=done)[0] == "unknown", "how it ended is not known"
    log = Log(host="login", path="/fsx/llm.out", at=NOW - 730, lines=("Training completed.",))
    assert judged(vanished, progress=done, log=log)[0] == "finished"


def test_a_run_at_its_target_keeps_its_verdict_while_its_job_runs() -> None:
    done = replace(PROGRESS, step=20_000)
    assert judged(job(), progress=done) == (
        "healthy", "step 20,000, 6s ago, usually every 4s; target reached, job still runs",
    )  # fmt: skip
    silent = replace(done, at=NOW - 890)
    assert judged(job(), progress=silent)[0] == "healthy", "an evaluation or a save may follow, for stall_after"
    assert judged(job(), progress=replace(done, at=NOW - 910))[0] == "stalled"


def test_a_cancelled_job_was_stopped_and_says_by_whom() -> None:
    assert judged(ended("CANCELLED", cancelled_by="ben")) == (
        "stopped", "cancelled by ben; job 88: cancelled by ben, 12m ago, at step 12,880",
    )  # fmt: skip
    assert judged(ended("CANCELLED"))[0] == "stopped"


def test_an_armed_kill_switch_at_the_end_was_a_person() -> None:
    kill = Switch(path="/k", exists=True, armed_at=NOW - 900, by="ann")
    verdict, why = judged(ended("COMPLETED", exit_code="0:0"), kill=kill)
    assert (verdict, why.partition(";")[0]) == ("stopped", "the kill switch has been armed for 15m by ann")


def test_a_kill_switch_that_somebody_armed_after_the_end_has_not_caused_it() -> None:
    failed = ended("FAILED", exit_code="1:0")
    assert failed.ends_at is not None
    for late, verdict in ((-30.0, "stopped"), (1.0, "stopped"), (10.0, "dead")):
        kill = Switch(path="/k", exists=True, armed_at=failed.ends_at + late, by="ann")
        assert judged(failed, kill=kill)[0] == verdict


def test_an_action_of_ours_at_the_end_explains_it() -> None:
    action = Action(
        id="a",
        verb="cancel",
        subject="prod/88",
        cluster="prod",
        host="login1",
        operation=Execute(("scancel", "88")),
        title="Cancel job 88 of llm",
        run="llm",
        job="prod/88",
        who="ana",
    )
    record = Record(action=action, status="done", done_at=NOW - 730)
    verdict, why = judged(ended("FAILED"), scene={"actions": {"a": record}})
    assert verdict == "stopped"
    assert why.startswith("ana requested it: Cancel job 88 of llm; ")
    earlier = replace(record, done_at=NOW - 7200)
    assert judged(ended("FAILED"), scene={"actions": {"a": earlier}})[0] == "dead"


def test_a_job_that_is_gone_without_an_end_is_dead_and_says_that_nobody_knows() -> None:
    assert judged(job(gone_at=NOW - 60)) == (
        "dead", "job 88 is gone from the queue, at step 12,880; how it ended is not known",
    )  # fmt: skip


def test_processes_that_outlive_the_job_are_no_death() -> None:
    gpu = Gpu(index=0, processes=(Process(pid=7, user="ana"), Process(pid=8, user="root")))
    nodes = {"n1": Node(name="n1", cluster="prod", gpus=(gpu,))}
    verdict, why = judged(ended(), scene={"nodes": nodes})
    assert verdict == "unknown"
    assert why.endswith("but 1 process of ana holds memory on its GPUs")
    taken = job(95, name="other", nodes=("n1",))
    jobs = {one.key: one for one in (ended(), taken)}
    assert judge(run("prod/88", progress=LAST), seen(nodes=nodes, jobs=jobs), NOW).verdict == "dead"


@pytest.mark.parametrize("health", ["down", "off"])
def test_a_controller_that_does_not_answer_makes_nothing_dead(health: str) -> None:
    silent = {"slurm:prod": replace(SLURM["slurm:prod"], health=health)}
    assert judged(ended(), progress=PROGRESS, scene={"sources": silent})[0] == "healthy"
    assert judged(job(gone_at=NOW), progress=PROGRESS, scene={"sources": silent})[0] == "healthy"


def test_steps_after_the_end_of_the_job_say_that_something_else_trains_it() -> None:
    assert judged(ended(), progress=PROGRESS)[0] == "healthy"


def test_a_suspended_job_is_stalled() -> None:
    assert judged(job(state="SUSPENDED"), progress=PROGRESS) == ("stalled", "job 88 is suspended")


def test_a_job_that_ends_before_it_can_save_says_so() -> None:
    saves = Checkpoints(path="/c", host="login", listed_at=NOW, save_s=90.0)
    short = job(ends_at=NOW + 150)
    verdict, why = judged(short, progress=PROGRESS, checkpoints=saves)
    assert verdict == "healthy"
    assert why.endswith("; its job ends in 2m, but saving once more may need 3m")
    assert "its job ends" not in judged(job(ends_at=NOW + 3600), progress=PROGRESS, checkpoints=saves)[1]


def test_a_checkpoint_that_is_written_is_a_save_even_when_the_log_says_nothing() -> None:
    writing = Checkpoint(step=12_900, state="writing", path="/c/12900", layout="dcp", at=NOW - 5, began_at=NOW - 1000)
    saves = Checkpoints(path="/c", host="login", listed_at=NOW, save_s=900.0, list=(writing,))
    quiet = replace(PROGRESS, at=NOW - 1010)
    assert judged(job(), progress=quiet, checkpoints=saves) == (
        "saving", "writing a checkpoint for 17m, after step 12,880 (usually 15m)",
    )  # fmt: skip
    stale = replace(saves, list=(replace(writing, at=NOW - 1000),))
    assert judged(job(), progress=quiet, checkpoints=stale)[0] == "stalled"


def test_empty_gpus_and_no_step_are_dead_without_a_scheduler() -> None:
    gpus = tuple(Gpu(index=i, utilization_pct=0, memory_used_mib=4) for i in range(8))
    nodes = {"n1": Node(name="n1", cluster="prod", gpus=gpus)}
    sources = {"node:n1": Source(name="node:n1", kind="node", cluster="prod", health="ok", answered_at=NOW)}
    silent = run(progress=replace(PROGRESS, at=NOW - 3600))
    assert judge(silent, RunContext(nodes, sources), NOW).verdict == "dead"
    held = replace(gpus[0], processes=(Process(pid=7),))
    busy = {"n1": replace(nodes["n1"], gpus=(held, *gpus[1:]))}
    assert judge(silent, RunContext(busy, sources), NOW).verdict == "data-stall"


def test_iterations_that_are_all_skipped_are_diverged() -> None:
    skipping = replace(PROGRESS, skipping_since=NOW - 120)
    assert judged(job(), progress=skipping) == (
        "diverged", "no loss: every iteration has been skipped for 2m, step 12,880",
    )  # fmt: skip
    assert judged(job(), progress=replace(skipping, skipping_since=NOW - 30))[0] == "healthy"


def test_a_slow_evaluation_has_three_times_what_one_usually_takes() -> None:
    slow = replace(
        PROGRESS, at=NOW - 2000, doing="eval", doing_at=NOW - 1900, busy_since=NOW - 1900, evals=(1200.0, 1000.0)
    )
    assert judged(job(), progress=slow) == ("evaluating", "evaluating for 32m after step 12,880 (usually 18m)")
    assert judged(job(), progress=replace(slow, evals=(300.0,)))[0] == "stalled"


def test_a_kill_switch_under_which_a_run_went_on_for_long_did_not_end_it() -> None:
    kill = Switch(path="/k", exists=True, armed_at=NOW - 90_000, by="ann")
    assert judged(ended(), kill=kill)[0] == "dead"
    rare = Checkpoints(path="/fsx/ckpt", host="login", listed_at=NOW, every_s=86_400.0)
    assert judged(ended(), kill=kill, checkpoints=rare)[0] == "stopped", "it reads it when it saves"
    anew = ended(started_at=NOW - 900)
    assert judged(anew, kill=kill)[0] == "stopped", "each attempt ends soon after it begins"


WAITING = {"slurm:prod": Source(name="slurm:prod", kind="slurm", cluster="prod", health="late")}
DOWN = {"slurm:prod": replace(SLURM["slurm:prod"], health="down", answered_at=NOW - 1200)}


def test_a_run_whose_log_only_its_job_names_says_that_slurm_has_not_answered() -> None:
    found = run(spec=replace(SPEC, log=None), progress=Progress(), log=None)
    assert judge(found, seen(sources=WAITING), NOW) == (
        "unknown",
        "no data from Slurm yet: its jobs are not known, and no log is configured for it",
    )
    assert judge(found, seen(sources=DOWN), NOW).why.startswith("no data from Slurm for 20m: ")
    there_is_none = {"slurm:prod": replace(SLURM["slurm:prod"], health="off")}
    assert judge(found, seen(sources=there_is_none), NOW).why == "no log is configured for it"


def test_a_job_whose_details_are_not_known_yet_has_no_missing_log() -> None:
    known = run("prod/88", spec=replace(SPEC, log=None), progress=Progress(), log=None)
    assert judge(known, seen(job()), NOW) == ("unknown", "Slurm has not shown the log of job 88 yet")
    without = judge(known, seen(job(detail_at=NOW)), NOW)
    assert without.why == "no log is configured for it, and job 88 has none"


def test_a_log_without_a_step_starts_nothing_while_slurm_has_not_answered() -> None:
    fresh = run(progress=Progress(), log=Log(host="login", path="/fsx/llm.out", at=NOW - 60))
    assert judge(fresh, seen(sources=WAITING), NOW) == (
        "unknown", "its log shows no step yet; no data from Slurm yet: whether its job runs is not known",
    )  # fmt: skip
    assert judge(replace(fresh, jobs=("prod/88",)), seen(job(), sources=DOWN), NOW).verdict == "unknown"
    assert judge(fresh, seen(ended("COMPLETED")), NOW).verdict == "starting", "no job of it is known"


def test_steps_are_healthy_while_slurm_does_not_answer_and_the_reason_names_it() -> None:
    usual = "step 12,880, 6s ago, usually every 4s"
    assert judge(run(), seen(sources=WAITING), NOW) == ("healthy", f"{usual}; no data from Slurm yet")
    assert judge(run(), seen(sources=DOWN), NOW) == ("healthy", f"{usual}; no data from Slurm for 20m")
