"""What one poll asks for: details, accounting and nodes."""

from __future__ import annotations

import pytest

from tests.collectors.slurm.fake_slurm import Polled
from trainmon.lib import CommandFailed
from trainmon.model import ClustersChanged, SourceChanged
from trainmon.transport.shell import Completed


def test_details_are_queried_again_when_the_state_or_the_start_changes() -> None:
    polled = Polled()
    own = polled.slurm.submit()
    polled.first()
    polled.slurm.jobs[own] |= {"T": "PENDING", "r": "BeginTime", "V": "2026-03-02T09:00:00", "restarts": "1"}
    polled.look()
    assert [(job.state, job.restarts) for job in polled.changed] == [("PENDING", 1)]
    polled.look()
    assert polled.changed == []
    polled.slurm.jobs[own] |= {"T": "RUNNING", "S": "2026-03-02T09:02:00"}
    polled.look()
    assert len(polled.changed) == 1


def test_a_job_that_is_requeued_between_the_queue_and_its_details_has_no_restart_that_it_has_not_shown() -> None:
    polled = Polled()
    own = polled.slurm.submit()
    polled.first()
    polled.slurm.jobs[own] |= {"T": "FAILED", "V": "2026-03-02T07:00:00", "restarts": "1"}
    polled.slurm.jobs[own] |= {"shown_at": "2026-03-02T09:00:00"}
    polled.look()
    assert polled.changed == []
    polled.slurm.jobs[own] |= {"T": "PENDING", "V": "2026-03-02T09:00:00"}
    polled.look()
    assert [(job.state, job.restarts) for job in polled.changed] == [("PENDING", 1)]


def test_one_process_asks_for_all_our_jobs_and_few_of_others_the_running_ones_first() -> None:
    polled = Polled(users=("ana", "ben"))
    for _ in range(60):
        polled.slurm.submit(u="ben")
    waiting = [polled.slurm.submit(T="PENDING", N="") for _ in range(35)]
    mine = [polled.slurm.submit() for _ in range(15)]
    polled.first()
    assert len(polled.jobs) == 110
    own, others = polled.slurm.asked
    assert set(own[:15]) == set(mine)
    assert set(own[15:]) == set(waiting)
    assert [job.id for job in polled.changed] == [*own, *others]
    for _ in range(2):
        polled.look()
    assert [len(asked) for asked in polled.slurm.asked] == [50, 20, 20, 20]
    polled.look()
    assert polled.slurm.count("scontrol") == 0


def test_a_job_that_has_just_gone_hides_no_details_of_the_others() -> None:
    polled = Polled()
    kept, gone = polled.slurm.submit(), polled.slurm.submit()
    shown = polled.slurm.jobs[gone]
    polled.slurm.hidden.add(gone)
    polled.first()
    assert [job.id for job in polled.changed] == [kept]
    assert polled.slurm.jobs[gone] == shown
    polled.look()
    assert polled.slurm.asked == [[gone, kept]]


def test_the_queue_is_published_before_the_details() -> None:
    polled = Polled()
    polled.slurm.submit()
    polled.slurm.detail_takes = 7.0
    polled.first()
    kinds = [type(event).__name__ for event in polled.events]
    up = max(at for at, event in enumerate(polled.events) if isinstance(event, SourceChanged))
    assert polled.source.phase == "up"
    assert kinds.index("JobsListed") < up < kinds.index("JobChanged")
    assert polled.source.answered_at == polled.clock.now() - 7.0
    assert polled.cluster.is_polled


def test_a_slow_controller_gets_few_detail_requests_at_a_time() -> None:
    polled = Polled()
    for _ in range(30):
        polled.slurm.submit()
    polled.slurm.takes = polled.slurm.detail_takes = 4.0
    polled.first()
    assert len(polled.changed) == 5


