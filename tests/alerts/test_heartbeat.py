"""A sign of life of a daemon that runs, with all that it says and shows; and what such a daemon does not hold."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.alerts.daemon import PATIENCE, UNWANTED, AlertDaemon, imported
from tests.alerts.messages import TOPIC, until_told
from tests.end_to_end.product import Cluster
from tests.lab.daemons import until
from tests.lab.ntfy_server import Message, NtfyServer
from tests.lab.wandb_server import WandbServer
from tests.lab.wandb_training import Training
from tests.wandb.parts import logged

MakeDaemon = Callable[..., AlertDaemon]

RUN = """\
[wandb]
every = "15s"
[[run]]
name = "video"
wandb = "tester/video"
group = "video"
"""
SAMPLE = "sample-step-44.png"
"""W&B's own step: it runs ahead of the trainer's by the four rows of validation."""


@pytest.fixture
def wandb(tmp_path: Path) -> Iterator[WandbServer]:
    """W&B, with a run that trains: its history has losses, and a validation left an image."""
    with WandbServer.start() as server:
        words = ("--id", "first", "--name", "first", "--group", "video", "log 40", "sample", "log 1", "say up")
        with Training.start(server, tmp_path / "training", *words):
            until(lambda: logged(server.runs.get("tester/video/first"), "up"), "its rows are there", PATIENCE)
            yield server


def files(ntfy: NtfyServer, ending: str) -> list[Message]:
    """Those that came with a sign of life."""
    return [message for message in ntfy.of(TOPIC) if message.filename == f"video-{ending}"]


def test_a_sign_of_life_comes_with_its_lines_the_curve_and_the_newest_sample(
    nodes: Cluster, ntfy: NtfyServer, make_daemon: MakeDaemon, wandb: WandbServer
) -> None:
    hook = f'[[notify]]\ntype = "apprise"\nurl = "json://127.0.0.1:{ntfy.port}/elsewhere"\n'
    daemon = make_daemon(RUN + hook, WANDB_BASE_URL=wandb.url, WANDB_API_KEY=wandb.key, PYTHONPROFILEIMPORTTIME="1")
    daemon.config.write_text(daemon.config.read_text().replace("start = false", 'start = false\nevery = "5s"'))
    daemon.start()
    until(lambda: files(ntfy, "loss.png") and files(ntfy, SAMPLE), "the pictures come", PATIENCE)
    lines = until_told(ntfy, "video alive: step 41").message.split("\n")
    assert lines[:2] == ["video: alive", "  step 41, loss 2.921, 51,000 tokens/s"]
    assert lines[2].startswith("  last step ")
    assert {line.partition(":")[0] for line in lines} >= {"disk / on n0", "disk / on n1"}
    assert {"GPUs: 4 of 4 healthy on 3 nodes", "no alert is open"} <= {*lines}
    with Image.open(io.BytesIO(files(ntfy, "loss.png")[-1].attachment)) as curve:
        assert curve.format == "PNG"
        assert min(curve.size) >= 300
    with Image.open(io.BytesIO(files(ntfy, SAMPLE)[-1].attachment)) as sample:
        assert (sample.size, sample.getpixel((0, 0))) == ((64, 48), (40, 128, 64))

    until(lambda: ntfy.of("elsewhere"), "apprise has told it, too", PATIENCE)
    loaded = imported(daemon.log.read_text())
    assert {"paramiko", "sqlite3", "urllib3"} <= loaded
    assert not loaded & UNWANTED
    compiled = Path(f"/proc/{daemon.pid}/maps").read_text()
    assert "/nacl/" in compiled  # such is how one would be seen
    assert [name for name in UNWANTED if f"/{name}/" in compiled] == []
