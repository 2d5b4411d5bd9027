"""The sh probe, as a node without python3 runs it: under dash and busybox, with a stand-in for nvidia-smi."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors.probe import bundle
from tests.lab.hung_mount import HungMount
from tests.lab.processes import gone, proc_files
from trainmon.model import probe_wire as readings

SCRIPT = bundle.FALLBACK[1]
SMI = Path(__file__).parents[3] / "lab" / "fake_nvidia_smi.sh"
SHELLS = {"dash": ["dash"], "busybox": ["busybox", "sh"], "bash": ["bash", "--posix"]}
F_SETPIPE_SZ = 1031


class Fallback:
    """A running fallback, its lines, and every process it started."""

    def __init__(self, shell: str, paths: list[str], env: dict[str, str]) -> None:
        argv = [*SHELLS[shell], "-c", SCRIPT.read_text(), "sh", "1", *paths]
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            bufsize=0,
            start_new_session=True,  # as sshd does
        )
        self.pending = b""

    def line(self, within: float = 120.0) -> Any:
        """The next line, decoded; None at the end of the output."""
        assert self.process.stdout
        deadline = time.monotonic() + within
        while b"\n" not in self.pending:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"no line in {within}s"
            data = os.read(self.process.stdout.fileno(), 65536)
            if not data:
                return None
            self.pending += data
        line, _, self.pending = self.pending.partition(b"\n")
        return readings.DECODER.decode(line)

    def until(self, wanted: Callable[[Any], bool]) -> Any:
        for _ in range(100):
            reading = self.line()
            assert reading is not None, f"it ended: {self.stderr()}"
            if wanted(reading):
                return reading
        raise AssertionError("100 lines, and not the one that was wanted")

    def first(self, kind: type) -> Any:
        return self.until(lambda reading: isinstance(reading, kind))

    def beat(self) -> None:
        assert self.process.stdin
        self.process.stdin.write(b"\n")

    def family(self) -> list[int]:
        """The processes that it started and that live."""
        found, todo = [], [self.process.pid]
        while todo:
            pid = todo.pop()
            try:
                below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            except OSError:
                continue
            todo += map(int, below)
            found += map(int, below)
        return found

    def finish(self) -> None:
        """End it as a client does; what is left then is killed."""
        with self.process:
            self.process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=3)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def stderr(self) -> str:
        assert self.process.stderr
        os.set_blocking(self.process.stderr.fileno(), False)
        return (self.process.stderr.read() or b"").decode()


def wait_until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120.0
    waiter = select.poll()
    while not fact():
        assert time.monotonic() < deadline, "it did not happen in time"
        waiter.poll(50)


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return b""


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if not shutil.which(SHELLS[name][0]):
        pytest.fail(f"{SHELLS[name][0]} is needed: apt-get install {SHELLS[name][0]}")
    return name


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Fallback]]:
    running: list[Fallback] = []

    def started(shell: str, *paths: str, story: str | None = None, **env: str) -> Fallback:
        tools = tmp_path / f"tools-{len(running)}"
        tools.mkdir()
        if shell == "busybox":
            for applet in ("awk", "df", "dd", "wc", "date", "sleep", "ls", "renice", "grep", "tr", "uname", "cat"):
                (tools / applet).symlink_to(str(shutil.which("busybox")))
        if story is not None:
            (tools / "nvidia-smi").symlink_to(SMI)
            (tmp_path / "story").write_text(story)
        path = f"{tools}:{os.environ['PATH']}"
        env = {"FAKE_SMI": str(tmp_path / "story"), **env, "PATH": path}
        running.append(Fallback(shell, list(paths), env))
        return running[-1]

    yield started
    for one in running:
        one.finish()


def test_it_says_who_it_is_and_how_the_host_is(shell: str, start: Any):
    fallback = start(shell)
    hello = fallback.line()
    assert (hello.host, hello.probe, hello.python) == (os.uname().nodename, "sh", None)
    assert hello.note == "no usable python3: only the main numbers, no logs, switch files, checkpoints or W&B files"
    assert hello.cpu_count == os.cpu_count()
    assert abs(hello.t - time.time()) < 5
    host = fallback.first(readings.HostSample)
    assert host.load1 is not None
    assert 0 < host.memory_used_mib < host.memory_total_mib == hello.memory_total_mib
    assert host.boot_time == hello.boot_time > 1e9
    assert host.oom_kills is not None
    assert fallback.first(readings.HostSample).t >= host.t
    assert fallback.stderr() == ""


def test_disks_are_those_of_statvfs_and_errors_are_reported(shell: str, start: Any, tmp_path: Path):
    disks = {}
    fallback = start(shell, str(tmp_path), str(tmp_path / "no"), "/proc")
    while len(disks) < 3:
        [sample] = fallback.first(readings.DiskSamples).d
        disks[sample.path] = sample
    here, found = disks[str(tmp_path)], os.statvfs(tmp_path)
    assert here.total_bytes == found.f_blocks * found.f_frsize
    assert abs(here.free_bytes - found.f_bavail * found.f_frsize) < 1 << 30
    assert here.total_inodes in (found.f_files, None if not found.f_files else found.f_files)
    assert (here.state, here.read_only, bool(here.mount), bool(here.filesystem)) == ("ok", False, True, True)
    missing = disks[str(tmp_path / "no")]
    assert (missing.state, missing.error, missing.total_bytes) == ("error", "does not exist", None)
    assert (disks["/proc"].filesystem, disks["/proc"].total_bytes) == ("proc", None)


NASTY = ["a'; echo foo", 'b"c', "d\ne", "$(id)", "e f\\g", "läufe\t1", "*"]


def test_paths_with_nasty_names_are_given_back_as_they_came(shell: str, start: Any, tmp_path: Path):
    for name in NASTY:
        (tmp_path / name).mkdir()
    fallback = start(shell, *(str(tmp_path / name) for name in NASTY))
    found = {}
    while len(found) < len(NASTY):
        [sample] = fallback.first(readings.DiskSamples).d
        found[sample.path] = sample.state
    assert found == {str(tmp_path / name): "ok" for name in NASTY}


def test_gpus_are_read_by_nvidia_smi_and_what_it_refuses_is_null(shell: str, start: Any):
    fallback = start(shell, story="well")
    assert fallback.line().probe == "nvidia-smi"
    facts = fallback.first(readings.GpuFactsAll)
    assert facts.g[1] == readings.GpuFacts(
        index=1, uuid="GPU-1", name="NVIDIA H100 80GB HBM3", memory_total_mib=81559, power_limit_w=700.0,
        temperature_margin_c=46, mig=False, ecc_uncorrected=0, ecc_corrected=0, remap_pending=False, remap_failed=None,
    )  # fmt: skip
    sample = fallback.first(readings.GpuSamples)
    assert sample.g[0] == readings.GpuSample(
        index=0, temperature_c=41, memory_temperature_c=48, memory_used_mib=19818, utilization_pct=None, power_w=631.95,
        sm_clock_mhz=1980, throttle_mask=0x84,
    )  # fmt: skip
    assert len(sample.g) == 2


@pytest.mark.parametrize(
    ("story", "error", "lost"),
    [
        ("lost", "GPU is lost", True),
        ("handle", "Unable to determine the device handle for GPU0000:4F:00.0: Unknown Error", False),
    ],
)
def test_one_bad_gpu_is_reported_and_the_other_goes_on(shell: str, start: Any, story: str, error: str, lost: bool):
    sample = start(shell, story=story).first(readings.GpuSamples)
    assert (sample.g[0].error, sample.g[0].temperature_c) == (None, 41)
    assert (sample.g[1].error, sample.g[1].lost, sample.g[1].temperature_c) == (error, lost, None)


@pytest.mark.parametrize(("story", "memory"), [("old-driver", None), ("inforom", 48)])
def test_an_old_driver_and_a_bad_inforom_still_give_their_numbers(shell: str, start: Any, story: str, memory: Any):
    sample = start(shell, story=story).first(readings.GpuSamples)
    assert [(gpu.temperature_c, gpu.memory_temperature_c) for gpu in sample.g] == [(41, memory)] * 2


def test_a_driver_that_cannot_be_queried_is_a_trouble_that_ends(shell: str, start: Any, tmp_path: Path):
    fallback = start(shell, story="mismatch")
    trouble = fallback.first(readings.Trouble)
    assert trouble.part == "gpu"
    assert trouble.text == ("Failed to initialize NVML: Driver/library version mismatch NVML library version: 580.126")
    (tmp_path / "story").write_text("well")
    assert fallback.until(lambda r: isinstance(r, readings.Trouble) and r.text is None)
    assert len(fallback.first(readings.GpuSamples).g) == 2


def test_gpus_that_nothing_reads_are_counted_on_the_pci_bus(shell: str, start: Any, tmp_path: Path):
    for name, kind, driver in (
        ("01:00.0", "0x030200", None),
        ("01:00.1", "0x040300", "snd_hda_intel"),
        ("02:00.0", "0x030000", "nvidia"),
        ("03:00.0", "0x030200", "vfio-pci"),
        ("04:00.0", "0x068000", None),
    ):
        device = tmp_path / "pci" / f"0000:{name}"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text(f"{kind}\n")
        if driver is not None:
            (device / "driver").symlink_to(f"../drivers/{driver}")
    facts = start(shell, TRAINMON_PCI=str(tmp_path / "pci")).first(readings.GpuFactsAll)
    assert (facts.g, facts.expected) == ((), 2)


def test_a_hung_nvidia_smi_is_reported_and_the_rest_goes_on(shell: str, start: Any):
    fallback = start(shell, "/", story="hung", TRAINMON_PATIENCE="1")
    assert fallback.first(readings.Trouble).text == "nvidia-smi does not answer"
    assert fallback.first(readings.HostSample)


def test_a_hung_disk_is_reported_and_the_rest_goes_on(shell: str, start: Any, tmp_path: Path):
    mount = HungMount.at(tmp_path / "dead", tmp_path)
    mount.hang()
    mine = {name: value for name, value in mount.env.items() if name.startswith(("LD_", "HUNG_"))}
    fallback = start(shell, str(mount.folder), "/", TRAINMON_PATIENCE="3", **mine)
    [alive] = fallback.first(readings.DiskSamples).d
    assert (alive.path, alive.state) == ("/", "ok")
    [hung] = fallback.first(readings.DiskSamples).d
    assert (hung.path, hung.state, hung.total_bytes) == (str(mount.folder), "hung", None)
    assert fallback.first(readings.HostSample)
    mount.recover()


def test_the_end_of_standard_input_ends_everything(shell: str, start: Any):
    fallback = start(shell, "/", story="hung")
    fallback.first(readings.HostSample)
    family = fallback.family()
    assert len(family) > 4
    fallback.process.stdin.close()
    assert fallback.first(readings.Bye).why == "the client closed the connection"
    assert fallback.process.wait(timeout=120) == 0
    wait_until(lambda: all(map(gone, family)))
    assert fallback.stderr() == ""


def test_silence_ends_it_and_a_byte_now_and_then_keeps_it(shell: str, start: Any):
    fallback = start(shell, TRAINMON_LEASE="2")
    began = time.monotonic()
    while time.monotonic() < began + 4:
        fallback.first(readings.HostSample)
        fallback.beat()
    assert fallback.process.poll() is None
    assert fallback.first(readings.Bye).why == "the client has been silent for 2s"


def test_a_client_that_stopped_reading_cannot_keep_it(shell: str, start: Any):
    fallback = start(shell, TRAINMON_LEASE="3", story="well")
    fcntl.fcntl(fallback.process.stdout, F_SETPIPE_SZ, 4096)
    os.set_blocking(fallback.process.stdout.fileno(), False)
    wait_until(lambda: len(fallback.family()) > 4)
    family = fallback.family()
    assert fallback.process.wait(timeout=120) == 0
    wait_until(lambda: all(map(gone, family)))


def test_a_hung_nvidia_smi_is_ended_with_all_its_children(shell: str, start: Any, tmp_path: Path):
    fallback = start(shell, story="hung-tree", TRAINMON_PATIENCE="1")

    def tree() -> list[int]:
        return [pid for pid in fallback.family() if command(pid) == b"sleep 1000 "]

    wait_until(lambda: len(tree()) == 100)
    family = tree()
    (tmp_path / "story").write_text("well")
    assert fallback.first(readings.Trouble).text == "nvidia-smi does not answer"
    assert fallback.first(readings.Trouble).text is None, "reported again, because not all ended at once"
    wait_until(lambda: all(map(gone, family)))


@pytest.mark.parametrize("is_reaped", [True, False])
def test_a_killed_fallback_leaves_nothing_running(shell: str, start: Any, is_reaped: bool):
    """Also below a parent that never reaps it, such as the first process of many containers."""
    fallback = start(shell, story="well")
    fallback.first(readings.HostSample)
    family = fallback.family()
    assert len(family) > 4
    fallback.process.kill()
    if is_reaped:
        fallback.process.wait(timeout=120)
        fallback.process.stdin.close()
    wait_until(lambda: all(map(gone, family)))


def group(leader: int) -> list[str]:
    """The processes of a group that are no zombies: what each is, and its state."""
    found = []
    for stat in proc_files("stat"):
        with contextlib.suppress(OSError):
            name, _, rest = stat.read_text().rpartition(") ")
            if rest.split()[2] == str(leader) and rest[0] != "Z":
                found.append(f"{name}) {rest[0]}")
    return found


@pytest.mark.parametrize("delays", [(0.0, 0.02, 0.1), pytest.param((0.01, 0.03, 0.05), marks=pytest.mark.slow)])
def test_killed_while_it_ends_it_leaves_nothing_running_or_stopped(shell: str, start: Any, delays: tuple[float, ...]):
    for delay in delays:
        fallback = start(shell, "/", story="hung-tree", TRAINMON_PATIENCE="1")
        wait_until(lambda one=fallback: len(one.family()) > 100)  # type: ignore[misc]
        fallback.process.terminate()
        time.sleep(delay)
        fallback.process.kill()
        fallback.process.wait(timeout=120)
        wait_until(lambda one=fallback: group(one.process.pid) == [])  # type: ignore[misc]


REUSE = """
import pathlib, subprocess, sys
script, shell = sys.argv[1], sys.argv[2:]
fallback = subprocess.Popen([*shell, "-c", script, "sh", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
while b"memory_used_mib" not in fallback.stdout.readline():  # now all its children run
    pass
fallback.kill()
fallback.wait()
last = pathlib.Path("/proc/sys/kernel/ns_last_pid")
while True:
    last.write_text(str(fallback.pid - 1))
    stranger = subprocess.Popen(["sleep", "1000"])
    if stranger.pid == fallback.pid:
        break
    stranger.kill()
fallback.stdin.close()
fallback.stdout.read()  # until the last of its children has ended
try:
    stranger.wait(1)
except subprocess.TimeoutExpired:
    print("the stranger lives")
"""


def test_a_stranger_with_the_pid_of_the_killed_fallback_is_left_alone(shell: str):
    """In a PID namespace of its own, where a PID can be given again."""
    alone = ["unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
    argv = [*alone, sys.executable, "-c", REUSE, SCRIPT.read_text(), *SHELLS[shell]]
    tried = subprocess.run([*alone, "true"], check=False, capture_output=True, text=True)
    if tried.returncode:
        assert re.search("not permitted|denied|No space", tried.stderr), tried.stderr
        pytest.skip(f"this machine allows nobody a PID namespace: {tried.stderr.strip()}")
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.stdout == "the stranger lives\n"


def test_it_redirects_into_nothing_but_dev_null():
    code = re.sub(r"'\n.*?'", "''", "\n".join(x for x in SCRIPT.read_text().splitlines() if x[:1] != "#"), flags=re.S)
    targets = re.findall(r"(?<![=<>-])>+\s*([^\s;|)}]+)", code)
    assert targets
    assert set(targets) <= {"/dev/null", "&1"}
