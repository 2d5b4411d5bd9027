"""The first look at a real Slurm without a config: everything that can be found about one's own running job."""

from __future__ import annotations

import contextlib
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.end_to_end.product import Product, words
from tests.lab.slurm import Slurm
from tests.lab.sshd import NESTED, Sshd
from tests.lab.wandb_server import WandbServer
from tests.slurm.first_look import DETAILS, PLACES, SHOWN, login_host, submit
from tests.slurm.training import Training


@pytest.fixture
def server() -> Iterator[WandbServer]:
    with WandbServer.start() as started:
        yield started


def test_everything_about_a_running_job_is_found_without_a_config(
    slurm: Slurm, server: WandbServer, tmp_path: Path
) -> None:
    submit(slurm, server)
    with login_host(tmp_path, slurm, server) as product:
        screen = product.look()
        screen.until_shown(*SHOWN.values())
        screen.keys("1\r")
        screen.until_gone("2 GPUs")
        screen.until_shown(*DETAILS)
        screen.keys("G")
        screen.until_shown(*PLACES)
        screen.leave()
        typed = {"COMP_WORDS": "trainmon-tui requeue na", "COMP_CWORD": "2"}
        completed = product.run(**typed, _TRAINMON_TUI_COMPLETE="bash_complete", **product.environ)
        assert completed.stdout == "plain,nanogpt\n"


def test_init_writes_what_was_found_about_it(slurm: Slurm, server: WandbServer, tmp_path: Path) -> None:
    folder = submit(slurm, server)
    with login_host(tmp_path, slurm, server) as product:
        done = product.run("init", "--output", "-", **product.environ)
        assert done.returncode == 0, done.stderr
        (run,) = tomllib.loads(done.stdout)["run"]
        page = re.search(r"/runs/(\w+)", next((folder / "logs").iterdir()).read_text())
        assert page is not None
        assert run == {
            "name": "nanogpt", "script": str(folder / "train.sh"), "checkpoints": str(folder / "out"),
            "wandb": "tester/owt", "run": page[1],
        }  # fmt: skip
        config = product.config(done.stdout)
        assert product.run("check", "--config", str(config), **product.environ).returncode == 0


def test_a_node_that_wants_a_password_is_tried_once_without_a_prompt_and_says_what_to_do(
    slurm: Slurm, server: WandbServer, tmp_path: Path
) -> None:
    submit(slurm, server)
    options = {"PubkeyAuthentication": "no", "PasswordAuthentication": "yes"}
    with login_host(tmp_path, slurm, server, **options) as product:
        screen = product.look()
        screen.until_shown(r"gpu-1 +\? +press L to log in \(needs a password", SHOWN["its checkpoint"])
        screen.until_shown(r"slurm ([3-9]|\d\d)s")
        screen.keys("r")
        screen.until_shown("slurm [0-2]s")
        assert (product.connections(), "Password" in screen.text()) == (1, False)
        screen.keys("L")
        screen.until_shown("gpu-1", "[Pp]assword: ")
        assert product.connections() == 2
        screen.keys("\x1b")
        screen.until_gone("[Pp]assword: ")
        screen.leave()


def test_a_script_gets_the_same_and_a_node_that_refuses_is_no_failure(
    slurm: Slurm, server: WandbServer, tmp_path: Path
) -> None:
    folder = submit(slurm, server)
    with login_host(tmp_path, slurm, server, PubkeyAuthentication="no") as product:
        told = product.snapshot(**product.environ)
        assert product.connections() == 1
    (run,) = told["runs"]
    (checkpoint,) = run["checkpoints"]["list"]
    assert (run["name"], run["nodes"], checkpoint["path"]) == ("nanogpt", ["gpu-1"], f"{folder}/out/ckpt.pt")
    assert (run["wandb"]["name"], run["wandb"]["phase"]) == ("gpt2-124M", "active")
    (node,) = [source for source in told["sources"] if source["name"] == "node:gpu-1"]
    assert (node["health"], "gpu-1 refuses the login" in node["error"]) == ("off", True)


def test_hosts_on_the_command_line_show_the_runs_of_the_slurm_of_their_login_host(
    slurm: Slurm, training: Callable[..., Training], tmp_path: Path
) -> None:
    run = training()
    job_id = run.start(steps=5)
    with Sshd.start(tmp_path / "sshd", SetEnv=words({**NESTED, **slurm.environ})) as sshd:
        product = Product(tmp_path)
        product.ssh_config = sshd.ssh_config(2, name="login{}")
        with contextlib.closing(product):
            (found,) = product.snapshot("login1")["runs"]
            assert (found["name"], found["job"], found["verdict"]) == (run.name, job_id, "healthy")
            assert found["step"] >= 5
            screen = product.screen("login1")
            screen.until_shown(rf"{run.name}: healthy, ", rf"{run.name} +{job_id}!? +\d+ +\d+ ")
            screen.leave()