def test_details_that_do_not_come_in_time_are_requested_in_smaller_parts() -> None:
    polled = Polled()
    for _ in range(30):
        polled.slurm.submit()
    polled.slurm.detail_takes = 3.0  # the controller limits its callers, but not the first request
    polled.first()
    assert (len(polled.changed), polled.source.phase, polled.source.error) == (0, "up", None)
    for _ in range(6):
        polled.look()
    assert [len(asked) for asked in polled.slurm.asked] == [30, 7, 7, 7, 7, 2]
    assert all(job.restarts == 0 for job in polled.seen[-1][0])


def test_looking_at_a_job_requests_its_details_at_most_every_5_s() -> None:
    polled = Polled()
    polled.slurm.submit()
    polled.first()
    polled.events.clear()
    for _ in range(100):
        polled.clock.at += 0.1
        polled.poller.poll_job("prod/88")
        polled.poller.poll_job("prod/nonsense")
        polled.poller.step()
    assert len(polled.changed) == 2
    assert polled.looks == 0


def test_looking_at_many_jobs_of_a_silent_controller_keeps_nobody_waiting() -> None:
    polled = Polled()
    for _ in range(30):
        polled.slurm.submit()
    polled.first()
    polled.slurm.requests.clear()
    polled.slurm.trouble["scontrol"] = CommandFailed("login1: env did not end in 25s")
    for number in range(88, 118):
        polled.poller.poll_job(f"prod/{number}")
    polled.poller.step()
    assert polled.slurm.count("scontrol") == 1
    polled.slurm.trouble["squeue"] = CommandFailed("login1: env did not end in 25s")
    polled.look()
    assert polled.source.phase == "retrying"
    polled.slurm.requests.clear()
    polled.clock.at += 20
    polled.poller.poll_job("prod/88")
    polled.poller.step()
    assert polled.slurm.requests == []  # its source tells that it is silent


def test_accounting_is_queried_only_for_what_vanished() -> None:
    polled = Polled()
    own = polled.slurm.submit()
    polled.first()
    del polled.slurm.jobs[own]
    fields = [
        "88",
        "88",
        "CANCELLED by 1234",
        "0:15",
        "2026-03-02T07:00:00",
        "2026-03-02T08:00:00",
        "2026-03-02T09:00:00",
    ]
    polled.slurm.ended = "|1#".join([*fields, "ana", "h100", "llm", "high", "1", "gpu-1"])
    polled.look()
    (job,) = polled.changed
    assert (job.state, job.cancelled_by, job.name, job.stdout) == ("CANCELLED", "kim", "run", "/fsx/88.out")
    assert job.gone_at == polled.clock.now()
    assert job.ends_at is not None
    polled.look()
    assert polled.slurm.count("sacct") == 0


@pytest.mark.parametrize("state", ["FAILED", "RUNNING", "COMPLETING"])
def test_accounting_is_asked_how_a_requeued_attempt_ended_whatever_the_queue_showed_last(state: str) -> None:
    polled = Polled()
    own = polled.slurm.submit()
    polled.first()
    polled.slurm.jobs[own] |= {"T": state}
    polled.look()
    assert polled.slurm.count("sacct") == 0
    polled.slurm.jobs[own] |= {"T": "PENDING", "V": "2026-03-02T09:00:00", "restarts": "1"}
    polled.look()
    assert polled.slurm.count("sacct") == 1


def test_accounting_that_lags_is_queried_again_but_not_for_ever() -> None:
    polled = Polled()
    own = polled.slurm.submit()
    polled.first()
    del polled.slurm.jobs[own]
    requested = 0
    for _ in range(30):
        polled.look()
        requested += polled.slurm.count("sacct")
    assert requested == 10
    assert polled.changed == []


def test_without_accounting_there_is_no_query_and_no_error() -> None:
    polled = Polled()
    polled.slurm.accounts = "none"
    own = polled.slurm.submit()
    polled.first()
    assert (polled.cluster.accounting, polled.cluster.may_operate) == (False, False)
    del polled.slurm.jobs[own]
    polled.look()
    assert (polled.slurm.count("sacct"), polled.slurm.count("sacctmgr")) == (0, 0)
    assert polled.source.error is None


