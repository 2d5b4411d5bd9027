"""Plans with jobs: requeue, cancel, hold, release."""

from __future__ import annotations

import re

import pytest
from msgspec.structs import replace

from tests.trainmon.actions.cluster import (  # fmt: skip
    CLUSTER,
    DONE,
    KILL,
    NOW,
    RUN,
    RUNNING,
    SPEC,
    WAITING,
    only,
    planned,
    readback,
    refused,
    source,
    stat,
    state,
)
from tests.trainmon.analysis.retries.attempts import ended
from trainmon.model import Attempt, Execute, Expected, Job, Run, Switch, Verb

HELD = replace(WAITING, priority=0, reason="JobHeldUser")
JOB_VERBS: tuple[Verb, ...] = ("requeue", "cancel", "hold", "release", "signal", "queue")


def test_a_run_that_hangs_is_not_told_to_save() -> None:
    hung = replace(RUN, verdict="hung")
    assert "No checkpoint is saved first." in only(planned("cancel", of=state(run=hung))).consequences[0]
    assert "to save one, use S." in only(planned("cancel")).consequences[0]


def test_a_requeue_shows_what_it_costs_and_what_follows() -> None:
    action = only(planned("requeue"))
    assert action.title == "Requeue job 88_3 of llm"
    assert action.operation == Execute(("scontrol", "requeue", "Incomplete", "88_3"))
    assert ("command", "scontrol requeue Incomplete 88_3") in action.facts
    assert ("restarts so far", "0") in action.facts
    assert action.consequences == (
        "Slurm ends it now: SIGTERM, then SIGKILL after KillWait (30s by default). No checkpoint is saved first; "
        "to save one, use S.",
        "880 steps (59m of training) since the last checkpoint are lost.",
        "The job keeps its id and is pending again: 2m until its BeginTime, then until nodes are free.",
        "The pending array tasks (88_[4-10%1]) run first: the requeued task runs after them.",
        "It resumes from the checkpoint of step 12,000, if its trainer loads the last one.",
        "The end of /fsx/llm.out is copied first: a new attempt may overwrite it.",
    )
    assert action.keep_log == "login:/fsx/llm.out"
    assert action.expected == Expected(
        id="88_3", submitted_at=NOW - 9000, stages=("running",), user="ana", restarts=0, switch_absent=KILL
    )


@pytest.mark.parametrize("stderr", [None, "/fsx/llm.out", "/dev/null"])
def test_errors_that_go_into_the_log_are_not_kept_twice(stderr: str | None) -> None:
    of = state(replace(RUNNING, stderr=stderr))
    assert only(planned("requeue", of=of, seen=readback(replace(RUNNING, stderr=stderr)))).keep_errors is None


def test_errors_in_a_file_of_their_own_are_kept_before_a_requeue() -> None:
    apart = replace(RUNNING, stderr="/fsx/llm.err")
    action = only(planned("requeue", of=state(apart), seen=readback(apart)))
    assert (action.keep_log, action.keep_errors) == ("login:/fsx/llm.out", "login:/fsx/llm.err")
    assert action.consequences[-1] == (
        "The ends of /fsx/llm.out and /fsx/llm.err are copied first: a new attempt may overwrite them."
    )


def test_a_requeue_is_refused_while_the_kill_switch_is_armed_and_the_way_out_is_reported() -> None:
    run = replace(RUN, kill=Switch(path=KILL, exists=True, armed_at=NOW - 240, by="ben"))
    one = refused(planned("requeue", of=state(run=run)))
    assert one.why == "kill switch, armed 4m ago by ben: the next attempt would end at once"
    assert one.hint == "remove it first: U, or trainmon-tui unkill llm"
    seen = readback(RUNNING, switches=stat(KILL, exists=True, by="ben"))
    assert "kill switch, armed by ben" in refused(planned("requeue", seen=seen)).why


