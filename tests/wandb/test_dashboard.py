"""The dashboard with W&B: a group that restarts is followed by itself, and nothing of W&B outlives the dashboard."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest

from tests.end_to_end.product import QUICK, Product, Screen, step_line
from tests.lab.daemons import until
from tests.lab.wandb_server import WandbServer
from tests.lab.wandb_store import StoredRun
from tests.lab.wandb_training import Training
from tests.wandb.parts import logged
from tests.wandb.product import RUN, pointed_at, processes


def shown(product: Product, server: WandbServer, text: str = RUN, *, is_installed: bool = False) -> Screen:
    config = str(product.config(text))
    return product.screen("--config", config, columns=140, rows=60, is_installed=is_installed, **pointed_at(server))


def media(run: StoredRun) -> set[bytes]:
    return {file.content for name, file in run.files.items() if name.startswith("media/")}


def found_in(home: Path) -> set[bytes]:
    return {path.read_bytes() for path in home.rglob("*") if path.suffix in (".png", ".gif")}


def test_a_group_is_followed_from_a_kill_to_the_next_attempt(
    product: Product, server: WandbServer, folder: Path
) -> None:
    with contextlib.ExitStack() as stack:

        def start(name: str) -> Training:
            words = ("--id", name, "--name", name, "--group", "final", "log 30", "sample", "video", "say up")
            return stack.enter_context(Training.start(server, folder / name, *words))

        def has_begun(name: str) -> bool:
            return logged(server.runs.get(f"tester/video/{name}"), "up")

        first = start("attempt-1")
        until(lambda: has_begun("attempt-1"), "attempt-1 runs")
        screen = shown(product, server, RUN + 'log = "wandb"\n')
        screen.until_shown(r"step 30 loss 2\.94")  # its console is the log
        screen.keys("6")
        screen.until_shown("6 Charts video .*attempt-1", "train/loss +2.94", "val/loss")
        assert first.has_a_sidecar()
        first.kill()
        until(lambda: not first.has_a_sidecar(), "the sidecar of attempt-1 has ended")
        start("attempt-2")
        server.runs["tester/video/attempt-1"].heartbeat_at -= 301.0
        assert server.sweep() == ["tester/video/attempt-1"]
        until(lambda: has_begun("attempt-2"), "attempt-2 runs")
        screen.keys("r")
        screen.until_shown("6 Charts video .*attempt-2")
        second = server.runs["tester/video/attempt-2"]
        until(lambda: len(media(second)) == 2, "the client sends files after the rows that name them")
        screen.keys("1\r")
        screen.until_gone("5 Alerts")
        screen.keys("G")
        screen.until_shown("samples, the newest", "attempt-1 +crashed")
        screen.keys("d")
        screen.until_shown("Fetch 2 samples")
        screen.keys("\r")
        screen.until_shown("saved 2 samples of video")
        assert found_in(product.home) == media(second)
        assert screen.leave() < QUICK


@pytest.mark.parametrize("how", ["quit", "kill -9", "hang"])
def test_nothing_of_wandb_is_left_running(product: Product, server: WandbServer, how: str) -> None:
    run = server.add_run("only", group="final")
    server.log(run, {"loss": 2.0})
    if how == "hang":
        server.hang()
    screen = shown(product, server, is_installed=True)
    until(lambda: any("wandb-core" in command for command in processes(server).values()), "wandb-core runs")
    if how != "hang":
        screen.until_shown("video: healthy, ")
    if how == "kill -9":
        os.kill(screen.pid, signal.SIGKILL)
    else:
        assert screen.leave() < QUICK
    until(lambda: not processes(server), "nothing is left")


def test_a_lost_heartbeat_is_no_death_while_the_log_steps(product: Product, server: WandbServer) -> None:
    run = server.add_run("lost", group="final", state="crashed", age=3600.0)
    server.log(run, {"train/loss": 2.1})
    run.heartbeat_at -= 400.0
    log = product.work / "train.log"
    log.write_text(step_line(100))
    screen = shown(product, server, f'{RUN}log = "{log}"\n')
    screen.until_shown("video +- +100 ", r"wandb \d")
    with log.open("a") as lines:
        lines.write(step_line(101))
    screen.until_shown("video: healthy, pending alert: ", "no heartbeat from video", "training continues")
    screen.keys("\r")
    screen.until_shown("● healthy", r"W&B heartbeat lost \(quiet-river-1 crashed at step 0\), training goes on")
    assert screen.leave() < QUICK
