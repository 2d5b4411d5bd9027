"""One poller: what it asks, how often, and what it makes of silence."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import count

import pytest

from collectors.slurm.collector import Poller, Watched
from trainmon.lib import CommandFailed, HostUnreachable, Seconds, TrainmonError
from trainmon.model import (
    Cluster,
    ClustersChanged,
    Event,
    Job,
    JobChanged,
    JobsListed,
    SchedulerNodesListed,
    Source,
    SourceChanged,
)
from trainmon.slurm import QUEUE
from trainmon.slurm.client import Client
from trainmon.transport.shell import Completed, Sink, Stream


class FakeClock:
    def __init__(self) -> None:
        self.at = 1_000.0

    def now(self) -> float:
        return 1_760_000_000.0 + self.at

    def monotonic(self) -> float:
        return self.at


class FakeSlurm:
    """A scheduler that answers what the test says, and keeps what it was asked."""

    host = "login1"
    prompted = False

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.me = "ana"
        self.jobs: dict[str, dict[str, str]] = {}
        self.requests: list[tuple[str, ...]] = []
        self.trouble: dict[str, Completed | TrainmonError] = {}
        """What commands answer instead, by their name."""
        self.accounts = "slurmdbd"
        self.ended: str = ""
        self.takes = self.detail_takes = 0.0
        self._numbers = count(88)

    def submit(self, **fields: str) -> str:
        own = fields.pop("id", str(next(self._numbers)))
        self.jobs[own] = {
            "i": own,
            "A": own.partition("_")[0],
            "T": "RUNNING",
            "N": "gpu-1",
            "S": "2026-03-02T08:00:00",
            **fields,
        }
        return own

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        if argv[0] == "bash":  # a login that knows no more
            return Completed(0, b"\n\n\n", b"")
        words = list(argv[next(i for i, word in enumerate(argv) if word.startswith("SLURM_BITSTR_LEN")) + 1 :])
        self.requests.append(tuple(words))
        found = self.trouble.get(words[0])
        if isinstance(found, TrainmonError):
            raise found
        return found or Completed(0, self._answer(words).encode(), b"")

    def _answer(self, words: list[str]) -> str:
        match words[0]:
            case "id":
                return f"{self.me}\n" if words[1:] == ["-un"] else "kim\n"
            case "squeue":
                self.clock.at += self.takes
                return "".join(self._row(job) for job in self.jobs.values())
            case "sinfo":
                return "|1#gpu-1|1#idle|1#Unknown|1#Unknown|1#gpu:8|1#h100|1#none\n"
            case "sacct":
                return self.ended
            case "scontrol" if words[1:3] == ["show", "config"]:
                storage = f"AccountingStorageType = accounting_storage/{self.accounts}\n"
                return f"{storage}SlurmUser = slurm(1)\nSLURM_VERSION = 23.02.7\n"
            case "scontrol":
                self.clock.at += self.detail_takes
                return "".join(self._shown(job) for job in self.jobs.values() if job["A"] == words[-1])
            case "sacctmgr":
                return "Operator\n"
        raise AssertionError(words)

    @staticmethod
    def _row(job: dict[str, str]) -> str:
        values = {
            "F": job["A"],
            "K": "N/A",
            "u": "ana",
            "P": "h100",
            "V": "2026-03-02T07:00:00",
            "j": "run",
            "Q": "1",
            **job,
        }
        return "".join(f"|1#{values.get(letter, '')}" for letter in QUEUE) + "\n"

    @staticmethod
    def _shown(job: dict[str, str]) -> str:
        return (
            f"JobId={job['A']} JobName=run UserId=ana(1) GroupId=ana(1) MCS_label=N/A Priority=1 JobState={job['T']} "
            f"Reason=None Requeue=1 Restarts={job.get('restarts', '0')} BatchFlag=1 ExitCode=0:0 "
            "Command=/t.sh WorkDir=/fsx StdErr=/fsx/o StdIn=/dev/null StdOut=/fsx/%j.out \n"
        )

    def count(self, *words: str) -> int:
        return sum(requested[: len(words)] == words for requested in self.requests)

    def stream(self, argv: Sequence[str], sink: Sink) -> Stream:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing is held."""


