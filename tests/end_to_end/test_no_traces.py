"""Nothing is installed on a node, nothing is written there, and nothing stays."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec

from collectors.probe import bundle
from tests.end_to_end.product import QUICK, Cluster, Product
from tests.lab.daemons import until
from tests.lab.processes import gone
from trainmon.model import Spec

StartCluster = Callable[..., Cluster]


def test_with_no_config_and_an_empty_home_this_machine_is_watched(product: Product) -> None:
    screen = product.screen(is_installed=True)
    screen.until_shown(r"ssh 1/1")
    screen.until_line(":/ ", r"\d+%")
    children = Path(f"/proc/{screen.pid}/task/{screen.pid}/children").read_text().split()
    assert screen.leave() < QUICK
    until(lambda: all(gone(int(pid)) for pid in children), "no process is left")
    assert list(product.work.iterdir()) == []
    ours = product.home / ".local/state/trainmon-tui"
    kept = {"trainmon.log", "ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm", "ledger.lock"}
    (seen,), (recorded,) = ours.glob("last-seen-*.json"), ours.glob("recordings/*.part")
    listed = {seen, recorded, *(ours / name for name in kept)}
    assert {path for path in product.home.rglob("*") if path.is_file()} <= listed


def test_nothing_is_written_in_a_nodes_home(product: Product, cluster: StartCluster) -> None:
    home = product.folder / "node-home"
    home.mkdir()
    nodes = cluster(1, env={"HOME": str(home)})
    screen = product.screen("n0", is_installed=True)
    screen.until_shown("ssh 1/1", r"n0:/ ")
    folders = {Path(f"/proc/{pid}/cwd").resolve() for pid in nodes.sessions_of(0)}
    assert folders
    assert screen.leave() < QUICK
    assert list(home.rglob("*")) == []


def test_a_client_that_is_stopped_loses_its_lease_and_the_probe_ends_by_itself(
    product: Product, cluster: StartCluster
) -> None:
    nodes = cluster(1)
    nodes.nvml[0].set(0, temperature=60)
    argv = ["ssh", "-F", str(product.ssh_config), "n0", *map(quoted, bundle.command())]
    client = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    assert client.stdin is not None
    assert client.stdout is not None
    try:
        spec = msgspec.json.encode({**msgspec.to_builtins(Spec(period=0.5)), "lease": 2.0})
        client.stdin.write(bundle.payload(client.stdout.readline()) + spec + b"\n")
        assert b'"hello"' in client.stdout.readline()
        probes = nodes.sessions_of(0)
        assert probes
        os.kill(client.pid, signal.SIGSTOP)
        until(lambda: all(gone(pid) for pid in probes), "the probe has ended")
    finally:
        client.kill()
        client.wait(10)
        client.stdin.close()
        client.stdout.close()


def quoted(word: str) -> str:
    """One word of a command line that ssh hands to the login shell."""
    return "'" + word.replace("'", "'\\''") + "'"