def test_a_kill_switch_that_cannot_be_seen_is_a_warning() -> None:
    run = replace(RUN, kill=Switch(path=KILL, error="no permission in its directory"))
    action = only(planned("requeue", of=state(run=run)))
    assert action.warnings == ("It is not known whether its kill switch is armed: no permission in its directory.",)
    assert action.expected.switch_absent is None, "what a person was told of does not abort it afterwards"
    unread = readback(RUNNING, errors={f"login:{KILL}": "login: sh did not end in 8s"})
    action = only(planned("requeue", seen=unread))
    assert action.warnings == ("It is not known whether its kill switch is armed: login: sh did not end in 8s.",)


@pytest.mark.parametrize(
    ("job", "why", "hint"),
    [
        (replace(WAITING, id="88_3", tasks="3", state="PENDING", reason="BeginTime", starts_at=NOW + 60),
         "job 88_3 is already pending: starts in 60s", ""),
        (HELD, "job 88_[4-10%1] is already pending: held", "H releases it"),
        (WAITING, "job 88_[4-10%1] is already pending: array task limit reached", ""),
        (replace(DONE, requeue=False), "job 80 cannot be requeued: it was submitted with --no-requeue",
         "queue another: N, or trainmon-tui queue llm"),
        (replace(DONE, batch=False), "job 80 is not a batch job (salloc or srun): Slurm cannot restart it", ""),
        (replace(DONE, gone_at=NOW - 300),
         "Slurm no longer knows job 80: Slurm forgets a job some minutes after its end (MinJobAge)",
         "queue another: N, or trainmon-tui queue llm"),
        (replace(RUNNING, requeue=False), "job 88_3 cannot be requeued: it was submitted with --no-requeue",
         "queue another: N, or trainmon-tui queue llm"),
        (replace(RUNNING, batch=False), "job 88_3 is not a batch job (salloc or srun): Slurm cannot restart it", ""),
    ],
)  # fmt: skip
def test_what_cannot_be_requeued_is_refused_with_a_message(job: object, why: str, hint: str) -> None:
    one = refused(planned("requeue", of=state(job)))
    assert (one.why, one.hint) == (why, hint)


@pytest.mark.parametrize(
    ("job", "how", "warning"),
    [
        (replace(DONE, ends_at=NOW - 180), "FAILED", ()),
        (replace(DONE, ends_at=NOW - 180, state="TIMEOUT"), "TIMEOUT", ()),
        (replace(DONE, ends_at=NOW - 180, state="NODE_FAIL"), "NODE_FAIL", ()),
        (replace(DONE, ends_at=NOW - 180, state="COMPLETED", exit_code="0:0"), "COMPLETED",
         ("It ended on purpose: exited with code 0.",)),
    ],
)  # fmt: skip
def test_a_job_that_has_ended_is_started_again(job: Job, how: str, warning: tuple[str, ...]) -> None:
    action = only(planned("requeue", of=state(job), seen=readback(replace(job, requeue=True, batch=True))))
    assert action.title == "Requeue job 80 of llm, which has ended"
    assert action.operation == Execute(("scontrol", "requeue", "80"))
    assert action.consequences == (
        f"It ended {how} 3m ago; Slurm starts the same job again.",
        "The job keeps its id and is pending again: 2m until its BeginTime, then until nodes are free.",
        "It resumes from the checkpoint of step 12,000, if its trainer loads the last one.",
        "The end of /fsx/llm.out is copied first: a new attempt may overwrite it.",
    )
    assert action.warnings == warning
    assert (action.expected.stages, action.expected.switch_absent) == (("ended",), KILL)


