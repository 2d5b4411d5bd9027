"""snapshot --json of a run that a real Slurm runs."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.end_to_end.contract import breaches
from tests.lab.daemons import until
from tests.lab.slurm import Slurm
from tests.lab.trainer import LAYOUTS
from tests.slurm.product import SlurmProduct
from tests.slurm.training import Training

MakeTraining = Callable[..., Training]


def test_runs_are_their_jobs_their_steps_and_their_checkpoints_in_every_layout(
    training: MakeTraining, product: SlurmProduct
) -> None:
    lines = {"dcp": "titan"}
    runs = [training("--every=4", "--save-s=0.1", layout=one, lines=lines.get(one, "megatron")) for one in LAYOUTS]
    jobs = [run.submit("--nodes=1", "--gres=gpu:1") for run in runs]
    for run in runs:
        until(lambda run=run: len(run.committed()) >= 2, f"{run.layout} has two checkpoints")  # type: ignore[misc]
    product.watch(runs[0].config() + "".join(run.table() for run in runs[1:]))
    result = product.snapshot()
    assert list(breaches(result)) == []
    for run, job_id, found in zip(runs, jobs, result["runs"], strict=True):
        (job,) = [job for job in result["jobs"] if job["id"] == job_id]
        assert (job["state"], job["restarts"], job["node_count"]) == ("RUNNING", 0, 1)
        assert (found["name"], found["job"], found["nodes"]) == (run.name, job_id, job["nodes"])
        assert found["verdict"] in ("healthy", "saving"), found["why"]
        assert found["step"] >= 8
        seen = found["checkpoints"]
        assert seen["latest_committed_step"] in run.committed(), run.layout
        states = {one["step"]: one["state"] for one in seen["list"]}
        assert states[4] == "superseded", run.layout
        assert states[seen["latest_committed_step"]] == "committed", run.layout
        assert (seen["torn"], seen["problem"]) == ([], None), run.layout

    listed = product.run("users")
    assert listed.returncode == 0, listed.stderr
    users, _, held = listed.stdout.partition("\n\nJOB ")
    assert re.search(rf"^root +{len(jobs)} +{len(jobs)} +- +- +- +gpu-", users, re.MULTILINE), listed.stdout
    assert {line.split()[0] for line in held.splitlines()[1 : len(jobs) + 1]} == {*jobs}
    assert "missing: " in held, "the nodes are not watched"


def test_a_run_is_found_by_itself_with_its_log_and_its_nodes(
    slurm: Slurm, training: MakeTraining, product: SlurmProduct
) -> None:
    run = training(lines="titan", layout="dcp")
    job_id = run.start(steps=5)
    product.watch('[[cluster]]\nname = "lab"\nslurm_every = "15s"\nusers = ["root"]\n')
    result = product.snapshot()
    (found,) = result["runs"]
    assert (found["job"], found["verdict"]) == (job_id, "healthy")
    assert found["step"] >= 5
    assert found["log"]["tail"]


def test_a_killed_save_is_torn_and_a_loss_that_is_no_number_is_reported(
    slurm: Slurm, training: MakeTraining, product: SlurmProduct
) -> None:
    killed = training("--every=2", "--step-s=0.05", "--save-s=0.1", "--die-while-saving=6", layout="dcp")
    diverged = training("--nan-at=3", "--step-s=0.05")
    job_id = killed.submit()
    diverged.start(steps=10)
    slurm.wait_for_state(job_id, "FAILED")
    product.watch(killed.config() + diverged.table())
    result = product.snapshot(status=1)
    dead, other = result["runs"]
    assert {alert["rule"] for alert in result["alerts"] if alert["severity"] == "critical"} >= {"run-dead", "loss-nan"}
    assert dead["verdict"] == "dead"
    assert dead["checkpoints"]["latest_committed_step"] == 4
    assert dead["checkpoints"]["torn"] == [f"{killed.checkpoints}/step-6"]
    assert dead["checkpoints"]["resumes"] == f"{killed.checkpoints}/step-4"
    assert (other["verdict"], other["loss"]) == ("diverged", None)


def test_a_slurm_that_does_not_answer_is_a_warning_and_exit_3(slurm: Slurm, product: SlurmProduct) -> None:
    """This machine is seen all the same."""
    product.watch('[[cluster]]\nname = "lab"\nslurm_every = "15s"\nusers = ["root"]\n')
    slurm.stop_controller()
    try:
        result = product.snapshot(status=3)
    finally:
        slurm.start_controller()
    assert result["verdict"] == "warning"
    health = {source["kind"]: source["health"] for source in result["sources"]}
    assert health == {"node": "ok", "slurm": "down"}


def test_a_slurm_that_answers_too_late_explains_what_is_not_known(slurm: Slurm, product: SlurmProduct) -> None:
    """A job that has ended is not called starting, and no log is called missing that only its job names."""
    log = slurm.directory / "ended.log"
    log.write_text("no step is printed here\n")
    tables = f'[[run]]\nname = "running"\njob = "x"\n[[run]]\nname = "ended"\njob = "y"\nlog = "{log}"\n'
    product.watch(f'[[cluster]]\nname = "lab"\n{tables}')
    slurm.freeze_controller()
    try:
        done = product.run("snapshot", "--wait=60s")
    finally:
        slurm.thaw_controller()
    assert done.returncode == 3, done.stdout + done.stderr
    rows = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    yet = "no data from Slurm yet"
    assert rows["running"].endswith(f"  {yet}: its jobs are not known, and no log is configured for it"), done.stdout
    assert rows["ended"].endswith(f"  its log shows no step yet; {yet}: whether its job runs is not known")
    assert re.search(r"^lab +down +\? .*Socket timed out", rows["lab"])
