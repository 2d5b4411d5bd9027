"""Jobs that the queue no longer lists, where Slurm keeps accounts: a slurmdbd with a database of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from tests.lab.slurm import OTHER, Slurm
from tests.slurm.conftest import open_directory
from tests.slurm.polling import Polling
from trainmon.runtime.backend import NO_SCRIPT, NO_STDERR, job_texts
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


def test_jobs_that_ended_and_the_texts_of_one_are_shown_on_demand(
    slurm: Slurm, watch: Polling, watching: Callable[..., Polling]
) -> None:
    errors = slurm.directory / "log" / "failed.err"
    failed = slurm.submit("#!/bin/bash\necho no space left >&2\nexit 3", "-e", str(errors), "-J", "broken")
    other = slurm.submit("exit 4", user=OTHER)
    for job_id in (failed, other):
        slurm.wait_for(lambda job_id=job_id: recorded(slurm, job_id, "FAILED"), what="it is in the accounts")  # type: ignore[misc]
    watch.look()
    assert watch.state.ended == {}
    watch.poller.poll_job("lab")
    watch.look()
    listed = watch.state.ended["lab"]
    found = {job.id: job for job in listed.jobs}
    assert (listed.error, {job.user for job in listed.jobs}) == (None, {"root"})
    assert (found[failed].state, found[failed].exit_code) == ("FAILED", "3:0")
    assert reasons.end_reason(found[failed]) == "exited with code 3"

    shell = watch.shell
    texts = dict(job_texts(watch.job(failed), lambda: shell, lambda: shell))
    assert texts == {
        "priority": [], f"stderr {errors}": ["no space left"],
        "script": ["#!/bin/bash", "echo no space left >&2", "exit 3"],
    }  # fmt: skip
    waiting = slurm.submit("sleep 600", "--hold")
    watch.look()
    texts = dict(job_texts(watch.job(waiting), lambda: shell, lambda: shell))
    assert texts["priority"] == [], "priority/basic has no parts"
    unknown = replace(watch.job(waiting), number=99_999, stderr=None)
    texts = dict(job_texts(unknown, lambda: shell, lambda: shell))
    assert (texts["stderr "], texts["script"]) == ([NO_STDERR], [NO_SCRIPT])


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
