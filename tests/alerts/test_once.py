"""`--once`, as cron has it: each look remembers the one before, tells what it must, and its status says how it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.alerts.messages import titles
from tests.alerts.watch import Watch
from tests.end_to_end.product import Cluster
from tests.lab.ntfy_server import NtfyServer
from tests.lab.receiver import Receiver

MakeWatch = Callable[..., Watch]


@pytest.fixture
def switch() -> Iterator[Receiver]:
    with Receiver.start() as receiver:
        yield receiver


def test_looks_of_cron_are_one_watch(nodes: Cluster, ntfy: NtfyServer, watch: MakeWatch, switch: Receiver) -> None:
    daemon = watch()
    text = daemon.config.read_text().replace("start = false", f'start = false\nping = "{switch.url}/check"')
    daemon.config.write_text(text.replace('hold = "0s"\nkeep = "1s"', 'hold = "2s"\nkeep = "2s"'))
    first = daemon.once()
    assert (first.returncode, titles(ntfy)) == (0, []), first.stderr

    nodes.nvml[0].set(1, memory_used=85_500_000_000)
    looks = [daemon.once() for _ in range(2)]
    assert looks[-1].returncode == 1, looks[-1].stderr
    assert titles(ntfy) == ["CODE RED gpu-memory-full n0/1"]
    status = daemon.run("status")
    assert status.returncode == 1, status.stdout
    assert status.stdout.startswith("once (pid ")

    nodes.nvml[0].clear(gpus=2)
    last = [daemon.once() for _ in range(2)][-1]
    assert last.returncode == 0, last.stderr
    assert titles(ntfy) == ["CODE RED gpu-memory-full n0/1", "RESOLVED gpu-memory-full n0/1"]
    assert [request.path for request in switch.taken] == ["/check"] * 5
    assert daemon.run("status").returncode == 0


def test_beside_a_daemon_a_look_tells_nothing(nodes: Cluster, ntfy: NtfyServer, watch: MakeWatch) -> None:
    daemon = watch()
    daemon.start()
    daemon.until("duty", holder="us")
    daemon.until("source", source="node:n0", health="ok")
    nodes.nvml[0].set(1, memory_used=85_500_000_000)
    daemon.until("sent", channel="phone")
    assert daemon.once().returncode == 1
    assert titles(ntfy) == ["CODE RED gpu-memory-full n0/1"]
    assert daemon.is_running
    assert daemon.status()["duty"]["pid"] == daemon.pid
