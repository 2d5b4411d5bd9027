"""One srun with a branch for each node, without Slurm: the test is srun."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from collectors.nodes.steps import SHARES_GPUS, JobSteps, NoSrun, StepShell, step_notice
from collectors.probe.host import HIDDEN
from tests.collectors.nodes.hosts import until
from tests.collectors.nodes.srun import Srun, labelled
from trainmon.lib import HostUnreachable, Seconds, TrainmonError
from trainmon.model import JobPart
from trainmon.slurm.client import Client
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import Completed, Sink, Stream

PROBE = ("sh", "-c", "probe")


class Output:
    """What the sink of one node received."""

    def __init__(self) -> None:
        self.received_bytes = b""
        self.stderr = b""
        self.end: tuple[int | None, str | None] | None = None

    def received(self, data: bytes) -> None:
        self.received_bytes += data

    def stderr_received(self, data: bytes) -> None:
        self.stderr += data

    def ended(self, status: int | None, error: TrainmonError | None) -> None:
        assert self.end is None
        self.end = (status, error.message if error is not None else None)


class Login:
    """The host of Slurm's commands. It keeps each srun that was started."""

    host = "login1"
    prompted = False

    def __init__(self) -> None:
        self.started: list[tuple[tuple[str, ...], Sink, Srun]] = []
        self.refusal = ""
        self.has_srun = True

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: Seconds) -> Completed:
        if not self.has_srun:
            return Completed(127, b"", b"srun: not found\n")
        return Completed(1, b"", self.refusal.encode()) if self.refusal else Completed(0, b"slurm 22.05.8\n", b"")

    def stream(self, argv: Sequence[str], sink: Sink) -> Stream:
        srun = Srun()
        self.started.append((tuple(argv), sink, srun))
        return srun

    def close(self) -> None:
        """Nothing is held."""


class Job:
    """Our job 7 on some nodes."""

    def __init__(self, loop: EventLoop) -> None:
        self.login = Login()
        client = Client(self.login)
        self.jobs = {"gpu-1": JobPart(7), "gpu-2": JobPart(7)}
        self.notified: list[int] = []
        self.steps = JobSteps(loop, lambda: client, self.jobs.get, self.notified.append, self._gather)
        self.expected = 0

    def start(self, *hosts: str) -> dict[str, tuple[StepShell, Output, Stream]]:
        """Start a probe on each host at the same time."""
        found: dict[str, tuple[StepShell, Output, Stream]] = {}
        self.expected = len(hosts)

        def one(host: str) -> None:
            shell, output = self.steps.shell(host), Output()
            found[host] = (shell, output, shell.stream(PROBE, output))

        threads = [threading.Thread(target=one, args=(host,)) for host in hosts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        return found

    def _gather(self, joined: Callable[[], int]) -> None:
        until(lambda: joined() == self.expected)

    def options(self, number: int = -1) -> set[str]:
        return set(self.login.started[number][0])


@pytest.fixture
def job() -> Iterator[Job]:
    loop = EventLoop()
    loop.start()
    yield Job(loop)
    loop.stop()


def greet(sink: Sink, *nodes: str) -> None:
    for task, node in enumerate(nodes):
        sink.received(labelled(task, f"#node {node}".encode()))


def test_two_nodes_are_one_step_and_each_gets_its_own_output(job: Job) -> None:
    nodes = job.start("gpu-1", "gpu-2")
    ((_, sink, _),) = job.login.started
    assert {"--overlap", "--gres=none", "--mem=0", "--label", "--job-name=trainmon", "--jobid=7"} <= job.options()
    assert {"--nodes=2", "--ntasks=2"} <= job.options()
    greet(sink, "gpu-2", "gpu-1")
    sink.received(labelled(0, b"#probe sh") + labelled(1, b'{"k":"hello"}') + labelled(0, b"#ended 5"))
    assert nodes["gpu-2"][1].received_bytes == b"#probe sh\n"
    assert nodes["gpu-1"][1].received_bytes == b'{"k":"hello"}\n'
    assert (nodes["gpu-2"][1].end, nodes["gpu-1"][1].end) == ((5, None), None)
    assert job.notified == [7]


def test_a_node_says_that_slurm_has_ended_its_step(job: Job) -> None:
    nodes = job.start("gpu-1", "gpu-2")
    sink = job.login.started[0][1]
    greet(sink, "gpu-1", "gpu-2")
    sink.received(labelled(1, b'{"k":"cut') + labelled(1, b"#ended 143"))
    assert nodes["gpu-2"][1].end == (None, "its step of job 7 was terminated by Slurm")
    assert nodes["gpu-1"][1].end is None


def test_what_is_written_to_both_is_sent_once(job: Job) -> None:
    nodes = job.start("gpu-1", "gpu-2")
    ((_, _, srun),) = job.login.started
    for _, _, stream in nodes.values():
        stream.write(b"code\n")
    until(lambda: srun.written.count(b"code") >= 1)
    for _, _, stream in nodes.values():
        stream.close()
    assert srun.is_closed
    assert srun.written.replace(b"gpu-1 code\ngpu-2 code\n", b"* code\n").startswith(b"* code\n")


def test_a_step_lives_until_its_last_node_is_closed(job: Job) -> None:
    nodes = job.start("gpu-1", "gpu-2")
    ((_, sink, srun),) = job.login.started
    nodes["gpu-1"][0].close()
    assert not srun.is_closed
    assert srun.written == b"-gpu-1\n"
    nodes["gpu-2"][0].close()
    assert srun.is_closed
    sink.ended(0, None)
    assert nodes["gpu-1"][1].end == (None, None)


def test_nodes_get_a_step_each_after_one_for_all_has_failed(job: Job) -> None:
    """As on LUMI, where the interconnect cannot be set up for a second step of several nodes."""
    nodes = job.start("gpu-1", "gpu-2")
    ((_, sink, _),) = job.login.started
    sink.stderr_received(b"srun: error: task 1 launch failed: Error configuring interconnect\n")
    sink.ended(1, None)
    assert nodes["gpu-2"][1].end == (None, "no step of job 7: task 1 launch failed: Error configuring interconnect")
    job.start("gpu-1", "gpu-2")
    assert len(job.login.started) == 3
    assert "--nodes=1" in job.options(1) & job.options(2)


def test_a_controller_that_is_silent_does_not_part_the_nodes_of_a_step(job: Job) -> None:
    nodes = job.start("gpu-1", "gpu-2")
    ((_, sink, _),) = job.login.started
    why = "Unable to contact slurm controller (connect failure)"
    sink.stderr_received(f"srun: error: Unable to confirm allocation for job 7: {why}\n".encode())
    sink.stderr_received(b"srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 7\n")
    sink.ended(1, None)
    assert nodes["gpu-1"][1].end == (None, f"Slurm starts no step of job 7: {why}")
    assert b"invalid job" not in nodes["gpu-1"][1].stderr
    job.start("gpu-1", "gpu-2")
    assert len(job.login.started) == 2
    assert "--nodes=2" in job.options(1)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("srun: error: Slurm job 7 has expired", "job 7 has ended, or its step was cancelled"),
        ("srun: error: Unable to confirm allocation for job 7: Job is pending execution", "job 7 is pending again"),
    ],
)
def test_an_ended_job_is_said_so_and_the_next_step_is_for_all_nodes_again(job: Job, words: str, reason: str) -> None:
    nodes = job.start("gpu-1", "gpu-2")
    sink = job.login.started[0][1]
    sink.stderr_received(f"{words}\nsrun: Check SLURM_JOB_ID environment variable.\n".encode())
    sink.ended(1, None)
    assert nodes["gpu-1"][1].end == (None, reason)
    job.start("gpu-1", "gpu-2")
    assert "--nodes=2" in job.options()