def test_what_needs_no_other_start_is_requeued_by_its_typed_id_alone() -> None:
    def typed(job: Job, run: Run = RUN, attempts: tuple[Attempt, ...] = ()) -> tuple[str | None, str]:
        known = {one.attempt_id: one for one in attempts}
        plan = planned("requeue", of=state(job, run=run, attempts=known), seen=readback(job))
        assert len(plan.actions) == 1
        return plan.typed, plan.because

    def at(step: int | None, target: int | None, own: int | None = None) -> Run:
        progress = replace(RUN.progress, step=step, target_step=target)
        return replace(RUN, progress=progress, spec=replace(SPEC, target_step=own))

    failed, completed = (
        replace(DONE, requeue=True, batch=True),
        replace(DONE, state="COMPLETED", requeue=True, batch=True),
    )
    assert typed(completed) == ("80", "job 80 is COMPLETED")
    assert typed(completed, at(10, None)) == ("80", "job 80 is COMPLETED")
    reached = ("80", "llm has reached its target: step 1,000 of 1,000")
    assert typed(failed, at(1000, 1000)) == typed(failed, at(1000, None, 1000)) == reached
    assert typed(RUNNING, at(1001, 1000)) == ("88_3", "llm has reached its target: step 1,001 of 1,000")
    last = ended(1, "python-exception", run_id="llm", last_step=1000)
    assert typed(failed, at(None, 1000), (last,)) == reached, "its log was not read, but its last attempt is known"
    for run in (at(999, 1000), at(None, 1000), at(1000, None)):
        assert typed(failed, run) == typed(RUNNING, run) == (None, "")


def test_a_job_that_slurm_has_forgotten_meanwhile_is_not_requeued() -> None:
    seen = readback(gone=frozenset({"prod/80"}))
    one = refused(planned("requeue", of=state(DONE), seen=seen))
    assert one.why == "Slurm no longer knows job 80: Slurm forgets a job some minutes after its end (MinJobAge)"
    assert one.hint == "queue another: N, or trainmon-tui queue llm"
    one = refused(planned("requeue", "prod/80", of=state(DONE), seen=seen))
    assert (one.why, one.hint) == (
        "Slurm no longer knows job 80: it has ended",
        "queue another: trainmon-tui queue llm",
    )
    down = state(DONE, sources={"slurm:prod": source("slurm:prod", health="down", error="no answer")})
    assert refused(planned("requeue", of=down)).why == "no answer"


@pytest.mark.parametrize("verb", ["requeue", "queue"])
@pytest.mark.parametrize("directory", ["/fsx/ckpt", "/fsx/ckpt/", "/fsx/./ckpt"])
def test_beside_a_job_that_writes_the_same_checkpoints_a_start_needs_the_typed_id(verb: Verb, directory: str) -> None:
    job = replace(RUNNING, id="90", number=90, array=None, tasks=None, name="copy")
    copy = replace(RUN, spec=replace(RUN.spec, name="copy", job="copy", checkpoints=directory), jobs=(job.key,))
    of = state(DONE, job)
    of = replace(of, runs={**of.runs, "copy": copy})
    plan = planned(verb, of=of)
    why = "job 90 (copy) runs; both would write to the same checkpoints"
    assert (plan.typed, plan.because) == ("90", why)
    assert refused(planned(verb, of=of, is_retry=True)).why in (why, "job 80 has ended on purpose: it completed")
    apart = replace(copy, spec=replace(copy.spec, checkpoints="/fsx/other"))
    assert planned(verb, of=replace(of, runs={**of.runs, "copy": apart})).typed is None


def test_a_job_of_the_run_that_has_ended_is_not_started_beside_the_one_that_runs() -> None:
    plan = planned("requeue", "prod/80")
    assert (plan.typed, plan.because) == ("88_3", "job 88_3 (llm) runs; both would write to the same checkpoints")
    assert planned("queue").typed is None, "it waits for that job"


def test_a_job_that_has_ended_is_not_started_while_the_kill_switch_is_armed() -> None:
    run = replace(RUN, kill=Switch(path=KILL, exists=True, armed_at=NOW - 240, by="ben"))
    assert "kill switch, armed 4m ago by ben" in refused(planned("requeue", of=state(DONE, run=run))).why


