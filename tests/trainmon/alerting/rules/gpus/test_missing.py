"""Nodes that should have GPUs, and of which none can be read."""

from __future__ import annotations

from typing import Any

import pytest

from tests.trainmon.alerting.rules.node_scene import NOW, Scene, facts, host, job, samples, slurm
from trainmon.alerting.rules.gpus.faults import GpuMissing
from trainmon.model import Finding, GpuFactsAll, Hello, SchedulerNode, State, Trouble, says

MISSING = GpuMissing()
MISMATCH = "NVML: Driver/library version mismatch"
EIGHT = {"gres": "gpu:a100:8(S:0-1)"}


def greeted(probe: Any = "none", note: str | None = None, *, on_the_bus: int | None = None, **more: Any) -> Scene:
    """n1 was never seen well: it has greeted, and lists no GPU."""
    scene = Scene("n2")
    scene.state = State()
    scene.say("n1", Hello(1, NOW, "n1", probe=probe, note=note, **more), host(NOW))
    return scene if on_the_bus is None else scene.say("n1", GpuFactsAll(1, NOW, (), on_the_bus))


def only(scene: Scene) -> Finding:
    found = scene.found(MISSING)
    assert list(found) == ["node:n1"]
    return found["node:n1"]


@pytest.mark.parametrize(
    ("scene", "listed", "words"),
    [
        (greeted("none", MISMATCH), slurm("n1", "IDLE", **EIGHT),
         "Slurm counts gpu:8, NVML lists none: Driver/library version mismatch"),
        (greeted("nvml", on_the_bus=0), slurm("n1", "MIXED", **EIGHT), "Slurm counts gpu:8, NVML lists none"),
        (greeted("nvml", on_the_bus=8), None, "its PCI bus shows 8, NVML lists none"),
        (greeted("none", "NVML: Driver Not Loaded", on_the_bus=8), slurm("n1", "IDLE", **EIGHT),
         "Slurm counts gpu:8, its PCI bus shows 8, NVML lists none: Driver Not Loaded"),
        (greeted("none"), slurm("n1", **EIGHT),
         "Slurm counts gpu:8, and there is neither NVML nor nvidia-smi: is the driver installed?"),
        (greeted("sh", on_the_bus=4), None,
         "its PCI bus shows 4, and there is neither NVML nor nvidia-smi: is the driver installed?"),
        (greeted("nvidia-smi", on_the_bus=4).say("n1", Trouble(1, NOW, "gpu", "No devices were found")), None,
         "its PCI bus shows 4, nvidia-smi lists none: No devices were found"),
        (greeted("nvml", "NVML: no answer for 31s"), None, "NVML: no answer for 31s"),
        (greeted("none", "8 AMD GPUs, but no amdgpu: is the driver loaded?", on_the_bus=8), None,
         "its PCI bus shows 8, and there are 8 AMD GPUs, but no amdgpu: is the driver loaded?"),
    ],
)  # fmt: skip
def test_a_gpu_node_that_was_never_seen_with_gpus_is_critical(
    scene: Scene, listed: SchedulerNode | None, words: str
) -> None:
    finding = only(scene.scheduler(listed) if listed is not None else scene)
    assert (finding.severity, finding.summary) == ("critical", f"no GPU of n1 can be read: {words}")
    assert MISSING.for_ < 60


@pytest.mark.parametrize("probe", ["nvml", "nvidia-smi"])
def test_a_node_whose_gpus_were_not_read_since_it_was_connected_misses_none(probe: Any) -> None:
    first = greeted(probe).scheduler(slurm("n1", **EIGHT))
    assert first.found(MISSING) == {}, "its first reading has not come yet"
    again = Scene("n1").after(300.0)
    again.say("n1", Hello(1, again.now, "n1", probe=probe), host(again.now))
    assert again.found(MISSING) == {}, "nor has its first one since it was connected again"
    said = Trouble(1, NOW, "gpu", "No devices were found") if probe == "nvidia-smi" else GpuFactsAll(1, NOW, (), 0)
    assert list(first.say("n1", said).found(MISSING)) == ["node:n1"]
    assert list(again.say("n1", said).found(MISSING)) == ["node:n1"]


def test_gpus_that_are_listed_and_whose_first_numbers_are_still_on_their_way_are_not_missing() -> None:
    assert greeted("nvml").say("n1", facts(NOW)).found(MISSING) == {}


