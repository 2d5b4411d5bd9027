"""The nodes of jobs on the real Slurm, with their numbers from a real Prometheus: nothing connects to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.daemons import until
from tests.lab.dcgm_exporter import DcgmExporter
from tests.lab.prometheus import Prometheus
from tests.lab.slurm import Slurm
from tests.slurm.product import SlurmProduct
from tests.slurm.steps import sleeping

pytestmark = pytest.mark.slow

CLUSTER = """
[[cluster]]
name = "lab"
nodes = "slurm"
slurm_every = "15s"
ssh = "files"
metrics = {{ url = "{url}", every = "1s" }}
"""


@pytest.fixture
def dcgm(slurm: Slurm, product: SlurmProduct, tmp_path: Path) -> Iterator[DcgmExporter]:
    """An exporter for all nodes of Slurm, which a server scrapes; the config watches those of our jobs."""
    with (
        DcgmExporter(len(slurm.nodes), gpus=2, names=slurm.nodes) as exporter,
        Prometheus(tmp_path, {"dcgm": [exporter.address]}) as server,
    ):
        until(lambda: exporter.scrapes >= 3, "Prometheus scrapes")
        product.watch(CLUSTER.format(url=server.url))
        yield exporter


def test_the_nodes_of_our_jobs_are_read_and_no_others(slurm: Slurm, product: SlurmProduct, dcgm: DcgmExporter) -> None:
    job_id = sleeping(slurm, "--nodes=2")
    dcgm.values["DCGM_FI_DEV_GPU_TEMP", "gpu-2", 1] = 71.0
    until(lambda: product.snapshot()["nodes"], "its nodes are read")
    found = product.snapshot()
    assert [(node["name"], node["probe"]) for node in found["nodes"] if node["probe"] == "prometheus"] == [
        ("gpu-1", "prometheus"),
        ("gpu-2", "prometheus"),
    ]
    sources = {source["name"]: source["health"] for source in found["sources"]}
    assert (sources["node:gpu-2"], sources["prometheus:lab:dcgm"]) == ("ok", "ok")
    (job,) = [one for one in found["jobs"] if one["id"] == job_id]
    assert job["nodes"] == ["gpu-1", "gpu-2"]
    done = product.run("check")
    assert "2 nodes with 4 GPUs; the newest sample is" in done.stdout, done.stdout


def test_nodes_come_and_go_with_their_jobs(slurm: Slurm, product: SlurmProduct, dcgm: DcgmExporter) -> None:
    """`r` polls the queue at once, which is polled seldom without a job."""
    screen = product.dashboard()
    screen.until_shown(r"ssh 1/1 +slurm \d+s")
    first = sleeping(slurm, "--nodes=1")
    screen.keys("r")
    screen.until_shown(r"prometheus \d+s", r"gpu-1 +60 +60")
    second = sleeping(slurm, "--nodes=1", "--exclusive")
    screen.until_shown(r"gpu-1 +60 +60", r"gpu-2 +60 +60")
    slurm.run("scancel", first)
    screen.until_gone(r"gpu-1 +60 +60")
    screen.until_shown(r"gpu-2 +60 +60")
    slurm.run("scancel", second)
    screen.until_gone("prometheus")
    screen.leave()