class Polled:
    """A poller on a fake clock, and everything that it said."""

    def __init__(self, **watched: object) -> None:
        self.clock = FakeClock()
        self.slurm = FakeSlurm(self.clock)
        self.events: list[Event] = []
        self.seen: list[tuple[tuple[Job, ...], str]] = []
        self.unreachable: HostUnreachable | None = None
        settings = {"cluster": "prod", "login": "login1", **watched}
        self.poller = Poller(
            Watched(**settings),  # type: ignore[arg-type]
            self._client,
            self.events.append,
            self.clock,
            lambda jobs, me: self.seen.append((jobs, me)),
        )

    def _client(self) -> Client:
        if self.unreachable is not None:
            raise self.unreachable
        return Client(self.slurm)

    def look(self) -> Polled:
        """Wait until the next look is due, and look."""
        self.clock.at += self.poller.step()
        self.events.clear()
        self.slurm.requests.clear()
        self.poller.step()
        return self

    def first(self) -> Polled:
        self.poller.step()
        return self

    def pass_by(self, seconds: float) -> None:
        """Let time pass as the poller's thread would: it is stepped whenever it is due."""
        end = self.clock.at + seconds
        while self.clock.at < end:
            self.clock.at = min(end, self.clock.at + max(0.1, self.poller.step()))

    @property
    def jobs(self) -> tuple[Job, ...]:
        return next(event.jobs for event in reversed(self.events) if isinstance(event, JobsListed))

    @property
    def looks(self) -> int:
        return sum(isinstance(event, JobsListed) for event in self.events)

    @property
    def changed(self) -> list[Job]:
        return [event.job for event in self.events if isinstance(event, JobChanged)]

    @property
    def source(self) -> Source:
        return next(event.source for event in reversed(self.events) if isinstance(event, SourceChanged))

    @property
    def cluster(self) -> Cluster:
        return next(event.clusters[0] for event in reversed(self.events) if isinstance(event, ClustersChanged))


SILENCES: list[Completed | TrainmonError] = [
    Completed(1, b"", b"slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"),
    Completed(1, b"", b"slurm_load_jobs error: Socket timed out on send/recv operation\n"),
    Completed(1, b"", b"slurm_load_jobs error: Protocol authentication error\n"),
    Completed(0, b"", b"squeue: error: Invalid user: ana\n"),
    Completed(0, b"what is this\n", b""),
    Completed(-9, b"", b""),
    CommandFailed("login1: env did not end in 25 s"),
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


def test_a_first_poll_of_200_jobs_requests_20_details_our_running_ones_first() -> None:
    polled = Polled(users=("ana", "ben"))
    for _ in range(100):
        polled.slurm.submit(u="ben")
    for _ in range(85):
        polled.slurm.submit(T="PENDING", N="")
    mine = [polled.slurm.submit() for _ in range(15)]
    polled.first()
    assert len(polled.jobs) == 200
    requested = [job.id for job in polled.changed]
    assert len(requested) == 20
    assert set(requested[:15]) == set(mine)
    assert {job.state for job in polled.changed[15:]} == {"PENDING"}
    for _ in range(9):
        polled.look()
    assert polled.slurm.count("scontrol", "show", "job") == 20
    polled.look()
    assert polled.slurm.count("scontrol") == 0


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


def test_a_slow_controller_gets_few_detail_requests_at_a_time() -> None:
    polled = Polled()
    for _ in range(30):
        polled.slurm.submit()
    polled.slurm.detail_takes = 4.0
    polled.first()
    assert len(polled.changed) == 3


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
    polled.slurm.trouble["scontrol"] = CommandFailed("login1: env did not end in 25 s")
    for number in range(88, 118):
        polled.poller.poll_job(f"prod/{number}")
    polled.poller.step()
    assert polled.slurm.count("scontrol") == 1
    polled.slurm.trouble["squeue"] = CommandFailed("login1: env did not end in 25 s")
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


def test_no_nodes_of_interest_cost_no_question() -> None:
    polled = Polled()
    polled.slurm.submit(T="PENDING", N="")
    polled.first()
    assert polled.slurm.count("sinfo") == 0


@pytest.mark.parametrize(("required", "phase"), [(False, "off"), (True, "retrying")])
def test_a_host_without_slurm_is_a_fault_only_where_it_is_needed(required: bool, phase: str) -> None:
    polled = Polled(required=required)
    polled.slurm.trouble["squeue"] = Completed(127, b"", b"env: 'squeue': No such file or directory")
    polled.first()
    assert (polled.source.phase, polled.source.error) == (phase, "there is no squeue on login1")
    assert polled.poller.step() == 600


def test_a_host_that_is_not_connected_yet_is_no_error_at_first() -> None:
    polled = Polled()
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
