"""SSH in numbers, beside bare paramiko and over masters of `ssh`: `python -m tests.bench.ssh [NODES]`.

All in one run: connecting and running `true`, the processor time of idle connections, of a 500-byte line, and memory a
connection.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko

from collectors.connections import Connections
from tests.bench import table
from tests.bench.program import run_program
from tests.lab.sshd import Sshd, keygen, program
from trainmon.config import ConnectSettings
from trainmon.transport.event_loop import EventLoop, raise_descriptor_limit
from trainmon.transport.shell import Shell
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

    def stderr_received(self, data: bytes) -> None:
        """Nothing to count."""

    def ended(self, status: int | None, error: Exception | None) -> None:
        self.done.set()


@contextlib.contextmanager
def masters(sshd: Sshd, config: Path, nodes: int) -> Iterator[Callable[[], float]]:
    """A master connection to each host, as people open them. Yields what gives the processor seconds of all."""
    ssh = [program("ssh"), "-F", str(config)]

    def pid_of(number: int) -> int:
        subprocess.run([*ssh, "-i", str(sshd.key), "-fNM", f"n{number}"], check=True, capture_output=True)
        found = subprocess.run([*ssh, "-O", "check", f"n{number}"], check=True, capture_output=True, text=True)
        return int(found.stderr.partition("pid=")[2].partition(")")[0])

    with ThreadPoolExecutor(AT_ONCE) as pool:
        pids = list(pool.map(pid_of, range(nodes)))

    def seconds() -> float:
        fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
        return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")

    try:
        yield seconds
    finally:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


def whole() -> float:
    """The processor seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


def connected(connections: Connections, reader: EventLoop, nodes: int, of_masters: Callable[[], float]) -> list[float]:
    """Milliseconds of the processor for each host: to connect and run `true`; and for 100 lines of 500 bytes of each.
    The second counts the masters, too, which do the decryption."""
    begun = whole()

    def dial(number: int) -> Shell:
        shell = connections.dial(f"n{number}")
        shell.run(["true"], timeout=60)
        return shell

    with ThreadPoolExecutor(AT_ONCE) as pool:
        shells = list(pool.map(dial, range(nodes)))
    taken = [whole() - begun]
    sinks = [Counted() for _ in shells]
    for shell, sink in zip(shells, sinks, strict=True):
        shell.stream(["sh", "-c", f"sleep 4; {BURST.format(100)}"], sink)
    time.sleep(2.0)
    begun = whole() + of_masters()
    for sink in sinks:
        sink.done.wait(120)
    taken.append(whole() + of_masters() - begun)
    for shell in shells:
        shell.close()
    connections.close()
    return [1000 * seconds / nodes for seconds in taken]


def over_masters(sshd: Sshd, nodes: int) -> int:
    """Beside our own client, on the same hosts: `ssh` over open master connections. Its key is not that of ours."""
    reader = EventLoop()
    reader.start()
    own = sshd.ssh_config(nodes)
    folder = sshd.directory
    text = own.read_text().replace(str(sshd.key), str(keygen(folder / "stranger")))
    config = folder / "masters"
    config.write_text(f"Host *\n  ControlPath {folder}/%n\n{text}")
    with masters(sshd, config, nodes) as of_masters:
        ways = {
            "our client": Connections(reader, ConnectSettings(by="paramiko"), None, own),
            "ssh": Connections(reader, ConnectSettings(by="openssh"), None, config),
            "ssh, after a refusal": Connections(reader, ConnectSettings(), None, config),
        }
        measured = {name: connected(way, reader, nodes, of_masters) for name, way in ways.items()}
    reader.stop()
    (first, lines), (more, more_lines) = measured["our client"], measured["ssh"]
    table.show(
        f"CPU per host, {nodes} hosts over open master connections, ms",
        ("what", *measured, "ratio", "goal"),
        [
            ("connect and `true`", *(f"{one[0]:.1f}" for one in measured.values()), f"{more / first:.2f}x", "<= 2x"),
            ("100 lines", *(f"{one[1]:.1f}" for one in measured.values()), f"{more_lines / lines:.2f}x", "<= 2x"),
        ],
    )
    return table.status((more / first, 2.0), (more_lines / lines, 2.0))


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
        raise SystemExit(over_masters(sshd, nodes))


if __name__ == "__main__":
    run_program(main)