def test_gpus_that_a_step_without_gpus_does_not_see_are_shared_by_the_next_one(job: Job) -> None:
    hello = f'{{"k":"hello","note":"NVML shows no GPU here: {HIDDEN} the 8 GPUs of this node"}}'.encode()
    nodes = job.start("gpu-1")
    _, sink, srun = job.login.started[0]
    greet(sink, "gpu-1")
    sink.received(labelled(0, hello))
    assert srun.is_closed
    sink.ended(0, None)
    assert nodes["gpu-1"][1].end == (None, SHARES_GPUS)
    shared = job.start("gpu-1")
    assert "--gres=none" not in job.options()
    sink = job.login.started[1][1]
    greet(sink, "gpu-1")
    sink.received(labelled(0, hello))
    assert shared["gpu-1"][1].received_bytes == hello + b"\n"  # not even these: the note says so


def test_the_words_of_srun_and_of_the_node_reach_the_row(job: Job) -> None:
    nodes = job.start("gpu-1")
    sink = job.login.started[0][1]
    sink.stderr_received(b"srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)\n")
    assert b"Requested nodes are busy" in nodes["gpu-1"][1].stderr
    greet(sink, "gpu-1")
    sink.stderr_received(b"0: sh: python3: not found\n")
    assert nodes["gpu-1"][1].stderr.endswith(b"sh: python3: not found\n")


def test_a_node_without_a_job_of_ours_is_refused(job: Job) -> None:
    with pytest.raises(HostUnreachable, match="no active job of yours there"):
        job.steps.shell("gpu-3")


def test_without_srun_no_step_starts_and_the_sentence_says_where(job: Job) -> None:
    job.login.has_srun, job.expected = False, 1
    shell = job.steps.shell("gpu-1")
    with pytest.raises(NoSrun, match=r"^there is no srun on login1 ") as failure:
        shell.stream(PROBE, Output())
    assert failure.value.hint == 'set "login" to a host that has srun, or connect.by = "ssh"'
    with pytest.raises(NoSrun, match=r"^gpu-1 refuses the key; there is no srun on login1 "):
        job.steps.shell("gpu-1", "gpu-1 refuses the key").stream(PROBE, Output())


def test_a_command_is_a_step_of_its_own(job: Job) -> None:
    shell = job.steps.shell("gpu-1")
    assert shell.run(("true",), timeout=5.0).status == 0
    job.login.refusal = "srun: error: Slurm job 7 has expired\n"
    with pytest.raises(HostUnreachable, match="job 7 has ended"):
        shell.run(("true",), timeout=5.0)


def test_the_notice_says_what_others_see() -> None:
    assert step_notice(7).text == (
        "The probes run as a step of your job 7. squeue --steps and sacct list it as trainmon. "
        "It shares the resources of the job, and reserves none."
    )
