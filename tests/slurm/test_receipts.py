"""Receipts of trainmon-run in jobs of the real Slurm: their exact ends, also of those that nobody watched."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.daemons import until
from tests.lab.slurm import Slurm
from tests.slurm.conftest import open_directory
from tests.slurm.product import SlurmProduct
from tests.slurm.test_accounting import recorded
from tests.slurm.test_attempts import daemon, rows_of
from tests.trainmon.job.commands import wrapped

COMMANDS = {
    "saved": "trap 'echo SAVED; exit 7' USR1; echo ready; while :; do sleep 0.1; done",
    "lossy": "echo ready; exit 137",
}


@pytest.fixture(scope="module")
def one_slurm() -> Iterator[Slurm]:
    with open_directory() as directory, Slurm.start(directory, nodes=1, gpus=1, accounting=True) as slurm:
        yield slurm


def submit(slurm: Slurm, name: str, step: str = "srun ") -> tuple[str, Path]:
    """A job whose script uses trainmon-run, in a step of its own; its number and its output."""
    out = slurm.directory / f"{name}.out"
    command = shlex.join([*wrapped(slurm.directory), "bash", "-c", COMMANDS[name]])
    return slurm.submit(f"#!/bin/bash\necho prologue\n{step}{command}", "-J", name, "-o", str(out), "--no-requeue"), out


@pytest.mark.parametrize(
    ("step", "after", "through"),
    [
        ("srun ", "", "srun"),
        ("srun -o step.out bash -c ", "", "srun"),
        ("srun bash -c ", " | cat", None),
        ("", "", None),
    ],
    ids=["a step", "a shell in a step", "a pipe in a step", "the batch script"],
)
def test_a_receipt_says_that_its_output_goes_through_srun(
    one_slurm: Slurm, step: str, after: str, through: str | None, tmp_path: Path
) -> None:
    command = shlex.join([*wrapped(tmp_path), "true"]) + after
    script = f"#!/bin/bash\ncd {tmp_path}\n{step}{shlex.quote(command) if '-c' in step else command}"
    one_slurm.wait_for_state(one_slurm.submit(script, "-o", "/dev/null"), "COMPLETED")
    (receipt,) = (tmp_path / "receipts").iterdir()
    assert json.loads((receipt / "start.json").read_text())["stdout"]["through"] == through


@pytest.mark.slow
def test_a_job_that_nobody_watched_has_the_exact_exit_code_of_its_command(slurm: Slurm, product: SlurmProduct) -> None:
    saved, out = submit(slurm, "saved")
    slurm.wait_for(lambda: out.exists() and "ready" in out.read_text(), what="the command is ready")
    slurm.ask("scancel", "-s", "USR1", saved)
    slurm.wait_for_state(saved, "FAILED")
    lossy, _ = submit(slurm, "lossy")
    slurm.wait_for_state(lossy, "FAILED")
    for job in (saved, lossy):
        slurm.wait_for(lambda job=job: recorded(slurm, job, "FAILED"), what="it is in the accounts")  # type: ignore[misc]
    runs = "".join(f'[[run]]\nname = "{name}"\nreceipts = "{slurm.directory}/receipts"\n' for name in COMMANDS)
    config = product.config(f'[cluster]\nname = "lab"\nevery = "1s"\nslurm_every = "15s"\n{runs}')
    with daemon(product, slurm, config):
        until(lambda: [row for row in rows_of(product) if row["ended_at"]][1:], "both attempts are closed")
        rows = {row["run_id"]: row for row in rows_of(product)}
    receipts = sorted((slurm.directory / "receipts").iterdir(), key=lambda one: one.stat().st_mtime)
    for name, job, code, receipt in zip(COMMANDS, (saved, lossy), (7, 137), receipts, strict=True):
        row = rows[name]
        assert (row["job_id"], row["scheduler_state"]) == (job, "FAILED")
        assert (row["exit_code"], row["signal"]) == (code, None)
        assert row["log_path"] == str(slurm.directory / f"{name}.out"), "Slurm knows it: its receipt shows a pipe"
        assert "prologue" in row["log_tail"]
        assert {"text": f"receipt {receipt.name}: exit status {code}", "line": None, "rank": None} in row["evidence"]


@pytest.mark.slow
def test_without_accounting_a_job_that_the_queue_has_forgotten_is_an_attempt_by_its_receipt(
    product: SlurmProduct, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_directory() as directory, Slurm.start(directory, nodes=1, gpus=1, min_job_age=2) as slurm:
        for name, value in slurm.environ.items():
            monkeypatch.setenv(name, value)
        job, out = submit(slurm, "lossy", step="")
        slurm.wait_for(
            lambda: job not in slurm.ask("squeue", "-h", "-t", "all", "-o", "%i").split(), 120, "it is forgotten"
        )
        run = f'[[run]]\nname = "lossy"\nreceipts = "{directory}/receipts"\n'
        config = product.config(f'[cluster]\nname = "lab"\nevery = "1s"\nslurm_every = "15s"\n{run}')
        with daemon(product, slurm, config):
            until(
                lambda: [row for row in rows_of(product) if row["ended_at"] and row["log_tail"]], "it is closed", 240.0
            )
        (row,) = rows_of(product)
        (receipt,) = (directory / "receipts").iterdir()
        config.write_text(config.read_text() + f'log = "{out}"\n')
        done = product.run("snapshot", "--json", f"--config={config}")
    (seen,) = json.loads(done.stdout)["runs"]
    assert (seen["verdict"], f"job {job} ended" in seen["why"]) == ("dead", True), seen["why"]
    assert (row["attempt_id"], row["exit_code"], row["signal"]) == (f"lab/{job}.0", 137, None)
    assert (row["log_path"], bool(row["is_reconstructed"]), row["log_tail"]) == (str(out), True, "ready")
    assert "submitted_at" in row["missing"]
    assert f"receipt {receipt.name}: exit status 137" in [line["text"] for line in row["evidence"]]
