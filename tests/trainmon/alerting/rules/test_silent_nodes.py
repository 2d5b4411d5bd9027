"""Every rule of GPUs and nodes: a node that falls silent resolves nothing, and a cluster that is well says nothing."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.trainmon.alerting.rules.asked import findings
from tests.trainmon.alerting.rules.node_scene import IDLE, NOW, Scene, facts, slurm
from trainmon.alerting.rules import GPUS, NODES
from trainmon.model import GpuSample, GpuSamples, HostSample, SourceRemoved

ALL = {rule.name: rule for rule in (*GPUS, *NODES)}


def _troubles() -> Iterator[tuple[str, Callable[[Scene], Scene]]]:
    """What makes each rule find something on n1: the test of each rule says it."""
    for file in sorted(Path(__file__).parent.glob("*/test_*.py")):
        if file.parent.name in ("gpus", "nodes"):
            module = importlib.import_module(f"{__package__}.{file.parent.name}.{file.stem}")
            yield from getattr(module, "TROUBLE", {}).items()


TROUBLE = dict(_troubles())
"""Those that stay true in silence, and those of Slurm's words, are below."""


@pytest.mark.parametrize("name", TROUBLE)
def test_a_node_that_falls_silent_resolves_nothing(name: str) -> None:
    scene, rule = TROUBLE[name](Scene().runs()), ALL[name]()
    found = findings(rule, scene.state, scene.now)
    assert found, f"{name} finds nothing"
    assert {finding.node for finding in found} == {"n1"}
    scene.lost()
    late = 3_600.0 if name == "infiniband-flapping" else 30.0
    scene.nodes = tuple(node for node in scene.nodes if f"node:{node}" in scene.state.sources)
    scene.silent(late)
    still = {finding.subject for finding in findings(rule, scene.state, scene.now)}
    for finding in found:
        assert finding.subject in still or scene.why_unknown(rule, finding), f"{name}: {finding.subject} reads as over"
    scene.reduce(SourceRemoved("node:n1"))
    for finding in found:
        assert scene.why_unknown(rule, finding), f"{name}: a node that is watched no more reads as well"


def test_every_rule_has_its_trouble_here_or_is_no_word_of_a_probe() -> None:
    assert set(ALL) - set(TROUBLE) == {
        "xid",
        "node-unreachable",
        "node-rebooted",
        "oom-kill",
        "node-drained",
        "spares-few",
    }


def test_a_cluster_of_256_well_nodes_says_nothing() -> None:
    names = tuple(f"n{number}" for number in range(1, 257))
    scene = Scene(*names).runs()
    assert sum(len(node.gpus) for node in scene.state.nodes.values()) == 2_048
    for name, rule in ALL.items():
        assert findings(rule(), scene.state, scene.now) == [], name


def test_a_state_in_which_nothing_is_known_says_nothing() -> None:
    empty = type(Scene().state)()
    for rule in ALL.values():
        assert findings(rule(), empty, NOW) == []


def test_a_node_of_which_little_is_known_says_nothing() -> None:
    """A driver that refuses every number, and a host that tells none."""
    bare = GpuSamples(1, NOW, tuple(GpuSample(index) for index in range(8)))
    scene = Scene("n2").say("n1", bare, HostSample(1, NOW)).scheduler(slurm("n1"), slurm("n2"))
    for name, rule in ALL.items():
        assert scene.found(rule()) == {}, name


def test_idle_nodes_without_a_job_say_nothing() -> None:
    rows = GpuSamples(1, NOW, tuple(GpuSample(index, **IDLE) for index in range(8)))
    bare = facts(NOW)
    bare = replace(bare, g=tuple(replace(fact, processes=()) for fact in bare.g))
    scene = Scene("n1").say("n1", bare, rows).scheduler(slurm("n1", "IDLE"))
    for name, rule in ALL.items():
        assert scene.found(rule()) == {}, name
