"""Which jobs are a run's, and which runs there are."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from trainmon.analysis.runs.context import (
    ENDED_RUNS_STAY,
    FOUND_AT_MOST,
    holds_nodes,
    jobs_of,
    owner_of,
    parts_by_node,
    present,
    rivals,
    watched_runs,
)
from trainmon.model import Job, JobPart, RunSpec, WandbSpec

ME: dict[str, str | None] = {"prod": "ana", "other": "a.meyer"}
NOW = 100_000.0


def job(number: int, state: str = "RUNNING", **log_text: Any) -> Job:
    facts: dict[str, Any] = {"cluster": "prod", "name": "llm", "user": "ana", "batch": True, "id": str(number)}
    return Job(number=number, state=state, **{**facts, **log_text})


def runs(*jobs: Job, configured: tuple[RunSpec, ...] = (), before: tuple[RunSpec, ...] = ()) -> tuple[RunSpec, ...]:
    return watched_runs(configured, before, jobs, ME, NOW)


def test_the_jobs_of_a_run_are_those_that_run_then_wait_then_ended() -> None:
    facts = [
        job(1, "COMPLETED", ends_at=50.0),
        job(2, "FAILED", ends_at=60.0),
        job(3, "PENDING", submitted_at=5.0),
        job(4, "PENDING", submitted_at=4.0),
        job(5, started_at=10.0),
        job(6, started_at=20.0),
        job(7, started_at=99.0, gone_at=100.0),
        job(8, name="else"),
        job(9, cluster="other"),
    ]
    own = jobs_of(RunSpec(name="llm", cluster="prod"), facts)
    assert [one.number for one in own] == [6, 5, 4, 3, 7, 2, 1]
    assert present(own) == facts[5]
    assert present(own[2:]) is None
    assert present(()) is None


def test_of_those_that_started_together_the_later_number_is_the_present_one() -> None:
    own = jobs_of(RunSpec(name="llm", cluster="prod"), [job(1, started_at=10.0), job(2, started_at=10.0)])
    assert [one.number for one in own] == [2, 1]


def test_a_state_that_no_slurm_documents_is_not_an_end() -> None:
    strange = job(1, "REBOOTING_NODES", started_at=10.0)
    assert present(jobs_of(RunSpec(name="llm", cluster="prod"), [strange])) == strange
    assert not holds_nodes(strange)


def test_processes_are_on_the_nodes_between_configuring_and_completing() -> None:
    states = ["PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "COMPLETED"]
    assert [holds_nodes(job(1, state)) for state in states] == [False, False, True, True, True, False, False]
    assert not holds_nodes(job(1, gone_at=5.0))


def test_a_node_belongs_to_the_component_there_and_to_a_suspended_job_last() -> None:
    whole = replace(job(6), nodes=("a", "b", "c"), component_nodes=(("a",), ("b", "c")))
    assert parts_by_node([whole]) == {"a": JobPart(6, 0), "b": JobPart(6, 1), "c": JobPart(6, 1)}
    suspended, runs = (
        replace(job(number, state), nodes=("a",)) for number, state in ((7, "SUSPENDED"), (8, "RUNNING"))
    )
    assert parts_by_node([runs, suspended]) == {"a": JobPart(8)}
    assert parts_by_node([suspended]) == {"a": JobPart(7)}


def test_a_run_of_the_config_gets_its_jobs_nodes_and_log() -> None:
    spec = RunSpec(name="video", cluster="prod", job="llm", checkpoints="/fsx/ckpt", nodes=("n7",))
    (run,) = runs(job(1, nodes=("n1", "n2"), stdout="/fsx/1.out"), configured=(spec,))
    assert run == replace(spec, nodes=("n1", "n2"), log="/fsx/1.out")


def test_what_the_config_says_of_a_log_goes_before_the_job() -> None:
    spec = RunSpec(name="llm", cluster="prod", log="/fsx/logs/*.out")
    (run,) = runs(job(1, stdout="/fsx/1.out"), configured=(spec,))
    assert run.log == "/fsx/logs/*.out"


def test_a_run_whose_log_is_wandbs_follows_no_file_of_its_job() -> None:
    spec = RunSpec(name="llm", cluster="prod", wandb=WandbSpec(project="team/video", group="a", console=True))
    (run,) = runs(job(1, nodes=("n1",), stdout="/fsx/1.out"), configured=(spec,))
    assert (run.nodes, run.log) == (("n1",), None)


def test_without_a_job_a_run_of_the_config_is_as_the_config_says() -> None:
    spec = RunSpec(name="llm", cluster="prod", nodes=("n7",))
    assert runs(configured=(spec,)) == (spec,)


def test_the_log_and_nodes_of_a_job_that_ended_stay_until_the_next_begins() -> None:
    spec = RunSpec(name="llm", cluster="prod")
    first = runs(job(1, nodes=("n1",), stdout="/fsx/1.out"), configured=(spec,))
    between = runs(
        job(1, "COMPLETED", nodes=("n1",), stdout="/fsx/1.out"), job(2, "PENDING"), configured=(spec,), before=first
    )
    assert between == first
    (second,) = runs(job(2, nodes=("n3",), stdout="/fsx/2.out"), configured=(spec,), before=between)
    assert (second.nodes, second.log) == (("n3",), "/fsx/2.out")


def test_the_log_of_a_job_that_ended_before_this_start_is_read_until_the_next_begins() -> None:
    ended, waiting = job(88, "FAILED", started_at=1.0, stdout="/fsx/88.log"), job(89, "PENDING")
    configured = (RunSpec(name="llm", cluster="prod"),)
    assert [spec.log for spec in runs(ended, waiting, configured=configured)] == ["/fsx/88.log"]
    never = job(88, "CANCELLED", stdout="/fsx/88.log")
    assert [spec.log for spec in runs(never, configured=configured)] == [None]


def test_the_log_of_a_job_that_was_never_seen_running_shows_how_it_ended() -> None:
    spec = RunSpec(name="llm", cluster="prod")
    before = runs(job(1, started_at=1.0, stdout="/fsx/1.out"), configured=(spec,))
    first = job(1, "FAILED", started_at=1.0, ends_at=5.0, stdout="/fsx/1.out")
    second = job(2, "FAILED", started_at=6.0, ends_at=8.0, stdout="/fsx/2.out")
    assert [run.log for run in runs(first, second, configured=(spec,), before=before)] == ["/fsx/2.out"]
    unread = replace(second, stdout=None)
    assert [run.log for run in runs(first, unread, configured=(spec,), before=before)] == ["/fsx/1.out"]
    gone = replace(second, state="RUNNING", ends_at=None, gone_at=8.0)
    assert [run.log for run in runs(first, gone, configured=(spec,), before=before)] == ["/fsx/2.out"]


def test_our_own_running_batch_jobs_are_runs_by_themselves() -> None:
    found = runs(
        job(1, nodes=("n1",), stdout="/home/ana/slurm-1.out"),
        job(2, name="waits", state="PENDING"),
        job(3, name="interactive", batch=False),
        job(4, name="not-asked-yet", batch=None),
        job(5, name="bobs", user="bob"),
        job(6, name="gone", gone_at=5.0),
        job(7, name=""),
    )
    log = "/home/ana/slurm-1.out"
    assert found == (RunSpec(name="llm", cluster="prod", job="llm", user="ana", found=True, nodes=("n1",), log=log),)


def test_who_we_are_differs_by_cluster() -> None:
    found = runs(
        job(1),
        job(2, cluster="other", name="theirs", user="ana"),
        job(3, cluster="other", name="mine", user="a.meyer"),
        job(4, cluster="third", name="unknown", user="ana"),
        job(5, cluster="third", name="nobodys", user=""),
    )
    assert [(run.cluster, run.name) for run in found] == [("prod", "llm"), ("other", "mine")]


def test_another_users_job_of_the_same_name_is_not_ours() -> None:
    mine, bobs = job(1, started_at=1.0, nodes=("n1",)), job(2, started_at=9.0, nodes=("n2",), user="bob")
    (run,) = runs(mine, bobs)
    assert (run.nodes, jobs_of(run, [mine, bobs])) == (("n1",), (mine,))
    watched = RunSpec(name="llm", cluster="prod")
    assert jobs_of(watched, [mine, bobs]) == (bobs, mine)


def test_a_job_of_a_run_in_the_config_is_no_run_of_its_own() -> None:
    spec = RunSpec(name="video", cluster="prod", job="llm")
    assert [run.name for run in runs(job(1), job(2), configured=(spec,))] == ["video"]


def test_jobs_of_ours_that_train_at_once_under_one_name_are_a_run_each() -> None:
    first, second, third = (
        job(number, started_at=float(number), nodes=(f"n{number}",), stdout=f"/fsx/{number}.out")
        for number in (1, 2, 3)
    )
    found = runs(first, second)
    assert [(run.name, run.log, run.nodes) for run in found] == [
        ("llm", "/fsx/1.out", ("n1",)), ("llm#2", "/fsx/2.out", ("n2",)),
    ]  # fmt: skip
    assert [jobs_of(run, [first, second]) for run in found] == [(first,), (second,)]
    more = runs(third, second, first, before=found)
    assert [(run.name, run.log) for run in more] == [
        ("llm", "/fsx/1.out"), ("llm#2", "/fsx/2.out"), ("llm#3", "/fsx/3.out"),
    ]  # fmt: skip
    over = replace(first, state="FAILED")
    assert {run.name: run.log for run in runs(over, second, third, before=more)} == {run.name: run.log for run in more}
    again = job(4, started_at=4.0, stdout="/fsx/4.out")
    assert {run.name: run.log for run in runs(over, second, third, again, before=more)}["llm"] == "/fsx/4.out"


def test_a_job_that_was_not_known_to_be_ours_takes_no_row_from_another() -> None:
    early, late = job(1, started_at=1.0, stdout="/fsx/1.out"), job(2, started_at=2.0, stdout="/fsx/2.out")
    first = runs(replace(early, batch=None, stdout=None), late)
    assert [(run.name, run.log) for run in first] == [("llm", "/fsx/2.out")]
    assert [(run.name, run.log) for run in runs(early, late, before=first)] == [
        ("llm", "/fsx/2.out"), ("llm#1", "/fsx/1.out"),
    ]  # fmt: skip


def test_a_job_and_the_one_that_follows_it_are_one_run() -> None:
    ends, begins = job(1, "COMPLETING", started_at=1.0), job(2, started_at=2.0, stdout="/fsx/2.out")
    assert [(run.name, run.log) for run in runs(ends, begins)] == [("llm", "/fsx/2.out")]


def test_of_a_sweep_those_that_run_go_before_those_that_ended() -> None:
    ended = [job(number, id=f"9_{number}", started_at=1.0) for number in range(FOUND_AT_MOST)]
    before = runs(*ended)
    assert len(before) == FOUND_AT_MOST
    over = [replace(one, state="COMPLETED") for one in ended]
    fresh = [job(1000 + number, id=f"9_{1000 + number}", started_at=2.0) for number in range(5)]
    after = runs(*over, *fresh, before=before)
    assert len(after) == FOUND_AT_MOST
    assert [present(jobs_of(run, fresh)) for run in after[:5]] == fresh


def test_runs_of_one_name_are_distinguished_by_their_clusters_and_keep_their_names() -> None:
    jobs = (job(1), job(2, cluster="other", user="a.meyer"))
    configured = (RunSpec(name="llm", cluster="prod", job="something-else"),)
    found = runs(*jobs, configured=configured)
    assert [run.name for run in found] == ["llm", "llm@prod", "llm@other"]
    assert runs(*reversed(jobs), configured=configured, before=found) == found
    left = runs(jobs[1], configured=configured, before=found)
    assert [run.name for run in left] == ["llm", "llm@other"]


def test_a_found_run_outlives_its_job_by_a_day() -> None:
    before = runs(job(1, nodes=("n1",), stdout="/fsx/1.out"))
    ended = job(1, "FAILED", nodes=("n1",), stdout="/fsx/1.out")
    for job_now in (ended, replace(ended, gone_at=NOW - 60)):
        assert watched_runs((), before, [job_now], ME, NOW) == before
    assert watched_runs((), before, [replace(ended, gone_at=NOW - ENDED_RUNS_STAY)], ME, NOW) == ()


def test_a_found_run_of_another_cluster_leaves_no_log_behind() -> None:
    before = runs(job(1, stdout="/fsx/1.out"))
    (run,) = watched_runs((), before, [job(2, cluster="other", user="a.meyer")], ME, NOW)
    assert (run.name, run.cluster, run.log) == ("llm", "other", None)


def test_a_sweep_of_a_thousand_names_is_not_a_thousand_runs() -> None:
    found = runs(*(job(number, name=f"sweep-{number}") for number in range(1000)))
    assert len(found) == FOUND_AT_MOST
    assert runs(*(job(number, name=f"sweep-{number}") for number in range(1000)), before=found) == found


@pytest.mark.parametrize(
    ("user", "users", "owner"),
    [
        (None, (), "ana"),
        (None, ("me", "bob"), "ana"),
        (None, ("ana", "bob"), "ana"),
        ("me", ("bob",), "ana"),
        ("bob", (), "bob"),
        ("bob", ("me", "bob"), "bob"),
        (None, ("bob", "eve"), None),
    ],
)
def test_the_jobs_of_a_run_are_ours_unless_the_config_says_otherwise(
    user: str | None, users: tuple[str, ...], owner: str | None
) -> None:
    assert owner_of(RunSpec(name="llm", cluster="prod", user=user), users, "ana") == owner


def test_of_two_that_train_under_one_name_the_log_or_the_nodes_decide_which_is_the_runs() -> None:
    main = job(1, nodes=("n1", "n2"), stdout="/fsx/main/1.out")
    trial = job(2, started_at=9.0, nodes=("n3",), stdout="/home/ana/2.out")
    for spec in (
        RunSpec(name="llm", cluster="prod", log="/fsx/main/*.out"),
        RunSpec(name="llm", cluster="prod", nodes=("n2", "n9")),
    ):
        (run,) = runs(main, trial, configured=(spec,))
        assert jobs_of(run, [main, trial]) == (main,)
        assert jobs_of(run, [main, trial, job(3, "PENDING")])[1].number == 3, "what waits may still be its"
    (run,) = runs(main, trial, configured=(RunSpec(name="llm", cluster="prod", log="/fsx/train.log"),))
    assert rivals(jobs_of(run, [main, trial])) == (trial, main), "neither writes that log, and both may be the run"


def test_what_waits_behind_a_job_or_cleans_up_before_it_is_no_rival() -> None:
    assert rivals([job(1), job(2, "PENDING"), job(3, "COMPLETING"), job(4, "FAILED"), job(5, gone_at=1.0)]) == ()
    mine, bobs = job(1, "PENDING"), job(2, "PENDING", user="bob")
    assert rivals([mine, bobs]) == (mine, bobs)


def test_our_job_is_a_run_by_itself_beside_anothers_run_of_that_name() -> None:
    bobs = RunSpec(name="llm", cluster="prod", user="bob")
    assert [(run.name, run.user) for run in runs(job(1), job(2, user="bob"), configured=(bobs,))] == [
        ("llm", "bob"), ("llm@prod", "ana"),
    ]  # fmt: skip
