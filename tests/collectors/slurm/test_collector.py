"""One poller: what it asks, how often, and what it makes of silence."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from collectors.slurm.collector import Poller, Watched
from tests.collectors.slurm.fake_slurm import FakeClock, FakeSlurm, Polled
from trainmon.lib import CommandFailed, HostUnreachable, Seconds, TrainmonError
from trainmon.model import (
    EndedJobs,
    SchedulerNodesListed,
    SourceRemoved,
)
from trainmon.slurm.client import Client
from trainmon.transport.shell import Completed

SILENCES: list[Completed | TrainmonError] = [
    Completed(1, b"", b"slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"),
    Completed(1, b"", b"slurm_load_jobs error: Socket timed out on send/recv operation\n"),
    Completed(1, b"", b"slurm_load_jobs error: Protocol authentication error\n"),
    Completed(0, b"", b"squeue: error: Invalid user: ana\n"),
    Completed(0, b"what is this\n", b""),
    Completed(-9, b"", b""),
    CommandFailed("login1: env did not end in 25s"),
    HostUnreachable("login1", "login1 closed the connection"),
]


def test_the_first_poll_reports_the_jobs_the_cluster_and_the_nodes() -> None:
    polled = Polled()
    polled.slurm.submit()
    polled.first()
    (job,) = polled.jobs
    assert (job.key, job.state, job.nodes) == ("prod/88", "RUNNING", ("gpu-1",))
    (detail,) = polled.changed
    assert (detail.restarts, detail.stdout, detail.command) == (0, "/fsx/88.out", "/t.sh")
    assert (polled.cluster.me, polled.cluster.may_operate, polled.cluster.accounting) == ("ana", True, True)
    assert polled.cluster.slurm == "23.02.7"
    assert polled.source.phase == "up"
    assert polled.source.answered_at == polled.clock.now()
    nodes = next(event.nodes for event in polled.events if isinstance(event, SchedulerNodesListed))
    assert [node.name for node in nodes] == ["gpu-1"]


def test_the_jobs_are_reported_with_their_logs_and_who_we_are() -> None:
    polled = Polled()
    polled.slurm.submit()
    polled.first()
    assert [(jobs[0].stdout, me) for jobs, me in polled.seen] == [(None, "ana"), ("/fsx/88.out", "ana")]


def test_a_quiet_queue_costs_one_question_a_look() -> None:
    polled = Polled()
    polled.slurm.submit()
    polled.first()
    polled.look()
    assert [requested[0] for requested in polled.slurm.requests] == ["squeue"]
    assert polled.seen[-1][0][0].restarts == 0  # what is known of it stays
    assert polled.jobs[0].detail_at is None  # and is not told again: others may have told more since
    polled.look()
    assert [requested[0] for requested in polled.slurm.requests] == ["squeue", "sinfo"]


@pytest.mark.parametrize("silence", SILENCES)
def test_silence_is_never_an_empty_queue(silence: Completed | TrainmonError) -> None:
    polled = Polled()
    polled.slurm.submit()
    polled.first()
    polled.slurm.trouble["squeue"] = silence
    polled.look()
    assert polled.looks == 0
    assert polled.source.phase == "retrying"
    assert polled.source.error
    assert polled.source.retry_at is not None
    assert polled.source.answered_at is None  # the State keeps when it last answered
    del polled.slurm.trouble["squeue"]
    polled.look()
    assert polled.looks == 1
    assert polled.source.error is None


def test_a_controller_that_does_not_answer_is_queried_less_and_less_up_to_10_min() -> None:
    polled = Polled()
    polled.slurm.trouble["squeue"] = SILENCES[0]
    polled.slurm.submit()
    waits = [polled.first().poller.step()]
    waits += [polled.look().poller.step() for _ in range(5)]
    assert waits == [60, 120, 240, 480, 600, 600]


def test_a_slow_controller_is_queried_less() -> None:
    polled = Polled()
    polled.slurm.submit()
    polled.slurm.takes = 4.0
    polled.first()
    assert polled.source.period == 60


def test_a_change_of_state_hurries_the_next_looks() -> None:
    polled = Polled()
    own = polled.slurm.submit()
    polled.first()
    assert polled.poller.step() == 30
    polled.slurm.jobs[own]["T"] = "COMPLETED"
    polled.look()
    assert polled.poller.step() == 15


def test_an_ended_job_that_is_forgotten_hurries_nobody_and_a_new_one_does() -> None:
    polled = Polled()
    polled.slurm.submit()
    own = polled.slurm.submit(T="COMPLETED")
    polled.first()
    del polled.slurm.jobs[own]
    polled.look()
    assert polled.poller.step() == 30
    polled.slurm.submit()
    polled.look()
    assert polled.poller.step() == 15


def test_with_no_jobs_it_looks_every_5_min_until_somebody_acts() -> None:
    polled = Polled().first()
    assert polled.poller.step() == 300
    polled.clock.at += 40
    polled.poller.poll_soon()
    assert polled.poller.step() == 15
    assert polled.looks == 2


def test_a_person_who_keeps_pressing_r_gets_a_look_every_5_s() -> None:
    polled = Polled()
    polled.slurm.submit()
    polled.first()
    polled.events.clear()
    polled.slurm.requests.clear()
    for _ in range(200):
        polled.clock.at += 0.1
        polled.poller.refresh()
        polled.poller.step()
    assert polled.looks == 4
    assert polled.slurm.count("sinfo") == 4  # and it is a look at everything


def test_a_host_without_slurm_is_a_fault_where_it_is_needed() -> None:
    polled = Polled(required=True)
    polled.slurm.trouble["squeue"] = Completed(127, b"", b"env: 'squeue': No such file or directory")
    polled.first()
    assert (polled.source.phase, polled.source.error) == ("retrying", "there is no squeue on login1")
    assert polled.cluster.has_slurm is False
    assert polled.poller.step() == 600


def test_where_nobody_counts_on_slurm_its_absence_is_no_source() -> None:
    polled = Polled()
    polled.slurm.trouble["squeue"] = Completed(127, b"", b"env: 'squeue': No such file or directory")
    polled.poller._report("waiting")
    polled.first()
    assert polled.events[-1] == SourceRemoved("slurm:prod")
    assert polled.cluster.has_slurm is False
    polled.slurm.trouble.clear()
    polled.slurm.submit()
    polled.clock.at += polled.poller.step()
    polled.first()
    assert polled.source.phase == "up"
    polled.unreachable = HostUnreachable("login1", "no way to login1")
    polled.pass_by(60)
    assert (polled.source.phase, polled.source.error) == ("waiting", "no way to login1")


def test_a_host_that_is_not_connected_yet_is_no_error_at_first() -> None:
    polled = Polled(required=True)
    polled.slurm.submit()
    polled.unreachable = HostUnreachable("login1", "login1 does not answer", hint="is it up?")
    polled.first()
    assert (polled.source.phase, polled.source.error) == ("waiting", None)
    polled.pass_by(20)
    assert (polled.source.error, polled.source.hint) == ("login1 does not answer", "is it up?")
    assert polled.slurm.requests == []
    polled.unreachable = None
    polled.pass_by(3)
    assert polled.source.phase == "up"


def test_a_fault_of_ours_becomes_the_sources_error() -> None:
    polled = Polled()
    polled.slurm.submit(S="2026-03-02T08:00:00")
    polled.slurm.jobs["88"].pop("A")
    polled.first()
    assert polled.source.error == "KeyError: 'A'"
    assert polled.source.phase == "retrying"


def test_it_stops_at_once_whatever_hangs() -> None:
    let_go, requested, answered = threading.Event(), threading.Event(), threading.Event()

    class HangingShell(FakeSlurm):
        def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
            requested.set()
            let_go.wait(60)
            answered.set()
            return Completed(1, b"", b"")

    clock = FakeClock()
    poller = Poller(
        Watched(cluster="prod", login="login1"), lambda: Client(HangingShell(clock)), lambda event: None, clock
    )
    poller.start()
    assert requested.wait(40)
    poller.stop()
    assert not answered.is_set()
    let_go.set()


def test_an_idle_queue_is_polled_often_until_it_is_known_what_ended_while_nobody_watched() -> None:
    """What ended in the night would be known five minutes after the start."""
    began = FakeClock().now()
    polled = Polled(unwatched_since=lambda: began - 25 * 3_600).first()
    assert polled.poller.step() == 15
    polled.look().look()
    polled.pass_by(120)
    assert polled.poller.step() > 200


# ---- jobs that have ended, for a person who views them --------------------------------------------------------------


def accounted(number: int, state: str = "COMPLETED", end: str = "2025-10-09T08:00:00") -> str:
    values = (
        number,
        number,
        state,
        "0:0",
        end,
        end,
        end,
        "ana",
        "h100",
        "llm",
        "high",
        1,
        "gpu-1",
        "gres/gpu=8",
        "run",
    )
    return "|12ab#".join(map(str, values)) + "\n"


def lists(polled: Polled) -> list[EndedJobs]:
    return [event for event in polled.events if isinstance(event, EndedJobs)]


def test_ended_jobs_are_requested_for_a_person_at_most_every_five_minutes_the_newest_period_first() -> None:
    polled = Polled(users=("ana", "ben"))
    polled.first()
    polled.slurm.ended = accounted(7) + accounted(8, "CANCELLED by 1000", "2025-10-09T09:00:00")
    polled.slurm.requests.clear()
    for _ in range(3):
        polled.poller.poll_job("prod")
        polled.poller.step()
    asked = [dict(word.partition("=")[::2] for word in words) for words in polled.slurm.requests if words[0] == "sacct"]
    assert len(asked) == 3
    assert {(one["--user"], "--allocations" in one) for one in asked} == {("ana,ben", True)}
    assert [one["--endtime"] for one in asked[1:]] == [one["--starttime"] for one in asked[:-1]]
    (found,) = lists(polled)
    assert [(job.id, job.state, job.cancelled_by) for job in found.jobs] == [
        ("8", "CANCELLED", "kim"),
        ("7", "COMPLETED", None),
    ]
    assert found.jobs[0].resources == "gres/gpu=8"

    polled.clock.at += 301
    polled.slurm.trouble["sacct"] = Completed(1, b"", b"sacct: error: slurmdbd: Unable to connect\n")
    polled.poller.poll_job("prod")
    polled.poller.step()
    failed = lists(polled)[-1]
    assert (len(failed.jobs), "Unable to connect" in (failed.error or "")) == (2, True)


def test_many_ended_jobs_are_bounded_and_a_cluster_without_accounts_is_not_asked() -> None:
    polled = Polled()
    polled.first()
    polled.slurm.ended = "".join(map(accounted, range(1, 700)))
    polled.slurm.requests.clear()
    polled.poller.poll_job("prod")
    polled.poller.step()
    assert (len(lists(polled)[-1].jobs), polled.slurm.count("sacct")) == (500, 1)

    without = Polled()
    without.slurm.accounts = "none"
    without.first()
    without.slurm.requests.clear()
    without.poller.poll_job("prod")
    without.poller.step()
    assert (without.slurm.count("sacct"), "no slurmdbd" in (lists(without)[-1].error or "")) == (0, True)
