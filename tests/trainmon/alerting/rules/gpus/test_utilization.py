"""GPUs that are used too much, too little, or by nobody who should."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.rules.node_scene import IDLE, NOW, PYTHON, SPEC, Scene, facts, job, samples, slurm
from trainmon.alerting.rules.gpus.thermal import GpuIdle, GpuLeftover, GpuMemoryFull
from trainmon.model import (
    Finding,
    GpuFacts,
    GpuFactsAll,
    GpuSample,
    GpuSamples,
    Process,
    RunsChanged,
    SourceRemoved,
    State,
)

FULL, UNUSED, LEFT = GpuMemoryFull(), GpuIdle(), GpuLeftover()


def leave(scene: Scene) -> Scene:
    """No job is on n1 any more, and its GPUs are in use."""
    scene.reduce(SourceRemoved("node:n2"))
    scene.state = replace(scene.state, runs={}, jobs={})
    return scene.scheduler(slurm("n1", "IDLE"))


TROUBLE = {
    "gpu-memory-full": lambda scene: scene.say("n1", samples(scene.now, memory_used_mib=81_500)),
    "gpu-idle": lambda scene: scene.say("n1", samples(scene.now, utilization_pct=0)).steps(),
    "gpu-leftover": leave,
}
"""What makes each rule find something on n1, which then falls silent: see test_silent_nodes."""


def only(found: dict[str, Finding]) -> Finding:
    assert list(found) == ["gpu:n1/3"]
    return found["gpu:n1/3"]


def with_verdict(scene: Scene, verdict: Any, why: str = "as the test says") -> Scene:
    run = replace(scene.state.runs["llm"], verdict=verdict, why=why)
    scene.state = replace(scene.state, runs={"llm": run})
    return scene


# ---- full ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("used", "severity"), [(79_500, None), (80_000, "info"), (81_300, "warning")])
def test_the_last_of_its_memory_is_reported(used: int, severity: str | None) -> None:
    found = Scene().runs().say("n1", samples(NOW, memory_used_mib=used)).found(FULL)
    assert [finding.severity for finding in found.values()] == ([severity] if severity else [])


def test_full_memory_names_who_holds_it() -> None:
    scene = Scene().runs().say("n1", samples(NOW, memory_used_mib=81_300))
    finding = only(scene.found(FULL))
    assert finding.summary == "GPU 3 of n1 has 259 MiB of 80 GiB left"
    assert finding.evidence == ("python train.py: 68 GiB",)
    scene.say("n1", samples(NOW, memory_used_mib=None))
    assert scene.why_unknown(FULL, finding) == "GPU 3 does not report its memory"
    scene.say("n1", samples(NOW))
    assert scene.why_unknown(FULL, finding) is None


# ---- idle ------------------------------------------------------------------------------------------------------------


def idle(**changes: Any) -> Scene:
    """A run that trains, and GPU 3 of n1 that does nothing though it holds memory."""
    scene = Scene().runs().after(4.0).steps()
    assert scene.state.runs["llm"].verdict == "healthy"
    return scene.say("n1", samples(scene.now, **{"utilization_pct": 0, "power_w": 120.0} | changes))


def test_busy_gpus_say_nothing() -> None:
    assert Scene().runs().found(UNUSED) == {}


def test_an_idle_gpu_inside_a_run_that_trains_is_reported() -> None:
    finding = only(idle().found(UNUSED))
    assert (finding.severity, finding.run, UNUSED.for_) == ("warning", "llm", 600.0)
    assert finding.summary == "GPU 3 of n1 is idle (0%, 120 W) while llm trains; it holds 68 GiB"
    assert finding.evidence[-1] == "pid 7: python train.py"


def test_a_gpu_that_was_let_go_in_this_job_is_reported_too() -> None:
    scene = idle(**IDLE).say("n1", facts(NOW + 4, processes=()))
    assert "it has released its memory" in only(scene.found(UNUSED)).summary


def test_a_gpu_that_the_job_never_used_is_not_its_own() -> None:
    scene = Scene().runs(job(started_at=NOW + 60.0))
    scene.say("n1", samples(NOW, **IDLE), facts(NOW, processes=()))
    scene.after(90.0).well("n2").say("n1", samples(scene.now, **IDLE)).steps()
    assert scene.found(UNUSED) == {}


def never_used(gpus: int | None) -> Scene:
    """GPU 3 of n1 is empty since before the job, which holds so many GPUs on both nodes."""
    scene = Scene().runs(job(started_at=NOW + 60.0, gpus=gpus))
    scene.say("n1", samples(NOW, **IDLE), facts(NOW, processes=()))
    return scene.after(90.0).well("n2").say("n1", samples(scene.now, **IDLE)).steps()


@pytest.mark.parametrize("gpus", [None, 8, 15])
def test_where_the_job_has_not_all_gpus_of_its_nodes_one_that_was_never_used_may_be_anothers(gpus: int | None) -> None:
    assert never_used(gpus).found(UNUSED) == {}


def test_a_rank_that_died_at_its_start_is_reported_where_the_job_has_all_gpus_of_its_nodes() -> None:
    finding = only(never_used(16).found(UNUSED))
    assert finding.summary.endswith("while llm trains; it is allocated to the job and holds no memory")
    other = Process(pid=9, user="lea", memory_mib=70_000, command="sleep")
    assert never_used(16).say("n1", facts(NOW + 90.0, processes=(other,))).found(UNUSED) == {}


def test_a_restart_of_this_program_does_not_resolve_a_gpu_that_was_let_go_of_before() -> None:
    finding = only(idle(**IDLE).say("n1", facts(NOW + 4, processes=())).found(UNUSED))
    anew = Scene()
    anew.state = State(started_at=NOW + 100.0)
    anew.well("n2").say("n1", samples(NOW, **IDLE), facts(NOW, processes=())).runs()
    assert anew.found(UNUSED) == {}
    words = "GPU 3 is still idle; it released its memory before this program started"
    assert anew.why_unknown(UNUSED, finding) == words
    assert anew.say("n1", samples(anew.now)).why_unknown(UNUSED, finding) is None


def test_a_gpu_that_another_user_holds_is_not_its_own() -> None:
    other = Process(pid=9, user="lea", memory_mib=70_000, command="sleep")
    assert idle().say("n1", facts(NOW + 4, processes=(other,))).found(UNUSED) == {}


@pytest.mark.parametrize(
    "verdict", ["starting", "saving", "evaluating", "stopped", "finished", "dead", "queued", "hung", "data-stall"]
)
def test_gpus_of_a_run_that_does_not_step_may_be_idle(verdict: str) -> None:
    assert with_verdict(idle(), verdict).found(UNUSED) == {}


def test_without_a_running_job_no_gpu_is_idle() -> None:
    scene = Scene().runs(job(state="PENDING", started_at=None)).say("n1", samples(NOW, utilization_pct=0))
    assert with_verdict(scene, "healthy").found(UNUSED) == {}


def test_a_run_between_steps_has_idle_gpus_for_a_reason_and_nothing_is_over_by_it() -> None:
    scene = idle()
    finding = only(scene.found(UNUSED))
    scene.after(120.0).well("n2").say("n1", samples(scene.now, utilization_pct=0))
    assert scene.found(UNUSED) == {}
    assert (scene.why_unknown(UNUSED, finding) or "").startswith("llm: step 1,003, 2m ago")


def test_a_save_in_between_does_not_resolve_an_idle_gpu_and_the_end_of_its_run_does() -> None:
    scene = idle()
    finding = only(scene.found(UNUSED))
    assert scene.why_unknown(UNUSED, finding) is None
    assert with_verdict(scene, "saving", "saving for 12s").why_unknown(UNUSED, finding) == "llm: saving for 12s"
    assert with_verdict(scene, "stopped").why_unknown(UNUSED, finding) is None
    scene.reduce(RunsChanged(()))
    assert scene.why_unknown(UNUSED, finding) == "the run llm is no longer watched"


def test_a_gpu_that_works_again_is_over() -> None:
    scene = idle()
    finding = only(scene.found(UNUSED))
    scene.say("n1", samples(scene.now))
    assert scene.found(UNUSED) == {}
    assert scene.why_unknown(UNUSED, finding) is None
    scene.say("n1", samples(scene.now, utilization_pct=None))
    assert scene.why_unknown(UNUSED, finding) == "GPU 3 does not report its utilization"


# ---- left over -------------------------------------------------------------------------------------------------------


def left(state: str = "IDLE", *flags: str, memory: int = 40_000, processes: tuple[Process, ...] = (PYTHON,)) -> Scene:
    """No run, n1 as Slurm says, and memory in use on its GPU 3 alone."""
    scene = Scene("n1").scheduler(slurm("n1", state, *flags))
    odd = {"memory_used_mib": memory, "utilization_pct": 0}
    rows = tuple(GpuSample(index, **(IDLE | odd if index == 3 else IDLE)) for index in range(8))
    result = tuple(GpuFacts(index, processes=processes if index == 3 else ()) for index in range(8))
    return scene.say("n1", GpuFactsAll(1, NOW, result, 8), GpuSamples(1, NOW, rows))


def left_on_n1(scene: Scene) -> Finding:
    found = scene.found(LEFT)
    assert list(found) == ["node:n1"]
    return found["node:n1"]


def test_what_an_ended_job_left_on_an_idle_node_is_reported_with_its_owner() -> None:
    finding = left_on_n1(left())
    assert (finding.severity, finding.sources) == ("warning", ("node:n1", "slurm:prod"))
    assert finding.summary == "GPU 3 of n1 holds 39 GiB, by 1 process, although Slurm has no job there"
    assert finding.evidence == ("GPU 3: pid 7 of ana: 68 GiB, python train.py",)


def test_leftovers_on_all_gpus_of_two_nodes_are_one_row_for_each_node() -> None:
    scene = Scene().scheduler(slurm("n1", "IDLE"), slurm("n2", "IDLE"))
    found = scene.found(LEFT)
    assert list(found) == ["node:n1", "node:n2"]
    assert found["node:n1"].summary == (
        "GPUs 0, 1, 2, 3, 4, 5, 6, 7 of n1 hold 547 GiB, by 1 process, although Slurm has no job there"
    )
    assert found["node:n1"].evidence[7] == "GPU 7: pid 7 of ana: 68 GiB, python train.py"


def test_memory_that_no_process_holds_is_left_over_too() -> None:
    finding = left_on_n1(left(processes=()))
    assert finding.evidence == ("no visible process holds it",)


def test_what_the_driver_and_monitors_keep_is_not_left_over() -> None:
    monitor = Process(pid=3, user="root", memory_mib=40, command="dcgm")
    assert left(memory=900, processes=(monitor,)).found(LEFT) == {}


@pytest.mark.parametrize(
    ("state", "flags"),
    [("ALLOCATED", ()), ("MIXED", ()), ("IDLE", ("COMPLETING",)), ("IDLE", ("NOT_RESPONDING",)), ("DOWN", ())],
)
def test_where_slurm_does_not_say_that_no_job_is_there_nothing_is_left_over(state: str, flags: tuple[str, ...]) -> None:
    assert left(state, *flags).found(LEFT) == {}


def test_where_nobody_reports_jobs_nothing_is_left_over() -> None:
    assert Scene("n1").found(LEFT) == {}


def test_a_drained_idle_node_has_no_job() -> None:
    assert list(left("IDLE", "DRAIN").found(LEFT)) == ["node:n1"]


def test_a_job_that_has_just_begun_there_is_one() -> None:
    scene = Scene("n1").runs(job(nodes=("n1",))).scheduler(slurm("n1", "IDLE"))
    assert with_verdict(scene, "queued").found(LEFT) == {}


def test_a_run_by_hand_beside_the_scheduler_is_no_left_over() -> None:
    scene = Scene("n1").runs(job(state="FAILED", nodes=())).scheduler(slurm("n1", "IDLE"))
    assert with_verdict(scene, "healthy").found(LEFT) == {}


def test_without_slurm_the_runs_of_the_config_decide() -> None:
    scene = Scene("n1").reduce(RunsChanged((replace(SPEC, nodes=("n1",)),)))
    assert with_verdict(scene, "healthy").found(LEFT) == {}
    found = with_verdict(scene, "stopped").found(LEFT)
    assert list(found) == ["node:n1"]
    assert found["node:n1"].summary.endswith("though llm is stopped")


def test_left_overs_are_over_when_they_are_gone_or_a_job_comes() -> None:
    scene = left()
    finding = left_on_n1(scene)
    scene.say("n1", samples(NOW, odd=3, **IDLE), facts(NOW, processes=()))
    scene.scheduler(slurm("n1", "ALLOCATED"))
    assert scene.found(LEFT) == {}
    assert scene.why_unknown(LEFT, finding) is None
