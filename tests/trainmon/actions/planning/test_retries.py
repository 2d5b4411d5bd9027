"""What a plan says of the retries of a run, and the plan of an automatic retry."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.actions.cluster import (
    DONE,
    KILL,
    NOW,
    RUN,
    RUNNING,
    SPEC,
    WAITING,
    ask,
    only,
    planned,
    readback,
    refused,
    stat,
    state,
)
from tests.trainmon.analysis.retries import attempts
from trainmon.actions import planning
from trainmon.model import Attempt, CauseName, Execute, Log, State, Switch, Verb

FAILED = replace(DONE, requeue=True, batch=True)


def failed(number: int, cause: CauseName) -> Attempt:
    """The attempt that many hours ago."""
    began = NOW - number * 3600 - 1800
    one = attempts.ended(number, cause, run_id="llm", job_id="80", started_at=began, last_step=10)
    assert one.end is not None
    return replace(one, end=replace(one.end, at=began + 1800))


def known(*attempts: Attempt) -> dict[str, Attempt]:
    return {one.attempt_id: one for one in attempts}


def test_the_plan_of_a_requeue_shows_the_budget_and_the_last_causes() -> None:
    before = known(failed(3, "preempted"), failed(2, "nccl-timeout"), failed(1, "nccl-timeout"))
    action = only(planned("requeue", of=state(attempts=before)))
    facts = dict(action.facts)
    assert facts["retry budget"] == "retries used after nccl-timeout: 1 of 3"
    assert facts["last causes"] == "nccl-timeout (2 times), preempted; the last attempt ended 1h ago"
    assert action.warnings == ()


def test_the_plan_warns_that_another_attempt_may_only_repeat_the_last_one() -> None:
    before = known(failed(2, "python-exception"), failed(1, "python-exception"))
    assert only(planned("requeue", of=state(attempts=before))).warnings == (
        "Another attempt may not help: "
        "python-exception came again once without a new step or checkpoint: its budget is spent.",
    )
    assert "retry budget" not in dict(only(planned("requeue", of=state(attempts=known(failed(1, "completed"))))).facts)


def test_the_plan_names_the_bad_node_and_what_keeps_the_waiting_job_off_it() -> None:
    bad = attempts.ended(
        1, "gpu-hardware", "n2: Xid 79", run_id="llm", job_id="80", nodes=("n1", "n2"), started_at=NOW - 5_400
    )
    assert only(planned("requeue", of=state(attempts=known(bad)))).warnings == (
        "Another attempt may not help: gpu-hardware on n2: the next attempt must avoid it. "
        "X on n2 excludes it from the pending job.",
    )


CONFIG = "/fsx/llm/config.yaml"


@pytest.mark.parametrize("cause", ["cuda-oom", "host-oom"])
def test_after_an_oom_the_plan_says_whether_the_config_has_changed(cause: CauseName) -> None:
    of = state(FAILED, attempts=known(attempts.with_config(failed(1, cause), "abc")))
    (read,) = planning.reads_for_plan(ask("requeue"), of, readback(FAILED))
    assert (read.host, read.configs) == ("login", (CONFIG,))

    changed = readback(FAILED, configs={f"login:{CONFIG}": "def"})
    action = only(planned("requeue", of=of, seen=changed))
    why = "the config has changed since the attempt (abc → def): a retry may help"
    assert (dict(action.facts)["since then"], action.warnings) == (why, ())
    alone = only(planned("requeue", of=of, seen=changed, is_retry=True, why="what was decided without it"))
    assert alone.why == why

    same = readback(FAILED, configs={f"login:{CONFIG}": "abc"})
    why = f"nothing has changed since the attempt (config abc): the same {cause} would come again"
    assert only(planned("requeue", of=of, seen=same)).warnings == (f"Another attempt may not help: {why}.",)
    assert refused(planned("requeue", of=of, seen=same, is_retry=True)).why == why
    assert refused(planned("queue", of=of, seen=same, is_retry=True)).why == why

    unread = readback(FAILED, errors={f"login:{CONFIG}": "permission denied"})
    (warning,) = only(planned("requeue", of=of, seen=unread)).warnings
    assert warning.endswith(" It is not known whether the config has changed: permission denied.")
    why = "it is not known whether the config has changed: permission denied"
    assert refused(planned("requeue", of=of, seen=unread, is_retry=True)).why == why


def test_after_an_oom_without_a_config_file_the_plan_says_which_batch_script_slurm_starts() -> None:
    stored = "Slurm starts the batch script as it was submitted: a change of its file counts only for a new job."
    by_cause = {
        cause: only(planned("requeue", of=state(FAILED, attempts=known(failed(1, cause))))).warnings
        for cause in ("cuda-oom", "disk-full")
    }
    assert by_cause["cuda-oom"][1:] == (stored,)
    assert stored not in by_cause["disk-full"]
    with_config = state(FAILED, attempts=known(attempts.with_config(failed(1, "cuda-oom"), "abc")))
    assert stored not in only(planned("requeue", of=with_config)).warnings


def test_a_changed_config_does_not_bring_back_a_budget_that_is_spent() -> None:
    twice = known(*(attempts.with_config(failed(number, "cuda-oom"), "abc") for number in (2, 1)))
    changed = readback(FAILED, configs={f"login:{CONFIG}": "def"})
    of = state(FAILED, attempts=twice)
    (warning,) = only(planned("requeue", of=of, seen=changed)).warnings
    assert "its budget is spent" in warning
    assert "its budget is spent" in refused(planned("requeue", of=of, seen=changed, is_retry=True)).why


def test_no_config_is_read_for_other_causes_or_where_the_attempt_had_none() -> None:
    for one in (attempts.with_config(failed(1, "nccl-timeout"), "abc"), failed(1, "cuda-oom")):
        of = state(FAILED, attempts=known(one))
        assert planning.reads_for_plan(ask("requeue"), of, readback(FAILED))[0].configs == ()


def test_an_automatic_retry_requeues_the_job_that_failed() -> None:
    of = state(FAILED, attempts=known(failed(1, "nccl-timeout")))
    action = only(planned("requeue", of=of, seen=readback(FAILED), is_retry=True))
    assert action.operation == Execute(("scontrol", "requeue", "80"))
    assert (action.expected.stages, action.expected.restarts, action.expected.switch_absent) == (("ended",), 0, KILL)
    assert dict(action.facts)["how it ended"] == "exited with code 1"
    again = replace(FAILED, state="PENDING", restarts=1)
    assert planning.recheck(action, readback(again, switches=stat(KILL, exists=False))) is not None
    other = replace(FAILED, id="90", number=90, state="PENDING")
    change = planning.recheck(action, readback(FAILED, other, switches=stat(KILL, exists=False)))
    assert change is not None
    assert change.why == "job 90 of the run has been queued meanwhile by ana: both would run at once"
    assert planning.recheck(action, readback(FAILED, switches=stat(KILL, exists=False))) is None
    armed = planning.recheck(action, readback(FAILED, switches=stat(KILL, exists=True)))
    assert armed is not None
    assert armed.why == "the kill switch has been armed meanwhile"


@pytest.mark.parametrize(
    ("job", "why"),
    [
        (replace(FAILED, state="COMPLETED", exit_code="0:0"), "job 80 has ended on purpose"),
        (replace(FAILED, state="CANCELLED", cancelled_by="ana"), "job 80 has ended on purpose"),
        (replace(FAILED, state="PENDING", restarts=1), "job 80 is PENDING again already"),
        (replace(FAILED, state="RUNNING", restarts=1), "job 80 is RUNNING again already"),
        (replace(FAILED, requeue=False), "job 80 cannot be requeued: it was submitted with --no-requeue"),
    ],
)
def test_an_automatic_retry_ends_nothing_and_starts_nothing_that_a_person_ended(job: object, why: str) -> None:
    assert why in refused(planned("requeue", of=state(job), is_retry=True)).why


def test_an_automatic_retry_is_refused_while_another_job_of_the_run_waits_or_runs() -> None:
    for other in (WAITING, RUNNING):
        assert "again already" in refused(planned("requeue", of=state(FAILED, other), is_retry=True)).why


def test_an_automatic_retry_is_refused_while_the_kill_switch_is_armed_or_not_known() -> None:
    for kill, why in (
        (Switch(path=KILL, exists=True, armed_at=NOW - 60), "kill switch, armed"),
        (Switch(path=KILL, error="no permission in its directory"), "not known whether its kill switch is armed"),
    ):
        assert why in refused(planned("requeue", of=state(FAILED, run=replace(RUN, kill=kill)), is_retry=True)).why


# ---- a trainer that outlived its job --------------------------------------------------------------------------------


def outlived(**more: Any) -> State:
    """Job 80 has ended, and its trainer still writes."""
    last = replace(failed(1, "node-fail"), outlived_by=2, outlived_step=70, outlived_at=NOW - 20, nodes=("n1",))
    jobs = (replace(FAILED, state="NODE_FAIL", ends_at=NOW - 3_600),)
    return state(*jobs, attempts=known(last), **more)


@pytest.mark.parametrize("verb", ["requeue", "queue"])
def test_while_a_trainer_outlives_its_job_its_id_must_be_typed_and_nothing_is_done_automatically(verb: Verb) -> None:
    plan = planned(verb, of=outlived())
    assert plan.typed == "80"
    assert plan.because.startswith("trainer outlived its job 80 (")
    assert plan.because.endswith("it still writes on n1, last step 70; both would write to the same checkpoints")
    assert "trainer outlived its job 80" in refused(planned(verb, of=outlived(), is_retry=True)).why


@pytest.mark.parametrize("verb", ["requeue", "queue"])
def test_a_trainer_in_the_same_checkpoints_under_another_name_counts_as_well(verb: Verb) -> None:
    one = outlived()
    (last,) = one.attempts.values()
    other = replace(RUN, spec=replace(SPEC, name="other", job="other"))
    moved = replace(one, runs={**one.runs, "other": other}, attempts={"a": replace(last, run_id="other")})
    assert planned(verb, of=moved).typed == "80"


def test_once_it_is_gone_or_silent_nothing_need_be_typed() -> None:
    one = outlived()
    (last,) = one.attempts.values()
    for over in ({"outlived_gone_at": NOW - 5}, {"outlived_at": NOW - 901}, {"outlived_by": 1}):
        run = replace(RUN, log=Log(host="login", path="/fsx/llm.out", checked_at=NOW))
        ended = replace(one, runs={"llm": replace(run, jobs=one.runs["llm"].jobs)})
        plan = planned("requeue", of=replace(ended, attempts={"a": replace(last, **over)}))
        assert (plan.typed, len(plan.actions)) == (None, 1)


def test_the_plan_of_queue_warns_like_that_of_requeue() -> None:
    of = state(DONE, attempts=known(failed(2, "python-exception"), failed(1, "python-exception")))
    assert only(planned("queue", of=of)).warnings[0].startswith("Another attempt may not help: python-exception came")


def test_a_job_that_is_queued_automatically_is_kept_off_the_node_from_its_first_moment() -> None:
    bad = attempts.ended(1, "node-fail", "n2: DOWN", run_id="llm", job_id="80", nodes=("n1", "n2"), started_at=NOW - 90)
    of = state(replace(FAILED, excluded=("n7",)), attempts=known(bad))
    action = only(planned("queue", of=of, is_retry=True))
    assert isinstance(action.operation, Execute)
    assert "--exclude=n7,n2" in action.operation.argv
    assert "It is kept off n7, n2." in action.consequences
    by_hand = only(planned("queue", of=of)).operation
    assert isinstance(by_hand, Execute)
    assert not any(word.startswith("--exclude") for word in by_hand.argv)
