"""The probe as a whole, as it runs on a node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from collectors.probe import bundle
from collectors.probe.worker import Worker
from collectors.probe.worker_process import Mark
from tests.lab.nvml import GPU_IS_LOST, Nvml
from tests.lab.probe import RunningProbe, until
from tests.lab.processes import gone
from trainmon.model import Bye, DiskSamples, GpuFactsAll, GpuSamples, Hello, HostSample, SwitchSamples, Trouble

PYTHON = sys.executable


@pytest.fixture
def nvml(tmp_path: Path) -> Nvml:
    return Nvml(tmp_path)


def probe(nvml: Nvml, **spec: Any) -> RunningProbe:
    return RunningProbe(nvml.environment(), python=PYTHON, **spec)


def test_it_says_who_it_is_then_what_its_gpus_are_then_their_numbers(nvml: Nvml) -> None:
    with probe(nvml) as running:
        running.wait(HostSample)
        hello, facts, gpus = running.readings[:3]
    assert isinstance(hello, Hello)
    assert isinstance(facts, GpuFactsAll)
    assert isinstance(gpus, GpuSamples)
    assert (hello.probe, hello.driver, hello.note) == ("nvml", "580.126.09", None)
    assert [sample.index for sample in gpus.g] == list(range(8))
    assert facts.expected == 8
    assert abs(hello.t - time.time()) < 60


def test_rounds_that_take_longer_than_their_period_are_reported_apart(nvml: Nvml) -> None:
    with probe(nvml, period=0.002) as running:
        until(lambda: len([one for one in running.readings if isinstance(one, GpuSamples)]) > 20)
        rounds = [[sample.index for sample in one.g] for one in running.readings if isinstance(one, GpuSamples)]
    assert list(range(8)) in rounds
    assert all(len(set(indices)) == len(indices) for indices in rounds)


class FourGpus:
    """Those of a driver that takes long for their slow facts."""

    is_open = has_new = False

    def __init__(self) -> None:
        self.read: list[tuple[int, bool]] = []

    def operations(self, slow: bool) -> list[tuple[str, Any]]:
        gpus = [(f"gpu:{index}", lambda index=index: self.read.append((index, slow))) for index in range(4)]
        return [*gpus, *([("facts", lambda: self.read.append((-1, slow)))] if slow else [])]


def test_what_a_slow_round_has_not_come_to_is_read_in_the_next_one() -> None:
    worker, gpus = Worker(b'{"period": 2, "slow": 30}', {}, {}, None, Mark()), FourGpus()
    worker.sections = {"gpu": gpus}
    for started, operations in ((0.0, 3), (2.1, 3), (4.2, 5)):
        worker.plan(started)
        for name, function in worker.queue[:operations]:
            worker.perform(name, function)
        del worker.queue[:operations]
    in_time = [(0, False), (1, False)]
    slow = [(0, True), (1, True), (2, True), (3, True)]
    assert gpus.read == [*slow, *in_time, (2, False), *in_time, (3, False), (-1, True)]


def test_the_clients_end_ends_everything(nvml: Nvml) -> None:
    with probe(nvml) as running:
        running.wait(GpuSamples)
        tree = running.tree()
        assert len(tree) == 2
        assert running.process.stdin is not None
        running.process.stdin.close()
        assert running.ended() == 0
        until(lambda: all(gone(pid) for pid in tree))
    assert running.readings[-1].why == "the client closed the connection"  # type: ignore[union-attr]


def test_a_stopped_client_ends_everything_when_its_lease_is_over(nvml: Nvml, tmp_path: Path) -> None:
    """A laptop that sleeps: the client is stopped with its pipes open, and even the probe's own output blocks."""
    client = (
        "import subprocess, sys\n"
        "from collectors.probe import bundle\n"
        "pipe = subprocess.PIPE\n"
        "p = subprocess.Popen(bundle.command(sys.executable), stdin=pipe, stdout=pipe, start_new_session=True)\n"
        'p.stdin.write(bundle.payload(p.stdout.readline()) + b\'{"period": 0.01, "lease": 1.5}\\n\')\n'
        "p.stdin.flush()\n"
        "p.stdout.readline()\n"
        "print(p.pid, flush=True)\n"
        "import threading\n"
        "while not threading.Event().wait(0.3):\n"
        "    p.stdin.write(bundle.LEASE)\n"
        "    p.stdin.flush()\n"
    )
    with subprocess.Popen([PYTHON, "-c", client], stdout=subprocess.PIPE, env=nvml.environment()) as laptop:
        assert laptop.stdout is not None
        pid = int(laptop.stdout.readline())
        threading.Event().wait(2.0)
        assert not gone(pid), "the lease is renewed by every byte"
        worker = int(Path(f"/proc/{pid}/task/{pid}/children").read_text())
        laptop.send_signal(signal.SIGSTOP)
        until(lambda: gone(pid) and gone(worker))
        laptop.kill()


