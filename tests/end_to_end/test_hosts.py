"""Hosts on the command line, without a config: their alerts are shown, and the ledger does not have them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.end_to_end.product import PATIENCE, PROGRAM, Cluster, Product, environment
from tests.lab import forked
from tests.lab.disks import OF_ANY_DISK
from tests.lab.nvml import GPU_IS_LOST

StartCluster = Callable[..., Cluster]


def open_alerts(product: Product) -> list[dict[str, Any]]:
    """The open alerts of the ledger, as `status` lists them."""
    result = json.loads(forked.run([PROGRAM, "status", "--json"], env=environment(product.home)).stdout)
    return [{name: one[name] for name in ("id", "rule", "node", "phase", "data")} for one in result["alerts"]]


@pytest.fixture
def lost(cluster: StartCluster) -> Cluster:
    """Two nodes; each has lost a GPU."""
    nodes = cluster(2)
    for nvml in nodes.nvml:
        nvml.error(1, "*", GPU_IS_LOST)
    return nodes


def test_a_dashboard_shows_the_alerts_of_its_hosts_and_leaves_none(product: Product, lost: Cluster) -> None:
    screen = product.screen("n0", columns=200)
    screen.until_shown("GPU 1 of n0 is lost", "alerts: not sent")
    screen.keys("a")
    screen.until_shown("acknowledge", "optional")
    screen.keys("\r")
    screen.until_shown("ack tester|ack root")
    screen.leave()
    assert open_alerts(product) == []


def test_the_alerts_of_a_config_are_not_shown_and_stay_as_they_are(product: Product, lost: Cluster) -> None:
    config = product.config('[cluster]\nnodes = ["n1"]\n[[rule]]\ntype = "gpu-lost"\nfor = "0s"\n' + OF_ANY_DISK)
    assert product.run("--alerts-only", "--once", "--config", str(config)).returncode == 1
    before = open_alerts(product)
    assert [(one["rule"], one["node"]) for one in before] == [("gpu-lost", "n1")]
    screen = product.screen("n0", columns=200)
    assert "n1" not in screen.until_shown("GPU 1 of n0 is lost")
    screen.leave()
    assert open_alerts(product) == before


def test_neither_the_daemon_nor_a_call_of_cron_leaves_any(product: Product, lost: Cluster) -> None:
    once = product.run("--alerts-only", "--once", "n0")
    assert once.returncode == 1, once.stderr
    assert "gpu-lost" in once.stderr
    daemon = subprocess.Popen(
        product.argv("--alerts-only", "n0"), cwd=product.work, env=environment(product.home), stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert daemon.stderr is not None
        lines = iter(daemon.stderr.readline, "")
        assert any("gpu-lost" in line for line in lines)
    finally:
        daemon.send_signal(signal.SIGTERM)
    daemon.communicate(timeout=PATIENCE)
    assert daemon.returncode == 0
    assert open_alerts(product) == []


def test_an_exclamation_mark_logs_in_as_the_dashboard_does_and_comes_back(
    product: Product, cluster: StartCluster
) -> None:
    cluster(1)
    screen = product.screen("n0")
    screen.until_shown("ssh 1/1")
    screen.keys("2!")
    screen.until_shown(r":\S*[#$]")
    screen.keys("echo $((6 * 7)) from $SSH_CONNECTION\r")
    screen.until_shown(r"42 from 127\.0\.0\.1")
    screen.keys("exit\r")
    screen.until_shown("2 GPUs", "ssh 1/1")
    screen.leave()