def test_one_step_is_lost_and_not_1_steps() -> None:
    action = only(planned("requeue", of=state(run=replace(RUN, progress=replace(RUN.progress, step=12_001)))))
    assert re.fullmatch(r"1 step \(\S+ of training\) since the last checkpoint is lost\.", action.consequences[1])
    assert dict(action.facts)["last checkpoint"].endswith("; 1 step since")


def test_a_pointer_that_names_an_older_checkpoint_says_what_a_restart_costs() -> None:
    assert RUN.checkpoints is not None
    [last] = RUN.checkpoints.list
    older = replace(last, step=11_500, state="superseded", path="/c/iter_0011500")
    known = replace(RUN.checkpoints, list=(last, older), resumes=older.path)
    action = only(planned("requeue", of=state(run=replace(RUN, checkpoints=known))))
    assert action.consequences[1].startswith("1,380 steps ")
    assert action.consequences[1].endswith(" since step 11,500 (a restart resumes there) are lost.")
    assert action.consequences[4].startswith("It resumes from the checkpoint of step 11,500, ")
    assert dict(action.facts)["last checkpoint"].endswith("; 1,380 steps since step 11,500 (a restart resumes there)")


def test_no_committed_checkpoint_is_reported_in_full() -> None:
    assert RUN.checkpoints is not None
    bare = replace(RUN, checkpoints=replace(RUN.checkpoints, list=(), problem="no committed checkpoint"))
    action = only(planned("requeue", of=state(run=bare)))
    assert action.consequences[1] == "No committed checkpoint was found: all training (12,880 steps) is lost."
    assert action.consequences[4] == "What it would resume from: no committed checkpoint."
    assert ("last checkpoint", "none is committed") in action.facts
    blind = only(planned("requeue", of=state(run=replace(RUN, checkpoints=None))))
    assert blind.consequences[1].startswith("The training since the last checkpoint is lost")


def test_a_job_with_several_nodes_is_cancelled_by_its_id() -> None:
    plan = planned("cancel")
    action = only(plan)
    assert action.operation == Execute(("scancel", "88_3"))
    assert (plan.typed, plan.because) == ("88_3", "job 88_3 holds 2 nodes")
    assert action.consequences[2] == (
        "7 pending jobs of the run start after it: to end the run, cancel or hold 88_[4-10%1] too."
    )
    assert action.expected.switch_absent is None


def test_a_task_of_an_array_is_cancelled_with_the_same_warning_as_its_run() -> None:
    of_its_run = only(planned("cancel", "prod/88_3"))
    assert of_its_run.consequences == only(planned("cancel")).consequences
    nobodys = only(planned("cancel", "prod/88_3", of=state(runs={})))
    assert nobodys.consequences[2] == (
        "7 pending jobs of the array start after it: to end the array, cancel or hold 88_[4-10%1] too."
    )
    other = replace(WAITING, id="95", number=95, array=None, tasks=None, name="vlm")
    assert len(only(planned("cancel", "prod/88_3", of=state(RUNNING, other, runs={}))).consequences) == 2


def test_a_job_of_one_node_needs_no_typing() -> None:
    plan = planned("cancel", of=state(replace(RUNNING, node_count=1, nodes=("n1",))))
    assert (plan.typed, plan.because) == (None, "")


def test_another_s_job_is_cancelled_by_its_id_and_slurm_may_refuse() -> None:
    plan = planned("cancel", of=state(replace(RUNNING, user="ben", node_count=1)))
    assert (plan.typed, plan.because) == ("88_3", "job 88_3 is ben's")
    assert only(plan).warnings == ("It is ben's: only ben and Slurm operators may do this.",)
    operator = {"prod": replace(CLUSTER, may_operate=True)}
    plan = planned("cancel", of=state(replace(RUNNING, user="ben", node_count=1), clusters=operator))
    assert (plan.typed, only(plan).warnings) == ("88_3", ())