def test_silence_is_named_as_the_reason(nvml: Nvml) -> None:
    with probe(nvml, lease=0.5) as running:
        assert running.wait(Bye).why == "the client has been silent for 0.5s"
        assert running.ended() == 0


def test_a_hung_gpu_costs_its_row_and_nothing_else(nvml: Nvml) -> None:
    with probe(nvml, patience=0.5, retry=0.5, disks=["/"]) as running:
        running.wait(GpuSamples)
        nvml.hang(3, "nvmlDeviceGetTemperature")
        row = running.wait_anew(GpuSamples, lambda line: len(line.g) == 8 and line.g[3].error).g
        assert row[3].error is not None
        assert row[3].error.startswith("NVML: no answer for ")
        assert row[3].temperature_c is None
        assert [sample.temperature_c for sample in row if sample.index != 3] == [41] * 7
        assert running.wait(Trouble).text is not None
        running.wait_anew(HostSample)
        until(lambda: len([line for line in running.readings if isinstance(line, DiskSamples)]) >= 2)
        nvml.clear()
        running.wait_anew(GpuSamples, lambda line: line.g[3].temperature_c == 41)
        running.wait(Trouble, lambda line: line.part == "gpu" and line.text is None)


def test_a_driver_that_hangs_at_its_start_leaves_the_rest_alive(nvml: Nvml) -> None:
    nvml.hang("*", "nvmlInitWithFlags")
    with probe(nvml, patience=0.5, retry=0.3, disks=["/"]) as running:
        hello = running.wait(Hello)
        assert hello.probe == "nvml"
        assert hello.note is not None
        assert hello.note.startswith("NVML: no answer for ")
        running.wait(HostSample)
        running.wait(DiskSamples)
        nvml.clear()
        assert running.wait(Hello, lambda line: line.note is None).driver == "580.126.09"
        running.wait(GpuSamples, lambda line: line.g[0].temperature_c == 41)


def test_gpus_that_were_seen_keep_their_rows_while_the_driver_hangs(nvml: Nvml) -> None:
    with probe(nvml, patience=0.5, retry=30) as running:
        running.wait(GpuSamples)
        nvml.error("*", "nvmlDeviceGetTemperature", 1).hang("*", "nvmlInitWithFlags")
        rows = running.wait_anew(GpuSamples, lambda line: "no answer" in (line.g[0].error or "")).g
        assert len(rows) == 8


def test_a_crash_in_the_driver_costs_one_row(nvml: Nvml) -> None:
    with probe(nvml, patience=5, retry=30) as running:
        running.wait(GpuSamples)
        nvml.say("crash 5 nvmlDeviceGetPowerUsage")
        running.wait(Trouble, lambda line: line.part == "probe" and "gpu:5" in (line.text or ""))
        row = running.wait_anew(GpuSamples, lambda line: len(line.g) == 8 and line.g[5].error).g
        assert row[5].error == "NVML: reading it crashes"
        assert row[4].power_w == 632.0
        running.wait(Trouble, lambda line: line.part == "probe" and line.text is None)


