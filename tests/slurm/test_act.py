"""The verbs of the command line, done to real jobs: what they say, and what Slurm says afterwards."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lab.daemons import until
from tests.lab.slurm import OTHER, Slurm
from tests.slurm.product import SlurmProduct
from tests.slurm.test_attempts import daemon, rows_of
from tests.slurm.training import CAUGHT, Training

MakeTraining = Callable[..., Training]


def test_save_and_kill_and_what_an_armed_kill_switch_forbids(
    slurm: Slurm, training: MakeTraining, product: SlurmProduct
) -> None:
    run = training()
    job_id = run.start()
    product.watch(run.config())

    text = product.act("save", run.name, "--why", "before the upgrade")
    assert f"done: {run.save_switch} is there" in text
    until(run.committed, "a checkpoint is committed")
    assert not run.save_switch.exists()
    assert slurm.state(job_id) == "RUNNING"

    product.act("kill", run.name, "--why", "wrong data")
    slurm.wait_for_state(job_id, "COMPLETED")
    assert len(run.committed()) == 2
    line = run.kill_switch.read_text()
    assert "wrong data" in line
    assert "trainmon-tui kill by" in line

    text = product.refused("requeue", run.name)
    assert "kill switch, armed" in text
    assert f"unkill {run.name}" in text
    assert slurm.job(job_id)["Restarts"] == "0"

    product.act("unkill", run.name)
    assert not run.kill_switch.exists()
    assert [(one["verb"], one["status"]) for one in product.actions()] == [
        ("save", "done"), ("kill", "done"), ("unkill", "done"),
    ]  # fmt: skip


def test_a_requeued_job_starts_again_and_one_that_slurm_cannot_restart_goes_on(
    slurm: Slurm, training: MakeTraining, product: SlurmProduct
) -> None:
    run = training()
    job_id = run.start()
    product.watch(run.config())
    text = product.run("requeue", run.name, "--dry-run").stdout
    assert f"scontrol requeue Incomplete {job_id}" in text
    assert "the next nodes" not in text  # Slurm names them
    assert slurm.job(job_id)["Restarts"] == "0"
    plan = json.loads(product.run("queue", run.name, "--json").stdout)
    assert plan["actions"][0]["command"].startswith("bash -l: sbatch")
    # the two of the job, and the two that Slurm would use now
    assert {one["node"] for one in plan["checks"]} == set(slurm.nodes)
    assert {one["why"] for one in plan["checks"]} == {"it is not watched"}
    text = product.act("requeue", run.name)
    assert f"scontrol requeue Incomplete {job_id}" in text
    slurm.wait_for_state(job_id, "PENDING")
    assert slurm.job(job_id)["Restarts"] == "1"
    assert "iteration" in product.run("actions", "--log", run.name).stdout

    fixed = slurm.submit("sleep 600", "--no-requeue")
    slurm.wait_for_state(fixed, "RUNNING")
    text = product.refused("requeue", run.name, fixed)
    assert text.count("refused") == 2
    assert slurm.job(job_id)["Restarts"] == "1"
    assert slurm.state(fixed) == "RUNNING"


def test_a_job_that_has_ended_is_started_again_as_long_as_slurm_knows_it(
    slurm: Slurm, training: MakeTraining, product: SlurmProduct
) -> None:
    run, unknown = training(), training()
    failed, fine = slurm.submit("exit 7", "-J", run.name), slurm.submit("true")
    cancelled, stuck = slurm.submit("sleep 600"), slurm.submit("exit 1", "--no-requeue")
    slurm.wait_for_state(cancelled, "RUNNING")
    slurm.ask("scancel", cancelled)
    for job_id, state in ((failed, "FAILED"), (fine, "COMPLETED"), (cancelled, "CANCELLED"), (stuck, "FAILED")):
        slurm.wait_for_state(job_id, state)
    product.watch(run.config() + unknown.table())
    text = product.run("requeue", run.name, "--dry-run").stdout
    assert f"scontrol requeue {failed}\n" in text
    assert "It ended FAILED " in text
    assert "Slurm starts the same job again." in text
    text = product.refused("requeue", stuck, unknown.name)
    assert f"job {stuck} cannot be requeued: it was submitted with --no-requeue" in text
    assert f"no job of {unknown.name} is known: Slurm forgets a job some minutes after its end" in text
    assert f"trainmon-tui queue {unknown.name}" in text

    text = product.refused("requeue", fine)
    assert f"job {fine} is COMPLETED; to go on without confirmation: --yes --typed {fine}" in text
    assert slurm.job(fine)["Restarts"] == "0"
    done = product.run("requeue", run.name, fine, cancelled, "--yes", "--typed", fine, "--wait=20s")
    assert done.returncode == 3, done.stdout + done.stderr
    assert done.stdout.count(": it is pending again") == 3
    assert done.stdout.count("is still pending: ") == done.stdout.count("(BeginTime)\n") == 3
    for job_id in (failed, fine, cancelled):
        job = slurm.job(job_id)
        assert (job["JobState"], job["Restarts"]) == ("PENDING", "1")

    run.kill_switch.touch()
    slurm.start_again(failed)
    slurm.wait_for_state(failed, "FAILED")
    assert "kill switch, armed" in product.refused("requeue", run.name)


@pytest.mark.slow  # Slurm's shortest time limit is a minute, and it looks at limits every half minute
def test_a_job_that_reached_its_time_limit_is_started_again(
    slurm: Slurm, training: MakeTraining, product: SlurmProduct
) -> None:
    run = training()
    job_id = slurm.submit("sleep 600", "-J", run.name, "--time=1")
    slurm.wait_for_state(job_id, "TIMEOUT", within=300)
    product.watch(run.config())
    assert "It ended TIMEOUT " in product.run("requeue", run.name, "--dry-run").stdout
    done = product.run("requeue", run.name, "--yes", "--wait=20s")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "it is pending again" in done.stdout
    job = slurm.job(job_id)
    assert (job["JobState"], job["Restarts"]) == ("PENDING", "1")


def test_a_job_whose_node_fails_is_requeued_by_slurm_alone_or_not_at_all(
    slurm: Slurm, training: MakeTraining, product: SlurmProduct
) -> None:
    run, fixed = training(), training()
    jobs = [
        slurm.submit("sleep 600", "-J", one.name, option)
        for one, option in ((run, "--requeue"), (fixed, "--no-requeue"))
    ]
    for job_id in jobs:
        slurm.wait_for_state(job_id, "RUNNING")
    nodes = {slurm.job(job_id)["NodeList"] for job_id in jobs}
    for node in nodes:
        slurm.lose(node)
    slurm.wait_for_state(jobs[0], "PENDING")
    slurm.wait_for_state(jobs[1], "NODE_FAIL")
    product.watch(run.config() + fixed.table())
    text = product.refused("requeue", run.name, fixed.name)
    assert f"job {jobs[0]} is already pending" in text
    assert f"job {jobs[1]} cannot be requeued: it was submitted with --no-requeue" in text
    assert f"trainmon-tui queue {fixed.name}" in text
    assert [slurm.job(job_id)["Restarts"] for job_id in jobs] == ["1", "0"]
    for node in nodes:
        slurm.find(node)


def test_a_cancel_of_several_nodes_or_of_anothers_job_wants_the_id_typed(
    slurm: Slurm, training: MakeTraining, product: SlurmProduct
) -> None:
    run = training()
    job_id = run.start()
    other = slurm.submit("sleep 600", "-J", "theirs", user=OTHER)
    slurm.wait_for_state(other, "RUNNING")
    product.watch(run.config(users="root").replace('users = "root"', f'users = ["root", "{OTHER}"]'))
    product.each(product.refused, ("cancel", run.name), ("cancel", other, "--typed", job_id))
    assert slurm.state(job_id) == slurm.state(other) == "RUNNING"
    product.each(product.act, ("cancel", run.name, "--typed", job_id), ("cancel", other, "--typed", other))
    slurm.wait_for_state(job_id, "CANCELLED")
    slurm.wait_for_state(other, "CANCELLED")
    (found,) = product.snapshot()["runs"]
    assert found["verdict"] == "stopped"
    assert "cancelled" in found["why"]


def test_a_run_is_never_another_users_job_of_its_name_which_is_touched_by_its_typed_id_alone(
    slurm: Slurm, product: SlurmProduct
) -> None:
    first = slurm.submit("sleep 600", "-J", "shared")
    slurm.wait_for_state(first, "RUNNING")
    theirs = slurm.submit("sleep 600", "-J", "shared", user=OTHER)
    waits = slurm.submit("sleep 600", "-J", "waits", "--begin=now+1hour", user=OTHER)
    slurm.wait_for_state(theirs, "RUNNING")
    product.watch(
        f'[[cluster]]\nname = "lab"\nusers = ["me"]\n[[run]]\nname = "shared"\n'
        f'[[run]]\nname = "their-run"\njob = "shared"\nuser = "{OTHER}"\n'
    )
    planned, *text = product.each(
        lambda *words: product.run(*words, "--yes").stderr if words[0] != "cancel" else product.run(*words).stdout,
        ("cancel", "shared", "--dry-run"), ("requeue", "their-run"), ("hold", waits),
    )  # fmt: skip
    assert f"scancel {first}\n" in planned
    assert [f"job {job_id} is {OTHER}'s; to go on without confirmation: --yes --typed {job_id}" in words
            for job_id, words in zip((theirs, waits), text, strict=True)] == [True, True]  # fmt: skip
    assert (slurm.job(theirs)["Restarts"], slurm.job(waits)["Reason"]) == ("0", "BeginTime")

    product.each(product.act, ("requeue", "shared"), ("hold", waits, "--typed", waits))
    slurm.wait_for_state(first, "PENDING")
    assert (slurm.state(theirs), slurm.job(waits)["Priority"]) == ("RUNNING", "0")


def test_of_two_jobs_that_train_under_the_name_of_a_run_none_is_chosen(
    slurm: Slurm, training: MakeTraining, product: SlurmProduct
) -> None:
    run = training()
    jobs = [slurm.submit("sleep 600", "-J", run.name) for _ in range(2)]
    for job_id in jobs:
        slurm.wait_for_state(job_id, "RUNNING")
    product.watch(run.config())
    text = product.refused("requeue", run.name)
    assert f"{run.name} may mean any of 2 jobs" in text
    assert all(f"{job_id} (root, RUNNING)" in text for job_id in jobs)
    assert [slurm.job(job_id)["Restarts"] for job_id in jobs] == ["0", "0"]


def test_the_id_of_a_heterogeneous_job_that_snapshot_prints_stands_for_the_whole_of_it(
    slurm: Slurm, product: SlurmProduct
) -> None:
    job_id = slurm.submit("#!/bin/bash\n#SBATCH -J het -N1\n#SBATCH hetjob\n#SBATCH -J het -N1\nsleep 600")
    second = str(int(job_id) + 1)
    slurm.wait_for_state(second, "RUNNING")
    product.watch('[[cluster]]\nname = "lab"\nslurm_every = "15s"\n')
    result = product.snapshot()
    (printed,) = [job["id"] for job in result["jobs"] if job["state"] == "RUNNING"]
    assert printed == job_id
    assert sorted(result["runs"][0]["nodes"]) == ["gpu-1", "gpu-2"]
    whole, alone = product.each(
        lambda *words: product.run(*words, "--dry-run").stdout, ("requeue", printed), ("cancel", f"{job_id}+1")
    )
    assert f"scontrol requeue Incomplete {job_id}\n" in whole
    assert f"Slurm's jobs {job_id}, {second}: the action affects all of them" in alone
    assert product.act("cancel", f"{job_id}+1", "--typed", job_id).count(f"scancel {job_id}\n") == 1
    slurm.wait_for(lambda: slurm.state(job_id) == slurm.state(second) == "CANCELLED", what="all of it has ended")


def test_more_of_a_run_is_queued_held_released_and_kept_off_a_node(
    slurm: Slurm, training: MakeTraining, product: SlurmProduct
) -> None:
    run = training()
    job_id = run.start()
    product.watch(run.config())
    product.act("queue", run.name, "--count", "2")
    (row,) = [line for line in slurm.squeue("-h", "-o", "%i %E %Z").splitlines() if "[" in line]
    queued, depends, workdir = row.split()
    assert queued.endswith("_[1-2%1]")
    assert depends.startswith(f"afterany:{job_id}")
    assert workdir == slurm.job(job_id)["WorkDir"]
    array = queued.partition("_")[0]

    product.act("hold", array)
    assert slurm.job(array)["Reason"] in ("JobHeldUser", "JobHeldAdmin")
    assert slurm.job(array)["Priority"] == "0"
    product.act("release", array)
    assert slurm.job(array)["Priority"] != "0"

    product.act("exclude", "gpu-1", "--run", run.name, "--why", "ECC errors")
    assert slurm.job(array)["ExcNodeList"] == "gpu-1"
    assert slurm.node("gpu-1") == "draining"
    assert "ECC errors" in slurm.scontrol("show", "node", "-o", "gpu-1")

    slurm.ask("scancel", job_id)
    slurm.wait_for_state(f"{array}_1", "RUNNING")
    assert slurm.job(f"{array}_1")["NodeList"] == "gpu-[2-3]"


def test_usr1_reaches_the_trainer_in_a_step_and_under_a_script_that_catches_it(
    slurm: Slurm, training: MakeTraining, product: SlurmProduct
) -> None:
    step, script = training("--usr1=save"), training("--usr1=save-and-exit", how=CAUGHT)
    stepped, scripted = step.start(), script.start()
    plain = slurm.submit("#!/bin/bash\nsleep 600\ntrue")
    slurm.wait_for_state(plain, "RUNNING")
    product.watch(step.config() + script.table())
    refused, *text = product.each(
        lambda *words: (product.refused if words[1] == plain else product.act)(*words),
        ("signal", plain), ("signal", step.name, "USR1", "--typed", stepped), ("signal", script.name),
    )  # fmt: skip
    assert f"USR1 ends the batch shell of job {plain}: its script has no trap" in refused
    assert slurm.state(plain) == "RUNNING"
    assert ["--batch" in words for words in text] == [False, True]
    until(step.committed, "the step's trainer has saved")
    assert slurm.state(stepped) == "RUNNING"
    until(script.committed, "the script's trainer has saved")
    assert "the script caught USR1" in script.log(scripted)
    slurm.wait_for_state(scripted, "COMPLETED")


def test_signal_and_kill_with_wait_end_when_the_checkpoint_is_there(
    slurm: Slurm, training: MakeTraining, product: SlurmProduct
) -> None:
    run = training("--usr1=save", "--save-s=3")
    job_id = run.start()
    product.watch(run.config())
    done = product.run("signal", run.name, "USR1", "--yes", "--typed", job_id, "--wait=60s")
    ended = time.time()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a new checkpoint is committed" in done.stdout
    until(run.committed, "Megatron's pointer names it, a moment later")
    (step,) = run.committed()
    assert ended - (run.checkpoints / f"iter_{step:07d}" / "metadata.json").stat().st_mtime < 6

    done = product.run("kill", run.name, "--yes", "--wait=90s")
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(text in done.stdout for text in ("the file appears", "the trainer saves", "it exits"))


def test_requeue_succeeds_when_the_job_runs_again_and_gives_slurms_reason_if_it_is_still_pending(
    slurm: Slurm, training: MakeTraining, product: SlurmProduct
) -> None:
    run = training()
    job_id = run.start()
    product.watch(run.config())
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(product.run, "requeue", run.name, "--yes", timeout=300.0)
        slurm.wait_for(lambda: slurm.job(job_id)["JobState"] == "PENDING", what="it is pending again")
        slurm.start_again(job_id)
        done = running.result()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "it is pending again" in done.stdout
    assert "it starts anew" in done.stdout
    assert (slurm.state(job_id), slurm.job(job_id)["Restarts"]) == ("RUNNING", "1")

    done = product.run("requeue", run.name, "--yes", "--wait=100ms")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "still to come: it is pending again" in done.stdout
    slurm.wait_for_state(job_id, "PENDING")


def test_nothing_is_done_while_the_controller_is_silent_or_when_only_looking_is_allowed(
    slurm: Slurm, training: MakeTraining, product: SlurmProduct
) -> None:
    run = training()
    job_id = run.start()
    product.watch(f"read_only = true\n{run.config()}")
    text = product.refused("kill", run.name)
    assert "read_only" in text or "read-only" in text
    assert not run.kill_switch.exists()

    product.watch(run.config())
    slurm.stop_controller()
    try:
        done = product.run("requeue", run.name, "--yes")
    finally:
        slurm.start_controller()
    assert done.returncode in (3, 4), done.stdout
    assert "contact" in done.stdout + done.stderr
    assert slurm.job(job_id)["Restarts"] == "0"
    assert slurm.state(job_id) == "RUNNING"


@pytest.mark.slow  # it waits for a daemon
def test_after_an_oom_the_plan_of_a_requeue_says_whether_the_config_has_changed(
    slurm: Slurm, product: SlurmProduct
) -> None:
    settings = slurm.directory / "oom.yaml"
    settings.write_text("batch: 8\n")
    oom = "echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB'; exit 1"
    job_id = slurm.submit(f"#!/bin/bash\n{oom}", "-J", "oom", "-o", f"{slurm.directory}/oom.out", "--requeue")
    slurm.wait_for_state(job_id, "FAILED")
    text = f'[cluster]\nname = "lab"\nevery = "1s"\nslurm_every = "15s"\n[[run]]\nname = "oom"\nconfig = "{settings}"\n'
    with daemon(product, slurm, product.config(text)):
        until(lambda: [row for row in rows_of(product) if row["ended_at"] and row["config_hash"]], "it is closed")
    product.watch(text)

    settings.write_text("# as before\nbatch: 8\n")
    same = product.run("requeue", "oom", "--dry-run").stdout
    assert "Another attempt may not help: nothing has changed since the attempt" in " ".join(same.split())
    settings.write_text("batch: 4\n")
    changed = " ".join(product.run("requeue", "oom", "--dry-run").stdout.split())
    assert "the config has changed since the attempt" in changed
    assert "Another attempt may not help" not in changed
