"""The dashboard with W&B: a group that restarts is followed by itself, and nothing of W&B outlives the dashboard."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.end_to_end.product import QUICK, Product, Screen
from tests.lab.daemons import until
from tests.lab.wandb_server import WandbServer
from tests.lab.wandb_training import Training
from tests.wandb.parts import said
from tests.wandb.product import RUN, pointed_at, processes


def shown(product: Product, server: WandbServer) -> Screen:
    return product.screen("--config", str(product.config(RUN)), columns=140, **pointed_at(server))


def test_a_group_is_followed_from_its_crash_to_the_next_run_and_to_two_at_once(
    product: Product, server: WandbServer, folder: Path
) -> None:
    with contextlib.ExitStack() as stack:

        def start(name: str) -> Training:
            words = ("--id", name, "--name", name, "--group", "final", "log 30", "say up")
            training = stack.enter_context(Training.start(server, folder / name, *words))
            until(lambda: said(server.runs.get(f"tester/video/{name}"), "up"), f"{name} runs")
            return training

        first = start("attempt-1")
        screen = shown(product, server)
        screen.keys("6")
        screen.until_shown("attempt-1", "loss")
        first.wait("exit 1")
        screen.keys("r")
        screen.until_shown("restart")
        start("attempt-2")
        screen.keys("r")
        screen.until_shown("attempt-2")
        start("attempt-3")
        screen.keys("r")
        screen.until_shown("attempt-2.*attempt-3|attempt-3.*attempt-2")
        assert screen.leave() < QUICK


@pytest.mark.parametrize("how", ["quit", "kill -9", "hang"])
def test_nothing_of_wandb_is_left_running(product: Product, server: WandbServer, how: str) -> None:
    run = server.add_run("only", group="final")
    server.log(run, {"loss": 2.0})
    if how == "hang":
        server.hang()
    screen = shown(product, server)
    until(lambda: any("wandb-core" in command for command in processes(server).values()), "wandb-core runs")
    if how != "hang":
        screen.until_shown("wandb 1/1")
    if how == "kill -9":
        os.kill(screen.pid, signal.SIGKILL)
    else:
        assert screen.leave() < QUICK
    until(lambda: not processes(server), "nothing is left")