def test_an_abandoned_worker_holds_nothing_of_the_session_open(nvml: Nvml) -> None:
    with probe(nvml, patience=0.4, retry=30) as running:
        running.wait(GpuSamples)
        worker = running.tree()[1]
        ours = {Path(f"/proc/{running.process.pid}/fd/{fd}").readlink() for fd in (0, 1, 2)}
        theirs = {fd.readlink() for fd in Path(f"/proc/{worker}/fd").iterdir()}
        assert not ours & theirs


def test_a_worker_dies_with_its_parent(nvml: Nvml) -> None:
    with probe(nvml) as running:
        running.wait(GpuSamples)
        worker = running.tree()[1]
        running.process.kill()
        until(lambda: gone(worker))


def test_a_new_spec_changes_what_is_watched(nvml: Nvml, tmp_path: Path) -> None:
    with probe(nvml) as running:
        running.wait(GpuSamples)
        assert not [line for line in running.readings if isinstance(line, DiskSamples)]
        switch = tmp_path / "kill é"
        switch.write_text("now")
        running.ask(disks=[str(tmp_path)], switches=[str(switch)])
        assert running.wait(DiskSamples).d[0].path == str(tmp_path)
        assert running.wait(SwitchSamples).s[0].exists is True
        assert running.wait(SwitchSamples).s[0].path == str(switch)


def test_a_spec_that_cannot_be_read_is_reported_and_the_old_one_stays(nvml: Nvml) -> None:
    with probe(nvml) as running:
        running.wait(GpuSamples)
        running.write(b'{"period": \n{"period": "soon"}\nnonsense\n')
        assert "cannot be read" in (running.wait(Trouble).text or "")
        running.wait_anew(GpuSamples)
        running.ask()
        running.wait(Trouble, lambda line: line.part == "probe" and line.text is None)


def test_empty_lines_are_the_lease_and_nothing_else(nvml: Nvml) -> None:
    with probe(nvml) as running:
        running.write(bundle.LEASE * 3)
        running.wait(GpuSamples)
        running.write(bundle.LEASE)
        running.wait_anew(GpuSamples)
        assert not [line for line in running.readings if isinstance(line, Trouble)]


def test_it_is_as_nice_as_can_be(nvml: Nvml) -> None:
    with probe(nvml) as running:
        running.wait(GpuSamples)
        assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in running.tree()] == [19, 19]


def test_it_writes_nothing_and_complains_of_nothing(nvml: Nvml, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    environment = nvml.environment() | {"HOME": str(home), "TMPDIR": str(home), "PYTHONPYCACHEPREFIX": str(home)}
    log = tmp_path / "a.log"
    log.write_text("step 1\n")
    spec: dict[str, Any] = {
        "disks": [str(home)],
        "logs": [{"id": "a", "pattern": str(log)}],
        "switches": [str(home / "x")],
    }
    before = sorted(tmp_path.rglob("*"))
    with RunningProbe(environment, python=PYTHON, cwd=str(home), **spec) as running:
        running.wait(DiskSamples)
        running.wait(SwitchSamples)
        open_files = [str(fd.readlink()) for pid in running.tree() for fd in Path(f"/proc/{pid}/fd").iterdir()]
        assert running.process.stdin is not None
        running.process.stdin.close()
        running.ended()
        assert running.complaints() == b""
    assert sorted(tmp_path.rglob("*")) == before
    assert not [path for path in open_files if path.startswith(str(home))]


def test_a_lost_gpu_is_reported_in_the_drivers_words(nvml: Nvml) -> None:
    nvml.error(2, "*", GPU_IS_LOST)
    with probe(nvml) as running:
        rows = running.wait(GpuSamples, lambda line: len(line.g) == 8).g
        assert (rows[2].lost, rows[2].error, rows[2].temperature_c) == (True, "GPU is lost", None)
        assert [row.temperature_c for row in rows if not row.lost] == [41] * 7
        assert [facts.index for facts in running.wait(GpuFactsAll).g] == list(range(8))
