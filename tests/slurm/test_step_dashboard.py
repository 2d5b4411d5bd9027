"""The whole program with probes as a step of the user's job, on the real Slurm."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.lab.daemons import until
from tests.lab.slurm import Slurm
from tests.lab.sshd import Sshd
from tests.slurm.product import SlurmProduct
from tests.slurm.steps import QUICK, TRIES, own_steps, sleeping
from tests.slurm.training import Training

pytestmark = pytest.mark.slow

MakeTraining = Callable[..., Training]

CLUSTER = '[[cluster]]\nname = "lab"\nnodes = "slurm"\nslurm_every = "15s"\nconnect = { by = "srun" }\n'


HETEROGENEOUS = """\
#!/bin/bash
#SBATCH -N1
#SBATCH hetjob
#SBATCH -N1 --exclusive
sleep 3600
"""


def test_each_component_of_a_heterogeneous_job_has_a_step(slurm: Slurm, product: SlurmProduct) -> None:
    job_id = slurm.submit(HETEROGENEOUS)
    slurm.wait_for_state(job_id, "RUNNING")
    slurm.wait_for(lambda: len(slurm.squeue("-h", "-o", "%N").split()) == 2, what="both components have a node")
    product.watch(CLUSTER)
    screen = product.dashboard()
    slurm.wait_for(lambda: len(own_steps(slurm)) == 2, what="a step in each component")
    screen.until_shown(r"nodes 3/3")
    screen.leave()
    assert slurm.state(job_id) == "RUNNING"


def test_a_suspended_job_is_what_a_step_waits_for(slurm: Slurm, product: SlurmProduct) -> None:
    job_id = sleeping(slurm)
    slurm.scontrol("suspend", job_id)
    product.watch(CLUSTER)
    done = product.run("snapshot", "--json", "--wait", "40s")
    [node] = [source for source in json.loads(done.stdout)["sources"] if source["name"] == "node:gpu-1"]
    assert node["error"].startswith(f"the step of job {job_id} has not started for")
    assert node["hint"] == f"no step starts in a suspended job; try: squeue --jobs={job_id}"
    slurm.scontrol("resume", job_id)


def watched(run: Training, by: str) -> str:
    settings = f'[[cluster]]\nnodes = "slurm"\nconnect = {{ by = "{by}", timeout = "2s" }}\n'
    return run.config().replace("[[cluster]]\n", settings)


@pytest.mark.parametrize("by", ["srun", "auto"])
def test_a_run_is_watched_by_a_step_and_stays_as_healthy_as_it_is(
    slurm: Slurm, training: MakeTraining, product: SlurmProduct, by: str
) -> None:
    """SSH leads nowhere here: `auto` takes the step."""
    run = training("--step-s=0.5")
    job_id = run.start()
    product.watch(watched(run, by))
    done = product.run("snapshot", "--json", "--wait", "40s")
    result = json.loads(done.stdout)
    (found,) = result["runs"]
    assert (found["verdict"], found["job"]) == ("healthy", job_id), done.stderr
    health = {source["name"]: source["health"] for source in result["sources"]}
    assert (health["node:gpu-1"], health["node:gpu-2"]) == ("ok", "ok"), result["sources"]
    until(lambda: not own_steps(slurm), "no step is left")
    assert slurm.state(job_id) == "RUNNING"


REFUSALS = {
    "at-login": {"AllowUsers": "somebody"},
    "after-login": {"ForceCommand": "echo 'This account is currently not available.'; exit 1"},
}


@pytest.mark.parametrize("options", REFUSALS.values(), ids=REFUSALS.keys())
def test_auto_takes_a_step_where_sshd_refuses(
    slurm: Slurm, product: SlurmProduct, tmp_path: Path, options: dict[str, str]
) -> None:
    sleeping(slurm)
    with Sshd.start(tmp_path / "sshd", LogLevel="VERBOSE", **options) as sshd:
        product.ssh_config = sshd.ssh_config(3, name="gpu-{}")
        product.watch(CLUSTER.replace('"srun"', '"auto"'))
        screen = product.dashboard()
        slurm.wait_for(lambda: own_steps(slurm), what="a step")
        screen.until_shown(r"nodes 2/2")
        screen.leave()
        assert sshd.log.read_text().count("Connection from") == 1  # repeated refusals lock accounts


def test_auto_reads_one_node_of_a_job_over_ssh_and_the_one_that_refuses_by_a_step(
    slurm: Slurm, product: SlurmProduct, tmp_path: Path
) -> None:
    job_id = sleeping(slurm, "--nodes=2")
    with Sshd.start(tmp_path / "open") as sshd, Sshd.start(tmp_path / "shut", AllowUsers="somebody") as shut:
        other = f"Host gpu-2\n  Port {shut.port}\n  IdentityFile {shut.key}\n  UserKnownHostsFile {shut.known_hosts}\n"
        product.ssh_config = sshd.ssh_config(3, name="gpu-{}", extra=other)
        product.watch(CLUSTER.replace('"srun"', '"auto"'))
        output = product.run("check").stdout
        assert re.search(r"✓ gpu-1 +login +no prompt", output), output
        assert re.search(rf"✓ gpu-2 +srun +a step of job {job_id}, named trainmon; the node refuses SSH", output), (
            output
        )
        nodes = json.loads(product.run("snapshot", "--json", "--wait", "40s").stdout)["sources"]
        assert {one["name"]: one["health"] for one in nodes if one["kind"] == "node"}.keys() >= {
            "node:gpu-1",
            "node:gpu-2",
        }
        assert {one["health"] for one in nodes} == {"ok"}, nodes
        screen = product.dashboard()
        screen.until_shown(r"nodes 3/3")
        assert [step.split()[1] for step in own_steps(slurm)] == ["gpu-2"]
        screen.keys("2j\r")
        screen.until_shown(rf"connection +up by a step of job {job_id}, data every 2s")
        screen.leave()


@pytest.fixture(params=["here", "over ssh"])
def cluster(request: pytest.FixtureRequest, slurm: Slurm, product: SlurmProduct, tmp_path: Path) -> Iterator[str]:
    """The config of the cluster, whose Slurm commands run here or on a login host."""
    if request.param == "here":
        yield CLUSTER
        return
    with Sshd.start(tmp_path / "sshd", SetEnv=f"SLURM_CONF={slurm.config}") as sshd:
        product.ssh_config = sshd.ssh_config(1)
        yield CLUSTER + 'login = "n0"\n'


def test_the_dashboard_leaves_no_step_however_it_ends(slurm: Slurm, product: SlurmProduct, cluster: str) -> None:
    sleeping(slurm, "--nodes=2")
    product.watch(cluster)
    screen = product.dashboard()
    screen.until_shown("The probes run as a step of your job")
    slurm.wait_for(lambda: own_steps(slurm), what="a step")
    took = [seconds_to_its_end(slurm, lambda: screen.keys("q"))]
    assert screen.wait(120.0) == 0
    again = product.dashboard()
    again.until_shown("gpu-1", "gpu-2", r"nodes 3/3")
    assert not re.search("The probes run as a step", again.text())
    again.leave()
    killed = []
    for _ in range(TRIES):
        screen = product.dashboard()
        slurm.wait_for(lambda: own_steps(slurm), what="a step of this dashboard")
        killed.append(seconds_to_its_end(slurm, partial(os.kill, screen.pid, signal.SIGKILL)))
        if min(took) >= QUICK:
            took.append(seconds_after_q(slurm, product))
        elif killed[-1] < QUICK:
            break
    print(f"the step ended {min(took):.2f}s after q, {min(killed):.2f}s after kill -9")
    assert max(min(took), min(killed)) < QUICK


def seconds_after_q(slurm: Slurm, product: SlurmProduct) -> float:
    screen = product.dashboard()
    slurm.wait_for(lambda: own_steps(slurm), what="a step of this dashboard")
    screen.until_shown("gpu-1")
    return seconds_to_its_end(slurm, lambda: screen.keys("q"))


def seconds_to_its_end(slurm: Slurm, end: Callable[[], object]) -> float:
    started = time.monotonic()
    end()
    until(lambda: not own_steps(slurm), "no step is left")
    return time.monotonic() - started


def test_a_requeued_job_gets_a_step_in_its_next_start(slurm: Slurm, product: SlurmProduct) -> None:
    job_id = sleeping(slurm, "--nodes=2", "--requeue")
    product.watch(CLUSTER)
    screen = product.dashboard()
    slurm.wait_for(lambda: own_steps(slurm), what="a step")
    screen.until_shown("gpu-1", "gpu-2")
    slurm.scontrol("requeue", job_id)
    slurm.wait_for_state(job_id, "PENDING")
    spool = slurm.directory / "spool"  # the next start would lose its script with the directory of the last one
    slurm.wait_for(lambda: not list(spool.glob("*/job*")), what="the first start is cleared away")
    slurm.start_again(job_id)
    slurm.wait_for_state(job_id, "RUNNING")
    slurm.wait_for(lambda: own_steps(slurm), what="a step in the next start")
    assert slurm.job(job_id)["Restarts"] == "1"


def test_check_starts_a_step_on_each_node(slurm: Slurm, training: MakeTraining, product: SlurmProduct) -> None:
    run = training("--step-s=0.5")
    job_id = run.start()
    product.watch(watched(run, "srun"))
    output = product.run("check").stdout
    for node in ("gpu-1", "gpu-2"):
        assert re.search(rf"✓ {node} +srun +a step of job {job_id}, named trainmon", output), output
    slurm.run("scancel", job_id)
    slurm.wait_for_state(job_id, "CANCELLED")
    product.watch(watched(run, "srun").replace('"slurm"', '["gpu-1"]'))
    output = product.run("check").stdout
    assert re.search("◆ gpu-1 +srun +it is read by a step of your running job there", output), output


def test_check_starts_a_step_on_a_node_that_the_config_names_with_a_user(slurm: Slurm, product: SlurmProduct) -> None:
    job_id = sleeping(slurm)
    product.watch(CLUSTER.replace('"slurm"', '["me@gpu-1"]'))
    output = product.run("check").stdout
    assert re.search(rf"✓ me@gpu-1 +srun +a step of job {job_id}, named trainmon", output), output


def test_check_tells_of_a_slurm_once_although_its_host_is_read_for_a_job_that_it_finds(
    slurm: Slurm, product: SlurmProduct
) -> None:
    sleeping(slurm)
    product.watch('[[cluster]]\nnodes = ["gpu-4"]\nconnect = { by = "srun" }\n')
    output = product.run("check").stdout
    assert output.count(" accounting ") == 1, output
