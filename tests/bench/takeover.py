"""A leader that is stopped: `python -m tests.bench.takeover [ROUNDS [BUSY]]` (3 and 10, if nothing else is said).

Two `--alerts-only` on real sshd with one ledger and an ntfy server. At first BUSY processes keep all cores busy for
longer than the lease: nobody may take over. Then, in each round, the leader is stopped, a GPU fills up, and the standby
notifies. Printed: seconds from the stop to the new leader and to the message, and what was sent twice (0).
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.alerts.conftest import CONFIG
from tests.alerts.daemon import AlertDaemon
from tests.alerts.messages import TOPIC, received, titles
from tests.bench.program import run_program
from tests.bench.table import show, status
from tests.end_to_end.product import Cluster
from tests.lab.daemons import until
from tests.lab.ntfy_server import NtfyServer
from trainmon.alerting.notify.delivery.election import LEASE

FULL = 85_500_000_000
PATIENCE = 180.0
SOON = 60.0
"""The goal: seconds until the message is there. No leadership changes needlessly, and nothing is sent twice."""


def busy(processes: int, seconds: float) -> None:
    """More work than there are cores."""
    with contextlib.ExitStack() as stack:
        for _ in range(processes):
            stack.callback(stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"])).kill)
        time.sleep(seconds)


def round_of(
    leader: AlertDaemon, standby: AlertDaemon, nodes: Cluster, ntfy: NtfyServer, count: int
) -> tuple[float, float]:
    """Stop the leader, and let it go on when the standby leads. Seconds until that leads, and until it notifies."""
    led = len(standby.lines(event="duty", holder="us"))
    stood_by = len(leader.lines(event="duty", holder="other"))
    leader.tell(signal.SIGSTOP)
    began = time.monotonic()
    nodes.nvml[count % 2].set(1, memory_used=FULL)
    until(lambda: len(standby.lines(event="duty", holder="us")) > led, "it leads", PATIENCE)
    leads = time.monotonic() - began
    before = len(received(ntfy, "CRITICAL"))
    until(lambda: len(received(ntfy, "CRITICAL")) > before, "it notifies", PATIENCE)
    notifies = time.monotonic() - began
    leader.tell(signal.SIGCONT)
    until(lambda: len(leader.lines(event="duty", holder="other")) > stood_by, "the old one stands by", PATIENCE)
    nodes.nvml[count % 2].clear(gpus=2)
    resolved = len(received(ntfy, "RESOLVED"))
    until(lambda: len(received(ntfy, "RESOLVED")) > resolved, "it is over", PATIENCE)
    return leads, notifies


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    load = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    with tempfile.TemporaryDirectory(prefix="trainmon-takeover-") as scratch, contextlib.ExitStack() as stack:
        folder = Path(scratch)
        nodes = stack.enter_context(Cluster.start(folder, 2, gpus=2, env={}, own={}, options={}))
        ntfy = stack.enter_context(NtfyServer.start())
        two = []
        for name in ("first", "second"):
            two.append(AlertDaemon(folder / "home", name=name, ssh_config=nodes.sshd.ssh_config(2)))
            two[-1].config.write_text(CONFIG.format(url=ntfy.url, topic=TOPIC))
            stack.callback(two[-1].close)
            two[-1].start()
            two[-1].until("source", source="node:n1", health="ok")
        duties = sum(len(one.lines(event="duty")) for one in two)
        busy(load, 1.5 * LEASE)
        needless = sum(len(one.lines(event="duty")) for one in two) - duties
        rows, latest = [], 0.0
        for count in range(rounds):
            leader, standby = two if count % 2 == 0 else two[::-1]
            leads, notifies = round_of(leader, standby, nodes, ntfy, count)
            latest = max(latest, notifies)
            rows.append((str(count + 1), f"{leads:.1f}", f"{notifies:.1f}"))
        show("seconds from the stop of the leader", ("round", "a standby leads", "the message is there"), rows)
        about = Counter(message.message for message in received(ntfy, "gpu-memory-full"))
        print(f"\n{needless} changes of leadership with {load} busy processes in {1.5 * LEASE:.0f} s")
        twice = sum(about.values()) - len(about)
        print(f"{len(titles(ntfy))} messages, {twice} of them sent twice")
    return status((latest, SOON), (needless, 0), (twice, 0))


if __name__ == "__main__":
    run_program(main)
