"""Hosts that hang, and every way out of the dashboard: quick, and the terminal is as it was."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator

import pytest

from tests.end_to_end.product import PATIENCE, QUICK, Cluster, Product, Screen, is_restored
from tests.lab.daemons import until
from tests.lab.processes import gone

StartCluster = Callable[..., Cluster]


@contextlib.contextmanager
def hung(nodes: Cluster, node: int) -> Iterator[list[int]]:
    """The node's sessions are stopped, and sshd answers no new one: its connection is open, and nothing comes."""
    pids = nodes.sessions_of(node)
    assert pids, "nothing is connected to the node"
    stopped = (nodes.sshd.pid, *nodes.servers_of(node), *pids)
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield pids
    finally:
        for pid in stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@pytest.fixture
def mute() -> Iterator[int]:
    """A port where connections are taken and nothing is ever said."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


def with_mute(nodes: Cluster, product: Product, port: int) -> None:
    quick = "Host *\n  ServerAliveInterval 1\n  ServerAliveCountMax 4\n"
    extra = f"{quick}Host mute\n  HostName 127.0.0.1\n  Port {port}\n"
    product.ssh_config = nodes.sshd.ssh_config(len(nodes.nvml), extra=extra)


def test_a_hung_host_says_so_with_its_age_while_the_others_go_on_and_leaving_is_quick(
    product: Product, cluster: StartCluster, mute: int
) -> None:
    nodes = cluster(2)
    with_mute(nodes, product, mute)
    screen = product.screen("n0", "n1", "mute", is_installed=True)
    screen.until_shown(r"ssh 2/3")
    with hung(nodes, 1):
        screen.until_line("n1 ", r"(late|reconnecting) \d+s")
        nodes.nvml[0].set(0, utilization=77)
        screen.until_line("n0 ", r"\b77\b")
        screen.until_line("mute ", r"connecting|did not|no answer|late|banner")
        screen.until_line("n1 ", r"late \d+s: ")
        assert screen.leave() < QUICK
    assert is_restored(bytes(screen.screen))


def way_by_key(screen: Screen) -> None:
    screen.keys("q")


def way_by_sigterm(screen: Screen) -> None:
    os.kill(screen.pid, signal.SIGTERM)


def way_by_sighup(screen: Screen) -> None:
    os.kill(screen.pid, signal.SIGHUP)


@pytest.mark.parametrize(("way", "status"), [(way_by_key, 0), (way_by_sigterm, 128 + 15), (way_by_sighup, 128 + 1)])
def test_every_way_out_restores_the_terminal_and_leaves_nothing_on_the_node(
    product: Product, cluster: StartCluster, mute: int, way: Callable[[Screen], None], status: int
) -> None:
    nodes = cluster(1)
    with_mute(nodes, product, mute)
    screen = product.screen("n0", "mute", is_installed=True)
    screen.until_shown("ssh 1/2")
    probes = nodes.sessions_of(0)
    assert probes
    way(screen)
    assert screen.wait(PATIENCE) == status
    assert is_restored(bytes(screen.screen))
    until(lambda: all(gone(pid) for pid in probes), "the probe has ended with its client")


def test_a_terminal_that_is_gone_ends_the_dashboard_and_its_probe(product: Product, cluster: StartCluster) -> None:
    nodes = cluster(1)
    screen = product.screen("n0", is_installed=True)
    screen.until_shown("ssh 1/1")
    probes = nodes.sessions_of(0)
    assert probes
    screen.hang_up()
    until(lambda: gone(screen.pid), "the dashboard has ended")
    until(lambda: all(gone(pid) for pid in probes), "the probe has ended with its client")


def test_ctrl_c_says_how_to_quit_and_does_not(product: Product) -> None:
    screen = product.screen(is_installed=True)
    screen.until_shown("ssh 1/1")
    screen.keys("\x03")
    screen.until_shown("q quits")
    assert screen.leave() < QUICK
    assert is_restored(bytes(screen.screen))


def test_a_client_that_is_killed_takes_its_probe_with_it_at_once(product: Product, cluster: StartCluster) -> None:
    nodes = cluster(1)
    screen = product.screen("n0", is_installed=True)
    screen.until_shown("ssh 1/1")
    probes = nodes.sessions_of(0)
    assert probes
    os.kill(screen.pid, signal.SIGKILL)
    assert screen.wait(PATIENCE) == -signal.SIGKILL
    until(lambda: all(gone(pid) for pid in probes), "the probe has ended with its client")
