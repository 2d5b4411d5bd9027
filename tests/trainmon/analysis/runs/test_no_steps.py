"""A run whose steps stop: a hang, a pause, an end, or a log that only looks alive."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.runs.judged import judge
from trainmon.analysis.runs.context import RunContext
from trainmon.model import (
    Action,
    Attempt,
    AttemptEnd,
    Checkpoint,
    Checkpoints,
    Classification,
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
SPEC = RunSpec(
    name="llm", cluster="prod", job="llm", log="/fsx/llm.out", target_step=20_000, stall_after=900, nodes=("n1",)
)
PROGRESS = Progress(step=12_880, loss=1.87, at=NOW - 6, cadence_s=4.0, step_time_s=4.0)
SILENT = replace(PROGRESS, at=NOW - 3600)
SLURM = Source(name="slurm:prod", kind="slurm", cluster="prod", health="ok", answered_at=NOW)
ARMED = Switch(path="/k", exists=True, armed_at=NOW - 1800, by="ann")


def run(*jobs: Job, progress: Progress = SILENT, **changes: Any) -> Run:
    log = Log(host="login", path="/fsx/llm.out", at=NOW - 6, began_at=NOW - 9000)
    known = {"spec": SPEC, "progress": progress, "log": log, "jobs": tuple(job.key for job in jobs)}
    return Run(**known | changes)


def job(number: int = 88, **changes: Any) -> Job:
    usual = {"cluster": "prod", "id": str(number), "number": number, "name": "llm", "user": "ana", "state": "RUNNING"}
    return Job(**usual | {"started_at": NOW - 90_000, "nodes": ("n1",)} | changes)


def ended(state: str = "FAILED", number: int = 88, **changes: Any) -> Job:
    return job(number, **{"state": state, "ends_at": NOW - 720, "exit_code": "1:0"} | changes)


def gpus(
    utilization: int, power: float, *, read: float = NOW, first: int | None = None, **more: Any
) -> dict[str, Node]:
    loads = [utilization if first is None else first] + [utilization] * 7
    found = tuple(
        Gpu(index=i, utilization_pct=load, power_w=power, power_limit_w=700, **more) for i, load in enumerate(loads)
    )
    return {"n1": Node(name="n1", cluster="prod", gpus=found, gpus_at=read)}


def grown(ago: float, **changes: Any) -> Log:
    """Its log, which grew last so long ago."""
    return Log(**{"host": "login", "path": "/fsx/llm.out", "at": NOW - ago, "began_at": NOW - 9000} | changes)


HANG = gpus(100, 140, memory_used_mib=70_000)
EMPTY = gpus(0, 90, memory_used_mib=4)


def judged(a_run: Run, *jobs: Job, slurm: Source | None = SLURM, **more: Any) -> tuple[str, str]:
    sources = {} if slurm is None else {"slurm:prod": slurm}
    verdict, why = judge(a_run, RunContext(**{"sources": sources, "jobs": {one.key: one for one in jobs}} | more), NOW)
    return verdict, why


# ---- the switch is armed, and that is not why -----------------------------------------------------------------------


def test_a_run_that_hangs_does_not_become_stopped_by_an_armed_kill_switch() -> None:
    verdict, why = judged(run(job(), kill=ARMED), job(), nodes=HANG)
    assert verdict == "hung"
    assert why.endswith("; the kill switch (armed for 30m by ann) has not ended it")
    assert judged(run(job(), kill=ARMED), job())[0] == "stalled"
    assert judged(run(kill=ARMED), slurm=None, nodes=HANG)[0] == "hung"
    in_time = replace(ARMED, armed_at=NOW - 3500)
    assert judged(run(kill=in_time), slurm=None, nodes=HANG)[0] == "hung"
    assert judged(run(kill=in_time), slurm=None, nodes=EMPTY)[0] == "stopped"
    assert judged(run(job(), kill=in_time), job())[0] == "stalled", "its job still runs"


def test_a_kill_switch_that_was_armed_after_the_end_did_not_cause_it() -> None:
    late = replace(ARMED, armed_at=NOW - 300)
    dead = ended(ends_at=NOW - 7200)
    verdict, why = judged(run(dead, kill=late, progress=replace(PROGRESS, at=NOW - 7210)), dead)
    assert verdict == "dead"
    assert "exited with code 1" in why
    assert judged(run(ended(), kill=ARMED), ended())[0] == "stopped"


def record(verb: Any, job_key: str) -> Record:
    action = Action(
        id="a", verb=verb, subject="prod/89", cluster="prod", host="login1", operation=Execute(("x",)),
        title="Cancel job 89", run="llm", job=job_key, who="ana",
    )  # fmt: skip
    return Record(action=action, status="done", done_at=NOW - 900)


def test_cancelling_another_job_of_the_run_does_not_explain_a_failure() -> None:
    assert judged(run(ended()), ended(), actions={"a": record("cancel", "prod/89")})[0] == "dead"
    assert judged(run(ended()), ended(), actions={"a": record("cancel", "prod/88")})[0] == "stopped"
    assert judged(run(ended()), ended(), actions={"a": record("kill", "prod/87")})[0] == "stopped", (
        "kills whatever runs"
    )


def test_the_failure_before_a_job_that_was_cancelled_while_it_waited_is_reported() -> None:
    waited = ended("CANCELLED", 89, started_at=NOW - 60, ends_at=NOW - 60, nodes=(), cancelled_by="ana")
    assert judged(run(waited, ended()), waited, ended()) == (
        "stopped",
        "cancelled by ana; job 89: cancelled by ana, 1m ago; before it, job 88: exited with code 1, 12m ago, "
        "at step 12,880",
    )


# ---- what was read of the GPUs is no longer true --------------------------------------------------------------------


def test_gpus_that_are_not_read_any_more_are_no_witness() -> None:
    old = gpus(100, 140, read=NOW - 300)
    assert judged(run(job()), job(), nodes=old)[0] == "stalled"
    assert judged(run(job()), job(), nodes=gpus(0, 90, read=NOW - 300))[0] == "stalled"


def test_processes_seen_before_the_end_do_not_outlive_the_job() -> None:
    held = (Process(pid=7, user="ana"),)
    before = gpus(100, 140, read=NOW - 719, processes=held)
    assert judged(run(ended()), ended(), nodes=before)[0] == "dead"
    just = ended(ends_at=NOW - 5)
    assert judged(run(just), just, nodes=gpus(100, 140, processes=held))[0] == "dead", "a reading of before its end"
    assert judged(run(ended()), ended(), nodes=gpus(100, 140, processes=held))[0] == "unknown"


def test_nodes_that_do_not_answer_are_reported_and_empty_the_rest_is_no_death() -> None:
    two = run(job(), spec=replace(SPEC, nodes=("n1", "n2")))
    assert judged(two, job(), nodes=HANG)[1].endswith("; 1 of its 2 nodes are unreachable")
    assert judged(two, job(), nodes=EMPTY)[0] == "data-stall"


def test_a_rank_that_died_leaves_the_others_spinning() -> None:
    verdict, why = judged(run(job()), job(), nodes=gpus(100, 140, first=0))
    assert verdict == "hung"
    assert "7 of its 8 GPUs are 100% busy at 20% of their power limit" in why


# ---- the queue ------------------------------------------------------------------------------------------------------


def test_no_job_in_a_queue_that_answers_and_no_step_is_dead() -> None:
    verdict, why = judged(run())
    assert verdict == "dead"
    assert why.endswith("; Slurm lists no job llm")
    assert judged(run(spec=replace(SPEC, job=None)))[0] == "stalled", "it may be no job at all"
    assert judged(run(), nodes=HANG)[0] == "hung", "something holds its GPUs"


def test_a_silent_scheduler_makes_nobody_dead_whose_job_may_wait() -> None:
    late = replace(SLURM, health="late", answered_at=NOW - 1200)
    assert judged(run(job()), job(), slurm=late, nodes=EMPTY)[1].endswith("; job 88 was RUNNING 20m ago")
    down = replace(SLURM, health="down", answered_at=NOW - 1200)
    verdict, why = judged(run(job()), job(), slurm=down, nodes=EMPTY)
    assert verdict == "unknown"
    assert why.endswith("no process holds memory on its GPUs; no data from Slurm for 20m")
    assert judged(run(job()), job(), slurm=down)[0] == "stalled"


def test_two_jobs_of_one_run_at_once_are_reported() -> None:
    first, second = job(87), job(88, started_at=NOW - 80_000)
    verdict, why = judged(run(second, first, progress=PROGRESS), second, first)
    assert (verdict, why.rpartition("; ")[2]) == ("healthy", "job 87 of this run is running, too")


def test_times_of_a_cluster_whose_clock_is_ahead_are_put_right() -> None:
    ahead = {"login": Node(name="login", cluster="prod", clock_skew_s=600.0)}
    new = job(started_at=NOW + 300)
    assert judged(run(new, progress=PROGRESS), new, nodes=ahead)[0] == "healthy"
    gone = ended(ends_at=NOW + 590)
    assert judged(run(gone, progress=PROGRESS), gone, nodes=ahead)[1].startswith("job 88: exited with code 1")


# ---- the end, and the beginning -------------------------------------------------------------------------------------


def test_a_new_job_after_the_target_is_starting_and_one_that_does_not_end_is_reported() -> None:
    done = replace(PROGRESS, step=20_000, at=NOW - 7200)
    assert judged(run(job(started_at=NOW - 60), progress=done), job(started_at=NOW - 60))[0] == "starting"
    verdict, why = judged(run(job(), progress=done), job())
    assert (verdict, why.partition("; ")[2]) == ("stalled", "target reached, job still runs")
    completed, waits = ended("COMPLETED", exit_code="0:0"), job(89, state="PENDING", started_at=None)
    assert judged(run(waits, completed, progress=done), waits, completed) == (
        "finished", "reached step 20,000 of 20,000; job 89 is still pending",
    )  # fmt: skip


def test_a_target_reached_without_a_loss_is_not_finished() -> None:
    lost = replace(PROGRESS, step=20_000, loss=math.nan, at=NOW - 730)
    early = ended("COMPLETED", exit_code="0:0")
    assert judged(run(early, progress=lost), early) == (
        "diverged", "reached step 20,000 of 20,000, but the loss is NaN",
    )  # fmt: skip
    assert (
        "at step 12,880 with a NaN or infinite loss"
        in judged(run(early, progress=replace(SILENT, loss=math.nan)), early)[1]
    )


@pytest.mark.parametrize(("seen", "verdict"), [(HANG, "hung"), (gpus(0, 90), "data-stall"), (EMPTY, "stalled")])
def test_a_start_that_takes_too_long_is_weighed_by_its_gpus(seen: dict[str, Node], verdict: str) -> None:
    new = job(started_at=NOW - 1200)
    assert judged(run(new, progress=Progress(), log=grown(1000)), new, nodes=seen)[0] == verdict
    assert judged(run(new, progress=Progress(), log=grown(9000)), new, nodes=seen)[0] == verdict, "it is another's log"


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [({}, "idle"), (gpus(0, 90), "idle"), (EMPTY, "idle"), (gpus(60, 400), "stalled"), (HANG, "hung")],
)
def test_a_job_that_was_found_by_itself_and_shows_no_step_is_no_stalled_training(
    seen: dict[str, Node], verdict: str
) -> None:
    new = job(5, started_at=NOW - 960)
    found = replace(SPEC, found=True, target_step=None)
    judgement, why = judged(run(new, progress=Progress(), spec=found, log=grown(950)), new, nodes=seen)
    assert judgement == verdict
    growing = judged(run(new, progress=Progress(), spec=found), new, nodes=seen)[0]
    assert growing == ("idle" if verdict == "idle" else "unknown")
    if verdict == "idle":
        assert why == (
            "job 5 has been up for 16m and its log shows no known step line: "
            "not a training run, or an unknown log format"
        )
    assert judged(run(new, spec=found), new)[0] == "stalled", "an earlier start of it has shown steps"


def test_an_evaluation_before_the_first_step_is_one() -> None:
    new = job(started_at=NOW - 1200)
    sanity = replace(SILENT, doing="eval", doing_at=NOW - 30, busy_since=NOW - 60)
    assert judged(run(new, progress=sanity), new) == ("evaluating", "evaluating for 60s before its first step")


def test_a_job_whose_log_is_not_there_yet_is_starting() -> None:
    new = job(started_at=NOW - 30, state="CONFIGURING")
    log = Log(host="login", error="/fsx/llm.out does not exist; the nearest existing parent is /fsx")
    verdict, why = judged(run(new, log=log), new)
    assert (verdict, why.partition(";")[0]) == ("starting", "job 88 has been CONFIGURING for 30s")
    assert judged(run(job(), log=log), job())[0] == "unknown"
    denied = replace(log, error="/fsx/llm.out: no permission")
    assert judged(run(new, log=denied), new)[0] == "unknown"


def test_a_log_that_grows_for_hours_without_a_step_is_not_starting() -> None:
    pulses = run(progress=Progress())
    verdict, why = judged(pulses, slurm=None)
    assert (verdict, why) == ("unknown", "its log grows, but shows no known step line")
    assert pulses.log is not None
    young = replace(pulses, log=replace(pulses.log, began_at=NOW - 60))
    assert judged(young, slurm=None)[0] == "starting"
    for still in (pulses, young):
        assert still.log is not None
        still = replace(still, log=replace(still.log, at=NOW - 600))
        assert judged(still, slurm=None)[1].startswith("its log last grew 10m ago")


# ---- a log of which no line is known -------------------------------------------------------------------------------


UNREAD = "its log grows, but shows no known step line"
NEVER = Progress()


@pytest.mark.parametrize("seen", [{}, gpus(0, 90), EMPTY, gpus(98, 650)])
def test_an_unread_log_that_grows_makes_nobody_stalled_whatever_its_gpus_do(seen: dict[str, Node]) -> None:
    assert judged(run(job(), progress=NEVER), job(), nodes=seen) == ("unknown", UNREAD)
    assert judged(run(job(), progress=NEVER, log=grown(890)), job(), nodes=seen)[0] == "unknown"
    assert judged(run(progress=NEVER), slurm=None, nodes=seen) == ("unknown", UNREAD)


def test_gpus_that_spin_beside_a_log_that_grows_are_reported_and_are_no_hang() -> None:
    """A small model draws as little power as a collective that waits."""
    verdict, why = judged(run(job(), progress=NEVER), job(), nodes=HANG)
    assert (verdict, why) == ("unknown", f"{UNREAD}; its GPUs are 100% busy at 20% of their power limit")


@pytest.mark.parametrize(
    ("seen", "verdict"),
    [({}, "stalled"), (EMPTY, "stalled"), (gpus(98, 650), "stalled"), (gpus(0, 90), "data-stall"), (HANG, "hung")],
)
def test_an_unread_log_that_falls_silent_is_weighed_as_before(seen: dict[str, Node], verdict: str) -> None:
    judgement, why = judged(run(job(), progress=NEVER, log=grown(910)), job(), nodes=seen)
    assert judgement == verdict
    assert why.startswith("job 88 has been up for 1d1h, and its log shows no known step line and has not grown for 15m")


def test_an_unread_log_may_pause_for_as_long_as_it_usually_does() -> None:
    assert judged(run(job(), progress=NEVER, log=grown(1700, pause_s=1200)), job())[0] == "unknown"
    assert judged(run(job(), progress=NEVER, log=grown(1900, pause_s=1200)), job())[0] == "stalled"
    assert judged(run(job(), progress=NEVER, log=grown(3700, pause_s=90_000)), job())[0] == "stalled"


def test_steps_that_were_read_and_have_stopped_are_a_stall_though_the_log_grows() -> None:
    assert judged(run(job()), job())[0] == "stalled"
    anew = job(started_at=NOW - 1200)
    assert judged(run(anew), anew)[0] == "stalled", "the attempt before has shown that its steps are known"


def test_steps_of_w_and_b_are_believed_beside_an_unread_log_and_their_end_is_no_stall_while_it_grows() -> None:
    by_wandb = replace(PROGRESS, format="wandb")
    assert judged(run(job(), progress=by_wandb), job())[0] == "healthy"
    quiet = replace(by_wandb, at=NOW - 1200)
    assert judged(run(job(), progress=quiet), job()) == ("unknown", f"{UNREAD}; W&B shows no step for 20m")
    assert judged(run(job(), progress=quiet), job(), nodes=HANG)[0] == "hung"
    assert judged(run(job(), progress=quiet, log=grown(910)), job())[0] == "stalled"


def test_a_save_that_only_the_log_has_timed_counts_for_the_time_that_is_left() -> None:
    short = job(ends_at=NOW + 100)
    timed = replace(PROGRESS, saves=(60.0, 80.0, 70.0))
    assert judged(run(short, progress=timed), short)[1].endswith(
        "; its job ends in 2m, but saving once more may need 2m"
    )


@pytest.mark.parametrize(
    ("saved", "verdict", "why"),
    [
        ((1_800,), "unknown", "its log shows no known step line, but it saves checkpoints"),
        ((5_400, 9_000), "unknown", "its log shows no known step line, but it saves checkpoints"),
        ((8_000, 9_000), "hung", "has not grown for 2h; its GPUs are 100% busy"),
        ((91_000,), "hung", "has not grown for 2h; its GPUs are 100% busy"),
    ],
)
def test_a_run_whose_log_is_silent_trains_while_it_saves_as_usual(
    saved: tuple[float, ...], verdict: str, why: str
) -> None:
    found = tuple(
        Checkpoint(step=500 - index, state="superseded" if index else "committed", path="", layout="hf", at=NOW - ago)
        for index, ago in enumerate(saved)
    )
    every = saved[1] - saved[0] if saved[1:] else None
    listing = Checkpoints(path="/out", host="login", listed_at=NOW, list=found, every_s=every)
    one = run(job(), progress=Progress(), log=grown(7_200), checkpoints=listing)
    answer = judged(one, job(), nodes=HANG)
    assert answer[0] == verdict
    assert why in answer[1]
    assert answer[1].endswith("; its last known step is 500, that of its newest checkpoint")
    counted = replace(one, progress=replace(PROGRESS, format="nanogpt"))
    assert (counted.saved_step, replace(one, checkpoints=None).saved_step) == (None, None)


def test_a_job_that_failed_says_its_cause_once_that_is_known() -> None:
    failed = ended()
    end = AttemptEnd(
        at=NOW - 720,
        source="queue",
        noticed_at=NOW - 700,
        cause=Classification(cause="nccl-timeout", family="network", retry="now", confidence="high", fingerprint="f"),
    )
    attempt = Attempt(attempt_id="a", run_id="llm", cluster="prod", job_id="88", end=end)
    context = RunContext(sources={SLURM.name: SLURM}, jobs={failed.key: failed}, last_attempts={"llm": attempt})
    assert judge(run(failed), context, NOW).why.startswith("job 88: nccl-timeout (exit 1), 12m ago")
    done = ended("COMPLETED", exit_code="0:0")
    at_target = run(done, progress=replace(SILENT, step=20_000))
    hung = judge(at_target, context._replace(jobs={done.key: done}), NOW)
    assert (hung.verdict, hung.why.endswith(", its target, with an error: nccl-timeout")) == ("dead", True)
    limit = Classification(cause="time-limit", family="scheduler", retry="now", confidence="high", fingerprint="f")
    at_its_limit = {"llm": replace(attempt, end=replace(end, cause=limit))}
    left = judge(at_target, context._replace(jobs={done.key: done}, last_attempts=at_its_limit), NOW)
    assert left.verdict == "finished", "a trainer that exits at its time limit, at its target"
    again = context._replace(last_attempts={"llm": replace(attempt, restart=1)})
    assert "exited with code 1" in judge(run(failed), again, NOW).why, "of another start"