def test_the_waiting_elements_of_an_array_are_cancelled_without_those_that_run() -> None:
    plan = planned("cancel", "prod/88_[]")
    action = only(plan)
    assert action.operation == Execute(("scancel", "88_[4-10]"))
    assert action.consequences == ("All 7 pending array tasks leave the queue.",)
    assert (plan.typed, action.job, action.keep_log) == ("88_[4-10%1]", "prod/88_[]", None)


def test_several_that_must_be_typed_are_typed_together() -> None:
    two = replace(RUNNING, id="90", number=90, array=None, tasks=None, name="vlm")
    plan = planned("cancel", "prod/88_3", "prod/90", of=state(RUNNING, two))
    assert (plan.typed, len(plan.actions)) == ("88_3 90", 2)
    assert plan.because == "job 88_3 holds 2 nodes; job 90 holds 2 nodes"


def test_an_ended_job_cannot_be_cancelled() -> None:
    assert refused(planned("cancel", of=state(DONE))).why == "job 80 has ended already: exited with code 1"


def test_one_plan_over_several_rows_acts_and_refuses() -> None:
    plan = planned("cancel", "prod/88_3", "prod/80")
    assert [action.job for action in plan.actions] == ["prod/88_3"]
    assert [refusal.subject for refusal in plan.refusals] == ["prod/80"]


def test_hold_takes_the_waiting_jobs_of_a_run() -> None:
    action = only(planned("hold"))
    assert action.operation == Execute(("scontrol", "hold", "88_[4-10]"))
    assert action.consequences == ("It stays in the queue and is not started until it is released (H).",)


def test_hold_of_a_running_job_takes_effect_at_its_requeue() -> None:
    action = only(planned("hold", "prod/88_3"))
    assert action.consequences == ("It runs on; if it is requeued, it stays pending until it is released (H).",)
    assert action.expected.stages == ("running",)


def test_what_is_held_is_released_and_not_held_again() -> None:
    assert refused(planned("hold", "prod/88_[]", of=state(HELD))).why == "job 88_[4-10%1] is held already"
    action = only(planned("release", of=state(RUNNING, HELD)))
    assert action.operation == Execute(("scontrol", "release", "88_[4-10]"))
    assert refused(planned("release")).why == "no job of llm is held"
    assert refused(planned("release", "prod/88_3")).why == "job 88_3 is not held"


def test_what_an_administrator_holds_only_an_operator_releases() -> None:
    held = replace(HELD, reason="JobHeldAdmin")
    one = refused(planned("release", of=state(held)))
    assert one.why == "job 88_[4-10%1] is held by an administrator; only an administrator can release it"
    operator = {"prod": replace(CLUSTER, may_operate=True)}
    assert only(planned("release", of=state(held, clusters=operator))).verb == "release"


def test_release_under_an_armed_kill_switch_is_warned_of() -> None:
    run = replace(RUN, kill=Switch(path=KILL, exists=True))
    assert only(planned("release", of=state(HELD, run=run))).warnings == (
        "kill switch, armed: it will exit as soon as it starts.",
    )


def test_while_slurm_is_silent_nothing_is_done_to_jobs() -> None:
    down = {"slurm:prod": source("slurm:prod", health="down", error="login: Unable to contact slurm controller")}
    for verb in JOB_VERBS:
        one = refused(planned(verb, of=state(sources=down)))
        assert one.why == "login: Unable to contact slurm controller"
        assert one.hint == "its jobs are unknown until Slurm responds: nothing is done to them"


def test_a_job_that_could_not_be_read_just_now_is_not_acted_upon() -> None:
    seen = readback(errors={"prod/88_3": "login: scontrol did not answer in 8s"})
    for verb in ("requeue", "cancel", "signal"):
        assert refused(planned(verb, seen=seen)).why == "login: scontrol did not answer in 8s"


