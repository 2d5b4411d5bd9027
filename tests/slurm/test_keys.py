"""From a key press in a terminal to what the trainer and Slurm make of it, and back to the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.product import Cluster, Screen
from tests.lab.daemons import until
from tests.lab.slurm import Slurm
from tests.slurm.product import SlurmProduct
from tests.slurm.training import Training
from trainmon.ledger.ledger import recent_actions
from trainmon.model import Record

MakeTraining = Callable[..., Training]
PATIENCE = 120.0


def agree(screen: Screen, key: str, *shown: str, button: str) -> None:
    """Open the plan of a key, see that it stands on Close, go to the button that acts, and press it. Until the plan is
    there, Tab goes to a field instead; a path that it is to show may be in a log behind it, too."""
    screen.keys(key)
    screen.until_shown(r"›\[ Close \]", "Tab or →: action button", *shown)
    screen.keys("\t")
    screen.until_shown(rf"›\[ {button} \]")
    screen.keys("\r")
    screen.until_gone(r"\[ Close \]")


def close(screen: Screen) -> None:
    screen.keys("\r")
    screen.until_gone(r"\[ Close \]")


def newest(product: SlurmProduct, verb: str) -> Record:
    """The newest action of a verb, as the ledger has it. Read here: it is asked for many times a second."""
    ledger = product.home / ".local" / "state" / "trainmon-tui"
    *_, found = (record for record in recent_actions(ledger, 0.0, 100) if record.action.verb == verb)
    return found


def marks(product: SlurmProduct, verb: str) -> dict[str, bool]:
    """What was to follow the newest action of a verb, and whether it did."""
    return {mark.name: mark.at is not None for mark in newest(product, verb).marks}


def test_save_kill_unkill_and_queue_another(slurm: Slurm, training: MakeTraining, product: SlurmProduct) -> None:
    run = training("--save-s=0.6")
    job_id = run.start()
    product.watch(run.config())
    screen = product.dashboard()
    screen.until_line(run.name, "59m|1h")
    screen.until_shown(rf"{run.name}: healthy")

    # Looking at a plan does nothing.
    screen.keys("S")
    screen.until_shown(r"›\[ Close \]", str(run.save_switch))
    close(screen)
    assert not run.save_switch.exists()

    agree(screen, "S", "consumes the switch", button="Save")
    screen.until_shown("the trainer consumes it after")  # a toast
    until(run.committed, "the trainer has saved")
    assert not run.save_switch.exists()
    assert slurm.state(job_id) == "RUNNING"

    agree(screen, "K", str(run.kill_switch), button="▲ Kill")
    slurm.wait_for_state(job_id, "COMPLETED")
    first, last = run.committed()
    assert last > first
    assert run.kill_switch.exists()
    screen.until_line(run.name, "KILL")
    screen.keys("r")
    screen.until_shown(rf"{run.name}: stopped", seconds=PATIENCE)

    screen.keys("R")
    screen.until_shown("refused", "kill switch, armed", "remove it first: U")
    close(screen)
    assert slurm.job(job_id)["Restarts"] == "0"
    # What the dashboard has seen of all that, each with its time.
    until(lambda: all(marks(product, "save").values()), "the saved checkpoint is seen", PATIENCE)
    assert list(marks(product, "save")) == [
        "the file appears",
        "the trainer consumes it",
        "a new checkpoint is committed",
    ]
    until(lambda: all(marks(product, "kill").values()), "the last checkpoint is seen", PATIENCE)
    assert list(marks(product, "kill")) == ["the file appears", "the trainer saves", "it exits"]

    agree(screen, "U", str(run.kill_switch), button="Remove it")
    until(lambda: not run.kill_switch.exists(), "the kill switch is gone")

    screen.keys("N")
    screen.until_shown("sbatch --array=1-1%1", r"how many")
    screen.keys("\r")
    screen.until_shown(r"›\[ Close \]")
    screen.keys("\t")
    screen.until_shown(r"›\[ Queue \]")
    screen.keys("\r")
    slurm.wait_for(lambda: "_1" in slurm.squeue("-h", "-t", "R", "-o", "%i"), what="another job runs")
    (queued,) = slurm.squeue("-h", "-t", "R", "-o", "%i").split()
    until(lambda: f"at iteration {last}" in run.log(slurm.job(queued)["JobId"]), "it resumes from the checkpoint")
    until(lambda: newest(product, "queue").status == "done", "it is done: leaving asks nothing", PATIENCE)
    assert screen.leave() < PATIENCE
    verbs = [(one["verb"], one["status"]) for one in product.actions()]
    assert verbs == [("save", "done"), ("kill", "done"), ("unkill", "done"), ("queue", "done")]


@pytest.fixture
def login(tmp_path: Path, slurm: Slurm, product: SlurmProduct) -> Iterator[Cluster]:
    """A login host, and a host for every node, all behind one real sshd; the nodes have eight GPUs each."""
    with Cluster.start(tmp_path / "nodes", 5, gpus=8, env=slurm.environ, own={}, options={}) as cluster:
        here = f"Host login\n  HostName {cluster.sshd.address(0)}\n"
        product.ssh_config = cluster.sshd.ssh_config(5, name="gpu-{}", extra=here)
        yield cluster


def test_over_ssh_the_nodes_of_the_job_are_watched_and_requeue_and_cancel_act(
    slurm: Slurm, training: MakeTraining, product: SlurmProduct, login: Cluster
) -> None:
    run = training(layout="dcp", lines="titan")
    job_id = run.start()
    product.watch(run.config(login="login", nodes="slurm"))
    screen = product.dashboard()
    screen.until_shown(rf"{run.name}: healthy")
    screen.until_shown("gpu-1 ", "gpu-2 ", "ssh 3/3")
    assert "gpu-3" not in screen.text()

    agree(screen, "R", f"scontrol requeue Incomplete {job_id}", button="▲ Requeue")
    slurm.wait_for_state(job_id, "PENDING")
    assert slurm.job(job_id)["Restarts"] == "1"
    screen.keys("7r")
    screen.until_shown(rf"{job_id} .*{run.name}", "starts in [12]m", seconds=PATIENCE)

    agree(screen, "C", f"scancel {job_id}", button="▲ Cancel the job")
    slurm.wait_for_state(job_id, "CANCELLED")
    until(lambda: marks(product, "requeue").get("it is pending again"), "the requeue is seen", PATIENCE)
    until(lambda: newest(product, "cancel").status == "done", "the cancel is done: leaving asks nothing", PATIENCE)
    screen.until_shown(r"ssh 1/1", seconds=PATIENCE)
    assert screen.leave() < PATIENCE
