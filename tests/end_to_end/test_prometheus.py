"""A real Prometheus that scrapes a stand-in for dcgm-exporter and a real node_exporter, behind a token."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from collectors.prometheus.reader import MetricsReader, PrometheusClient
from tests.end_to_end.contract import breaches
from tests.end_to_end.product import Cluster, Product
from tests.lab.daemons import until
from tests.lab.dcgm_exporter import DcgmExporter
from tests.lab.node_exporter import HostExporter
from tests.lab.prometheus import NodeExporter, Prometheus
from tests.lab.sockets import Sockets
from trainmon.config import Settings, load_settings
from trainmon.model import State
from trainmon.runtime.monitor import Monitor

TOKEN = "glsa_9f8e7d6c5b4a3210"


CONFIG = """
[cluster]
name = "lab"
nodes = ["n0", "n1"]
metrics = [
    {{ url = "{url}", every = "1s" }},
    {{ url = "{url}", exporter = "node", node_label = "Hostname", every = "1s" }},
]
[[disk]]
path = "/"
on = "nodes"
"""


class Gate:
    """A reverse proxy that requires a token, as sites put one before Prometheus."""

    def __init__(self, url: str) -> None:
        self.failures: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers["Authorization"] != f"Bearer {TOKEN}":
                    self.send_error(401)
                    return
                headers = {"Content-Type": self.headers["Content-Type"]}
                request = urllib.request.Request(f"{url}{self.path}", body, headers)
                with urllib.request.urlopen(request, timeout=60) as response:
                    answer = response.read()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._server = Sockets(Handler, self.failures)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Gate:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.hang_up()
        self._server.shutdown()
        self._server.server_close()
        assert self.failures == []


class Lab:
    def __init__(self, folder: Path, dcgm: DcgmExporter, gate: Gate, host: str) -> None:
        self.dcgm, self.gate = dcgm, gate
        self.config = folder / "trainmon.toml"
        self.config.write_text(f"""
[[cluster]]
name = "prod"
nodes = ["gpu-[001-003]", "{host}"]
metrics = [
    {{ url = "{gate.url}", match = 'cluster="a"', token = "env:PROM_TOKEN", every = "1s" }},
    {{ url = "{gate.url}", exporter = "node", token = "env:PROM_TOKEN", every = "1s" }},
]

[[disk]]
path = "/"
on = "nodes"

