"""Plans for jobs to come: queue another, keep them off a node."""

from __future__ import annotations

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
    ask,
    only,
    planned,
    readback,
    refused,
    source,
    state,
)
from trainmon.actions import planning as actions
from trainmon.model import Execute, SchedulerNode, Switch

OPERATOR = {"prod": replace(CLUSTER, may_operate=True)}
PLAIN = replace(RUNNING, id="88", number=88, array=None, tasks=None)


def test_another_waits_for_the_last_of_the_chain() -> None:
    action = only(planned("queue", count=3))
    argv = ("sbatch", "--array=1-3%1", "--dependency=afterany:88", "--chdir=/fsx/work", "/fsx/train.slurm")
    assert isinstance(action.operation, Execute)
    assert (action.operation.argv, action.operation.login_shell) == (argv, True)
    assert ("command", "bash -l: sbatch --array=1-3%1 --dependency=afterany:88 --chdir=/fsx/work /fsx/train.slurm") in (
        action.facts
    )
    assert action.title == "Queue 3 more jobs of llm"
    assert action.consequences[1] == "The first starts when job 88_[4-10%1] has ended."


def test_without_any_that_waits_it_waits_for_the_one_that_runs() -> None:
    operation = only(planned("queue", of=state(RUNNING, DONE))).operation
    assert isinstance(operation, Execute)
    assert "--dependency=afterany:88_3" in operation.argv
    behind = replace(WAITING, id="95", number=95, array=None, tasks=None, submitted_at=NOW - 10)
    operation = only(planned("queue", of=state(PLAIN, behind))).operation
    assert isinstance(operation, Execute)
    assert "--dependency=afterany:95" in operation.argv


def test_without_any_job_it_starts_as_soon_as_it_can() -> None:
    action = only(planned("queue", of=state(DONE)))
    assert isinstance(action.operation, Execute)
    assert action.operation.argv == ("sbatch", "--array=1-1%1", "--chdir=/fsx", "/fsx/train.slurm")
    assert ("working directory", "/fsx (the directory of the script)") in action.facts
    assert action.consequences[1] == "It starts as soon as its nodes are free."


def test_a_run_whose_jobs_have_all_left_the_queue_is_queued_anew() -> None:
    """Slurm forgets a job minutes after it died, which is when somebody wakes up."""
    gone = replace(DONE, gone_at=NOW - 600)
    for seen in (readback(), readback(gone=frozenset({gone.key}))):
        action = only(planned("queue", of=state(gone), seen=seen))
        assert action.consequences[1] == "It starts as soon as its nodes are free."
    silent = state(gone, sources={"slurm:prod": source("slurm:prod", health="down", error="no answer")})
    assert refused(planned("queue", of=silent)).why == "no answer"


def test_what_the_queue_says_just_now_decides_for_whom_it_waits() -> None:
    newer = replace(WAITING, id="99", number=99, array=None, tasks=None, submitted_at=NOW - 1)
    operation = only(planned("queue", seen=readback(newer))).operation
    assert isinstance(operation, Execute)
    assert "--dependency=afterany:99" in operation.argv


def test_without_a_script_the_way_out_is_reported() -> None:
    bare = replace(RUN, spec=replace(SPEC, script=None))
    one = refused(planned("queue", of=state(replace(RUNNING, command="/fsx/my job.slurm"), run=bare)))
    assert one.why == "no script is configured for llm"
    assert one.hint == "set script in the [[run]] of llm; its job was submitted from /fsx/my job.slurm"


def test_under_an_armed_kill_switch_nothing_is_queued() -> None:
    run = replace(RUN, kill=Switch(path=KILL, exists=True, armed_at=NOW - 240, by="ben"))
    one = refused(planned("queue", of=state(run=run)))
    assert one.why == "kill switch, armed 4m ago by ben: the queued job would end as soon as it starts"
    assert one.hint == "remove it first: U, or trainmon-tui unkill llm"


def test_a_count_that_is_none_is_refused() -> None:
    for count in (0, -1, 1001):
        assert refused(planned("queue", count=count)).why == f"{count} is out of range: 1 to 1000"


def test_the_queue_must_be_known() -> None:
    one = refused(planned("queue", of=state(DONE), seen=readback(errors={"prod": "login: squeue: no answer"})))
    assert one.why == "login: squeue: no answer"
    known = state(DONE)
    unpolled = {"slurm:prod": replace(known.sources["slurm:prod"], answered_at=None)}
    one = refused(planned("queue", of=replace(known, sources={**known.sources, **unpolled}, jobs={}), seen=readback()))
    assert one.why == "no data from Slurm yet"


def test_nasty_paths_are_one_argument_each() -> None:
    nasty = replace(RUN, spec=replace(SPEC, script="/fsx/a'; echo $(id).slurm"))
    action = only(planned("queue", of=state(replace(RUNNING, workdir="/fsx/two words"), run=nasty)))
    assert isinstance(action.operation, Execute)
    assert action.operation.argv[-2:] == ("--chdir=/fsx/two words", "/fsx/a'; echo $(id).slurm")
    assert action.operation.shown.endswith("""'--chdir=/fsx/two words' '/fsx/a'"'"'; echo $(id).slurm'""")


def test_a_node_is_kept_from_the_waiting_jobs_of_the_run_that_used_it() -> None:
    kept = replace(WAITING, excluded=("n7",))
    other = replace(WAITING, id="70", number=70, array=None, tasks=None, name="other")
    action = only(planned("exclude", "n1", of=state(RUNNING, kept, other)))
    assert action.operation == Execute(("scontrol", "update", "JobId=88_[4-10]", "ExcNodeList=n7,n1"))
    assert action.title == "Keep job 88_[4-10%1] of llm off n1"
    assert ("already excluded", "n7") in action.facts
    assert (action.job, action.run, action.subject) == ("prod/88_[]", "llm", "n1")


