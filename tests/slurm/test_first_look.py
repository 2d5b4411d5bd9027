"""The first look at a real Slurm without a config: everything that can be found about one's own running job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.slurm import Slurm
from tests.lab.wandb_server import WandbServer
from tests.slurm.first_look import DETAILS, SHOWN, login_host, submit


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
        screen.until_shown(*DETAILS)
        screen.leave()


def test_a_node_that_wants_a_password_is_tried_once_without_a_prompt_and_says_what_to_do(
    slurm: Slurm, server: WandbServer, tmp_path: Path
) -> None:
    submit(slurm, server)
    options = {"PubkeyAuthentication": "no", "PasswordAuthentication": "yes"}
    with login_host(tmp_path, slurm, server, **options) as product:
        screen = product.look()
        screen.until_shown(r"gpu-1 +\? +press L to log in \(needs a password", SHOWN["its checkpoint"])
        screen.keys("r")
        screen.until_shown("slurm 0s")
        assert (product.connections(), "Password" in screen.text()) == (1, False)
        screen.keys("L")
        screen.until_shown("gpu-1", "[Pp]assword: ")
        assert product.connections() == 2
        screen.keys("\x1b")
        screen.until_gone("[Pp]assword: ")
        screen.leave()
