"""SSH in numbers, beside bare paramiko in the same run: `python -m tests.bench.ssh [NODES]`.

Connecting and running `true`, the processor time of idle connections, of a 500-byte line, and memory a connection.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko

from tests.lab.sshd import Sshd
from trainmon.transport.event_loop import EventLoop, raise_descriptor_limit
from trainmon.transport.ssh.client import Dialer

AT_ONCE = 8
IDLE = 10.0
LINES = 200
BURST = "i=0; while [ $i -lt {} ]; do printf '%499d\\n' 7; sleep 0.02; i=$((i+1)); done"


class Counted:
    """A sink that counts lines."""

    def __init__(self) -> None:
        self.lines = 0
        self.done = threading.Event()

    def received(self, data: bytes) -> None:
        self.lines += data.count(b"\n")

    def complained(self, data: bytes) -> None:
        """Nothing to count."""

    def ended(self, status: int | None, error: Exception | None) -> None:
        self.done.set()


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor seconds of some work in this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def bare(sshd: Sshd, number: int) -> paramiko.SSHClient:
    """What a paramiko user writes first (to a throw-away sshd on loopback: it trusts whatever answers)."""
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    client.connect(
        sshd.address(number), sshd.port, sshd.user, key_filename=str(sshd.key), look_for_keys=False, allow_agent=False
    )
    client.exec_command("true")[1].channel.recv_exit_status()
    return client


def bare_paramiko(sshd: Sshd, nodes: int) -> None:
    memory = resident_mib()
    clients: list[paramiko.SSHClient] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wall, cpu = timed(lambda: clients.extend(pool.map(lambda number: bare(sshd, number), range(nodes))))
    print(
        f"bare paramiko: {nodes} hosts connected and `true` run: {wall:.2f} s, {1000 * cpu / nodes:.1f} ms of CPU each"
    )
    print(f"bare paramiko: memory a connection: {(resident_mib() - memory) * 1024 / nodes:.0f} KiB")
    _, cpu = timed(lambda: threading.Event().wait(IDLE))
    print(f"bare paramiko: idle: {100 * cpu / IDLE:.2f}% of a core")
    for client in clients:
        client.close()


def ours(sshd: Sshd, nodes: int) -> None:
    reader = EventLoop()
    reader.start()
    dialer = Dialer(reader, at_once=AT_ONCE, config_file=sshd.ssh_config(nodes))
    memory = resident_mib()

    def dial(number: int) -> object:
        shell = dialer.dial(f"n{number}")
        shell.run(["true"], timeout=10)
        return shell

    shells: list[object] = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        wall, cpu = timed(lambda: shells.extend(pool.map(dial, range(nodes))))
    print(f"ours: {nodes} hosts connected and `true` run: {wall:.2f} s, {1000 * cpu / nodes:.1f} ms of CPU each")
    print(f"ours: memory a connection: {(resident_mib() - memory) * 1024 / nodes:.0f} KiB")
    print(f"ours: threads: {threading.active_count()}")
    _, cpu = timed(lambda: threading.Event().wait(IDLE))
    print(f"ours: idle: {100 * cpu / IDLE:.2f}% of a core")
    sinks = [Counted() for _ in range(8)]
    chosen = [dialer.dial(f"n{number}") for number in range(8)]

    def stream() -> None:
        for shell, sink in zip(chosen, sinks, strict=True):
            shell.stream(["sh", "-c", BURST.format(LINES)], sink)
        for sink in sinks:
            sink.done.wait(60)

    _, cpu = timed(stream)
    lines = sum(sink.lines for sink in sinks)
    print(f"ours: a line of 500 bytes, one a packet: {1e6 * cpu / max(lines, 1):.0f} us of CPU ({lines} lines)")
    wall, _ = timed(dialer.close)
    print(f"ours: closing: {1000 * wall:.0f} ms")
    reader.stop()


def main() -> None:
    nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    raise_descriptor_limit()
    with tempfile.TemporaryDirectory() as directory, Sshd.start(Path(directory) / "sshd") as sshd:
        ours(sshd, nodes)
        bare_paramiko(sshd, nodes)


if __name__ == "__main__":
    main()
