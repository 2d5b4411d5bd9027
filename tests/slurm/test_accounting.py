"""Jobs that the queue no longer lists, where Slurm keeps accounts: a slurmdbd with a database of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.lab.slurm import Slurm
from tests.slurm.conftest import open_directory
from tests.slurm.polling import Polling
from trainmon.slurm import reasons


@pytest.fixture(scope="module")
def one_slurm() -> Iterator[Slurm]:
    """In place of the one of all other tests: with accounting."""
    with open_directory() as directory, Slurm.start(directory, nodes=2, gpus=2, accounting=True) as slurm:
        yield slurm


def recorded(slurm: Slurm, job_id: str, state: str) -> bool:
    return state in slurm.ask("sacct", "-n", "-X", "-D", "-j", job_id, "-o", "State%30")


def forget(slurm: Slurm) -> None:
    """The queue no longer lists any job."""
    slurm.stop_controller()
    slurm.start_controller(forgetting=True)


def test_accounting_shows_how_a_vanished_job_ended(slurm: Slurm, watch: Polling) -> None:
    gate = slurm.directory / "gate"
    failed = slurm.submit(f"until [ -e {gate} ]; do sleep 0.1; done; exit 7")
    cancelled = slurm.submit("sleep 600")
    for job_id in (failed, cancelled):
        slurm.wait_for_state(job_id, "RUNNING")
    watch.look()
    assert watch.state.clusters["lab"].accounting is True
    assert watch.job(failed).stage == "running"

    # All of it happens between two looks.
    gate.touch()
    slurm.ask("scancel", cancelled)
    slurm.wait_for(lambda: recorded(slurm, failed, "FAILED"), what="the failure is in the accounts")
    slurm.wait_for(lambda: recorded(slurm, cancelled, "CANCELLED"), what="so is the cancellation")
    forget(slurm)

    watch.until(lambda: watch.job(failed).stage == watch.job(cancelled).stage == "ended", "both have ended")
    assert watch.job(failed).gone_at is not None
    assert reasons.end_reason(watch.job(failed)) == "exited with code 7"
    assert reasons.end_reason(watch.job(cancelled)) == "cancelled by root"


def test_accounting_shows_how_a_vanished_heterogeneous_job_ended(slurm: Slurm, watch: Polling) -> None:
    gate = slurm.directory / "second-gate"
    script = f"#!/bin/bash\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N1\nuntil [ -e {gate} ]; do sleep 0.1; done; exit 7"
    job_id = slurm.submit(script)
    slurm.wait_for_state(str(int(job_id) + 1), "RUNNING")
    watch.look()
    gate.touch()
    slurm.wait_for(lambda: recorded(slurm, f"{job_id}+1", "FAILED"), what="the failure is in the accounts")
    forget(slurm)
    watch.until(lambda: watch.job(job_id).stage == "ended", "it has ended")
    assert reasons.end_reason(watch.job(job_id)) == "exited with code 7"
    assert len([job for job in watch.state.jobs.values() if job.id.partition("+")[0] == job_id]) == 1


def test_a_silent_slurmdbd_costs_the_ends_only(slurm: Slurm, watching: Callable[..., Polling]) -> None:
    watch = watching()
    job_id = slurm.submit("sleep 600")
    slurm.wait_for_state(job_id, "RUNNING")
    watch.look()
    assert slurm.accounting is not None
    slurm.accounting.stop_slurmdbd()
    forget(slurm)
    watch.look()
    assert watch.source.phase == "up"
    assert (watch.job(job_id).stage, watch.job(job_id).gone_at is None) == ("running", False)
    assert watch.state.clusters["lab"].accounting is True
