"""The plan of R after an evaluator has crashed: its command starts again, and the training is left alone."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.actions.cluster import DONE, NOW, RUN, RUNNING, done, only, planned, readback, refused, state
from tests.trainmon.analysis.retries import attempts
from trainmon.actions.planning import LEDGER
from trainmon.actions.verification import verify_record
from trainmon.model import (
    Attempt,
    CauseName,
    Checkpoint,
    EvalResult,
    Evals,
    Execute,
    Expected,
    Job,
    Record,
    Run,
    State,
    Switch,
)

FAILED = replace(DONE, requeue=True, batch=True)
RESULT = "a new result of the checkpoint is there"
COMMAND = ("sbatch", "--job-name", "eval-{step}", "eval.sbatch", "{checkpoint}")


def crashed(cause: CauseName = "evaluator") -> Attempt:
    one = attempts.ended(
        0, cause, job_id="80", started_at=NOW - 9_000, has_checkpoints=True, last_committed_step=12_000
    )
    assert one.end is not None
    return replace(one, end=replace(one.end, at=NOW - 200))


def evaluated(*steps: int) -> Evals:
    return Evals(results=tuple(EvalResult(step=step, results={"acc": number}) for number, step in enumerate(steps)))


def of(*jobs: Job, run: Run = RUN, cause: CauseName = "evaluator", command: Any = COMMAND, **more: Any) -> State:
    run = replace(run, spec=replace(run.spec, eval_commands=(command,)))
    one = crashed(cause)
    return state(*(jobs or (FAILED,)), run=run, attempts={one.attempt_id: one}, **more)


def test_r_starts_the_evaluator_with_the_checkpoint_that_it_crashed_on() -> None:
    action = only(planned("requeue", of=of()))
    assert action.operation == Execute(
        ("sbatch", "--job-name", "eval-12000", "eval.sbatch", "/fsx/ckpt/12000"),
        login_shell=True,
        shown="bash -l: sbatch --job-name eval-12000 eval.sbatch /fsx/ckpt/12000",
    )
    assert (action.verb, action.title) == ("evaluate", "Evaluate the checkpoint of step 12,000 of llm")
    assert (action.host, action.checkpoint, action.results, action.job) == ("login", 12_000, 0, None)
    assert action.expected == Expected()  # nothing of the training is touched
    facts = dict(action.facts)
    assert facts["retry budget"] == "retries used after evaluator: 0 of 1"
    assert facts["results so far"] == "none of this checkpoint"
    assert action.consequences == (
        "It is complete when the file of results has a new result of this checkpoint.",
        "The training is not started: N queues another job, or R on its job requeues it.",
    )


@pytest.mark.parametrize(
    ("seen", "verb"),
    [(of(cause="nccl-timeout"), "requeue"), (of(RUNNING), "requeue"), (state(FAILED), "requeue")],
    ids=["another cause", "the training runs again", "no attempt"],
)
def test_in_any_other_case_r_is_about_the_job(seen: State, verb: str) -> None:
    assert only(planned("requeue", of=seen)).verb == verb


def test_r_on_the_job_requeues_the_training_all_the_same() -> None:
    assert only(planned("requeue", FAILED.key, of=of(), seen=readback(FAILED))).verb == "requeue"


def test_a_checkpoint_that_is_gone_is_not_evaluated() -> None:
    checkpoints = RUN.checkpoints
    assert checkpoints is not None
    empty = replace(RUN, checkpoints=replace(checkpoints, list=()))
    assert refused(planned("requeue", of=of(run=empty))).why == "the checkpoint of step 12,000 is not listed"
    failing = replace(RUN, checkpoints=replace(checkpoints, error="/fsx/ckpt: permission denied"))
    assert refused(planned("requeue", of=of(run=failing))).why == (
        "its checkpoints cannot be listed: /fsx/ckpt: permission denied"
    )


@pytest.mark.parametrize("name", ["a'; echo foo", "a\nb", "$(id)", "a b", "a,b"])
def test_a_nasty_path_is_an_argument_of_its_own_or_is_refused(name: str) -> None:
    checkpoints, path = RUN.checkpoints, f"/fsx/{name}/12000"
    assert checkpoints is not None
    kept = Checkpoint(step=12_000, state="committed", path=path, layout="megatron", at=NOW - 840)
    run = replace(RUN, checkpoints=replace(checkpoints, list=(kept,)))
    action = only(planned("requeue", of=of(run=run)))
    assert isinstance(action.operation, Execute)
    assert action.operation.argv[-1] == path
    inside = refused(planned("requeue", of=of(run=run, command=("sbatch", "--wrap=eval.py {checkpoint}"))))
    assert inside.why.endswith("has characters that a shell may interpret")
    assert inside.hint == 'write "{checkpoint}" as an argument of its own in the [[eval]] of llm'


def started(seen: State, **more: Any) -> Record:
    return done(only(planned("requeue", of=seen)), made="90", **more)


def marks(record: Record, seen: State, now: float = NOW + 60) -> dict[str, str | bool]:
    found = verify_record(record, replace(seen, at=now), now)
    return {mark.name: mark.missed or mark.at is not None for mark in found.marks}


def test_a_second_start_says_that_the_first_has_no_result_yet_and_spends_the_budget() -> None:
    record = started(of())
    again = only(planned("requeue", of=of(actions={record.action.id: record}), requested_at=NOW + 60))
    assert dict(again.facts)["retry budget"] == "retries used after evaluator: 1 of 1"
    assert again.warnings == (
        "Another evaluation may not help: its budget is spent.",
        "An evaluation of this checkpoint was started 0s ago and is not over.",
    )
    alone = planned("evaluate", of=of(actions={record.action.id: record}), is_retry=True)
    assert refused(alone).why == "the evaluation of step 12,000 was started again already: its budget is spent"


def test_a_start_that_only_the_ledger_remembers_has_spent_the_budget() -> None:
    old = replace(started(of()), settled_at=NOW + 60)
    seen = readback(FAILED, evaluations={old.action.id: old})
    again = only(planned("requeue", of=of(), seen=seen, requested_at=NOW + 90_000))
    assert dict(again.facts)["retry budget"] == "retries used after evaluator: 1 of 1"
    assert again.warnings == ("Another evaluation may not help: its budget is spent.",)
    assert "its budget is spent" in refused(planned("evaluate", of=of(), seen=seen, is_retry=True)).why


def test_without_the_ledger_nothing_is_evaluated_automatically_and_a_person_is_warned() -> None:
    seen = readback(FAILED, errors={LEDGER: "the ledger does not answer"})
    warned = only(planned("requeue", of=of(), seen=seen)).warnings
    assert warned == ("Evaluations of more than an hour ago are not counted: the ledger does not answer.",)
    why = refused(planned("evaluate", of=of(), seen=seen, is_retry=True)).why
    assert why == "it is not known how often it was evaluated: the ledger does not answer"


def test_an_automatic_start_is_refused_under_an_armed_kill_switch() -> None:
    kill = RUN.kill
    assert kill is not None
    armed = of(run=replace(RUN, kill=Switch(path=kill.path, exists=True)))
    assert "kill switch" in refused(planned("evaluate", of=armed, is_retry=True)).why
    assert only(planned("evaluate", of=of(), is_retry=True)).expected.switch_absent == kill.path
    assert only(planned("requeue", of=armed)).verb == "evaluate"  # a person may: the training does not start


def test_it_is_complete_when_a_new_result_of_the_checkpoint_is_there() -> None:
    before = of(run=replace(RUN, evals=evaluated(11_000, 12_000)))
    record = started(before)
    assert dict(record.action.facts)["results so far"] == "1 of this checkpoint"
    queued = replace(before, jobs={**before.jobs, "prod/90": replace(RUNNING, id="90", number=90, name="eval")})
    assert marks(record, queued) == {"it is in the queue": True, RESULT: False}
    other = of(run=replace(RUN, evals=evaluated(11_000, 12_000, 13_000)))
    assert marks(record, other)[RESULT] is False
    after = of(run=replace(RUN, evals=evaluated(11_000, 12_000, 12_000)))
    assert marks(record, after)[RESULT] is True
    assert verify_record(record, after, NOW + 60).settled_at == NOW + 60


def test_an_evaluation_that_fails_or_writes_nothing_is_not_called_complete() -> None:
    before = of()
    record = started(before)
    failed = replace(DONE, id="90", number=90, name="eval", ends_at=NOW + 30)
    seen = replace(before, jobs={**before.jobs, "prod/90": failed})
    assert marks(record, seen)[RESULT] == "job 90 has ended: exited with code 1"
    silent = replace(before, jobs={**before.jobs, "prod/90": replace(failed, state="COMPLETED", exit_code="0:0")})
    assert marks(record, silent)[RESULT] is False
    assert marks(record, silent, NOW + 400)[RESULT] == ("job 90 has ended: exited with code 0")
    assert marks(record, before, NOW + 90_000)[RESULT] == "no new result within 1d"
