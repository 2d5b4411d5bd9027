"""The laptop's side on real sshd: `python -m tests.bench.laptop [NODES]`, 64 nodes with 8 GPUs each, every 2 s.

Every node is a loopback address of one real sshd, its GPUs the NVML stand-in. Beside ours, in the same run and on the
same nodes: nvidb 1.9.2 from PyPI with its own defaults, and bare paramiko that connects and runs `true`.

The nodes of a cluster start their probes on their own cores, all at the same time; here, all would start on those of
the laptop. So the time until all are connected has two parts, and their sum has the goal: nodes that replay what a
probe sends, which costs them as little as `true`, and the start of one real probe. The time with all probes on this
machine is printed beside it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.dashboard import percent
from tests.bench.program import run_program
from tests.bench.recording import Recording
from tests.bench.table import ratio, show, status
from tests.lab.nvml import Nvml, library
from tests.lab.pip import environment, pip
from tests.lab.probe import RunningProbe
from tests.lab.sshd import Sshd
from tests.lab.terminal import Cost, Terminal
from trainmon.model import GpuFactsAll, GpuSamples

SETTLE = 30.0
SPAN = 60.0
AT_ONCE = 8
CONNECTED, THREADS = 1.2, 16
"""The goals: the time until all nodes are connected, in that of bare paramiko; threads beside one a node.

The first was 2 with all probes on two cores, whose starts took 0.9 of it.
"""
PERCENT, PERCENT_OF_MORE = 2.0, 6.0
MIB, MIB_OF_MORE = 110.0, 150.0
"""The same for % of a core, and for memory: with up to PEER_NODES, and with more (256)."""
PEER = "nvidb==1.9.2"
PEER_NODES = 64
"""With more nodes the other tool takes the whole machine, so ours runs alone."""

APP = """
import sys
from pathlib import Path
from trainmon.runtime.monitor import Monitor
from trainmon.config import load_settings
from tui.app import Dashboard
settings, _ = load_settings(Path(sys.argv[2]), ())
parts = Monitor(settings, prompts=True, ssh_config=Path(sys.argv[1]))
parts.start()
Dashboard(parts).run()
parts.stop()
"""

CONNECT = """
import sys, threading
from pathlib import Path
from trainmon.runtime.monitor import Monitor
from trainmon.config import load_settings
settings, _ = load_settings(Path(sys.argv[2]), ())
parts = Monitor(settings, ssh_config=Path(sys.argv[1]))
done = threading.Event()
wanted = int(sys.argv[3])
def heard(state):
    if sum(node.gpus_at is not None and len(node.gpus) == 8 for node in state.nodes.values()) == wanted:
        done.set()
parts.start()
parts.subscribe(heard)
assert done.wait(240), "not all nodes answered"
print("done", flush=True)
parts.stop()
"""

BARE = """
import sys
from concurrent.futures import ThreadPoolExecutor
import paramiko
def one(address):
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())  # it knows no wildcards in known_hosts
    client.connect(address, port=int(sys.argv[1]), username=sys.argv[2], key_filename=sys.argv[3],
                   allow_agent=False, look_for_keys=False, timeout=30, banner_timeout=60, auth_timeout=60)
    _, out, _ = client.exec_command("true")
    assert out.channel.recv_exit_status() == 0
    return client
with ThreadPoolExecutor(int(sys.argv[4])) as pool:
    clients = list(pool.map(one, sys.argv[5:]))
print("done", flush=True)
for client in clients:
    client.close()
"""


def watched(argv: list[str], ready: str, env: dict[str, str] | None = None) -> tuple[Cost, Cost]:
    """Costs of a program at both ends of a span, once it shows what it is ready with."""
    with Terminal(argv, env=env) as terminal:
        terminal.wait_for_text(ready, timeout=240)
        time.sleep(SETTLE)
        before = terminal.cost()
        time.sleep(SPAN)
        after = terminal.cost()
        if "--screens" in sys.argv:
            print(terminal.text())
        return before, after


def timed(script: str, *arguments: str) -> float:
    """Seconds from the start of a process until it says that it is done."""
    started = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", script, *arguments], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n", "it did not get there"
        return time.monotonic() - started


PYTHON = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
"""This very Python on the nodes, not what a developer's shell puts before it on the PATH."""


def replaying(folder: Path) -> Path:
    """What stands in for Python on a node that replays: it sends the lines of a probe, and reads what it is sent."""
    recording, now = Recording("gpu-001", 0.0), time.time()
    (lines := folder / "lines").write_bytes(recording.opening(now) + recording.sample(now))
    (script := folder / "python3").write_text(f"#!/bin/sh\ncat {lines}\nexec cat > /dev/null\n")
    script.chmod(0o755)
    return script


