"""A run whose last attempt has ended by the ledger: over, unless something newer is seen of it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.analysis.runs.judged import judge
from tests.trainmon.analysis.runs.test_status_jobs import NOW, PROGRESS, SLURM, SPEC, job, run
from trainmon.analysis.causes.rules import RULE
from trainmon.analysis.runs.context import RunContext
from trainmon.analysis.runs.no_steps import last_attempts
from trainmon.model import (
    Attempt,
    AttemptEnd,
    CauseName,
    Classification,
    EndSource,
    Log,
    OwnProcess,
    Wandb,
    WandbRun,
    WandbSpec,
)

ENDED_AT = NOW - 360
LAST = replace(PROGRESS, at=ENDED_AT - 4)
LOG = Log(host="login", path="/fsx/llm.out", at=ENDED_AT - 1)
OFF = {"slurm:prod": replace(SLURM["slurm:prod"], health="off")}
DOWN = {"slurm:prod": replace(SLURM["slurm:prod"], health="down", answered_at=NOW - 1_200)}


def cause(name: CauseName, **more: Any) -> Classification:
    family = RULE[name].family
    return Classification(
        cause=name, family=family, confidence="high", fingerprint="f", advice="", retry="never", **more
    )


def attempt(name: CauseName | None = "cuda-oom", source: EndSource = "accounting", **more: Any) -> Attempt:
    exception = more.pop("exception", None)
    found = None if name is None else cause(name, exception=exception)
    end = AttemptEnd(
        at=ENDED_AT, source=source, noticed_at=ENDED_AT, cause=found, scheduler_state=more.pop("scheduler_state", None)
    )
    usual = {"attempt_id": "prod/88.0", "run_id": "llm", "cluster": "prod", "job_id": "88", "end": end}
    return Attempt(**usual | {"started_at": NOW - 7_200} | more)


def judged(*attempts: Attempt, sources: Any = SLURM, jobs: Any = (), **changes: Any) -> tuple[str, str]:
    context = RunContext(sources=sources, jobs={one.key: one for one in jobs}, last_attempts=last_attempts(attempts))
    seen = run(*(one.key for one in jobs), **{"progress": LAST, "log": LOG} | changes)
    return tuple(judge(seen, context, NOW))  # type: ignore[return-value]


def test_a_run_whose_job_slurm_has_forgotten_is_dead_by_its_last_attempt() -> None:
    assert judged()[0] == "healthy"
    assert judged(attempt()) == ("dead", "job 88 ended 6m ago: cuda-oom, at step 12,880")
    assert judged(attempt(None)) == ("dead", "job 88 ended 6m ago, at step 12,880")


def test_what_a_person_cancelled_is_stopped_whatever_its_log_shows_also_when_its_job_is_forgotten() -> None:
    assert judged(attempt("python-exception", scheduler_state="CANCELLED by ann"))[0] == "stopped"
    assert judged(attempt("python-exception", scheduler_state="FAILED"))[0] == "dead"


def test_a_run_without_a_scheduler_is_dead_by_its_receipt() -> None:
    command = attempt("python-exception", "receipt", exception="ValueError", job_id=None)
    assert judged(command, sources=OFF) == (
        "dead", "its command ended 6m ago: python-exception (ValueError), at step 12,880",
    )  # fmt: skip
    killed = attempt("unknown", "receipt", job_id=None)
    assert killed.end is not None
    by_a_signal = replace(killed, end=replace(killed.end, signal=9))
    assert judged(by_a_signal, sources=OFF) == (
        "dead", "its command ended 6m ago: unknown (signal 9), at step 12,880",
    )  # fmt: skip


def test_who_ended_it_on_purpose_has_stopped_it() -> None:
    by_ana = attempt("cancelled-by-user", scheduler_state="CANCELLED by ana")
    assert judged(by_ana) == ("stopped", "job 88 ended 6m ago: cancelled-by-user by ana, at step 12,880")


def test_whom_nobody_surely_ended_has_not_stopped() -> None:
    """SIGTERM does not say who sent it."""
    told = attempt("cancelled-by-user")
    assert told.end is not None
    assert told.end.cause is not None
    guess = replace(told, end=replace(told.end, cause=replace(told.end.cause, confidence="low")))
    assert judged(guess) == ("dead", "job 88 ended 6m ago: cancelled-by-user, at step 12,880")


def test_an_end_without_an_error_counts_by_its_target_step() -> None:
    assert judged(attempt("completed")) == (
        "dead", "job 88 ended 6m ago: completed, at step 12,880 of 20,000: not finished",
    )  # fmt: skip
    spec = replace(SPEC, target_step=None)
    assert judged(attempt("completed"), spec=spec)[0] == "unknown"
    assert judged(attempt("completed", "receipt", job_id=None), sources=OFF, spec=spec)[0] == "finished"


def test_an_end_of_which_only_the_log_tells_at_its_target_is_a_good_one() -> None:
    there = replace(LAST, step=20_000)
    assert judged(attempt("completed", "queue"), progress=there) == ("finished", "reached step 20,000 of 20,000")
    known = attempt("completed", "queue", scheduler_state="NODE_FAIL")
    assert judged(known, progress=there)[0] == "dead"


def test_a_step_or_a_line_after_the_end_shows_life() -> None:
    assert judged(attempt(), progress=replace(LAST, at=ENDED_AT + 90))[0] == "healthy"
    assert judged(attempt(), log=replace(LOG, at=ENDED_AT + 90))[0] == "healthy"
    assert judged(attempt(), progress=replace(LAST, at=ENDED_AT + 20))[0] == "dead"


def test_a_heartbeat_of_wandb_after_the_end_shows_life() -> None:
    beat = WandbRun(entity="a", project="b", id="w", name="llm", state="running", heartbeat_at=NOW - 10)
    wandb = Wandb(runs=(beat,), phase="active", active=("w",), attempts=("w",))
    spec = replace(SPEC, wandb=WandbSpec(project="a/b"))
    assert judged(attempt(), wandb=wandb, spec=spec)[0] == "healthy"
    silent = replace(beat, heartbeat_at=ENDED_AT)
    assert judged(attempt(), wandb=replace(wandb, runs=(silent,)), spec=spec)[0] == "dead"


def test_a_job_that_runs_or_waits_is_what_counts() -> None:
    assert judged(attempt(), jobs=[job(89, started_at=NOW - 60)])[0] == "starting"
    assert judged(attempt(), jobs=[job(89, state="PENDING", reason="Resources", started_at=None)])[0] == "queued"
    newer = attempt(end=None, attempt_id="prod/89.0", job_id="89", started_at=NOW - 60)
    assert judged(newer, attempt())[0] == "healthy"


def test_while_slurm_does_not_answer_another_job_may_run() -> None:
    assert judged(attempt(), sources=DOWN) == (
        "unknown",
        "job 88 ended 6m ago: cuda-oom, at step 12,880; no data from Slurm for 20m: whether another job runs is "
        "not known",
    )


@pytest.mark.parametrize("source", ["lost", "log", "wandb"])
def test_an_end_that_was_concluded_from_the_run_itself_shows_nothing_more(source: EndSource) -> None:
    assert judged(attempt(source=source))[0] == "healthy"


def test_a_process_that_runs_is_alive_and_one_that_ended_has_the_end_of_its_receipt() -> None:
    process = OwnProcess(pid=7, command="python train.py", stdout=None)
    spec = replace(SPEC, process=process, target_step=None)
    command = attempt("python-exception", "receipt", job_id=None)
    assert judged(command, sources=OFF, spec=spec)[0] == "healthy"
    over = replace(spec, ended_at=ENDED_AT)
    assert judged(command, sources=OFF, spec=over)[0] == "dead"
    assert judged(sources=OFF, spec=over)[0] == "unknown"
