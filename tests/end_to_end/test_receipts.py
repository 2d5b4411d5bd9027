"""Receipts of trainmon-run over a real sshd: attempts without Slurm, most of which ended while no daemon ran."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.alerts.daemon import AlertDaemon
from tests.end_to_end.product import Cluster, Product
from tests.lab.daemons import until
from tests.trainmon.job.commands import wrapped

TRACEBACK = "Traceback (most recent call last):\ntorch.OutOfMemoryError: CUDA out of memory."


def start(work: Path, script: str) -> subprocess.Popen[bytes]:
    """A command in the wrapper, whose output is added to the log."""
    argv = [*wrapped(work, "--run", "llm"), "sh", "-c", script]
    with (work / "train.log").open("ab") as log:
        return subprocess.Popen(argv, stdout=log, stderr=log, process_group=0, cwd=work)


def kill_with_wrapper(work: Path) -> None:
    known = set(work.glob("receipts/*/command.json"))
    with start(work, "echo 'step 1'; sleep 600") as process:
        until(lambda: set(work.glob("receipts/*/command.json")) - known, "the command runs")
        until(lambda: (work / "train.log").read_text().endswith("step 1\n"), "its line is in the log")
        os.killpg(process.pid, signal.SIGKILL)


def ended(daemon: AlertDaemon) -> list[dict[str, Any]]:
    """The rows of the attempts that have ended, the newest last."""
    done = daemon.run("attempts", "--json")
    rows = json.loads(done.stdout) if done.returncode == 0 else []
    return [row for row in rows if row["ended_at"] is not None and row["termination_reason"] is not None]


@pytest.mark.slow
def test_attempts_that_ended_while_no_daemon_ran_have_their_exact_ends(
    product: Product, cluster: Callable[..., Cluster]
) -> None:
    cluster(1)
    work, daemon = product.work, AlertDaemon(product.folder / "daemon", ssh_config=product.ssh_config)
    assert start(work, f"echo '{TRACEBACK}'; exit 3").wait(60) == 3
    assert start(work, "echo 'step 1'; kill -KILL $$").wait(60) == -9
    kill_with_wrapper(work)
    run = f'[[run]]\nname = "llm"\nlog = "{work}/train.log"\nreceipts = "{work}/receipts"\n'
    daemon.config.write_text(f'[cluster]\nlogin = "n0"\nnodes = ["n0"]\n{run}')
    daemon.start()
    with contextlib.closing(daemon):
        until(lambda: len(ended(daemon)) == 3, "all three are closed")
        watched = start(work, "echo 'step 2'; sleep 3; exit 137")
        assert watched.wait(60) == 137
        until(lambda: len(ended(daemon)) == 4, "so is the one that was watched")
        rows = ended(daemon)
        names = [one.name for one in sorted((work / "receipts").iterdir(), key=lambda one: one.stat().st_mtime)]
        explained = daemon.run("explain", rows[0]["attempt_id"])
    assert [(row["exit_code"], row["signal"]) for row in rows] == [(3, None), (None, 9), (None, None), (137, None)]
    assert rows[0]["termination_reason"] == "cuda-oom"
    assert [row["log_tail"] for row in rows] == [TRACEBACK, "step 1", "step 1", "step 2"]
    said = ("exit status 3", "signal 9", "no end; the command was killed together with trainmon-run", "exit status 137")
    facts = [line["text"] for row in rows for line in row["evidence"] if line["text"].startswith("receipt ")]
    assert facts == [f"receipt {name}: {text}" for name, text in zip(names, said, strict=True)]
    assert [bool(row["is_reconstructed"]) for row in rows] == [True, True, True, False]
    assert f"receipt {names[0]}: exit status 3" in explained.stdout
    assert "from byte 0" in explained.stdout


def test_check_says_whether_the_receipts_can_be_read(product: Product, cluster: Callable[..., Cluster]) -> None:
    cluster(1)
    receipts = product.work / "receipts"
    run = f'[[run]]\nname = "llm"\nnodes = ["n0"]\nreceipts = "{receipts}"\n'
    config = str(product.config(f'[cluster]\nlogin = "n0"\nnodes = ["n0"]\n{run}'))

    assert "trainmon-run creates it when it first runs" in product.run("check", "--config", config).stdout
    receipts.mkdir()
    assert "receipts can be read" in product.run("check", "--config", config).stdout
    receipts.rmdir()
    receipts.write_text("")
    assert "cannot be read: not a directory" in product.run("check", "--config", config).stdout
