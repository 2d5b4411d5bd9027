"""When a run is requeued without a person, and when not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.actions.cluster import (
    CHECKPOINTS,
    DONE,
    KILL,
    NOW,
    RUN,
    RUNNING,
    SPEC,
    WAITING,
    done,
    only,
    planned,
    state,
)
from tests.trainmon.analysis.retries.attempts import ended
from trainmon.analysis.retries import ACTOR, due, obstacle
from trainmon.model import (
    Attempt,
    CauseName,
    Checkpoint,
    CheckpointListing,
    Evidence,
    Job,
    Log,
    RequeueMode,
    RetryLimit,
    RetryPolicy,
    Run,
    State,
    Switch,
)

ENDED_AT = NOW - 200
FAILED = replace(DONE, requeue=True, batch=True, ends_at=ENDED_AT)


def attempt(number: int, cause: CauseName = "nccl-timeout", *facts: str, **more: Any) -> Attempt:
    """An attempt of job 80: number 0 is the last one, -1 the one before it."""
    began = ENDED_AT + number * 3600 - 1800
    one = ended(number, cause, *facts, job_id="80", started_at=began, **more)
    assert one.end is not None
    return replace(one, end=replace(one.end, at=began + 1800))


def watched(*attempts: Attempt, jobs: tuple[Job, ...] = (FAILED,), mode: RequeueMode = "on", **more: Any) -> State:
    run = replace(more.pop("run", RUN), verdict="dead")
    run = replace(run, spec=replace(run.spec, retry=RetryPolicy(auto_requeue=mode)))
    known = attempts or (attempt(0),)
    return state(*jobs, run=run, attempts={one.attempt_id: one for one in known}, **more)


def verbs(seen: State, now: float = NOW) -> list[str]:
    return [one.verb for one in due(seen, now)]


def test_a_job_that_has_failed_is_requeued_after_the_wait_and_within_an_hour() -> None:
    (one,) = due(watched(), NOW)
    assert (one.verb, one.run, one.decision.why) == ("requeue", "llm", "nccl-timeout is often transient")
    waits = {after: verbs(watched(), ENDED_AT + after) for after in (100, 121, 126, 3_500, 3_700)}
    assert waits == {100: [], 121: [], 126: ["requeue"], 3_500: ["requeue"], 3_700: []}


def test_the_end_of_a_log_that_was_not_read_yet_is_waited_for_but_not_for_ever() -> None:
    last = attempt(0)
    assert last.end is not None
    unread = replace(last, end=replace(last.end, awaits_log=True, noticed_at=ENDED_AT + 100))
    assert {after: verbs(watched(unread), ENDED_AT + after) for after in (200, 399, 401)} == {
        200: [], 399: [], 401: ["requeue"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("cause", "scheduler_state", "verb"),
    [("node-fail", "NODE_FAIL", "requeue"), ("preempted", "PREEMPTED", "requeue"), ("time-limit", "TIMEOUT", None)],
)
def test_what_slurm_says_and_no_log_changes_does_not_wait_for_the_log(
    cause: CauseName, scheduler_state: str, verb: str | None
) -> None:
    last = attempt(0, cause, "n1: the only node of the attempt")
    assert last.end is not None
    end = replace(last.end, awaits_log=True, noticed_at=ENDED_AT + 10, scheduler_state=scheduler_state)
    assert verbs(watched(replace(last, end=end)), ENDED_AT + 126) == [verb] * (verb is not None)


@pytest.mark.parametrize("mode", ["off", "suggest"])
def test_without_the_setting_nothing_is_done(mode: RequeueMode) -> None:
    assert verbs(watched(mode=mode)) == []


@pytest.mark.parametrize(
    "seen",
    [
        watched(attempt(0, "cuda-oom")),
        watched(attempt(0, "data-error")),
        watched(attempt(0, "evaluator")),
        watched(attempt(0, "cancelled-by-user")),
        watched(attempt(0, "completed")),
        watched(attempt(0, "gpu-hardware")),
        watched(attempt(-1, "segfault"), attempt(0, "segfault")),
        watched(attempt(-3, "segfault"), attempt(-2, "rendezvous"), attempt(-1, "preempted"), attempt(0, "hang")),
        watched(replace(attempt(0), end=None)),
        watched(replace(attempt(0), job_id=None)),
        watched(run=replace(RUN, kill=Switch(path=KILL, exists=True))),
        watched(jobs=(replace(FAILED, state="PENDING", restarts=1),)),
        watched(jobs=(FAILED, WAITING)),
        watched(jobs=(FAILED, RUNNING)),
        watched(read_only=True),
        watched(jobs=(), run=replace(RUN, spec=replace(SPEC, script=None))),
    ],
    ids=[
        "it needs a change", "bad data", "the evaluator", "a person ended it", "it completed", "an unknown node",
        "its budget is spent", "a storm", "it runs", "no job", "an armed kill switch", "Slurm has requeued it",
        "another job waits", "another job runs", "read-only", "Slurm has forgotten it, and there is no script",
    ],
)  # fmt: skip
def test_a_run_is_left_alone(seen: State) -> None:
    assert verbs(seen) == []


def test_nothing_is_started_beside_another_run_that_writes_the_same_checkpoints() -> None:
    seen = watched()
    other = replace(RUNNING, id="91", number=91, array=None, name="again")
    spec = replace(SPEC, name="again", job="again", checkpoints=f"{SPEC.checkpoints}/")
    beside = replace(
        seen, runs={**seen.runs, "again": Run(spec=spec, jobs=(other.key,))}, jobs={**seen.jobs, other.key: other}
    )
    assert (verbs(seen), verbs(beside)) == (["requeue"], [])
    decision = next(due(seen, NOW)).decision
    why = obstacle(seen.runs["llm"], attempt(0), decision, beside)
    assert why == "job 91 (again) runs; both would write to the same checkpoints"
    ended = replace(beside, jobs={**seen.jobs, other.key: replace(other, state="FAILED")})
    assert verbs(ended) == ["requeue"]
    linked = CheckpointListing(v=1, t=NOW, path="/scratch/link", real=SPEC.checkpoints)
    by_link = Run(spec=replace(spec, checkpoints="/scratch/link"), jobs=(other.key,), listing=linked)
    assert verbs(replace(beside, runs={**seen.runs, "again": by_link})) == [], "a symbolic link to the same directory"


def test_a_job_that_slurm_has_forgotten_is_queued_anew_from_the_script_of_the_run() -> None:
    assert verbs(watched(jobs=(replace(FAILED, gone_at=NOW - 10),))) == ["queue"]


def test_a_job_that_must_not_be_requeued_is_queued_anew_from_the_script_of_the_run() -> None:
    once = replace(FAILED, requeue=False)
    assert verbs(watched(jobs=(once,))) == ["queue"]
    assert verbs(watched(jobs=(once,), run=replace(RUN, spec=replace(SPEC, script=None)))) == []


def test_the_bad_node_is_excluded_from_the_job_that_was_requeued_automatically() -> None:
    bad = attempt(0, "gpu-hardware", "n2: Xid 79", nodes=("n1", "n2"), submitted_at=RUNNING.submitted_at)
    assert verbs(watched(bad)) == ["requeue"]
    again = replace(FAILED, state="PENDING", restarts=1)
    assert verbs(watched(bad, jobs=(again,))) == []  # a person or Slurm has requeued it
    ours = done(replace(only(planned("requeue", of=state())), who=ACTOR, requested_at=NOW - 20))
    assert verbs(watched(bad, jobs=(again,), actions={"a": ours})) == ["exclude"]
    assert verbs(watched(bad, jobs=(replace(again, excluded=("n2",)),), actions={"a": ours})) == []
    refused = replace(ours, status="refused")  # by the gate: then a person has requeued it
    assert verbs(watched(bad, jobs=(again,), actions={"a": refused})) == []
    assert verbs(watched(bad, jobs=(again,), actions={"a": refused, "b": ours})) == ["exclude"]


def test_nothing_is_excluded_while_a_job_runs() -> None:
    bad = attempt(0, "gpu-hardware", "n2: Xid 79", nodes=("n1", "n2"), submitted_at=RUNNING.submitted_at)
    again = replace(FAILED, state="PENDING", restarts=1)
    ours = done(replace(only(planned("requeue", of=state())), who=ACTOR, requested_at=NOW - 20))
    assert verbs(watched(bad, jobs=(again, RUNNING), actions={"a": ours})) == []


@pytest.mark.parametrize(("requested_at", "expected"), [(ENDED_AT - 20, []), (ENDED_AT + 20, ["exclude"])])
def test_an_automatic_start_before_the_end_is_not_the_one_that_followed(
    requested_at: float, expected: list[str]
) -> None:
    bad = attempt(0, "gpu-hardware", "n2: Xid 79", nodes=("n1", "n2"))
    queued = done(replace(only(planned("queue", of=state())), who=ACTOR, requested_at=requested_at))
    assert verbs(watched(bad, jobs=(replace(FAILED, state="PENDING", restarts=1),), actions={"a": queued})) == expected


def test_an_evaluator_with_a_job_of_its_own_is_requeued_and_the_training_is_not() -> None:
    """It is a run of its own, with a job name and a budget of its own."""
    seen = watched(attempt(0, "evaluator"))
    job = replace(FAILED, id="81", number=81, name="llm-eval")
    spec = replace(SPEC, name="llm-eval", job="llm-eval", checkpoints=None, retry=RetryPolicy(auto_requeue="on"))
    run = replace(RUN, spec=spec, jobs=(job.key,), verdict="dead", checkpoints=None)
    crashed = replace(attempt(0, "network-or-auth"), attempt_id="prod/81@0000", run_id="llm-eval", job_id="81")
    seen = replace(
        seen,
        runs={**seen.runs, run.name: run},
        jobs={**seen.jobs, job.key: job},
        attempts={**seen.attempts, crashed.attempt_id: crashed},
    )
    assert [(one.verb, one.run, one.attempt.job_id) for one in due(seen, NOW)] == [("requeue", "llm-eval", "81")]


def crash(*jobs: Job, **more: Any) -> State:
    """The evaluator of a run has crashed, and a command can start it again."""
    run = replace(RUN, spec=replace(SPEC, eval_commands=(("sbatch", "eval.sbatch", "{checkpoint}"),)))
    crashed = attempt(0, "evaluator", has_checkpoints=True, last_committed_step=12_000)
    return watched(crashed, jobs=jobs or (FAILED,), run=replace(run, kill=more.pop("kill", run.kill)), **more)


def test_an_evaluator_with_a_command_is_started_again_once_and_the_training_is_not() -> None:
    assert verbs(crash()) == ["evaluate"]
    assert verbs(crash(), ENDED_AT + 121) == []
    assert verbs(crash(mode="suggest")) == verbs(crash(kill=Switch(path=KILL, exists=True))) == []
    assert verbs(crash(FAILED, RUNNING)) == verbs(crash(FAILED, WAITING)) == []
    by_ana = done(only(planned("requeue", of=crash(), requested_at=NOW - 60)))
    assert by_ana.action.verb == "evaluate"
    assert verbs(crash(actions={"a": by_ana})) == []
    assert verbs(crash(actions={"a": replace(by_ana, status="failed")})) == ["evaluate"]


# ---- a trainer that may have outlived its job -----------------------------------------------------------------------


def test_nothing_is_started_beside_a_trainer_that_outlived_its_job_or_may_have() -> None:
    one = replace(attempt(0), outlived_step=70, outlived_at=NOW - 20)
    for values in (1, 2):
        wrote = replace(one, outlived_by=values)
        assert verbs(watched(wrote)) == []
        assert verbs(watched(replace(wrote, outlived_gone_at=NOW - 10))) == ["requeue"]
    silent = replace(one, outlived_by=2, outlived_at=NOW - 901)
    read = replace(RUN, log=Log(host="login", path="/fsx/llm.out", checked_at=NOW))
    assert verbs(watched(silent, run=read)) == ["requeue"]


def test_a_log_or_a_checkpoint_that_was_written_since_may_be_that_of_a_trainer_that_goes_on() -> None:
    """Its steps may be rare, or not understood."""
    last = replace(attempt(0), end=replace(attempt(0).end, at=NOW - 1_300))
    for at, expected in ((NOW - 1_280, ["requeue"]), (NOW - 1_000, ["requeue"]), (NOW - 800, [])):
        log = replace(RUN, log=Log(host="login", path="/fsx/llm.out", checked_at=NOW, modified_at=at), checkpoints=None)
        commit = Checkpoint(step=13_000, state="committed", path="/fsx/ckpt/13000", layout="megatron", at=at)
        saved = replace(RUN, checkpoints=replace(CHECKPOINTS, list=(commit,)))
        assert [verbs(watched(last, run=run)) for run in (log, saved)] == [expected, expected]
    gone = replace(last, outlived_at=NOW - 800, outlived_gone_at=NOW - 790)
    assert verbs(watched(gone, run=saved)) == ["requeue"]


def test_a_new_job_that_a_person_has_cancelled_is_not_overruled() -> None:
    new = replace(FAILED, id="81", number=81, state="CANCELLED", submitted_at=ENDED_AT + 40, ends_at=ENDED_AT + 60)
    assert verbs(watched(jobs=(new, FAILED))) == []
    assert verbs(watched(jobs=(replace(new, submitted_at=ENDED_AT - 40), FAILED))) == ["requeue"]


@pytest.mark.parametrize("how", ["CANCELLED by ann", "COMPLETED"])
def test_a_job_that_ended_on_purpose_is_not_overruled_by_its_log_also_when_slurm_has_forgotten_it(how: str) -> None:
    last = attempt(0, "storage-io")
    assert last.end is not None
    last = replace(last, end=replace(last.end, scheduler_state=how))
    job = replace(FAILED, state=how.partition(" ")[0])
    (is_told,) = due(watched(attempt(0, "storage-io")), NOW)
    for jobs in ((job,), (replace(job, gone_at=NOW - 10),)):
        seen = watched(last, jobs=jobs)
        assert verbs(seen) == []
        assert obstacle(RUN, last, is_told.decision, seen) == f"job 80 has ended on purpose: {how}"


def test_a_job_that_is_no_batch_job_is_queued_anew_as_the_plan_of_a_requeue_refuses_it() -> None:
    by_hand = replace(FAILED, batch=False)
    assert verbs(watched(jobs=(by_hand,))) == ["queue"]
    (is_told,) = due(watched(), NOW)
    without = replace(RUN, spec=replace(SPEC, script=None))
    seen = watched(jobs=(by_hand,), run=without)
    assert (
        obstacle(without, attempt(0), is_told.decision, seen)
        == "job 80 is not a batch job, and its [[run]] has no script"
    )


def test_a_slow_trainer_must_have_missed_its_next_steps() -> None:
    slow = replace(RUN, progress=replace(RUN.progress, cadence_s=90.0))
    assert verbs(watched(run=slow), ENDED_AT + 290) == []
    assert verbs(watched(run=slow), ENDED_AT + 310) == ["requeue"]


def test_after_a_start_of_the_program_the_log_must_have_been_read() -> None:
    unread = watched(run=replace(RUN, log=None), started_at=NOW - 20)
    assert verbs(unread) == []
    assert verbs(replace(unread, started_at=NOW - 301)) == ["requeue"]


# ---- only a certain cause -------------------------------------------------------------------------------------------


def doubted(cause: CauseName, *facts: str, state: str | None = None, **more: Any) -> Attempt:
    """An attempt whose cause is not certain by its log."""
    one = attempt(0, cause, *facts, **more)
    assert one.end is not None
    assert one.end.cause is not None
    cause_of = replace(one.end.cause, confidence="low")
    return replace(one, end=replace(one.end, cause=cause_of, scheduler_state=state))


def said(cause: CauseName, line: str) -> Attempt:
    """An attempt whose log states its cause."""
    one = attempt(0, cause)
    assert one.end is not None
    assert one.end.cause is not None
    found = replace(one.end.cause, evidence=(Evidence(text=line, line=-1),))
    return replace(one, end=replace(one.end, cause=found))


@pytest.mark.parametrize(
    "last",
    [
        doubted("nccl-timeout"),
        attempt(0, "unknown"),
        attempt(0, "python-exception"),
        attempt(0, "segfault"),
        said("preempted", "Terminated"),
        said("preempted", "Preemption detected, saving checkpoint and exiting"),
        attempt(0, "nccl-timeout", last_step=100, target_step=100),
        doubted("node-fail", "n1: DOWN", state="NODE_FAIL", last_step=101, target_step=100),
    ],
    ids=[
        "in doubt",
        "unknown",
        "code",
        "a crash",
        "kill -TERM",
        "in its own words",
        "at its target",
        "beyond its target",
    ],
)
def test_the_daemon_acts_only_on_a_certain_fault_of_the_infrastructure_before_the_target(last: Attempt) -> None:
    assert verbs(watched(last)) == []


@pytest.mark.parametrize(
    "last",
    [
        doubted("node-fail", "n1: DOWN", state="NODE_FAIL"),
        doubted("node-fail", state="BOOT_FAIL"),
        doubted("preempted", state="PREEMPTED"),
        doubted("time-limit", state="TIMEOUT"),
        attempt(0, "preempted", "the instance is being reclaimed (spot)"),
        attempt(0, "preempted", "Terminated", preempted_at=ENDED_AT - 10),
    ],
)
def test_what_slurm_or_the_cloud_states_is_certain(last: Attempt) -> None:
    assert verbs(watched(last)) == ["requeue"]


def test_a_limit_in_the_config_asks_for_a_retry_after_that_cause() -> None:
    policy = RetryPolicy(auto_requeue="on", limits={"segfault": RetryLimit(times=2), "unknown": RetryLimit(times=2)})
    for cause, expected in (("segfault", ["requeue"]), ("unknown", [])):
        seen = watched(attempt(0, cause))  # type: ignore[arg-type]
        run = replace(seen.runs["llm"], spec=replace(SPEC, retry=policy))
        assert verbs(replace(seen, runs={"llm": run})) == expected


def test_another_users_job_is_left_alone_unless_the_table_of_the_run_asks_for_it() -> None:
    theirs = watched(jobs=(replace(FAILED, user="bob"),))
    assert verbs(theirs) == []
    run = theirs.runs["llm"]
    own = replace(run, spec=replace(run.spec, retry=RetryPolicy(auto_requeue="on", is_own=True)))
    assert verbs(replace(theirs, runs={"llm": own})) == ["requeue"]
    other = replace(FAILED, id="79", number=79, user="bob")
    forgotten = watched(jobs=(other,), run=replace(RUN, spec=replace(SPEC, user="bob")))
    assert verbs(forgotten) == []
