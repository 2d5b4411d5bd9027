"""What a scheduler says → the new jobs, nodes and runs."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.trainmon.analysis.retries.attempts import BEGIN, HOUR, ended
from trainmon.analysis.nodes import spares
from trainmon.analysis.retries import use_of
from trainmon.engine.reducers.reduce import reduce
from trainmon.model import (
    AttemptsRestored,
    Cluster,
    ClustersChanged,
    Event,
    Job,
    JobChanged,
    JobsListed,
    RunsChanged,
    RunSpec,
    SchedulerNode,
    SchedulerNodesListed,
    Source,
    SourceChanged,
    State,
)

NOW = 100_000.0
SPEC = RunSpec(name="llm", cluster="prod", log="/fsx/llm.out")
SLURM = Source(name="slurm:prod", kind="slurm", cluster="prod", phase="up", answered_at=NOW, period=30)


def job(number: int = 88, **changes: Any) -> Job:
    usual = {"cluster": "prod", "id": str(number), "number": number, "name": "llm", "user": "ana", "submitted_at": 1.0}
    return Job(**usual | {"state": "RUNNING", "started_at": NOW - 600} | changes)


def waiting(number: int, **changes: Any) -> Job:
    return job(number, **{"state": "PENDING", "started_at": None} | changes)


def folded(*events: Event, state: State | None = None, now: float = NOW) -> State:
    return reduce(state or State(), events, now)


def seen(*jobs: Job, at: float = NOW) -> JobsListed:
    return JobsListed("prod", at, jobs)


def test_a_run_has_its_jobs_by_name_the_running_one_first() -> None:
    rows = (waiting(90), job(88), waiting(89), job(70, name="other"))
    state = folded(SourceChanged(SLURM), RunsChanged((SPEC,)), seen(*rows))
    run = state.runs["llm"]
    assert run.jobs == ("prod/88", "prod/89", "prod/90")
    assert run.job == "prod/88"
    assert run.queued_behind == 2


def test_array_elements_and_what_depends_on_it_count_as_queued_behind() -> None:
    array = waiting(91, id="91_[2-5%1]", array=91, tasks="2-5%1")
    other = waiting(95, name="eval", dependency="afterany:88(unfulfilled)")
    stranger = waiting(96, name="eval", dependency="afterany:880(unfulfilled)")
    state = folded(SourceChanged(SLURM), RunsChanged((SPEC,)), seen(job(88), array, other, stranger))
    assert state.runs["llm"].queued_behind == 5


def test_the_place_in_a_queue_that_was_never_read_is_unknown() -> None:
    assert folded(RunsChanged((SPEC,))).runs["llm"].queued_behind is None


def test_a_job_that_vanishes_is_gone_and_keeps_what_was_known() -> None:
    state = folded(seen(job(restarts=2, detail_at=NOW)))
    state = folded(seen(at=NOW + 30), state=state, now=NOW + 30)
    assert state.jobs["prod/88"].gone_at == NOW + 30
    assert state.jobs["prod/88"].restarts == 2
    state = folded(JobChanged(job(state="FAILED", exit_code="1:0")), state=state, now=NOW + 31)
    assert (state.jobs["prod/88"].state, state.jobs["prod/88"].gone_at) == ("FAILED", NOW + 30)
    state = folded(seen(at=NOW + 90_000), state=state, now=NOW + 90_000)
    assert "prod/88" not in state.jobs


def test_the_waiting_elements_of_an_array_vanish_as_they_start() -> None:
    state = folded(seen(waiting(91, id="91_[2-5%1]", array=91, tasks="2-5%1")))
    state = folded(seen(job(93, id="91_2", array=91, tasks="2"), at=NOW + 30), state=state)
    assert list(state.jobs) == ["prod/91_2"]


def test_details_stay_with_the_same_job_and_not_with_a_number_used_again() -> None:
    state = folded(seen(job(stdout="/fsx/88.out", detail_at=NOW)))
    assert folded(seen(job()), state=state).jobs["prod/88"].stdout == "/fsx/88.out"
    assert folded(seen(job(submitted_at=2.0)), state=state).jobs["prod/88"].stdout is None


def test_another_clusters_jobs_are_left_alone() -> None:
    state = folded(seen(job()))
    other = folded(JobsListed("lab", NOW + 30, ()), state=state)
    assert other.jobs["prod/88"].gone_at is None


def test_spares_are_idle_for_the_scheduler_and_well_for_us() -> None:
    listed = [SchedulerNode(name=f"n{n}", cluster="prod", state="IDLE") for n in range(4)]
    listed.append(SchedulerNode(name="n4", cluster="prod", state="IDLE", flags=("DRAIN",)))
    listed.append(SchedulerNode(name="n5", cluster="prod", state="ALLOCATED"))
    down = Source(name="node:n1", kind="node", cluster="prod", phase="retrying", error="no answer")
    state = folded(
        ClustersChanged((Cluster(name="prod", login="login1", spares=4),)),
        SourceChanged(SLURM),
        SourceChanged(down),
        SchedulerNodesListed("prod", NOW, tuple(listed)),
    )
    found = spares(state)[0]
    assert (found.wanted, found.idle_healthy, found.drained, found.are_missing) == (4, 3, 1, True)


def test_spares_are_counted_where_the_runs_train_and_only_where_some_are_wanted() -> None:
    listed = [SchedulerNode(name=f"n{n}", cluster="prod", state="IDLE", partitions=("h100", "all")) for n in range(2)]
    listed += [SchedulerNode(name=f"c{n}", cluster="prod", state="IDLE", partitions=("cpu",)) for n in range(5)]
    events: list[Event] = [
        SourceChanged(SLURM),
        RunsChanged((RunSpec(name="llm", cluster="prod"),)),
        JobsListed("prod", NOW, (job(88, partition="h100"), job(89, name="prepare", partition="cpu"))),
        SchedulerNodesListed("prod", NOW, tuple(listed)),
    ]
    wanted, unwanted = (
        spares(folded(ClustersChanged((Cluster(name="prod", login="login1", spares=count),)), *events))[0]
        for count in (4, 0)
    )
    assert (wanted.idle_healthy, wanted.are_missing) == (2, True)
    assert (unwanted.idle_healthy, unwanted.drained) == (None, 0)


def test_spares_are_not_known_before_the_scheduler_has_spoken() -> None:
    state = folded(ClustersChanged((Cluster(name="prod", login="login1", spares=4),)), SourceChanged(SLURM))
    assert (spares(state)[0].idle_healthy, spares(state)[0].are_missing) == (None, False)


def test_the_nodes_are_judged_by_what_the_ledger_holds_and_by_each_attempt_that_ends() -> None:
    nodes = ("n1", "n2", "n3", "n4")
    calm = replace(ended(0, "completed", nodes=nodes, run_id="calm"), started_at=BEGIN - 100 * HOUR)
    failed = [ended(one, "gpu-hardware", "n1: Xid 79", nodes=("n1", "n2"), run_id=f"r{one}") for one in range(1, 8)]
    old, new = failed[:4], tuple(failed[4:])
    known = folded(AttemptsRestored((), tuple(map(use_of, (calm, *old)))))
    assert (len(known.node_uses), known.node_records["prod/n1"].failures) == (5, 4)
    assert not known.node_records["prod/n1"].is_bad, "too few to say"
    after = folded(AttemptsRestored(new), state=known)
    one = after.node_records["prod/n1"]
    assert (len(after.node_uses), one.first_errors, one.is_bad) == (8, 7, True)
    again = folded(AttemptsRestored(new), state=after)
    assert again.node_records is after.node_records, "an attempt that is reported again counts once"