def test_several_nodes_are_one_list() -> None:
    action = only(planned("exclude", "n1", "n2"))
    assert action.operation == Execute(("scontrol", "update", "JobId=88_[4-10]", "ExcNodeList=n1,n2"))


def test_a_node_that_no_run_used_is_kept_from_all_that_are_ours() -> None:
    other = replace(WAITING, id="70", number=70, array=None, tasks=None, name="other")
    bens = replace(other, id="71", number=71, user="ben")
    plan = planned("exclude", "n9", of=state(RUNNING, WAITING, other, bens))
    assert sorted(action.job or "" for action in plan.actions) == ["prod/70", "prod/88_[]"]


def test_a_run_that_is_named_is_the_only_one() -> None:
    other = replace(WAITING, id="70", number=70, array=None, tasks=None, name="other")
    plan = planned("exclude", "n9", of=state(RUNNING, WAITING, other), run="llm")
    assert [action.job for action in plan.actions] == ["prod/88_[]"]


def test_an_operator_drains_as_well() -> None:
    plan = planned("exclude", "n1", of=state(clusters=OPERATOR))
    drain = plan.actions[1]
    assert drain.operation == Execute(
        ("scontrol", "update", "NodeName=n1", "State=DRAIN", "Reason=loss spike (ana, trainmon-tui)")
    )
    assert (drain.title, drain.job) == ("Drain n1", None)
    assert drain.warnings == ("This affects all users, not only your runs.",)


def test_a_node_that_is_excluded_already_or_waited_for_by_nobody_is_refused() -> None:
    kept = replace(WAITING, excluded=("n1",))
    assert refused(planned("exclude", "n1", of=state(RUNNING, kept))).why == "every pending job excludes it already"
    one = refused(planned("exclude", "n1", of=state(RUNNING)))
    assert one.why == "none of your pending jobs could run on it"
    assert one.hint == "only an operator may drain it: tell your administrators what is wrong with it"


def test_a_node_that_no_job_of_ours_holds_is_one_too() -> None:
    assert actions.reads_for_plan(ask("exclude", "n77"), state(), readback())[0].nodes == ("n77",)
    assert [one.job for one in planned("exclude", "n77").actions] == ["prod/88_[]"]
    drained = {"n77": SchedulerNode(name="n77", cluster="prod", state="IDLE", flags=("DRAIN",))}
    plan = planned("exclude", "n77", of=state(clusters=OPERATOR), seen=readback(nodes=drained))
    assert [one.job for one in plan.actions] == ["prod/88_[]"]


def test_an_unknown_node_is_refused() -> None:
    unknown = readback(gone=frozenset({"prod/n77"}))
    assert refused(planned("exclude", "n77", seen=unknown)).why == "Slurm knows no node called n77"
    unread = readback(errors={"prod/n77": "login: no answer"})
    assert refused(planned("exclude", "n77", seen=unread)).why == "login: no answer"
    assert refused(planned("exclude", "--all")).why == "no node is called --all"
    two = {**state().clusters, "test": replace(CLUSTER, name="test")}
    sources = {**state().sources, "slurm:test": source("slurm:test", cluster="test")}
    assert refused(planned("exclude", "n77", of=state(clusters=two, sources=sources))).why == "no node is called n77"


def test_a_job_whose_list_could_not_be_read_is_left_alone() -> None:
    plan = planned("exclude", "n1", seen=readback(errors={"prod/88_[]": "login: no answer"}))
    assert refused(plan).why == "login: no answer"
    down = {"slurm:prod": source("slurm:prod", health="down", error="silent")}
    assert refused(planned("exclude", "n1", of=state(sources=down))).why == "silent"


HETEROGENEOUS = replace(PLAIN, components=(88, 89))


def test_a_heterogeneous_job_is_queued_without_an_array() -> None:
    operation = only(planned("queue", of=state(HETEROGENEOUS))).operation
    assert isinstance(operation, Execute)
    assert operation.argv == ("sbatch", "--dependency=afterany:88", "--chdir=/fsx/work", "/fsx/train.slurm")
    one = refused(planned("queue", of=state(HETEROGENEOUS), count=2))
    assert one.why == "the jobs of llm are heterogeneous: Slurm makes no array of them"


def test_what_one_component_keeps_off_holds_for_all_afterwards() -> None:
    waits = replace(HETEROGENEOUS, state="PENDING", excluded=("n8",), excluded_in_part=("n9",))
    action = only(planned("exclude", "n9", of=state(waits), run="llm"))
    assert action.operation == Execute(("scontrol", "update", "JobId=88", "ExcNodeList=n8,n9"))
    assert ("already excluded", "n8, n9") in action.facts
    assert actions.recheck(action, readback(waits)) is None
    other = replace(waits, excluded_in_part=())
    assert "excludes n8 now" in str(actions.recheck(action, readback(other)))


def test_nothing_is_queued_for_a_run_whose_jobs_are_another_users() -> None:
    bens = replace(RUN, spec=replace(SPEC, user="ben"))
    one = refused(planned("queue", of=state(replace(PLAIN, user="ben"), run=bens)))
    assert one.why == "the jobs of llm are ben's: a job queued from here would be yours, not the run's"
    ours = replace(RUN, spec=replace(SPEC, user="ana"))
    assert only(planned("queue", of=state(PLAIN, run=ours))).verb == "queue"
