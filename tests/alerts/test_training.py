"""The whole way, with all that is real: a trainer that Slurm runs, nodes behind sshd, W&B beside it, a phone."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.alerts.daemon import PATIENCE, AlertDaemon
from tests.alerts.messages import TOPIC, received, titles, until_told
from tests.end_to_end.product import words
from tests.lab.ntfy_server import NtfyServer
from tests.lab.processes import proc_files
from tests.lab.slurm import Slurm
from tests.lab.sshd import Sshd
from tests.lab.wandb_server import WandbServer
from tests.slurm.conftest import open_directory
from tests.slurm.training import Training
from trainmon.cli import daemon as service_texts

CONFIG = """\
[[cluster]]
name = "lab"
login = "gpu-0"
nodes = "slurm"
every = "1s"
slurm_every = "15s"
[wandb]
every = "15s"
[[notify]]
type = "ntfy"
name = "phone"
server = "{url}"
topic = "{topic}"
severity = "info"
[[rule]]
type = "run-dead"
for = "0s"
keep_firing_for = "1s"
"""
NUMBERS = itertools.count(1)


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with open_directory() as directory, Slurm.start(directory) as started:
        yield started


@pytest.fixture(scope="module")
def sshd(slurm: Slurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    """The login host gpu-0 and the nodes gpu-1, …; commands there find the Slurm."""
    with Sshd.start(tmp_path_factory.mktemp("sshd"), SetEnv=words(slurm.environ)) as running:
        yield running


@pytest.fixture
def make_daemon(tmp_path: Path, sshd: Sshd, ntfy: NtfyServer) -> Iterator[Callable[..., AlertDaemon]]:
    with contextlib.ExitStack() as stack:

        def make(more: str = "", **env: str) -> AlertDaemon:
            made = AlertDaemon(tmp_path, ssh_config=sshd.ssh_config(5, name="gpu-{}"), **env)
            made.config.write_text(CONFIG.format(url=ntfy.url, topic=TOPIC) + more)
            stack.callback(made.close)
            return made

        yield make


def trainer_of(run: Training) -> int:
    """The process that trains."""
    (pid,) = [
        int(task.parent.name)
        for task in proc_files("cmdline")
        if f"--checkpoints={run.checkpoints}".encode() in _read(task).split(b"\0")
        and b"trainer.py" in _read(task)
        and b"srun" not in _read(task).split(b"\0")[0]
    ]
    return pid


def _read(task: Path) -> bytes:
    try:
        return task.read_bytes()
    except OSError:
        return b""


@pytest.mark.slow  # Slurm is asked every 15 s, and what is told comes after two such looks
def test_a_training_that_is_killed_is_code_red_and_one_that_is_started_again_is_taken_up(
    slurm: Slurm, sshd: Sshd, ntfy: NtfyServer, make_daemon: Callable[..., AlertDaemon]
) -> None:
    run = Training(slurm, f"run-{next(NUMBERS)}")
    run.start()
    with WandbServer.start() as wandb:
        attempt = wandb.add_run("first", group=run.name, display_name="first")
        wandb.log(attempt, {"train/loss": 2.0, "trainer/global_step": 3})
        more = f'{run.table()}wandb = "tester/video"\ngroup = "{run.name}"\n'
        daemon = make_daemon(more, WANDB_BASE_URL=wandb.url, WANDB_API_KEY=wandb.key)
        daemon.start()
        for source in ("slurm:lab", "node:gpu-1", f"wandb:{run.name}"):
            daemon.until("source", source=source, health="ok")
        os.kill(trainer_of(run), signal.SIGKILL)
        message = until_told(ntfy, "CODE RED", "run-dead", run.name)
        assert message.priority == 5
        # Slurm may have told its exit code by then.
        assert re.search(r"job \d+: (failed|exited with code 137), ", message.message)

        run.start()
        until_told(ntfy, "RESOLVED", "run-dead", run.name)
        until_told(ntfy, " started")
        assert [len(received(ntfy, word, "run-dead")) for word in ("CODE RED", "RESOLVED")] == [1, 1]
        assert daemon.is_running


def test_a_job_of_slurm_queues_the_next_one_and_says_goodbye_only_at_the_last(
    slurm: Slurm, sshd: Sshd, ntfy: NtfyServer, make_daemon: Callable[..., AlertDaemon]
) -> None:
    daemon = make_daemon()
    script = daemon.folder / "trainmon.slurm"
    text = service_texts.service("slurm", daemon.argv("--alerts-only")).replace("--mem=1G", "--mem=100M")
    script.write_text(text.replace("trainmon-alerts.log", str(daemon.log)))
    # In its environment, not by --export: with that, Slurm reads the user's login shell on the node, and waits for it.
    slurm.ask("sbatch", "--parsable", f"--chdir={daemon.folder}", str(script), env=daemon.env)
    daemon.until("duty", holder="us")

    def jobs(state: str) -> list[str]:
        return slurm.squeue("-h", "--name=trainmon-alerts", f"--states={state}", "-o", "%i").split()

    (first,), (second,) = jobs("RUNNING"), jobs("PENDING")
    # What Slurm sends itself a minute before the limit.
    slurm.ask("scancel", "--batch", "--signal=TERM", first)
    slurm.wait_for(lambda: jobs("RUNNING") == [second], PATIENCE, "the next job has taken over")
    daemon.until("duty", count=2, holder="us")
    assert daemon.lines(event="stop")[-1]["why"] == "the next job takes over"
    assert len(jobs("PENDING")) == 1
    assert titles(ntfy) == []

    slurm.ask("scancel", "--name=trainmon-alerts")
    slurm.wait_for(lambda: jobs("RUNNING,PENDING,COMPLETING") == [], PATIENCE, "all of it has ended")
    assert daemon.lines(event="stop")[-1]["why"] == "received SIGTERM"
    assert titles(ntfy) == [f"trainmon-tui on {socket.gethostname()} stopped"]


PROSE = """\
n=0
while [ ! -e {folder}/enough ]; do n=$((n + 1)); echo "page $n of the diary: flour for $n.25 pounds"; sleep 0.3; done
exec sleep 1000
"""
"""A job whose lines no format will ever know."""


def test_an_unread_log_is_one_information_while_it_grows_and_code_red_when_it_falls_silent(
    slurm: Slurm, sshd: Sshd, ntfy: NtfyServer, make_daemon: Callable[..., AlertDaemon], tmp_path: Path
) -> None:
    """It prints for ten times its `stall_after`."""
    tmp_path.chmod(0o755)
    job_id = slurm.submit(PROSE.format(folder=tmp_path), "--job-name=diary")
    log = slurm.log(job_id)
    daemon = make_daemon(
        f'[[run]]\nname = "diary"\nlog = "{log}"\nstall_after = "2s"\n[[rule]]\ntype = "run-stalled"\nfor = "5s"\n'
        '[[rule]]\ntype = "gpu-missing"\nenabled = false\n'  # the GPUs that Slurm knows of here are plain files
    )
    daemon.start()
    slurm.wait_for(lambda: log.exists() and log.read_text().count("page") >= 67, PATIENCE, "it has printed for 20s")
    seen = daemon.run("snapshot", "--json", f"--config={daemon.config}", f"--ssh-config={daemon.ssh_config}")
    assert seen.returncode == 0, seen.stdout + seen.stderr
    (found,) = [run for run in json.loads(seen.stdout)["runs"] if run["job"] == job_id]
    assert (found["verdict"], found["why"]) == ("unknown", "its log grows, but shows no known step line")
    assert [title for title in titles(ntfy) if "diary" in title] == ["INFO diary: log-unread"]

    (tmp_path / "enough").touch()
    message = until_told(ntfy, "CODE RED", "run-stalled", "diary")
    assert "has not grown" in message.message
    assert "no step for" not in message.message
