"""A daemon that hangs: the standby notifies instead, and nothing is sent twice when the first one goes on."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.alerts.daemon import AlertDaemon
from tests.alerts.messages import TOPIC, received, titles, until_told
from tests.end_to_end.product import Cluster
from tests.lab.daemons import until
from tests.lab.ntfy_server import NtfyServer

MakeDaemon = Callable[..., AlertDaemon]

TAKEOVER = 75.0
"""The longest that the test waits; tests.bench.takeover prints how long it takes."""


def fill(nodes: Cluster, node: int) -> None:
    nodes.nvml[node].set(1, memory_used=85_500_000_000)


@pytest.mark.slow  # the lease of production runs out, which takes longer than 30 s
def test_a_standby_notifies_while_the_leader_is_stopped_and_nothing_is_sent_twice(
    nodes: Cluster, ntfy: NtfyServer, make_daemon: MakeDaemon
) -> None:
    """With the lease as it is in production: its time is part of what is proved."""
    first, second = make_daemon(), make_daemon(name="second")
    first.start()
    first.until("duty", holder="us")
    second.start()
    second.until("duty", holder="other", where=f"pid {first.pid}")
    for node in ("node:n0", "node:n1"):
        second.until("source", source=node, health="ok")

    first.tell(signal.SIGSTOP)
    fill(nodes, 0)
    until(lambda: received(ntfy, "CRITICAL", "n0"), "the standby notifies", TAKEOVER)
    assert second.lines(event="duty", holder="us")
    second.until("sent", channel="phone")

    first.tell(signal.SIGCONT)
    first.until("duty", holder="other", where=f"pid {second.pid}")
    fill(nodes, 1)
    until_told(ntfy, "CRITICAL", "n1")
    for node in nodes.nvml:
        node.clear(gpus=2)
    until_told(ntfy, "RESOLVED")
    assert second.status()["duty"]["pid"] == second.pid
    about_gpus = sorted(title for title in titles(ntfy) if "gpu-memory-full" in title)
    assert about_gpus == [
        "CRITICAL gpu-memory-full n0/1", "CRITICAL gpu-memory-full n1/1",
        "RESOLVED gpu-memory-full n0/1 and 1 more",
    ]  # fmt: skip
    assert len(ntfy.of(TOPIC)) == len(about_gpus) + 1, "and that the first one hangs"
