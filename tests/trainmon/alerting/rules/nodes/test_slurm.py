"""What the scheduler says of nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.rules.node_scene import NOW, Scene, slurm
from trainmon.alerting.rules.gpus.faults import GpuMissing
from trainmon.alerting.rules.nodes import NodeDrained, SparesFew
from trainmon.model import Cluster, ClustersChanged, Finding, SchedulerNode, Source, SourceChanged
from trainmon.slurm.parse import read_nodes

CAPTURED = Path(__file__).parents[4] / "captured" / "slurm-22.05"
DRAINED, SPARES = NodeDrained(), SparesFew()
DAY = 86_400.0


def only(found: dict[str, Finding], subject: str = "node:n1") -> Finding:
    assert list(found) == [subject]
    return found[subject]


def scene_of(node: SchedulerNode, *, run: bool = True) -> Scene:
    scene = Scene().runs() if run else Scene()
    return scene.scheduler(node, slurm("n2"))


def down(scene: Scene) -> Scene:
    """Slurm does not answer."""
    lost = Source(name="slurm:prod", kind="slurm", cluster="prod", phase="retrying", error="no answer from slurmctld")
    return scene.reduce(SourceChanged(lost))


PLANNED = (
    slurm("n1"),
    slurm("n1", "IDLE"),
    slurm("n1", "MIXED", "PLANNED"),
    slurm("n1", "IDLE", "MAINTENANCE"),
    slurm("n1", "IDLE", "POWERED_DOWN"),
    slurm("n1", "DOWN", "POWERED_DOWN"),
    slurm("n1", "IDLE", "DRAIN", "REBOOT_ISSUED"),
)


@pytest.mark.parametrize("node", PLANNED)
def test_nodes_that_work_or_are_planned_away_say_nothing(node: SchedulerNode) -> None:
    assert scene_of(node).found(DRAINED) == {}


def test_a_drained_node_of_a_run_is_a_warning_with_its_reason() -> None:
    reason = "gres/gpu count reported lower than configured (7 < 8)"
    node = slurm("n1", "ALLOCATED", "DRAIN", reason=reason, reason_by="slurm", reason_at=NOW - 600)
    finding = only(scene_of(node).found(DRAINED))
    assert (finding.severity, finding.run, finding.sources) == ("warning", "llm", ("slurm:prod",))
    assert finding.summary == f"Slurm drains n1 (for 10m): {reason} (by slurm)"
    assert "queue another job (N)" in finding.advice
    assert finding.evidence == (f"ALLOCATED+DRAIN {reason}",)


@pytest.mark.parametrize(
    ("node", "words"),
    [(slurm("n1", "DOWN"), "has marked n1 down"),
     (slurm("n1", "DOWN", "DRAIN", "NOT_RESPONDING"), "has marked n1 down"),
     (slurm("n1", "ALLOCATED", "FAIL"), "has marked n1 failing"),
     (slurm("n1", "ALLOCATED", "NOT_RESPONDING"), "gets no answer from n1")],
)  # fmt: skip
def test_a_node_that_is_down_or_failing_under_a_run_is_critical(node: SchedulerNode, words: str) -> None:
    finding = only(scene_of(node).found(DRAINED))
    assert finding.severity == "critical"
    assert words in finding.summary


def test_a_ping_of_slurms_that_is_missed_once_wakes_nobody_and_what_it_has_decided_waits_for_nothing() -> None:
    assert DRAINED.for_ >= 300
    assert not only(scene_of(slurm("n1", "ALLOCATED", "NOT_RESPONDING")).found(DRAINED)).fires_at_once
    for node in (slurm("n1", "DOWN", "NOT_RESPONDING"), slurm("n1", "ALLOCATED", "DRAIN")):
        assert only(scene_of(node).found(DRAINED)).fires_at_once


def test_a_watched_node_of_no_run_is_a_warning_and_after_a_day_an_information() -> None:
    assert only(scene_of(slurm("n1", "DOWN", reason_at=NOW - 60), run=False).found(DRAINED)).severity == "warning"
    old = slurm("n1", "IDLE", "DRAIN", reason_at=NOW - 2 * DAY)
    assert only(scene_of(old, run=False).found(DRAINED)).severity == "info"


def test_a_node_that_we_drained_ourselves_is_an_information() -> None:
    node = slurm("n1", "ALLOCATED", "DRAIN", reason="bad fan", reason_by="ana", reason_at=NOW)
    scene = scene_of(node)
    assert not only(scene.found(DRAINED)).person
    scene.reduce(ClustersChanged((Cluster(name="prod", login="login", me="ana"),)))
    assert only(scene.found(DRAINED)).person


def test_a_node_that_nobody_watches_is_not_reported() -> None:
    scene = Scene().runs().scheduler(slurm("n1"), slurm("n2"), slurm("far", "DOWN"))
    assert scene.found(DRAINED) == {}


def test_a_scheduler_that_is_silent_resolves_nothing() -> None:
    scene = scene_of(slurm("n1", "DOWN"))
    finding = only(scene.found(DRAINED))
    down(scene)
    assert scene.found(DRAINED) == {}
    assert scene.why_unknown(DRAINED, finding) == "slurm:prod: no answer from slurmctld"
    scene.scheduler(slurm("n2"))
    assert scene.why_unknown(DRAINED, finding) == "Slurm no longer lists n1"
    scene.scheduler(slurm("n1"), slurm("n2"))
    assert scene.why_unknown(DRAINED, finding) is None


@pytest.mark.parametrize("file", ["nodes.txt", "nodes-lost-gpu.txt"])
def test_what_a_real_slurm_says_of_sick_nodes(file: str) -> None:
    """gpu-1 is drained by a person and gpu-4 lacks a GPU; in the first file gpu-3 is down."""
    scene_of = read_nodes((CAPTURED / file).read_text(), "prod")
    scene = Scene(*(node.name for node in scene_of)).scheduler(*scene_of)
    words = {finding.subject: finding.summary for finding in scene.found(DRAINED).values()}
    down = {"node:gpu-3"} if file == "nodes.txt" else set()
    assert set(words) == {"node:gpu-1", "node:gpu-4"} | down
    assert words["node:gpu-1"].startswith("Slurm drains gpu-1")
    assert words["node:gpu-1"].endswith("GPU 3 has 12 pending page retirements; ask <ops> [red] (by root)")
    assert not down or words["node:gpu-3"].startswith("Slurm has marked gpu-3 down")
    missing = scene.found(GpuMissing())
    assert [finding.summary for finding in missing.values()] == ["1 GPU of gpu-4 missing, according to Slurm"]


# ---- spares ----------------------------------------------------------------------------------------------------------


def with_spares(*idle: str, wanted: int = 2) -> Scene:
    drained = slurm("n9", "IDLE", "DRAIN", reason="NHC: no fan")
    nodes = [slurm(name) for name in ("n1", "n2")] + [slurm(name, "IDLE") for name in idle] + [drained]
    return Scene().runs().scheduler(*nodes, spares=wanted)


def test_too_few_healthy_spares_are_reported() -> None:
    finding = only(with_spares("n3").found(SPARES), "cluster:prod")
    assert (finding.severity, finding.sources) == ("warning", ("slurm:prod",))
    assert finding.summary == "prod has 1 healthy spare node, but 2 are wanted; 1 drained"
    assert finding.evidence == ("n9: NHC: no fan",)


def test_enough_spares_or_none_wanted_say_nothing() -> None:
    assert with_spares("n3", "n4").found(SPARES) == {}
    assert with_spares(wanted=0).found(SPARES) == {}


def test_an_idle_node_with_a_lost_gpu_is_no_healthy_spare() -> None:
    scene = with_spares("n3", "n4").well("n4")
    assert scene.found(SPARES) == {}
    node = scene.state.nodes["n4"]
    sick = replace(node, gpus=(replace(node.gpus[0], state="lost"), *node.gpus[1:]))
    scene.state = replace(scene.state, nodes={**scene.state.nodes, "n4": sick})
    assert list(scene.found(SPARES)) == ["cluster:prod"]


def test_spares_that_are_not_reported_are_not_enough() -> None:
    scene = with_spares("n3")
    finding = only(scene.found(SPARES), "cluster:prod")
    down(scene)
    assert scene.found(SPARES) == {}
    assert scene.why_unknown(SPARES, finding) == "slurm:prod: no answer from slurmctld"
    scene.scheduler(spares=2)
    assert scene.why_unknown(SPARES, finding) == "Slurm does not report the idle nodes of prod"
    assert with_spares("n3", "n4").why_unknown(SPARES, finding) is None
