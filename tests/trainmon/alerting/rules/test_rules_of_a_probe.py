"""The real probe on a stand-in for the driver's library, and what the rules find in what it says."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.lab.nvml import GPU_IS_LOST, RESET_REQUIRED, VERSION_MISMATCH, Nvml
from tests.lab.probe import RunningProbe, until
from trainmon.alerting.rules import GPUS
from trainmon.alerting.rules.base import evaluate
from trainmon.engine.reducers.reduce import reduce
from trainmon.model import (
    Event,
    Finding,
    GpuFactsAll,
    GpuSamples,
    Hello,
    HostSample,
    NodeReading,
    SchedulerNode,
    SchedulerNodesListed,
    State,
    Xid,
)

RULES = tuple(rule() for rule in GPUS)
"""Those of nodes would judge the very machine that tests."""

BRAKE = 0x8 | 0x80


@pytest.fixture
def nvml(tmp_path: Path) -> Nvml:
    return Nvml(tmp_path)


def found(running: RunningProbe, *before: Event) -> dict[str, list[Finding]]:
    """What the rules find in all that a probe has said until now, by rule."""
    state = reduce(State(), before, 0.0)
    for reading in list(running.readings):
        state = reduce(state, [NodeReading("n1", "prod", reading.t, reading)], reading.t)
    by_rule: dict[str, list[Finding]] = {}
    for finding in evaluate(RULES, state, state.at).findings:
        by_rule.setdefault(finding.rule, []).append(finding)
    return by_rule


def probe(nvml: Nvml) -> RunningProbe:
    return RunningProbe(nvml.environment(), python=sys.executable)


def settle(running: RunningProbe) -> None:
    """Wait until all that is asked slowly was told anew."""
    running.wait_anew(GpuFactsAll)
    running.wait_anew(GpuFactsAll)
    running.wait_anew(GpuSamples, lambda line: len(line.g) == 8)


def test_a_well_node_has_nothing(nvml: Nvml) -> None:
    with probe(nvml) as running:
        running.wait(HostSample)
        settle(running)
        assert found(running) == {}


def test_a_node_that_crawls_cool_and_clean_under_its_power_brake(nvml: Nvml) -> None:
    nvml.set("*", temperature=34, margin=53, power=67_000, sm_clock=86, throttle=BRAKE, utilization=99)
    with probe(nvml) as running:
        settle(running)
        by_rule = found(running)
    assert list(by_rule) == ["power-brake"]
    assert [finding.severity for finding in by_rule["power-brake"]] == ["critical"] * 8
    assert "34 °C, 86 MHz, 67 W of 700 W" in by_rule["power-brake"][0].summary


def test_heat_memory_errors_rows_and_xids(nvml: Nvml) -> None:
    nvml.set(1, temperature=88, margin=-1, throttle=0x48)
    nvml.set(2, remap_failed=1)
    nvml.process(5, 1, 81_400)
    with probe(nvml) as running:
        settle(running)
        nvml.set(4, ecc_uncorrected=1).xid(4, 94).xid(6, 79)
        running.wait(Xid, lambda line: line.code == 79)
        settle(running)
        by_rule = found(running)
    subjects = {rule: [finding.subject for finding in findings] for rule, findings in by_rule.items()}
    assert subjects["gpu-hot"] == ["gpu:n1/1"]
    assert subjects["row-remap"] == ["gpu:n1/2"]
    assert subjects["ecc-uncorrected"] == ["gpu:n1/4"]
    assert sorted(subjects["xid"]) == ["gpu:n1/4 xid 94", "gpu:n1/6 xid 79"]
    assert by_rule["ecc-uncorrected"][0].severity == "critical", "it came while it was watched"
    assert {finding.subject: finding.severity for finding in by_rule["xid"]} == {
        "gpu:n1/4 xid 94": "warning",
        "gpu:n1/6 xid 79": "critical",
    }
    assert "gpu-lost" not in subjects


def test_a_lost_gpu_and_one_that_wants_a_reset(nvml: Nvml) -> None:
    with probe(nvml) as running:
        settle(running)
        nvml.error(3, "*", GPU_IS_LOST).error(5, "*", RESET_REQUIRED)
        running.wait_anew(GpuSamples, lambda line: any(row.lost for row in line.g))
        running.wait_anew(GpuSamples, lambda line: any(row.error and not row.lost for row in line.g))
        lost = {finding.subject: finding for finding in found(running)["gpu-lost"]}
    assert sorted(lost) == ["gpu:n1/3", "gpu:n1/5"]
    assert (lost["gpu:n1/3"].fires_at_once, lost["gpu:n1/5"].fires_at_once) == (True, False)
    assert lost["gpu:n1/3"].summary == "GPU 3 of n1 is lost, 6 of 8 GPUs respond"


def test_a_driver_that_lists_no_gpu_where_slurm_says_eight(nvml: Nvml) -> None:
    nvml.clear(gpus=0)
    listed = SchedulerNode(name="n1", cluster="prod", state="IDLE", gres="gpu:a100:8(S:0-1)")
    with probe(nvml) as running:
        running.wait(HostSample)
        assert found(running) == {}, "nothing says that it should have some"
        (missing,) = found(running, SchedulerNodesListed("prod", 0.0, (listed,)))["gpu-missing"]
    assert missing.severity == "critical"
    assert missing.summary == "no GPU of n1 can be read: Slurm counts gpu:8, NVML lists none"


def test_a_driver_that_was_updated_under_the_node(nvml: Nvml) -> None:
    nvml.error("*", "nvmlInitWithFlags", VERSION_MISMATCH)
    with probe(nvml) as running:
        running.wait(Hello, lambda line: line.note)
        until(lambda: "gpu-missing" in found(running))
        missing = found(running)["gpu-missing"]
    assert [finding.severity for finding in missing] == ["warning"]
    assert "Driver/library version mismatch" in missing[0].summary
