"""Setting up against a real Slurm: what check and init ask it, and the nodes that are watched for its jobs."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.lab.slurm import Slurm
from tests.lab.sshd import Sshd
from tests.slurm.product import SlurmProduct
from tests.slurm.training import Training

MakeTraining = Callable[..., Training]

LOCAL = '[[cluster]]\nname = "lab"\nspares = 3\nslurm_every = "15s"\n'


def rows(printed: str) -> list[str]:
    """The lines of check from its queue on, without the name of this machine."""
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    return [" ".join([line.split()[0], *line.split()[2:]]) for line in lines if line[:1] in "✓✗◆"]


def test_check_queries_slurm_and_looks_for_what_the_runs_need(
    slurm: Slurm, training: MakeTraining, product: SlurmProduct
) -> None:
    run = training()
    nowhere = slurm.directory / "none"
    job_id = run.start("--nodes=2")
    slurm.submit("sleep 60", "--hold", "--job-name=next")
    other = f'[[run]]\nname = "other"\nscript = "{nowhere}.sh"\nsave_switch = "{nowhere}/save"\n'
    product.watch(f'{LOCAL}{run.table()}[[run]]\nname = "next"\n{other}')
    done = product.run("check")
    printed = rows(done.stdout)
    assert done.returncode == 3, done.stdout + done.stderr
    assert f"✓ Slurm {slurm.ask('squeue', '--version').split()[1]}, as user root" in printed
    assert "✓ queue 1 running, 1 pending (yours)" in printed
    assert "✓ accounting off: Slurm forgets how a job ended after a few minutes (MinJobAge)" in printed
    assert "◆ spares 2 idle of 4 nodes, 3 wanted" in printed
    assert f"✓ run {run.name} job {job_id} is RUNNING on 2 nodes" in printed
    assert [line for line in printed if line.startswith("✓ run next job") and line.endswith("is pending (JobHeldUser)")]
    assert "◆ run other no job named other is in the queue" in printed
    missing = f"✗ {nowhere} does not exist; the nearest existing parent is {slurm.directory}"
    assert [line for line in printed if line.startswith((f"✗ {nowhere} ", f"✗ {nowhere}/"))] == [missing]
    assert f"✗ {nowhere}.sh missing or not readable" in printed
    assert printed.count("✓ " + str(run.checkpoints) + " can be entered") == 1
    assert [line for line in done.stdout.splitlines() if line.startswith("    → fix the `script` of run other")]


@pytest.mark.slow
def test_check_says_that_a_signal_for_the_batch_shell_alone_never_reaches_the_trainer(
    slurm: Slurm, product: SlurmProduct
) -> None:
    late = slurm.submit("#SBATCH --signal=B:USR1@60\nsrun sleep 60", "--job-name=late", "--time=2")
    array = slurm.submit("#SBATCH --signal=B:TERM\nsleep 60", "--job-name=array", "--hold", "--array=1-3")
    slurm.submit("#SBATCH --signal=B:USR1@60\nexec sleep 60", "--job-name=right", "--time=2")
    script = slurm.directory / "next.sh"
    script.write_text("#!/bin/sh\n#SBATCH --signal=B:USR2@60\npython train.py\n")
    product.watch(f'{LOCAL}[[run]]\nname = "next"\nscript = "{script}"\n')
    done = product.run("check")
    assert done.returncode == 0, done.stdout
    unheard = "reaches only the batch shell, never the trainer: the script neither starts it with exec nor has a trap"
    assert {line for line in rows(done.stdout) if "--signal" in line} == {
        f"◆ {script} --signal=B:USR2@60 {unheard} for USR2",
        f"◆ job {array}_[1-3] --signal=B:TERM {unheard} for TERM",
        f"◆ job {late} --signal=B:USR1@60 {unheard} for USR1",
    }
    steps = "remove the B: so that Slurm signals the steps of srun, or start the trainer with exec"
    assert done.stdout.count(f"    → {steps}, as in: exec trainmon-run -- …") == 1


def test_check_says_what_to_do_when_the_controller_is_silent(slurm: Slurm, product: SlurmProduct) -> None:
    product.watch('[[cluster]]\nname = "lab"\nnodes = "slurm"\n')
    slurm.stop_controller()
    try:
        done = product.run("check")
    finally:
        slurm.start_controller()
    assert done.returncode == 3
    assert "    → run scontrol ping on that host: it shows whether slurmctld answers" in done.stdout


def test_init_writes_our_running_jobs_as_runs(slurm: Slurm, training: MakeTraining, product: SlurmProduct) -> None:
    run = training()
    job_id = run.start("--nodes=2")
    odd = slurm.submit("sleep 60", '--job-name=an "odd" name')
    slurm.wait_for_state(odd, "RUNNING")
    slurm.submit("sleep 60", "--hold", "--job-name=waits")
    done = product.run("init", "--output", "-")
    assert done.returncode == 0, done.stderr
    result = tomllib.loads(done.stdout)
    (cluster,) = result["cluster"]
    assert (cluster["nodes"], "login" in cluster) == ("slurm", False)
    assert {entry["name"] for entry in result["run"]} == {run.name, 'an "odd" name'}
    (entry,) = [entry for entry in result["run"] if entry["name"] == run.name]
    assert entry["script"] == str(run.script)
    settings = [line for line in done.stdout.splitlines() if line and line[0] not in "#["]
    assert [line for line in settings if not re.search("  # (found|guessed): ", line)] == []
    assert f"# Job {job_id} runs on 2 nodes (gpu-[1-2])." in done.stdout
    assert "4 nodes, gpu-[1-4]" in done.stdout


def test_the_nodes_of_a_job_are_watched_over_ssh_while_it_runs(
    slurm: Slurm, training: MakeTraining, product: SlurmProduct, tmp_path: Path
) -> None:
    run = training()
    run.start("--nodes=2")
    with Sshd.start(tmp_path / "sshd") as sshd:
        config = sshd.ssh_config(4, name="gpu-{}", extra=f"Host gpu-4\n  HostName {sshd.address(4)}\n")
        product.watch('[[cluster]]\nname = "lab"\nnodes = "slurm"\n[[rule]]\ntype = "gpu-missing"\nenabled = false\n')
        result = product.snapshot(f"--ssh-config={config}")
        checked = product.run("check", f"--ssh-config={config}")
    health = {source["name"]: source["health"] for source in result["sources"]}
    assert health.pop("slurm:lab") == "ok"
    assert {name for name in health if name.startswith("node:gpu-")} == {"node:gpu-1", "node:gpu-2"}
    assert set(health.values()) == {"ok"}
    (found,) = result["runs"]
    assert (found["name"], found["nodes"]) == (run.name, ["gpu-1", "gpu-2"])
    assert checked.returncode == 0, checked.stdout
    assert f"✓ runs 1 found in your running jobs: {run.name}" in rows(checked.stdout)
    assert [line for line in checked.stdout.splitlines() if "gpu-2" in line and "login" in line]