[[disk]]
path = "/dev/shm"
on = "nodes"
""")
        self.env = {**os.environ, "HOME": str(folder), "XDG_STATE_HOME": str(folder)}

    def settings(self) -> Settings:
        return load_settings(self.config, ())[0]

    def run(self, *args: str, token: str = TOKEN) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "trainmon", *args, "--config", str(self.config)]
        env = {**self.env, "PROM_TOKEN": token}
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("prometheus")
    with (
        DcgmExporter(3) as dcgm,
        NodeExporter(folder) as node,
        Prometheus(folder, {"dcgm": [dcgm.address], "node": [node.address]}) as server,
        Gate(server.url) as gate,
    ):
        dcgm.renamed = frozenset({"gpu-002"})
        until(lambda: dcgm.scrapes >= 3, "Prometheus scrapes")
        yield Lab(folder, dcgm, gate, "127.0.0.1")


def wait(monitor: Monitor, condition: Callable[[State], object], what: str) -> State:
    until(lambda: condition(monitor.engine.state), what)
    return monitor.engine.state


@pytest.mark.slow
def test_check_says_what_the_server_has_and_never_the_token(lab: Lab) -> None:
    done = lab.run("check")
    assert "prod, dcgm   3 nodes with 24 GPUs; the newest sample is" in done.stdout
    assert "prod, node   1 node; the newest sample is" in done.stdout
    assert "node_exporter has no disk /dev/shm" in done.stdout
    refused = lab.run("check", token="wrong-token-1234")
    assert refused.returncode == 3
    assert "the server refuses the token (401)" in refused.stdout
    assert 'renew the "token" of its metrics table' in refused.stdout
    for text in (done.stdout, done.stderr, refused.stdout, refused.stderr):
        assert TOKEN not in text
        assert "wrong-token-1234" not in text


@pytest.mark.slow
def test_the_numbers_are_those_of_the_exporters_and_get_old_with_them(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROM_TOKEN", TOKEN)
    with Monitor(lab.settings(), keeps=False, records=False) as monitor:
        state = wait(monitor, lambda now: {"gpu-001", "gpu-003", "127.0.0.1"} <= now.nodes.keys(), "all nodes are read")
        assert len(state.nodes["gpu-003"].gpus) == 8
        assert state.nodes["gpu-001"].gpus[7].power_w == 650.0
        assert (state.nodes["127.0.0.1"].memory_total_mib or 0) > 100
        assert state.nodes["127.0.0.1"].cpu_count == os.cpu_count()

        own, disk = os.statvfs("/"), state.disks["127.0.0.1:/"]
        assert (disk.total_bytes, disk.total_inodes) == (own.f_blocks * own.f_frsize, own.f_files)
        assert 0 < (disk.free_bytes or 0) < own.f_blocks * own.f_frsize
        assert (disk.mount, disk.read_only, disk.state) == ("/", False, "ok")
        assert disk.filesystem
        assert "127.0.0.1:/dev/shm" not in state.disks, "node_exporter does not export it, and it is not the disk of /"

        lab.dcgm.values["DCGM_FI_DEV_XID_ERRORS", "gpu-002", 5] = 79
        wait(monitor, lambda now: now.nodes["gpu-002"].gpus[5].last_xid == 79, "the Xid is seen")
        lab.dcgm.values["DCGM_FI_DEV_POWER_USAGE", "gpu-001", 7] = None
        wait(monitor, lambda now: now.nodes["gpu-001"].gpus[7].power_w is None, "a series that ends is unknown")

        lab.dcgm.instances["gpu-003", 2] = 2
        wait(monitor, lambda now: now.nodes["gpu-003"].gpus[2].mig, "the instances are seen")
        shared = wait(monitor, lambda now: now.nodes["gpu-003"].gpus[2].memory_used_mib == 144_000, "they are added")
        assert shared.nodes["gpu-003"].gpus[2].temperature_c == 60
        assert len(shared.nodes["gpu-003"].gpus) == 8

        lab.dcgm.has_failed = True
        problem = "Prometheus has no new samples of it"
        state = wait(monitor, lambda now: now.sources["node:gpu-001"].problem == problem, "the node is stale")
        assert state.nodes["gpu-001"].gpus[0].temperature_c == 60
        assert state.sources["node:127.0.0.1"].health == "ok"
        lab.dcgm.has_failed = False
        wait(monitor, lambda now: now.sources["node:gpu-001"].health == "ok", "it is read again")

        monitor.view_node("gpu-001")
        wait(monitor, lambda _: len(monitor.history("gpu-001/0", "temperature", 86_400).values) > 0, "its past is read")

        monkeypatch.setenv("PROM_TOKEN", "expired")
        server = "prometheus:prod:dcgm"
        state = wait(monitor, lambda now: now.sources[server].health == "down", "the server is down")
        assert state.sources[server].problem == "the server refuses the token (401)"


@pytest.mark.slow
def test_the_past_of_a_gpu_is_that_of_its_instances(lab: Lab) -> None:
    lab.dcgm.instances["gpu-002", 4] = 2
    table = lab.settings().clusters[0].metrics[0]
    reader = MetricsReader(table, PrometheusClient(table, time.time, {"PROM_TOKEN": TOKEN}), time.time)

    def memory() -> list[float]:
        return [value for past in reader.past("gpu-002") for value in past.columns[4, "memory_used_mib"]]

    until(lambda: 144_000 in memory(), "the memory of its instances is added up", 60)


@pytest.mark.slow
def test_a_disk_that_has_filled_for_a_day_has_a_forecast_at_once(tmp_path: Path, product: Product) -> None:
    now, per_s = time.time(), 1e12 / 86_400.0
    series = 'node_filesystem_avail_bytes{Hostname="n0",device="/dev//",fstype="xfs",mountpoint="/"}'
    with HostExporter(1, names=("n0",)) as hosts, DcgmExporter(1, gpus=1, names=("n0",)) as dcgm:
        server = Prometheus(tmp_path, {"node": [hosts.address], "dcgm": [dcgm.address]})
        server.backfill((series, now - age, 3.1e12 + age * per_s) for age in range(80_000, 0, -60))
        with server:
            until(lambda: min(dcgm.scrapes, hosts.scrapes) >= 3, "Prometheus scrapes")
            settings = load_settings(product.config(CONFIG.format(url=server.url).replace('"n0", "n1"', '"n0"')), ())[0]
            with Monitor(settings, keeps=False, records=False) as monitor:
                state = wait(monitor, lambda now: "n0:/" in now.disks and now.disks["n0:/"].full_at, "the forecast")
    full_at = state.disks["n0:/"].full_at
    assert full_at is not None
    assert full_at - now == pytest.approx(3.1e12 / per_s, rel=0.05)


@pytest.mark.slow
def test_an_open_screen_is_read_over_ssh_and_a_closed_one_from_prometheus(
    tmp_path: Path, product: Product, cluster: Callable[..., Cluster]
) -> None:
    nodes = cluster(2)
    with (
        DcgmExporter(2, gpus=2, names=("n0", "n1")) as dcgm,
        HostExporter(2, names=("n0", "n1")) as hosts,
        Prometheus(tmp_path, {"dcgm": [dcgm.address], "node": [hosts.address]}) as server,
    ):
        until(lambda: min(dcgm.scrapes, hosts.scrapes) >= 3, "Prometheus scrapes")
        config = product.config(CONFIG.format(url=server.url))
        found = product.snapshot("--config", str(config))
        assert {node["name"]: node["probe"] for node in found["nodes"]} == {"n0": "prometheus", "n1": "prometheus"}
        assert [*breaches(found)] == []
        screen = product.screen("--config", str(config))
        screen.until_shown(r"prometheus \d+s", r"n1 +99 +99", r"n0:/ +2\.8T", r"n1:/ +2\.8T")
        assert not nodes.sessions_of(0)
        screen.keys("2j\r")
        screen.until_shown("read by +nvml", r"[›│] +0 +41 ")
        assert nodes.sessions_of(1)
        assert not nodes.sessions_of(0)
        screen.keys("\x1b")
        screen.until_shown("zoomed")
        screen.keys("z")
        screen.until_shown("n1 +97 +97", r"n1:/ +(?!2\.8T)\d", r"n0:/ +2\.8T")
        assert len(re.findall("n1:/ ", screen.text())) == 1, "no disk is shown twice"
        screen.until_shown("n1 +99 +99", r"n1:/ +2\.8T", seconds=180)
        until(lambda: not nodes.sessions_of(1), "its connection is closed")