@pytest.mark.parametrize("note", [None, "NVML: Driver Not Loaded", "NVML: Insufficient Permissions"])
@pytest.mark.parametrize("listed", [None, slurm("n1", "IDLE"), slurm("n1", "IDLE", gres="nvme:2")])
def test_a_login_host_or_a_cpu_node_misses_none(note: str | None, listed: SchedulerNode | None) -> None:
    scene = greeted("none", note)
    assert (scene.scheduler(listed) if listed is not None else scene).found(MISSING) == {}


@pytest.mark.parametrize("flags", [("DRAIN",), ("MAINTENANCE",), ("REBOOT_ISSUED",)])
def test_where_slurm_starts_nothing_it_is_a_warning(flags: tuple[str, ...]) -> None:
    listed = slurm("n1", "IDLE", *flags, reason="the driver is being installed", **EIGHT)
    assert only(greeted("none", on_the_bus=8).scheduler(listed)).severity == "warning"


def test_under_a_run_a_drained_node_without_gpus_is_critical() -> None:
    scene = Scene().runs()
    scene.after(60.0).say("n1", Hello(1, scene.now, "n1", probe="none", note="NVML: Driver Not Loaded"))
    assert only(scene.scheduler(slurm("n1", "ALLOCATED", "DRAIN", **EIGHT))).severity == "critical"


def test_a_driver_that_was_updated_under_a_run_that_goes_on_is_a_warning() -> None:
    scene = Scene().runs().after(30.0).steps()
    scene.say("n1", Hello(1, scene.now, "n1", probe="none", note=MISMATCH))
    assert only(scene.scheduler(slurm("n1", **EIGHT))).severity == "warning"


def test_gpus_that_jobs_may_reach_and_we_may_not_are_a_warning() -> None:
    assert only(greeted("none", "NVML: Insufficient Permissions", on_the_bus=8)).severity == "warning"


def test_a_session_in_a_jobs_cgroup_is_shown_the_gpus_of_that_job_alone() -> None:
    scene = greeted("nvml", on_the_bus=0, confined=True).scheduler(slurm("n1", **EIGHT))
    assert scene.found(MISSING) == {}
    without = greeted("nvml", on_the_bus=0, confined=True).runs(job(gpus=0)).scheduler(slurm("n1", **EIGHT))
    assert without.found(MISSING) == {}
    holds = greeted("nvml", on_the_bus=0, confined=True).runs(job(gpus=16)).scheduler(slurm("n1", **EIGHT))
    assert only(holds).severity == "critical"


def test_gpus_that_a_step_of_the_job_does_not_see_are_not_missing() -> None:
    note = "NVML shows no GPU here: a cgroup hides the 8 GPUs of this node"
    scene = greeted("nvml", note, confined=True).runs(job(gpus=16)).scheduler(slurm("n1", **EIGHT))
    assert scene.found(MISSING) == {}


def test_a_node_that_lost_all_its_gpus_over_a_reboot_lists_none_whatever_it_listed_before() -> None:
    scene = Scene("n1").after(300.0)
    scene.say("n1", Hello(1, scene.now, "n1", probe="none"), host(scene.now))
    finding = only(scene)
    assert finding.severity == "critical"
    assert finding.summary.startswith("no GPU of n1 can be read: it listed 8 before, and there is neither")
    scene.say("n1", Hello(1, scene.now, "n1", probe="nvml"), facts(scene.now), samples(scene.now))
    assert scene.found(MISSING) == {}
    assert scene.why_unknown(MISSING, finding) is None


def test_it_is_not_over_because_nobody_says_any_more_that_there_should_be_gpus() -> None:
    scene = greeted("nvml", on_the_bus=8)
    finding = only(scene)
    scene.after(60.0).say("n1", Hello(1, scene.now, "n1", probe="nvml"), host(scene.now))
    assert scene.found(MISSING) == {}
    assert scene.why_unknown(MISSING, finding) == "n1 still lists no GPU"
    scene.scheduler(slurm("n1", "IDLE"))
    assert scene.why_unknown(MISSING, finding) is None, "Slurm says that it has none"


def test_nvml_fails_if_the_note_begins_with_it() -> None:
    assert says("NVML: Unknown Error", "nvml-fails")
    assert not says("Failed to initialize NVML: Unknown Error", "nvml-fails"), "nvidia-smi says that"
    assert not says(None, "missing")