def test_accounting_that_is_down_spoils_nothing() -> None:
    polled = Polled()
    own = polled.slurm.submit()
    polled.first()
    del polled.slurm.jobs[own]
    polled.slurm.trouble["sacct"] = Completed(
        1, b"", b"sacct: error: Problem talking to the database: Connection refused"
    )
    polled.look()
    assert polled.source.error is None
    assert not [event for event in polled.events if isinstance(event, ClustersChanged)]


def test_elements_that_begin_to_run_have_not_vanished() -> None:
    polled = Polled()
    polled.slurm.submit(id="88_[1-3%1]", K="1-3%1", T="PENDING", N="")
    polled.first()
    polled.slurm.jobs.clear()
    polled.slurm.submit(id="88_1", K="1")
    polled.look()
    assert polled.slurm.count("sacct") == 0


def test_spares_are_counted_on_all_nodes_of_the_partitions() -> None:
    polled = Polled(spares=2)
    polled.slurm.submit(P="h100,a100")
    polled.first()
    assert [requested[3] for requested in polled.slurm.requests if requested[0] == "sinfo"] == ["--partition=a100,h100"]


def test_nodes_of_the_config_are_requested_with_those_of_the_jobs() -> None:
    polled = Polled(nodes=("gpu-9", "gpu-1"))
    polled.slurm.submit(N="gpu-[1-2]")
    polled.first()
    assert [requested[3] for requested in polled.slurm.requests if requested[0] == "sinfo"] == [
        "--nodes=gpu-1,gpu-2,gpu-9"
    ]


def test_the_node_of_a_job_that_it_failed_is_requested_at_once() -> None:
    polled = Polled()
    own = polled.slurm.submit(N="gpu-7")
    polled.first()
    polled.slurm.jobs[own] |= {"T": "NODE_FAIL"}
    polled.look()
    assert [words[3] for words in polled.slurm.requests if words[0] == "sinfo"] == ["--nodes=gpu-7"]
    polled.look()
    assert polled.slurm.count("sinfo") == 0


@pytest.mark.parametrize(("spares", "asked"), [(0, "--nodes=gpu-7,gpu-8"), (1, "--partition=h100")])
def test_the_nodes_of_a_job_that_is_requeued_are_requested_at_once(spares: int, asked: str) -> None:
    polled = Polled(spares=spares)
    own = polled.slurm.submit(N="gpu-[7-8]")
    polled.first()
    polled.slurm.jobs[own] |= {"T": "PENDING", "r": "BeginTime", "N": "", "V": "2026-03-02T09:00:00"}
    polled.look()
    assert [words[3] for words in polled.slurm.requests if words[0] == "sinfo"] == [asked]
    polled.look()
    assert polled.slurm.count("sinfo") == 0
    polled.slurm.jobs[own] |= {"T": "RUNNING", "N": "gpu-[1-2]", "S": "2026-03-02T09:02:00"}
    polled.look()
    begun = "--partition=h100" if spares else "--nodes=gpu-1,gpu-2"
    assert [words[3] for words in polled.slurm.requests if words[0] == "sinfo"] == [begun]


def test_the_nodes_are_known_before_the_end_that_they_explain() -> None:
    polled = Polled()
    polled.slurm.submit(N="gpu-[7-8]")
    polled.first()
    polled.slurm.jobs.clear()
    polled.slurm.submit(N="gpu-9")
    polled.look()
    asked = [words[0] for words in polled.slurm.requests]
    assert asked.index("sinfo") < asked.index("sacct")


def test_no_nodes_of_interest_cost_no_question() -> None:
    polled = Polled()
    polled.slurm.submit(T="PENDING", N="")
    polled.first()
    assert polled.slurm.count("sinfo") == 0
