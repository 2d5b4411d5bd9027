"""Probes as a step of the user's own job, on the real Slurm: what starts it, what ends it, and what it leaves alone."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from collectors.nodes.steps import GATHER, JobSteps
from collectors.nodes.stream import ProbeStream
from collectors.probe import bundle
from tests.lab.daemons import until
from tests.lab.slurm import Slurm
from tests.slurm.product import SlurmProduct
from tests.slurm.steps import QUICK, TRIES, own_steps, sleeping
from tests.slurm.training import CAUGHT, Training
from trainmon.lib import HostUnreachable, SystemClock
from trainmon.model import Hello, JobPart, Spec
from trainmon.slurm.client import Client
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import LocalShell, Stream

pytestmark = pytest.mark.slow

MakeTraining = Callable[..., Training]


class Probes:
    """The probes of some nodes of a job, and when the first line and the first reading of each came."""

    def __init__(self, slurm: Slurm, job_id: str) -> None:
        self.job = int(job_id)
        self.loop = EventLoop()
        self.loop.start()
        self.shell = LocalShell(self.loop)
        client = Client(self.shell)
        self.steps = JobSteps(self.loop, lambda: client, lambda host: JobPart(self.job), gather=self._gather)
        self.expected = 1
        self.first_line: dict[str, float] = {}
        self.first_reading: dict[str, float] = {}
        self.ends: dict[str, str] = {}
        self.lines = 0

    def start(self, *hosts: str) -> tuple[float, float]:
        """Start them together; the seconds until each has sent a line, and until each has sent a reading."""
        self.expected = len(hosts)
        started = time.monotonic()
        for earlier in (self.first_line, self.first_reading, self.ends):
            earlier.clear()
        with ThreadPoolExecutor(len(hosts)) as pool:
            list(pool.map(self.begin, hosts))
        until(lambda: self.first_reading.keys() == set(hosts), f"readings of {hosts}; ended: {self.ends}")
        return max(self.first_line.values()) - started, max(self.first_reading.values()) - started

    def _gather(self, joined: Callable[[], int]) -> None:
        time.sleep(GATHER)
        until(lambda: joined() == self.expected, f"{self.expected} nodes share a step")

    def begin(self, host: str) -> Stream:
        serving = threading.Lock()

        def serve(stream: ProbeStream) -> None:
            with serving:
                if stream.greeting:
                    self.first_line.setdefault(host, time.monotonic())
                if stream.greeting and stream.command is not None and not stream.is_served:
                    stream.is_served = True
                    stream.write(bundle.payload(stream.greeting) + bundle.spec_line(Spec(period=0.5)))

        def read(_: ProbeStream, reading: object) -> None:
            self.lines += 1
            if isinstance(reading, Hello):
                self.first_reading.setdefault(host, time.monotonic())

        def end(_: ProbeStream, error: Exception, __: bool) -> None:
            self.ends[host] = str(error)

        stream = ProbeStream(host, SystemClock(), serve, read, end)
        stream.command = self.steps.shell(host).stream(bundle.command(), stream)
        serve(stream)
        return stream.command

    def close(self) -> None:
        self.steps.close()
        self.shell.close()
        self.loop.stop()


@pytest.fixture
def probes(slurm: Slurm) -> Iterator[Callable[..., Probes]]:
    made: list[Probes] = []

    def make(job_id: str) -> Probes:
        made.append(Probes(slurm, job_id))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_two_nodes_are_one_step_whose_first_lines_come_within_a_second(
    slurm: Slurm, probes: Callable[..., Probes]
) -> None:
    running = probes(sleeping(slurm, "--nodes=2"))
    lines, readings = zip(*(running.start("gpu-1", "gpu-2") for _ in range(TRIES)), strict=True)
    print(f"of two nodes: first lines after {min(lines):.2f}s, readings after {min(readings):.2f}s")
    assert min(lines) < QUICK
    steps = own_steps(slurm)
    assert [step.split()[1] for step in steps] == ["gpu-[1-2]"] * TRIES


def test_signals_to_the_job_leave_it_running(slurm: Slurm, probes: Callable[..., Probes]) -> None:
    job_id = sleeping(slurm, "--nodes=2")
    running = probes(job_id)
    running.start("gpu-1", "gpu-2")
    for name in ("USR1", "USR2"):
        slurm.run("scancel", f"--signal={name}", job_id)
    before = running.lines
    until(lambda: running.lines > before + 8, "more lines after the signals")
    assert running.ends == {}


def test_an_ended_job_ends_it_with_a_reason_and_an_exit_status_of_0(
    slurm: Slurm, probes: Callable[..., Probes]
) -> None:
    job_id = sleeping(slurm, "--nodes=2")
    running = probes(job_id)
    running.start("gpu-1", "gpu-2")
    slurm.run("scancel", job_id)
    until(lambda: len(running.ends) == 2, "both nodes have ended")
    over = f"job {job_id} has ended, or its step was cancelled"
    assert set(running.ends.values()) <= {f"its step of job {job_id} was terminated by Slurm", over}
    slurm.wait_for_state(job_id, "CANCELLED")
    running.ends.clear()
    running.expected = 1
    running.begin("gpu-1")
    until(lambda: running.ends, "the next step is refused")
    assert running.ends["gpu-1"] == over


def test_a_signal_goes_to_the_batch_shell_of_a_job_without_other_steps(
    slurm: Slurm, probes: Callable[..., Probes], training: MakeTraining, product: SlurmProduct
) -> None:
    """With a step in the job, Slurm would send it to the steps only, and the trainer would never save."""
    run = training("--step-s=0.5", "--usr1=save", how=CAUGHT)
    job_id = run.start()
    running = probes(job_id)
    running.start("gpu-1", "gpu-2")
    product.watch(run.config())
    product.act("signal", run.name)
    slurm.wait_for(lambda: "the script caught USR1" in run.log(job_id), what="the batch shell has got it")
    assert running.ends == {}


def test_the_other_steps_of_the_job_start_as_without_it(slurm: Slurm, probes: Callable[..., Probes]) -> None:
    """A step of the training that wants all CPUs and GPUs of the job starts beside it."""
    go, done = slurm.directory / "go", slurm.directory / "done"
    script = f"until [ -e {go} ]; do sleep 0.1; done; srun --ntasks=2 --gres=gpu:2 true && touch {done}; sleep 3600"
    job_id = slurm.submit(script, "--nodes=2", "--exclusive", "--gres=gpu:2")
    slurm.wait_for_state(job_id, "RUNNING")
    running = probes(job_id)
    running.start("gpu-1", "gpu-2")
    go.touch()
    slurm.wait_for(done.exists, what="the step of the training has run")
    assert running.ends == {}


def test_a_dashboard_that_runs_inside_a_job_may_start_a_step_of_another(
    slurm: Slurm, probes: Callable[..., Probes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The variables of its own job are options of srun, and would contradict ours."""
    inside = {"JOB_ID": "9999", "NTASKS": "5", "NNODES": "7", "MEM_PER_CPU": "100", "GRES": "gpu:8", "LABELIO": "1"}
    for name, value in inside.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    running = probes(sleeping(slurm, "--nodes=2"))
    running.start("gpu-1", "gpu-2")
    done = running.steps.shell("gpu-2").run(["sh", "-c", "echo $SLURM_JOB_ID"], timeout=60.0)
    assert done.stdout == f"{running.job}\n".encode()


