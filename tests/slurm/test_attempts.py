"""Attempts on a real Slurm with accounting: what the State shows of each, and what of it is read back."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.product import PROGRAM, environment
from tests.lab import forked
from tests.lab.daemons import until
from tests.lab.slurm import Slurm
from tests.lab.torchrun import TRAINER, torch_python
from tests.slurm.conftest import open_directory
from tests.slurm.polling import Polling
from tests.slurm.product import SlurmProduct
from tests.slurm.test_accounting import recorded
from tests.slurm.training import Training
from trainmon.analysis.attempts.provenance import config_hash, settings_in
from trainmon.analysis.explanation import report
from trainmon.engine.reducers.reduce import reduce
from trainmon.ledger.ledger import Ledger, attempt_rows
from trainmon.model import Attempt, RunSpec


@pytest.fixture(scope="module")
def one_slurm() -> Iterator[Slurm]:
    """In place of the one of all other tests: with accounting."""
    with open_directory() as directory, Slurm.start(directory, nodes=3, gpus=2, accounting=True) as slurm:
        yield slurm


NAMES = ("ok", "one", "killed", "gone", "again", "down")
SCRIPTS = {
    "ok": "sleep 1; exit 0",
    "one": "echo 'Traceback (most recent call last):'; echo 'ValueError: x'; exit 1",
    "killed": "exit 137",
    "gone": "exec sleep 600",
    "again": "exec sleep 600",
    "down": "exec sleep 600",
}


def specs(names: Sequence[str]) -> list[RunSpec]:
    return [RunSpec(name=name, cluster="lab", job=name, model_family="reasoning") for name in names]


def of(watch: Polling, run: str) -> list[Attempt]:
    found = [one for one in watch.state.attempts.values() if one.run_id == run]
    return sorted(found, key=lambda one: one.submitted_at or 0.0)


def is_closed(watch: Polling, *runs: str) -> bool:
    """Whether they have ended, once nothing waits for the end of their logs, which nobody reads here."""
    watch.state = reduce(watch.state, (), watch.clock.now() + 60.0)
    return all(of(watch, run) and not of(watch, run)[0].is_open for run in runs)


def source_of(attempt: Attempt) -> str | None:
    return None if attempt.end is None else attempt.end.source


def facts(attempt: Attempt) -> tuple[object, ...]:
    end = attempt.end
    return (attempt.restart, end and end.scheduler_state, end and end.exit_code, end and end.signal)


def test_every_way_to_end_is_one_closed_row(slurm: Slurm, watching: Callable[..., Polling], tmp_path: Path) -> None:
    watch, began = watching(runs=specs(NAMES)), time.time()
    jobs = {
        name: slurm.submit(f"#!/bin/bash\n{script}", "-J", name, "--gres=gpu:1", "--requeue")
        for name, script in SCRIPTS.items()
    }
    for name in ("gone", "again", "down"):
        slurm.wait_for_state(jobs[name], "RUNNING")
    slurm.wait_for(lambda: time.time() > began + 2, what="Slurm's clock, which counts seconds, goes on")
    watch.look()
    assert [one.is_open for one in of(watch, "gone")] == [True]
    assert of(watch, "gone")[0].gpus == 1
    node = slurm.job(jobs["down"])["NodeList"]

    slurm.ask("scancel", jobs["gone"])
    slurm.scontrol("requeue", jobs["again"])
    slurm.scontrol("update", f"NodeName={node}", "State=DOWN", "Reason=test")
    for name, state in (("gone", "CANCELLED"), ("again", "REQUEUED"), ("down", "NODE_FAIL")):
        slurm.wait_for(lambda name=name, state=state: recorded(slurm, jobs[name], state), what=f"{name} is recorded")  # type: ignore[misc]
    watch.until(lambda: is_closed(watch, *NAMES), "every attempt is closed")
    in_accounts = ("gone", "again", "down")
    watch.until(lambda: {source_of(of(watch, name)[0]) for name in in_accounts} == {"accounting"}, "they were asked")

    assert {name: facts(of(watch, name)[0]) for name in NAMES} == {
        "ok": (0, "COMPLETED", 0, None),
        "one": (0, "FAILED", 1, None),
        "killed": (0, "FAILED", 137, None),
        "gone": (0, "CANCELLED by root", 0, 15),
        "again": (0, "REQUEUED", None, None),
        "down": (0, "NODE_FAIL", 0, None),
    }
    ledger = Ledger(tmp_path, print)
    ledger.start()
    for attempt in watch.state.attempts.values():
        ledger.keep(attempt)
    ledger.stop()
    rows = {row["run_id"]: row for row in attempt_rows(tmp_path, 0.0, None, 100) if not row["restart"]}
    for name in NAMES:
        first = of(watch, name)[0]
        row = rows[name]
        assert first.started_at is not None
        assert first.ended_at is not None
        assert (row["job_id"], row["model_family"], row["nodes"]) == (jobs[name], "reasoning", list(first.nodes))
        assert row["gpu_seconds"] == first.ended_at - first.started_at
        assert facts(first)[1:] == (row["scheduler_state"], row["exit_code"], row["signal"])
    assert {name: rows[name]["termination_reason"] for name in ("ok", "gone", "again", "down")} == {
        "ok": "completed",
        "gone": "cancelled-by-user",
        "again": "requeued",
        "down": "node-fail",
    }


SAVES_FIRST = "trap 'touch {mark}' TERM; sleep 600 & wait; until [ -e {go} ]; do sleep 0.2; done"


def test_a_requeued_job_that_still_saves_is_not_yet_another_attempt(
    slurm: Slurm, watching: Callable[..., Polling]
) -> None:
    """Slurm lists it as COMPLETING, with the next restart, which starts always now."""
    watch, folder = watching(runs=specs(["saving"])), slurm.directory
    script = SAVES_FIRST.format(mark=folder / "told", go=folder / "go")
    job_id = slurm.submit(f"#!/bin/bash\n{script}", "-J", "saving", "--requeue")
    slurm.wait_for_state(job_id, "RUNNING")
    slurm.wait_for(lambda: slurm.job(job_id)["RunTime"] != "00:00:00", what="its batch script has set its trap")
    watch.look()
    slurm.scontrol("requeue", job_id)
    slurm.wait_for_state(job_id, "COMPLETING")
    watch.look()
    assert slurm.state(job_id) == "COMPLETING", "it was read while it ended"
    assert [one.restart for one in of(watch, "saving")] == [0]
    (folder / "go").touch()
    slurm.wait_for_state(job_id, "PENDING")
    slurm.start_again(job_id)
    slurm.wait_for_state(job_id, "RUNNING")
    watch.look()
    assert [(one.restart, one.is_open) for one in of(watch, "saving")][-1] == (1, True)
    assert [one.restart for one in of(watch, "saving")] == [0, 1]


@pytest.mark.slow  # Slurm's shortest time limit is a minute, and it looks at limits every half minute
def test_a_time_limit_ends_an_attempt(slurm: Slurm, watching: Callable[..., Polling]) -> None:
    watch = watching(runs=specs(["long"]))
    job = slurm.submit("#!/bin/bash\nsleep 600", "-J", "long", "--time=1")
    slurm.wait_for_state(job, "RUNNING")
    watch.look()
    slurm.wait_for_state(job, "TIMEOUT")
    watch.until(lambda: is_closed(watch, "long"), "it is closed")
    (one,) = of(watch, "long")
    assert facts(one)[1] == "TIMEOUT"
    assert one.end is not None
    assert one.end.cause is not None
    assert one.end.cause.cause == "time-limit"


@pytest.mark.slow  # PyTorch is a download of many hundred megabytes
def test_the_failing_rank_of_torchrun_is_the_cause_and_its_error_file_is_named(
    slurm: Slurm, product: SlurmProduct
) -> None:
    script = slurm.directory / "torch_train.py"
    script.write_text(TRAINER)
    log = slurm.directory / "torch.log"
    launch = f"{torch_python()} -m torch.distributed.run --standalone --nproc-per-node=2 {script}"
    config = product.config(
        '[[cluster]]\nname = "lab"\nevery = "1s"\nslurm_every = "15s"\n'
        f'[[run]]\nname = "torch"\ncluster = "lab"\njob = "torch"\nlog = "{log}"\n'
    )
    with daemon(product, slurm, config):
        job = slurm.submit(f"#!/bin/bash\n{launch}", "-J", "torch", "--gres=gpu:1", "-o", str(log), "-e", str(log))
        until(lambda: [row["job_id"] for row in rows_of(product)] == [job], "the attempt has a row")
        until(lambda: rows_of(product)[0]["ended_at"] is not None, "the attempt is closed", within=180)
        (row,) = rows_of(product)
    lines = log.read_text().splitlines()
    assert "ChildFailedError" in log.read_text()
    assert (row["termination_reason"], row["scheduler_state"], row["exit_code"]) == ("python-exception", "FAILED", 1)
    error = next(one for one in row["evidence"] if one["text"] == "ValueError: batch 4711 has the shape (7, 3)")
    assert error["rank"] == "1"
    assert lines[error["line"]].endswith(error["text"])
    file = next(one for one in row["evidence"] if "error_file" in one["text"])
    assert Path(file["text"].split()[-1]).name == "error.json"


def test_what_ended_while_nobody_watched_is_found_in_accounting(slurm: Slurm, watching: Callable[..., Polling]) -> None:
    job = slurm.submit("#!/bin/bash\nsleep 2; exit 3", "-J", "night")
    columns = ("-o", "JobName,State")
    slurm.wait_for(lambda: slurm.ask("sacct", "-nXPj", job, *columns) == "night|FAILED\n", what="it is in the accounts")
    slurm.stop_controller()
    slurm.start_controller(forgetting=True)
    watch = watching(runs=specs(["night"]))
    watch.poller._queue._accounting._since = lambda: slurm_began(watch)
    watch.until(lambda: is_closed(watch, "night"), "its end was found")
    (one,) = of(watch, "night")
    assert facts(one) == (0, "FAILED", 3, None)


def slurm_began(watch: Polling) -> float:
    return watch.clock.now() - 600


@contextlib.contextmanager
def daemon(product: SlurmProduct, slurm: Slurm, config: Path) -> Iterator[None]:
    """The alert daemon, which is killed at the end."""
    argv, env = [PROGRAM, "--alerts-only", "--config", str(config)], environment(product.home, **slurm.environ)
    nowhere = subprocess.DEVNULL
    with subprocess.Popen(argv, env=env, cwd=product.work, stdin=nowhere, stdout=nowhere, stderr=nowhere) as process:
        try:
            yield
        finally:
            process.send_signal(signal.SIGKILL)


def printed(product: SlurmProduct, *words: str) -> Any:
    """What a command that reads the ledger prints."""
    return json.loads(forked.run([PROGRAM, *words, "--json"], env=environment(product.home)).stdout)


def rows_of(product: SlurmProduct) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = printed(product, "attempts")
    return rows


def test_a_daemon_that_is_killed_during_an_attempt_closes_it_once_when_it_is_back(
    slurm: Slurm, training: Callable[..., Training], product: SlurmProduct
) -> None:
    death = slurm.directory / "death"
    run = training(
        "--every=4", "--step-s=0.3", "--die-at=30", f"--die-when={death}", "--save-s=0.05", layout="megatron"
    )  # fmt: skip
    manifest, settings = slurm.directory / "manifest.json", slurm.directory / "train.yaml"
    manifest.write_text('{"shards":\n ["a", "b"]}')
    settings.write_text("batch: 8\nlr: 1e-4\n")
    named = f'data_manifest = "{manifest}"\nconfig = "{settings}"\n'
    config = product.config(run.config() + 'model_family = "reasoning"\nlabels = { owner = "team-a" }\n' + named)
    digest = sha256(manifest.read_bytes()).hexdigest()[:12]
    job_id = run.start("--nodes=1", "--gres=gpu:2")
    with daemon(product, slurm, config):
        until(
            lambda: [row["first_step"] for row in rows_of(product)] == [1], "the attempt has a row with its first step"
        )
        until(lambda: rows_of(product)[0]["data_manifest"] == f"{manifest} sha256:{digest}", "its manifest was read")
    (opened,) = rows_of(product)
    assert (opened["job_id"], opened["ended_at"], opened["termination_reason"]) == (job_id, None, None)

    manifest.write_text("another")
    death.touch()
    slurm.wait_for_state(job_id, "FAILED")
    with daemon(product, slurm, config):
        until(lambda: rows_of(product)[0]["ended_at"] is not None, "the attempt is closed")
        (closed,) = rows_of(product)
    with daemon(product, slurm, config):  # it is closed once
        began = time.time()
        until(lambda: (printed(product, "status")["duty"]["last_tick_at"] or 0.0) > began + 3, "the daemon runs again")
    assert rows_of(product) == [closed]

    assert closed["attempt_id"] == opened["attempt_id"]
    assert (closed["run_id"], closed["model_family"], closed["labels"]) == (run.name, "reasoning", {"owner": "team-a"})
    assert (closed["scheduler_state"], closed["exit_code"], closed["is_reconstructed"]) == ("FAILED", 1, True)
    assert (closed["first_step"], closed["last_step"], closed["target_step"]) == (1, 30, 100_000)
    assert (closed["last_committed_step"], closed["steps_lost"]) == (28, 2)
    assert (closed["data_manifest"], closed["config_path"]) == (f"{manifest} sha256:{digest}", str(settings))
    assert (
        closed["config_hash"]
        == opened["config_hash"]
        == config_hash(settings_in(str(settings), "{lr: 1e-4, batch: 8}") or {})
    )
    assert (closed["termination_reason"], closed["gpus"]) == ("gpu-hardware", 2)
    assert "uncorrectable ECC error" in closed["log_tail"]


@pytest.mark.slow  # accounting is asked for one part of the past after another, at every poll
@pytest.mark.parametrize(("name", "file"), [("each", "off-{}.log"), ("shared", "off.log")])
def test_of_two_jobs_that_fail_while_the_daemon_is_off_each_has_the_cause_in_its_own_lines(
    slurm: Slurm, product: SlurmProduct, name: str, file: str
) -> None:
    errors = ("OSError: [Errno 28] No space left on device", "torch.OutOfMemoryError: CUDA out of memory.")
    jobs, folder = [], slurm.directory / name
    folder.mkdir()
    for error in errors:
        script = f"""#!/bin/bash
            echo "$(date '+%F %T') loading"; sleep 1; echo "$(date '+%F %T') training"
            echo 'Traceback (most recent call last):'; echo '{error}'
            sleep 1; exit 1"""  # Slurm's times are of whole seconds: the next one starts in another
        out = folder / file.format("%j")
        jobs.append(slurm.submit(script, "-J", name, "-o", str(out), "--open-mode=append"))
        slurm.wait_for(lambda: recorded(slurm, jobs[-1], "FAILED"), what="its failure is in the accounts")
    times = ("sacct", "-nX", "-o", "Eligible", "-j", ",".join(jobs))  # sacct lists a period by them; they come late
    slurm.wait_for(lambda: "Unknown" not in slurm.ask(*times), what="when they could start is in the accounts")
    slurm.stop_controller()
    slurm.start_controller(forgetting=True)
    glob = "*"
    config = product.config(
        '[[cluster]]\nname = "lab"\nevery = "1s"\nslurm_every = "15s"\n'
        f'[[run]]\nname = "{name}"\ncluster = "lab"\nlog = "{folder / file.format(glob)}"\n'
    )
    with daemon(product, slurm, config):
        expected = {jobs[0]: "disk-full", jobs[1]: "cuda-oom"}
        until(
            lambda: {row["job_id"]: row["termination_reason"] for row in rows_of(product)} == expected,
            "each has its own cause",
        )
    assert [row["log_path"] for row in rows_of(product)] == [str(folder / file.format(job)) for job in jobs]


def test_a_dashboard_writes_without_a_daemon_and_with_one_there_is_still_one_row(
    slurm: Slurm, training: Callable[..., Training], product: SlurmProduct
) -> None:
    run = training("--step-s=0.3", layout="megatron")
    product.watch(run.config())
    job_id = run.start("--nodes=1", "--gres=gpu:1")
    product.dashboard()
    until(lambda: [row["job_id"] for row in rows_of(product)] == [job_id], "the dashboard has written the attempt")
    with daemon(product, slurm, product.config(run.config(), "daemon.toml")):
        until(lambda: printed(product, "status")["duty"]["holder"] != "nobody", "one of them leads")
        slurm.ask("scancel", job_id)
        until(lambda: all(row["ended_at"] for row in rows_of(product)), "the attempt is closed")
    (row,) = rows_of(product)
    assert (row["termination_reason"], row["job_id"]) == ("cancelled-by-user", job_id)


ONE_DIES = "srun --ntasks=1 --nodes=1 {command} $([ $SLURM_ARRAY_TASK_ID = 1 ] && echo --die-at=30)"


@pytest.mark.slow  # Slurm is asked every 15 s; test_chains.py and test_attempts.py of the ledger decide the same
def test_the_tasks_of_a_chain_keep_their_numbers_and_their_rows_whoever_reads_them(
    slurm: Slurm, training: Callable[..., Training], product: SlurmProduct
) -> None:
    """They write one log and one directory, one after the other; then somebody with another config acts on the run, and
    another daemon reads the ledger."""
    run = training("--every=7", "--step-s=0.1", "--save-s=0.05", layout="megatron", how=ONE_DIES)
    log = f'log = "{run.folder}/all.log"\n'
    mine, other = (
        product.config(text + log, f"{name}.toml")
        for name, text in (
            ("mine", run.config()),
            ("other", run.config().replace('"lab"', '"local"').replace(f'name = "{run.name}"', 'name = "theirs"')),
        )
    )
    options = ("--array=1-2%1", "--nodes=1", "--gres=gpu:1", f"--output={run.folder}/all.log")
    with daemon(product, slurm, mine):
        job_id = run.submit(*options)
        until(lambda: any(row["ended_at"] for row in rows_of(product)), "the first task is closed")
        first = rows_of(product)[0]
        assert (first["job_id"], first["cluster"], first["run_id"]) == (f"{job_id}_1", "lab", run.name)
        assert (first["last_step"], first["last_committed_step"], first["steps_lost"]) == (30, 28, 2)
        until(lambda: max(run.committed()) >= 140, "the second one has saved much more")
        until(lambda: rows_of(product)[-1]["last_committed_step"] >= 140, "that is in its row")
    assert rows_of(product)[0] == first
    done = product.run("save", "theirs", "--yes", "--wait=100ms", f"--config={other}", **slurm.environ)
    assert ": done" in done.stdout + done.stderr, done.stdout + done.stderr
    with daemon(product, slurm, other):
        slurm.ask("scancel", job_id)
        until(lambda: all(row["ended_at"] for row in rows_of(product)), "all are closed", within=180)
    rows = rows_of(product)
    assert [(row["job_id"], row["cluster"], row["run_id"]) for row in rows] == [
        (f"{job_id}_1", "lab", run.name), (f"{job_id}_2", "lab", run.name),
    ]  # fmt: skip
    kept = [name for name in first if name not in ("written_at", "retry_decision", "budget_spent")]
    assert {name: rows[0][name] for name in kept} == {name: first[name] for name in kept}


@pytest.mark.slow
def test_the_report_counts_the_gpu_hours_that_sacct_counts(
    slurm: Slurm, watching: Callable[..., Polling], tmp_path: Path
) -> None:
    """Of an array, a heterogeneous job, and a job that is requeued."""
    names = ("tasks", "mixed", "twice")
    watch, one = watching(runs=specs(names)), "--gres=gpu:1"
    parts = f"#!/bin/bash\n#SBATCH -N1 {one}\n#SBATCH hetjob\n#SBATCH -N1 --gres=gpu:2\nsleep 3; exit 1"
    jobs = [
        slurm.submit("#!/bin/bash\nsleep 2", "-J", "tasks", one, "--array=0-1"),
        slurm.submit(parts, "-J", "mixed"),
        slurm.submit("#!/bin/bash\nexec sleep 600", "-J", "twice", one, "--requeue"),
    ]
    slurm.wait_for_state(jobs[-1], "RUNNING")
    slurm.wait_for(lambda: slurm.job(jobs[-1])["RunTime"] != "00:00:00", what="a second has passed")
    watch.look()
    slurm.scontrol("requeuehold", jobs[-1])
    wanted = {"tasks": 2, "mixed": 1, "twice": 1}

    def closed() -> dict[str, int]:
        return {run: sum(not attempt.is_open for attempt in of(watch, run)) for run in names}

    watch.until(lambda: is_closed(watch, *names) and closed() == wanted, "every attempt is closed")
    for job_id, state in zip((*jobs, f"{jobs[1]}+1"), ("COMPLETED", "FAILED", "REQUEUED", "FAILED"), strict=True):
        slurm.wait_for(lambda job_id=job_id, state=state: recorded(slurm, job_id, state), what=f"{job_id} is recorded")  # type: ignore[misc]
    slurm.ask("scancel", jobs[-1])
    rows = slurm.ask("sacct", "-n", "-X", "-D", "-P", "-j", ",".join(jobs), "-o", "ElapsedRaw,AllocTRES").splitlines()
    gpus = [(int(row.partition("|")[0]), re.search(r"gres/gpu=(\d+)", row)) for row in rows]
    counted = sum(seconds * int(found[1]) for seconds, found in gpus if found is not None)
    found = report(watch.state.attempts.values(), 0.0, watch.clock.now(), {}).totals
    assert counted > 0
    assert (found.attempts, round(3600 * found.held)) == (4, counted)
