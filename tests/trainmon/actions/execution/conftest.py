"""Fixtures that the tests of this folder share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.trainmon.actions.cluster import DONE, RUN, RUNNING, SPEC, state
from tests.trainmon.actions.execution.world import World, job
from trainmon.slurm import commands
from trainmon.transport.event_loop import EventLoop
from trainmon.transport.shell import Completed, LocalShell


@pytest.fixture(scope="module")
def local() -> Iterator[LocalShell]:
    reader = EventLoop()
    reader.start()
    made = LocalShell(reader, host="login")
    yield made
    made.close()
    reader.stop()


@pytest.fixture
def world(local: LocalShell, tmp_path: Path) -> Iterator[World]:
    """The cluster of tests.trainmon.actions.cluster, with its files in a folder of the test."""
    (tmp_path / "llm.out").write_text("step 1\nHF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz\x1b[31m\nTraceback: boom\n")
    spec = replace(
        SPEC, kill_switch=f"{tmp_path}/kill", save_switch=f"{tmp_path}/save", log=f"{tmp_path}/llm.out",
        script=f"{tmp_path}/train.slurm",
    )  # fmt: skip
    log = replace(RUN.log, path=f"{tmp_path}/llm.out") if RUN.log is not None else None
    run = replace(RUN, spec=spec, kill=None, save=None, log=log)
    running = replace(RUNNING, stdout=f"{tmp_path}/llm.out")
    made = World(local, state(running, DONE, run=run))
    made.host.answers[commands.show_job("88_3")] = Completed(0, job(out=f"{tmp_path}/llm.out"), b"")
    yield made
    made.performer.stop()
