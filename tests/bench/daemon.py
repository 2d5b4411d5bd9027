"""`--alerts-only` on real sshd with every channel: `python -m tests.bench.daemon [NODES [ROUNDS]]`, 64 nodes x 8 GPUs.

What it costs while nothing is wrong, and how soon a fault on a node is at a local ntfy server: each fault is on another
GPU, at a time that has nothing to do with the samples, and far enough from the one before to be told alone. It takes
six minutes.
"""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.alerts.daemon import AlertDaemon
from tests.alerts.messages import TOPIC, received
from tests.bench.program import run_program
from tests.bench.table import show, status
from tests.end_to_end.product import Cluster
from tests.lab.daemons import until
from tests.lab.ntfy_server import NtfyServer
from tests.lab.processes import descendants
from tests.lab.receiver import Receiver
from tests.lab.wandb_server import WandbServer

GPUS = 8
PERIOD = 2.0
SETTLE = 30.0
SPAN = 60.0
APART = 8.0
PERCENT, MIB, SOON = 6.0, 80.0, PERIOD + 2
"""The goals: % of a core, memory, and the median of the seconds until a message is there."""
FULL = 85_500_000_000

CONFIG = """\
[[cluster]]
name = "bench"
nodes = ["n[0-{last}]"]
every = "2s"
python = "{python}"
[wandb]
every = "60s"
[[run]]
name = "video"
wandb = "tester/video"
group = "final"
[[notify]]
type = "ntfy"
server = "{ntfy}"
topic = "{topic}"
severity = "info"
[[notify]]
type = "webhook"
url = "{other}/hook"
[[notify]]
type = "healthchecks"
url = "{other}/check"
[[notify]]
type = "command"
command = ["true"]
[[notify]]
type = "desktop"
[[notify]]
type = "apprise"
url = "json://127.0.0.1:{port}/json"
severity = "critical"
[heartbeat]
ping = "{other}/switch"
[[rule]]
type = "gpu-memory-full"
severity = "critical"
for = "0s"
keep_firing_for = "0s"
"""


def cost(pid: int) -> tuple[float, float]:
    """Processor seconds so far, and MiB that are resident now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return (int(fields[11]) + int(fields[12])) / ticks, pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def measured(daemon: AlertDaemon) -> tuple[float, float]:
    """% of a core, and MiB."""
    time.sleep(SETTLE)
    before, _ = cost(daemon.pid)
    started = time.monotonic()
    time.sleep(SPAN)
    after, rss = cost(daemon.pid)
    percent = 100 * (after - before) / (time.monotonic() - started)
    threads = len(list(Path(f"/proc/{daemon.pid}/task").iterdir()))
    beside = sum(cost(child)[1] for child in descendants(daemon.pid))
    show(
        f"--alerts-only, every channel configured, {SPAN:.0f} s while nothing is wrong",
        ("what", "measured", "goal"),
        [
            ["CPU % of a core", f"{percent:.1f}", f"<= {PERCENT:g}"],
            ["RSS MiB", f"{rss:.0f}", f"<= {MIB:g}"],
            ["threads", f"{threads}", ""],
            ["its children (W&B), MiB, not counted", f"{beside:.0f}", ""],
        ],
    )
    return percent, rss


def latencies(nodes: Cluster, ntfy: NtfyServer, rounds: int) -> list[float]:
    """Seconds from a fault on a node until its message is at the server."""
    found = []
    for number in range(rounds):
        node, gpu = number % len(nodes.nvml), number // len(nodes.nvml) % GPUS
        time.sleep(APART + random.uniform(0.0, PERIOD))
        name = f"n{node}/{gpu}"
        at = time.time()
        nodes.nvml[node].set(gpu, memory_used=FULL)
        until(lambda name=name: received(ntfy, "CRITICAL", name), f"{name} is told", 60.0)  # type: ignore[misc]
        found.append(received(ntfy, "CRITICAL", name)[0].at - at)
        nodes.nvml[node].clear(gpus=GPUS)
    return found


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    with (
        tempfile.TemporaryDirectory() as name,
        NtfyServer.start() as ntfy,
        Receiver.start() as other,
        WandbServer.start() as wandb,
        Cluster.start(Path(name) / "nodes", count, gpus=GPUS, env={}, own={}, options={}) as nodes,
    ):
        wandb.log(wandb.add_run("first", group="final"), {"train/loss": 2.0})
        daemon = AlertDaemon(
            Path(name) / "watch", ssh_config=nodes.sshd.ssh_config(count),
            WANDB_BASE_URL=wandb.url, WANDB_API_KEY=wandb.key,
        )  # fmt: skip
        python = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
        text = CONFIG.format(
            last=count - 1, python=python, ntfy=ntfy.url, topic=TOPIC, other=other.url, port=other.port
        )
        daemon.config.write_text(text)
        daemon.start()
        try:
            until(lambda: len(daemon.lines(event="source", health="ok")) > count, "all nodes answer", 240.0)
            percent, rss = measured(daemon)
            found = sorted(latencies(nodes, ntfy, rounds))
            show(
                f"A fault on a node until its message is at the ntfy server: {rounds} faults, {PERIOD:g} s a sample",
                ("what", "seconds", "goal"),
                [
                    ["median", f"{statistics.median(found):.2f}", f"<= {SOON:g}"],
                    ["longest", f"{found[-1]:.2f}", ""],
                ],
            )
        finally:
            daemon.close()
    return status((percent, PERCENT), (rss, MIB), (statistics.median(found), SOON))


if __name__ == "__main__":
    run_program(main)
