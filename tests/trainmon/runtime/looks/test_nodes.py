"""The script of a look runs on each node, two at a time on each."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from multiprocessing.pool import ThreadPool

import pytest

from trainmon.lib import CommandFailed, HostUnreachable
from trainmon.runtime.looks import Nodes
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import LocalShell, Shell


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    one = EventLoop()
    one.start()
    yield one
    one.stop()


def test_looks_at_one_node_take_turns(loop: EventLoop) -> None:
    def shell_of(host: str) -> Shell:
        if host == "n2":
            raise HostUnreachable(host, "no route")
        return LocalShell(loop)

    nodes = Nodes(shell_of, lambda host: "" if host == "n3" else sys.executable)
    with ThreadPool(8) as threads:  # eight runs on one node that all hang
        answers = threads.map(lambda _: nodes.ask("n1", "ras", {"port": 9, "pids": [1 << 30]}, 20.0), range(8))
    assert [one["why"] for one in answers] == ["gone"] * 8
    found = nodes.ask_each({"n1": {"port": 9, "pids": [1 << 30]}, "n2": {}, "n3": {}}, "ras", 20.0)
    assert found.pop("n1")["why"] == "gone"
    assert [(name, type(one)) for name, one in found.items()] == [("n2", HostUnreachable), ("n3", CommandFailed)]
    assert nodes.ask_each({}, "ras", 20.0) == {}
