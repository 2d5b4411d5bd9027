"""Nodes, an ntfy server and a daemon for each test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.alerts.daemon import AlertDaemon
from tests.alerts.messages import TOPIC
from tests.end_to_end.product import Cluster
from tests.lab.disks import OF_ANY_DISK
from tests.lab.ntfy_server import NtfyServer

CONFIG = """\
[[cluster]]
name = "lab"
nodes = ["n[0-1]"]
every = "1s"
[[notify]]
type = "ntfy"
name = "phone"
server = "{url}"
topic = "{topic}"
severity = "info"
[[rule]]
type = "gpu-lost"
for = "0s"
keep_firing_for = "1s"
[[rule]]
type = "gpu-memory-full"
severity = "critical"
for = "0s"
keep_firing_for = "1s"
[heartbeat]
start = false
"""


@pytest.fixture
def ntfy() -> Iterator[NtfyServer]:
    with NtfyServer.start() as server:
        yield server


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """n0 and n1 with two GPUs each; a test that breaks one mends it."""
    folder = tmp_path_factory.mktemp("nodes")
    with Cluster.start(folder, 2, gpus=2, env={}, own={}, options={}) as started:
        yield started


@pytest.fixture
def make_daemon(tmp_path: Path, nodes: Cluster, ntfy: NtfyServer) -> Iterator[Callable[..., AlertDaemon]]:
    """Makes a daemon that watches the nodes and tells the ntfy server; `more` is added to its config."""
    with contextlib.ExitStack() as stack:

        def make(more: str = "", name: str = "daemon", **env: str) -> AlertDaemon:
            made = AlertDaemon(tmp_path, name=name, ssh_config=nodes.sshd.ssh_config(2), **env)
            made.config.write_text(CONFIG.format(url=ntfy.url, topic=TOPIC) + OF_ANY_DISK + more)
            stack.callback(made.close)
            return made

        yield make
        for node in nodes.nvml:
            node.clear(gpus=2)