def probe_start(nvml: Nvml) -> float:
    """Seconds from the start of one probe to its first sample, while nothing else runs."""
    started = time.monotonic()
    with RunningProbe(nvml.environment(), python=str(PYTHON)) as probe:
        probe.wait(GpuFactsAll)
        probe.wait(GpuSamples)
        return time.monotonic() - started


def cluster(folder: Path, nodes: int, python: Path) -> Path:
    config = folder / f"{python.name}.toml"
    config.write_text(f'[cluster]\nname = "bench"\nnodes = ["n[0-{nodes - 1}]"]\npython = "{python}"\n')
    return config


def peer(folder: Path, sshd: Sshd, nodes: int) -> tuple[list[str], str, dict[str, str]]:
    """nvidb in an environment of its own, configured for the same nodes; what it shows when it is ready."""
    pip("--python", environment(folder / "peer"), "install", PEER)
    home = folder / "peer-home"
    home.mkdir()
    servers = "".join(
        f"  - hostname: {sshd.address(i)}\n    port: {sshd.port}\n    username: {sshd.user}\n    nickname: n{i}\n"
        f"    identityfile: {sshd.key}\n    auth: key\n"
        for i in range(nodes)
    )
    (home / "config.yml").write_text(f"servers:\n{servers}")
    return [str(folder / "peer/bin/nvidb"), "--remote"], "n1", {"NVIDB_HOME": str(home)}


def main() -> int:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 and sys.argv[1].isdigit() else 64
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        nvml = Nvml(folder)
        environment = f"LD_LIBRARY_PATH={library()} TRAINMON_LAB_NVML={nvml.path}"
        with Sshd.start(folder / "sshd", SetEnv=environment) as sshd:
            config = str(sshd.ssh_config(nodes))
            settings, replayed = (str(cluster(folder, nodes, python)) for python in (PYTHON, replaying(folder)))
            addresses = [sshd.address(i) for i in range(nodes)]
            times: list[tuple[float, ...]] = []
            for _ in range(3):
                bare = timed(BARE, str(sshd.port), sshd.user, str(sshd.key), str(AT_ONCE), *addresses)
                laptop, crowded = (timed(CONNECT, config, one, str(nodes)) for one in (replayed, settings))
                times.append((bare, laptop, probe_start(nvml), crowded))
            bare, laptop, start, crowded = map(statistics.median, zip(*times, strict=True))
            connected = laptop + start
            show(
                f"All {nodes} nodes connected and first data there (median of 3, in turn, {AT_ONCE} at once)",
                ("what", "seconds", "ratio", "goal"),
                [
                    ["bare paramiko, true", f"{bare:.2f}", "1", ""],
                    ["ours, nodes that replay", f"{laptop:.2f}", ratio(laptop, bare), ""],
                    ["the start of one probe", f"{start:.2f}", ratio(start, bare), ""],
                    ["ours, GPUs known: their sum", f"{connected:.2f}", ratio(connected, bare), f"<= {CONNECTED:g}x"],
                    [f"all {nodes} probes on these {os.cpu_count()} cores", f"{crowded:.2f}", ratio(crowded, bare), ""],
                ],
            )
            app = [sys.executable, "-c", APP, config, settings]
            here = watched(app, f"{nodes}/{nodes}")
            there = watched(*peer(folder, sshd, nodes)) if nodes <= PEER_NODES else None
            cpu, mib = (PERCENT, MIB) if nodes <= PEER_NODES else (PERCENT_OF_MORE, MIB_OF_MORE)
            threads = nodes + THREADS
            show(
                f"The dashboard on {nodes} nodes x 8 GPUs over real sshd, whole process, {SPAN:.0f} s",
                ("what", "ours", PEER, "goal"),
                [
                    [
                        "CPU % of a core",
                        *(f"{percent(*one):.1f}" if one else "" for one in (here, there)),
                        f"<= {cpu:g}",
                    ],
                    ["RSS MiB", *(f"{one[1].rss_mib:.0f}" if one else "" for one in (here, there)), f"<= {mib:g}"],
                    ["threads", *(f"{one[1].threads}" if one else "" for one in (here, there)), f"<= {threads}"],
                ],
            )
    now = here[1]
    return status((connected, CONNECTED * bare), (percent(*here), cpu), (now.rss_mib, mib), (now.threads, threads))


if __name__ == "__main__":
    run_program(main)
