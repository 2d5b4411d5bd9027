"""The sh probe ends with its client, and nothing of it stays, whatever hangs."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.collectors.probe.fallback.running import F_SETPIPE_SZ, SCRIPT, SHELLS, command, wait_until
from tests.lab.processes import gone, proc_files
from trainmon.model import probe_wire as readings


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


@pytest.mark.parametrize(
    "delays", [(0.0, 0.1), pytest.param((0.01, 0.02, 0.03, 0.05, 0.15, 0.2, 0.25), marks=pytest.mark.slow)]
)
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
import pathlib, subprocess, sys, time
script, shell = sys.argv[1], sys.argv[2:]
fallback = subprocess.Popen([*shell, "-c", script, "sh", "1"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
while b"memory_used_mib" not in fallback.stdout.readline():  # now all its children run
    pass
fallback.kill()
fallback.wait()
time.sleep(0.1)  # start times have hundredths of a second, and no machine gives a PID again within one
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
