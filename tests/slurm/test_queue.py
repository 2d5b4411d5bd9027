"""What a real queue looks like to us."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.lab.slurm import OTHER, Slurm
from tests.slurm.polling import Polling
from trainmon.model import RunSpec
from trainmon.slurm import reasons

Watching = Callable[..., Polling]
GPUS = "--gres=gpu:8"


def still_there(watch: Polling) -> set[str]:
    """The jobs that have not ended; those of other tests have."""
    return {key for key, job in watch.state.jobs.items() if job.stage != "ended"}


def test_a_running_job_has_its_nodes_times_and_log(slurm: Slurm, watch: Polling) -> None:
    job_id = slurm.submit("sleep 600", "-N2", GPUS, "-J", "video-2b", "--time=90", "--comment=second try")
    slurm.wait_for_state(job_id, "RUNNING")
    watch.look()
    job = watch.job(job_id)
    assert (job.name, job.user, job.stage, job.nodes) == ("video-2b", "root", "running", ("gpu-1", "gpu-2"))
    assert job.stdout == str(slurm.log(job_id))
    assert job.comment == "second try"
    assert job.gpu_indices == dict.fromkeys(job.nodes, tuple(range(8)))
    assert (job.restarts, job.requeue, job.batch) == (0, True, True)
    assert job.started_at is not None
    assert job.ends_at == job.started_at + 90 * 60
    assert abs(job.started_at - watch.clock.now()) < 30
    assert watch.source.health == "ok"
    assert watch.state.clusters["lab"].me == "root"
    assert watch.state.clusters["lab"].slurm is not None
    assert watch.state.clusters["lab"].slurm.startswith("22.05")


def test_elements_of_an_array_run_one_after_another_and_the_rest_is_one_row(slurm: Slurm, watching: Watching) -> None:
    watch = watching(runs=[RunSpec(name="arr", cluster="lab", job="arr")])
    job_id = slurm.submit("sleep 600", "--array=1-4%1", "-J", "arr", "-o", f"{slurm.directory}/log/%A_%a.log")
    watch.until(lambda: f"lab/{job_id}_1" in watch.state.jobs and watch.job(f"{job_id}_1").stage == "running", "runs")
    first, rest = watch.job(f"{job_id}_1"), watch.state.jobs[f"lab/{job_id}_[]"]
    assert first.stdout == f"{slurm.directory}/log/{job_id}_1.log"
    assert (rest.id, rest.elements, rest.stage) == (f"{job_id}_[2-4%1]", 3, "waiting")
    assert reasons.waiting_reason(rest, watch.clock.now()) == "array task limit reached"
    assert watch.state.runs["arr"].jobs[0] == first.key
    assert watch.state.runs["arr"].queued_behind == 3

    slurm.ask("scancel", f"{job_id}_1")
    watch.until(lambda: f"lab/{job_id}_2" in watch.state.jobs and watch.job(f"{job_id}_2").stage == "running", "next")
    assert watch.state.jobs[f"lab/{job_id}_[]"].elements == 2
    watch.until(lambda: watch.job(f"{job_id}_1").stage == "ended", "Slurm has cleaned up after it")
    assert watch.state.runs["arr"].jobs[0] == f"lab/{job_id}_2"


def test_a_requeued_element_waits_in_a_row_of_its_own(slurm: Slurm, watching: Watching) -> None:
    watch = watching(runs=[RunSpec(name="arr", cluster="lab", job="arr")])
    job_id = slurm.submit("sleep 600", "--array=1-4%1", "-J", "arr")
    slurm.wait_for_state(f"{job_id}_1", "RUNNING")
    watch.look()
    slurm.scontrol("requeue", "Incomplete", f"{job_id}_1")
    watch.until(lambda: f"lab/{job_id}_2" in watch.state.jobs and watch.job(f"{job_id}_2").stage == "running", "next")
    watch.until(lambda: watch.job(f"{job_id}_1").stage != "running", "it is let go")
    first = watch.job(f"{job_id}_1")
    assert (first.stage, first.gone_at, first.restarts) == ("waiting", None, 1)
    assert watch.state.jobs[f"lab/{job_id}_[]"].elements == 2
    assert watch.state.runs["arr"].queued_behind == 3


def test_jobs_that_wait_say_for_what(slurm: Slurm, watch: Polling) -> None:
    fine = slurm.submit("true")
    slurm.wait_for_state(fine, "COMPLETED")
    running = slurm.submit("sleep 600", "-N4", GPUS)
    slurm.wait_for_state(running, "RUNNING")
    after = slurm.submit("sleep 600", f"--dependency=afterany:{running}")
    full = slurm.submit("sleep 600", "-N4", GPUS)
    later = slurm.submit("sleep 600", "--begin=now+1hour")
    held = slurm.submit("sleep 600", "--hold")
    never = slurm.submit("sleep 600", f"--dependency=afternotok:{fine}")
    watch.until(lambda: watch.job(never).reason == "DependencyNeverSatisfied", "it can never start")
    watch.until(lambda: watch.job(full).reason == "Resources", "it waits for nodes")
    words = {
        job_id: reasons.waiting_reason(watch.job(job_id), watch.clock.now())
        for job_id in (after, full, later, held, never)
    }
    assert words[after] == f"after the end of {running}"
    assert words[full].startswith("no free nodes")
    assert words[later] in ("starts in 60m", "starts in 59m", "starts in 1h")
    assert words[held] == "held"
    assert "never start" in words[never]


def test_a_requeued_job_has_one_restart_and_starts_in_two_minutes(slurm: Slurm, watch: Polling) -> None:
    job_id = slurm.submit("sleep 600")
    slurm.wait_for_state(job_id, "RUNNING")
    watch.look()
    slurm.scontrol("requeue", "Incomplete", job_id)
    watch.until(lambda: watch.job(job_id).stage == "waiting" and watch.job(job_id).reason, "it waits, and why")
    job = watch.job(job_id)
    assert (job.restarts, job.reason) == (1, "BeginTime")
    assert reasons.waiting_reason(job, watch.clock.now()) in (
        "starts in 2m",
        "starts in 2m01s",
        "starts in 1m59s",
        "starts in 1m",
    )


def test_a_held_job_is_released(slurm: Slurm, watch: Polling) -> None:
    job_id = slurm.submit("sleep 600", "--hold")
    watch.look()
    assert watch.job(job_id).priority == 0
    assert reasons.is_permanent(watch.job(job_id).reason)
    slurm.scontrol("release", job_id)
    watch.until(lambda: watch.job(job_id).stage == "running", "it runs")
    assert watch.job(job_id).priority != 0


def test_ends_are_distinguished(slurm: Slurm, watch: Polling) -> None:
    running = slurm.submit("sleep 600")
    fine, failed, killed = slurm.submit("true"), slurm.submit("exit 3"), slurm.submit("kill -9 $$")
    slurm.wait_for_state(running, "RUNNING")
    slurm.ask("scancel", running)
    for job_id, state in ((running, "CANCELLED"), (fine, "COMPLETED"), (failed, "FAILED"), (killed, "FAILED")):
        slurm.wait_for_state(job_id, state)
    watch.look()
    assert {watch.job(job_id).stage for job_id in (running, fine, failed, killed)} == {"ended"}
    assert reasons.end_reason(watch.job(running)).startswith("cancelled")
    assert reasons.end_reason(watch.job(fine)) == "exited with code 0"
    assert reasons.end_reason(watch.job(failed)) == "exited with code 3"
    assert reasons.end_reason(watch.job(killed)) == "ended by signal 9"


def test_another_persons_jobs_are_seen_where_they_are_watched(slurm: Slurm, watch: Polling, watching: Watching) -> None:
    ours = slurm.submit("sleep 600")
    other = slurm.submit("sleep 600", user=OTHER)
    watch.look()
    assert still_there(watch) == {f"lab/{ours}"}
    both = watching(users=("root", OTHER))
    both.look()
    assert still_there(both) == {f"lab/{ours}", f"lab/{other}"}
    assert both.job(other).user == OTHER
    assert both.job(ours).user == "root"


def test_a_name_made_to_confuse_confuses_nothing(slurm: Slurm, watch: Polling) -> None:
    name = "a|b #c |# d\n|318cde#9|318cde#9 $(id) 'f' [red]\x1b[31m" + "x" * 60
    nasty = slurm.submit("sleep 600", "-J", name)
    plain = slurm.submit("sleep 600", "-J", "plain")
    slurm.wait_for_state(nasty, "RUNNING")
    watch.look()
    assert still_there(watch) == {f"lab/{nasty}", f"lab/{plain}"}
    assert watch.job(plain).name == "plain"
    assert watch.job(nasty).state == "RUNNING"
    assert "\x1b" not in watch.job(nasty).name
    assert "\n" not in watch.job(nasty).name
    assert watch.job(nasty).stdout == str(slurm.log(nasty))


def test_a_drained_node_and_a_lost_gpu_have_reasons(slurm: Slurm, watching: Watching) -> None:
    watch = watching(nodes=slurm.nodes)
    slurm.drain("gpu-2", "NHC: nv_health: GPU 3 has pending page retirements")
    slurm.count_gpus("gpu-4", 7)
    slurm.wait_for(lambda: slurm.node("gpu-4") not in ("idle", "unknown"), what="the controller sees the lost GPU")
    watch.look()
    drained, lost = watch.node("gpu-2"), watch.node("gpu-4")
    assert (drained.is_drained, drained.is_usable, drained.reason_by) == (True, False, "root")
    assert drained.reason == "NHC: nv_health: GPU 3 has pending page retirements"
    assert (lost.is_usable, lost.lost_gpus) == (False, 1)
    assert watch.node("gpu-1").is_usable
    slurm.count_gpus("gpu-4", 8)


# ---- silence --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["stopped", "frozen", "munge"])
def test_a_silent_controller_is_not_knowing_and_no_job_is_gone(slurm: Slurm, watch: Polling, how: str) -> None:
    job_id = slurm.submit("sleep 600")
    slurm.wait_for_state(job_id, "RUNNING")
    watch.look()
    silence, answer = {
        "stopped": (slurm.stop_controller, slurm.start_controller),
        "frozen": (slurm.freeze_controller, slurm.thaw_controller),
        "munge": (slurm.stop_munge, slurm.start_munge),
    }[how]
    silence()
    try:
        watch.look()
        assert watch.source.phase == "retrying"
        assert watch.source.error
        assert (watch.job(job_id).stage, watch.job(job_id).gone_at) == ("running", None)
    finally:
        answer()
    watch.until(lambda: watch.source.phase == "up", "it answers again")
    assert watch.source.error is None
    assert watch.job(job_id).stage == "running"


def test_a_job_that_the_controller_has_forgotten_is_gone_and_not_ended(slurm: Slurm, watch: Polling) -> None:
    job_id = slurm.submit("sleep 600")
    slurm.wait_for_state(job_id, "RUNNING")
    watch.look()
    slurm.stop_controller()
    slurm.start_controller(forgetting=True)
    watch.look()
    assert watch.job(job_id).gone_at is not None
    assert watch.job(job_id).stage == "running"
    assert watch.source.health == "ok"
    assert watch.state.clusters["lab"].accounting is False


def test_details_of_all_jobs_come_from_one_process_whatever_their_names_are(slurm: Slurm, watch: Polling) -> None:
    ids = [
        slurm.submit("sleep 600", "-N1", "-J", "a\nscontrol: show job 1"),
        slurm.submit("sleep 600", "--hold", "-J", "JobId=1 JobName=c"),
        slurm.submit("true", "-N1", "-J", "d"),
    ]
    slurm.wait_for_state(ids[-1], "COMPLETED")
    watch.look()
    for job_id in ids:
        job = watch.job(job_id)
        assert (job.stdout, job.restarts, job.batch) == (str(slurm.log(job_id)), 0, True), job
    assert watch.state.clusters["lab"].is_polled