def test_what_was_read_just_now_is_believed_although_the_poller_is_silent() -> None:
    down = {"slurm:prod": source("slurm:prod", health="down", error="silent")}
    assert only(planned("requeue", of=state(sources=down), seen=readback(RUNNING))).verb == "requeue"


def test_a_job_that_slurm_forgot_is_refused() -> None:
    one = refused(planned("cancel", "prod/88_3", seen=readback(gone=frozenset({"prod/88_3"}))))
    assert one.why == "Slurm no longer knows job 88_3: it has ended"
    gone = replace(RUNNING, gone_at=NOW - 120)
    assert refused(planned("cancel", "prod/88_3", of=state(gone))).why == (
        "job 88_3 is no longer in the queue (since 2m ago)"
    )


def test_a_cluster_without_slurm_says_so() -> None:
    one = refused(planned("requeue", of=state(sources={"node:login": source("node:login")})))
    assert one.why == "cluster prod has no Slurm"


def test_a_name_that_nobody_has_is_refused() -> None:
    assert refused(planned("cancel", "prod/4711")).why == "no run or job is called prod/4711"
    assert refused(planned("cancel", "x\x1b[2Jy")).why == "no run or job is called xy"


def test_a_number_that_is_a_part_of_another_job_is_not_called_unknown() -> None:
    whole = replace(RUNNING, id="90", number=90, array=None, tasks=None, components=(90, 91))
    for job, number, why in ((whole, "91", "91 is a part of job 90"), (RUNNING, "91", "91 is a part of job 88_3")):
        key = f"prod/{number}"
        one = refused(planned("cancel", key, of=state(DONE), seen=readback(job, gone=frozenset({key}))))
        assert (one.why, one.hint) == (why, f"name {job.id}")


PLAIN = replace(RUNNING, id="88", number=88, array=None, tasks=None, node_count=1, nodes=("n1",))


@pytest.mark.parametrize(
    ("verb", "job"),
    [
        ("requeue", PLAIN), ("cancel", PLAIN), ("hold", PLAIN), ("signal", PLAIN), ("save", PLAIN), ("kill", PLAIN),
        ("hold", replace(PLAIN, state="PENDING")), ("release", replace(PLAIN, state="PENDING", priority=0)),
        ("exclude", replace(PLAIN, state="PENDING")),
    ],
)  # fmt: skip
def test_whatever_is_done_to_another_users_job_wants_its_id_typed(verb: Verb, job: Job) -> None:
    subject = "n9" if verb == "exclude" else "llm"
    run = "llm" if verb == "exclude" else None
    bens = replace(job, user="ben")
    for may_operate in (False, True):
        clusters = {"prod": replace(CLUSTER, may_operate=may_operate)}
        seen = readback(steps={job.key: ("0",)})  # a signal to a step whose processes catch it
        plan = planned(verb, subject, of=state(bens, clusters=clusters), seen=seen, run=run)
        assert (plan.typed, plan.because) == ("88", "job 88 is ben's")
        assert planned(verb, subject, of=state(job, clusters=clusters), seen=seen, run=run).typed is None
    nobody = {"prod": replace(CLUSTER, me=None)}
    assert planned(verb, subject, of=state(job, clusters=nobody), run=run).typed == "88", "whose it is is not known"


@pytest.mark.parametrize("verb", JOB_VERBS)
def test_of_several_jobs_that_train_under_the_name_of_a_run_none_is_chosen(verb: Verb) -> None:
    other = replace(PLAIN, id="90", number=90, started_at=NOW - 60)
    one = refused(planned(verb, of=state(PLAIN, other)))
    assert one.why == "llm may mean any of 2 jobs: 90 (ana, RUNNING) and 88 (ana, RUNNING)"
    assert one.hint == "name one by its id; log, nodes or user in the [[run]] tell them apart"
    if verb in ("requeue", "cancel", "hold", "signal"):
        assert only(planned(verb, "prod/88", of=state(PLAIN, other))).job == "prod/88"