def test_a_command_on_the_node_is_a_step_of_its_own(slurm: Slurm, probes: Callable[..., Probes]) -> None:
    job_id = sleeping(slurm, "--nodes=2")
    shell = probes(job_id).steps.shell("gpu-2")
    done = shell.run(["sh", "-c", "echo $SLURMD_NODENAME; cat; exit 3"], stdin=b"a b\n", timeout=60.0)
    assert (done.status, done.stdout) == (3, b"gpu-2\na b\n")
    slurm.run("scancel", job_id)
    slurm.wait_for_state(job_id, "CANCELLED")
    with pytest.raises(HostUnreachable, match=f"job {job_id} has ended"):
        shell.run(["true"], timeout=60.0)


def test_a_controller_that_is_silent_is_the_reason_and_not_the_job(slurm: Slurm, probes: Callable[..., Probes]) -> None:
    job_id = sleeping(slurm, "--nodes=2")
    running = probes(job_id)
    running.expected = 2
    slurm.stop_controller()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(running.begin, ("gpu-1", "gpu-2")))
    until(lambda: len(running.ends) == 2, "both nodes have ended")
    silent = f"Slurm starts no step of job {job_id}: Unable to contact slurm controller (connect failure)"
    assert set(running.ends.values()) == {silent}
    with pytest.raises(HostUnreachable, match=r"Unable to contact slurm controller"):
        running.steps.shell("gpu-2").run(["true"], timeout=60.0)
    slurm.start_controller()
    running.start("gpu-1", "gpu-2")
    assert [step.split()[1] for step in own_steps(slurm)] == ["gpu-[1-2]"]


def test_a_node_whose_slurmd_is_dead_is_named(slurm: Slurm, probes: Callable[..., Probes]) -> None:
    job_id = sleeping(slurm, "--nodes=1", "--nodelist=gpu-1")
    running = probes(job_id)
    slurm.kill_slurmd("gpu-1")
    running.begin("gpu-1")
    until(lambda: running.ends, "the step is refused")
    slurm.find("gpu-1")
    why = "Communication connection failure"
    assert running.ends["gpu-1"] == f"the step of job {job_id} does not start on gpu-1: {why}"


SRUN_WITHOUT_SEVERAL_NODES = """\
#!/bin/sh
case "$*" in *--nodes=2*) echo "srun: error: task 1 launch failed: Error configuring interconnect" >&2; exit 1;; esac
exec {srun} "$@"
"""
"""A srun that fails as on LUMI: https://github.com/Lumi-supercomputer/lumi-userguide/issues/223."""


def test_where_one_step_for_all_fails_each_node_has_its_own(
    slurm: Slurm, probes: Callable[..., Probes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    srun = subprocess.run(["which", "srun"], capture_output=True, text=True, check=True).stdout.strip()
    wrapper = tmp_path / "srun"
    wrapper.write_text(SRUN_WITHOUT_SEVERAL_NODES.format(srun=srun))
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{Path(srun).parent}:/usr/bin:/bin")
    running = probes(sleeping(slurm, "--nodes=2"))
    running.expected = 2
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(running.begin, ("gpu-1", "gpu-2")))
    until(lambda: len(running.ends) == 2, "the step of both has failed")
    assert set(running.ends.values()) == {
        f"no step of job {running.job}: task 1 launch failed: Error configuring interconnect"
    }
    running.start("gpu-1", "gpu-2")
    assert sorted(step.split()[1] for step in own_steps(slurm)) == ["gpu-1", "gpu-2"]


# ---- the product -------------------------------------------------------------------------------------------------
