"""GPUs through NVML, in sickness and in health: the real pynvml text on the stand-in, through the whole probe."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab.nvml import (
    DRIVER_NOT_LOADED,
    GPU_IS_LOST,
    NO_PERMISSION,
    NOT_SUPPORTED,
    RESET_REQUIRED,
    UNKNOWN,
    VERSION_MISMATCH,
    Nvml,
)
from tests.lab.probe import RunningProbe, until
from trainmon.model import (
    GpuFacts,
    GpuFactsAll,
    GpuLinks,
    GpuSample,
    GpuSamples,
    Hello,
    HostSample,
    Xid,
    throttle_names,
)

TWO_POW_32, TWO_POW_63, TWO_POW_64 = 0xFFFFFFFF, (1 << 63) - 1, -1


@pytest.fixture
def nvml(tmp_path: Path) -> Nvml:
    return Nvml(tmp_path)


def probe(nvml: Nvml, **spec: Any) -> RunningProbe:
    return RunningProbe(nvml.environment(), python=sys.executable, **spec)


def whole(line: GpuSamples) -> bool:
    return len(line.g) == 8


def first(nvml: Nvml, **spec: Any) -> tuple[tuple[GpuSample, ...], tuple[GpuFacts, ...]]:
    """The first full samples and facts of a probe."""
    with probe(nvml, **{"slow": 0.1, **spec}) as running:
        return running.wait(GpuSamples, whole).g, settled(running)


def settled(running: RunningProbe) -> tuple[GpuFacts, ...]:
    """Its facts when they are the same twice: on a busy machine a round is told in parts."""
    found: list[tuple[GpuFacts, ...]] = []

    def is_again(line: GpuFactsAll) -> bool:
        found.append(line.g)
        return len(line.g) == 8 and line.g in found[:-1]

    return running.wait(GpuFactsAll, is_again).g


def test_every_number_is_read(nvml: Nvml) -> None:
    nvml.set(
        1, temperature=83, memory_temperature=91, margin=-2, memory_total=80 << 30, memory_used=(70 << 30) + 5,
        utilization=99, power=698_449, power_limit=650_000, sm_clock=1755, throttle=0x44, ecc_uncorrected=2,
        ecc_corrected=177, remap_pending=1, remap_failed=1, pcie_gen=4, pcie_width=8, pcie_replays=7, nvlinks_up=17,
        nvlink_errors=5_000_000_000,
    )  # fmt: skip
    samples, facts = first(nvml)
    assert samples[1] == GpuSample(1, None, False, 83, 91, 70 << 10, 99, 698.4, 1755, 0x44)
    assert throttle_names(samples[1].throttle_mask) == ("sw_power_cap", "hw_thermal")
    assert facts[1] == GpuFacts(
        index=1, uuid="GPU-00000000-0000-0000-0000-000000000001", name="NVIDIA H100 80GB HBM3",
        memory_total_mib=80 << 10, power_limit_w=650.0, temperature_margin_c=-2, mig=False, ecc_uncorrected=2,
        ecc_corrected=177, remap_pending=True, remap_failed=True, processes=(),
        links=GpuLinks(pcie_gen=4, pcie_gen_max=5, pcie_width=8, pcie_width_max=16, pcie_replays=7, nvlinks=18,
                       nvlinks_up=17, nvlink_errors=5_000_000_000),
    )  # fmt: skip


REFUSED = (
    ("nvmlDeviceGetFieldValues", "memory_temperature_c"),
    ("NVML_FI_DEV_MEMORY_TEMP", "memory_temperature_c"),
    ("nvmlDeviceGetUtilizationRates", "utilization_pct"),
    ("nvmlDeviceGetPowerUsage", "power_w"),
    ("nvmlDeviceGetClockInfo", "sm_clock_mhz"),
    ("nvmlDeviceGetEnforcedPowerLimit", "power_limit_w"),
    ("nvmlDeviceGetMarginTemperature", "temperature_margin_c"),
    ("nvmlDeviceGetMigMode", "mig"),
    ("nvmlDeviceGetRemappedRows", "remap_pending"),
    ("nvmlDeviceGetRemappedRows", "remap_failed"),
    ("nvmlDeviceGetTotalEccErrors", "ecc_uncorrected"),
    ("nvmlDeviceGetTotalEccErrors", "ecc_corrected"),
    ("nvmlDeviceGetMaxPcieLinkGeneration", "links"),
)


@pytest.mark.parametrize("code", [NOT_SUPPORTED, NO_PERMISSION, 13, 25])
def test_what_a_driver_refuses_is_null_and_no_error(nvml: Nvml, code: int) -> None:
    for function, _ in REFUSED:
        nvml.error(4, function, code)
    samples, facts = first(nvml)
    for _, field in REFUSED:
        thing = samples[4] if hasattr(samples[4], field) else facts[4]
        assert getattr(thing, field) is None, field
    assert (samples[4].error, samples[4].lost, samples[4].temperature_c) == (None, False, 41)
    assert facts[4].memory_total_mib == 81559


def test_what_is_not_supported_is_not_queried_again(nvml: Nvml) -> None:
    nvml.error(0, "nvmlDeviceGetPowerUsage", NOT_SUPPORTED)
    with probe(nvml) as running:
        assert running.wait(GpuSamples, whole).g[0].power_w is None
        running.wait_anew(GpuFactsAll)
        nvml.clear().set(1, temperature=50)
        assert (
            running.wait_anew(GpuSamples, lambda line: whole(line) and line.g[1].temperature_c == 50).g[0].power_w
            is None
        )
        nvml.set(0, mig=1)
        assert running.wait_anew(GpuSamples, lambda line: whole(line) and line.g[0].power_w == 632.0).g[0].error is None


def test_blank_values_are_null(nvml: Nvml) -> None:
    nvml.set(
        6, temperature=TWO_POW_32, memory_temperature=TWO_POW_32, memory_used=TWO_POW_63, memory_total=TWO_POW_64,
        utilization=TWO_POW_32, power=TWO_POW_32, power_limit=TWO_POW_32, sm_clock=TWO_POW_32, margin=TWO_POW_63 >> 32,
        ecc_uncorrected=TWO_POW_64, ecc_corrected=TWO_POW_63, throttle=TWO_POW_64, pcie_gen_max=TWO_POW_32,
    )  # fmt: skip
    nvml.process(6, 4_000_000, 0).say(f"process 6 4000001 {TWO_POW_64} c")
    samples, facts = first(nvml)
    assert samples[6] == GpuSample(6)
    named = {
        field: getattr(facts[6], field) for field in facts[6].__struct_fields__ if getattr(facts[6], field) is None
    }
    assert set(named) == {
        "memory_total_mib", "power_limit_w", "temperature_margin_c", "ecc_uncorrected", "ecc_corrected",
        "links",
    }  # fmt: skip
    assert {process.pid: process.memory_mib for process in facts[6].processes} == {4_000_000: 0, 4_000_001: None}


@pytest.mark.parametrize(
    ("code", "words", "lost"),
    [
        (GPU_IS_LOST, "GPU is lost", True),
        (RESET_REQUIRED, "GPU requires reset", False),
        (UNKNOWN, "Unknown Error", False),
        (10, "Timeout", False),
    ],
)
def test_a_sick_gpu_is_its_own_row_and_the_others_report(nvml: Nvml, code: int, words: str, lost: bool) -> None:
    with probe(nvml) as running:
        running.wait(GpuSamples, whole)
        nvml.error(5, "*", code)
        rows = running.wait_anew(GpuSamples, lambda line: whole(line) and line.g[5].error).g
        assert (rows[5].error, rows[5].lost, rows[5].temperature_c, rows[5].power_w) == (words, lost, None, None)
        assert [row.temperature_c for row in rows if row.index != 5] == [41] * 7
        facts = running.wait_anew(GpuFactsAll).g[5]
        assert facts.uuid == "GPU-00000000-0000-0000-0000-000000000005"
        nvml.clear()
        running.wait_anew(
            GpuSamples, lambda line: whole(line) and line.g[5].temperature_c == 41 and line.g[5].error is None
        )


def test_an_error_in_one_field_leaves_the_others(nvml: Nvml) -> None:
    nvml.error(2, "nvmlDeviceGetPowerUsage", UNKNOWN)
    samples, _ = first(nvml)
    assert samples[2] == GpuSample(2, "Unknown Error", False, 41, 48, 19819, 97, None, 1980, 0)


def test_a_gpu_that_is_sick_from_the_start_has_its_row(nvml: Nvml) -> None:
    nvml.error(0, "nvmlDeviceGetHandleByIndex_v2", UNKNOWN)
    samples, facts = first(nvml)
    assert samples[0] == GpuSample(0, "Unknown Error")
    assert facts[0] == GpuFacts(0)
    assert samples[1].temperature_c == 41


def test_a_gpu_that_vanishes_keeps_its_row_and_the_others_their_indexes(nvml: Nvml) -> None:
    """After the driver is opened anew it counts 7, and every GPU behind the missing one has moved up."""
    for index in range(8):
        nvml.set(index, temperature=50 + index)
    with probe(nvml, slow=0.1) as running:
        running.wait(GpuSamples, whole)
        healthy = list(nvml.lines)
        nvml.clear(gpus=7)
        for index in range(7):
            now = index + (index >= 3)
            nvml.say(
                f"uuid {index} GPU-00000000-0000-0000-0000-{now:012d}",
                f"pci {index} 00000000:{16 * (now + 1):02X}:00.0",
            )
            nvml.set(index, temperature=50 + now)
        rows = running.wait_anew(GpuSamples, lambda line: whole(line) and "vanished" in (line.g[3].error or "")).g
        assert rows[3].lost
        assert [row.temperature_c for row in rows] == [50, 51, 52, None, 54, 55, 56, 57]
        facts = running.wait_anew(GpuFactsAll)
        assert facts.expected == 8
        assert facts.g[3].uuid == "GPU-00000000-0000-0000-0000-000000000003"
        nvml.lines = healthy
        nvml.say()
        back = running.wait_anew(GpuSamples, lambda line: whole(line) and line.g[3].error is None).g
        assert [row.temperature_c for row in back] == list(range(50, 58))


def test_a_gpu_that_does_not_say_who_it_is_stands_where_it_stood(nvml: Nvml) -> None:
    """The driver is opened anew because of GPU 5, and then GPU 2 has no handle."""
    with probe(nvml, slow=0.1) as running:
        running.wait(GpuSamples, whole)
        nvml.error(5, "nvmlDeviceGetPowerUsage", UNKNOWN).error(2, "nvmlDeviceGetHandleByIndex_v2", UNKNOWN)
        rows = running.wait_anew(GpuSamples, lambda line: whole(line) and line.g[2].error == "Unknown Error").g
        assert [row.index for row in rows] == list(range(8))
        assert [row.temperature_c for row in rows] == [41, 41, None, 41, 41, 41, 41, 41]
        facts = running.wait_anew(GpuFactsAll).g
        assert [fact.uuid for fact in facts] == [f"GPU-00000000-0000-0000-0000-{index:012d}" for index in range(8)]


def test_while_the_driver_is_opened_anew_for_one_gpu_the_others_have_no_gap(nvml: Nvml) -> None:
    """And the one that had no handle then is well again after the next time."""
    with probe(nvml, slow=0.1) as running:
        running.wait(GpuSamples, whole)
        nvml.error(5, "*", GPU_IS_LOST).say("driver 590.48.01")
        running.wait(Hello, lambda line: line.driver == "590.48.01")
        running.wait_anew(GpuSamples, lambda line: whole(line) and line.g[5].lost)
        nvml.clear()
        running.wait_anew(GpuSamples, lambda line: whole(line) and line.g[5].error is None)
        rows = [row for line in running.readings if isinstance(line, GpuSamples) for row in line.g]
        assert {row.error for row in rows if row.index != 5} == {None}


def test_under_mig_there_is_no_utilisation(nvml: Nvml) -> None:
    samples, facts = first(nvml.set(7, mig=1))
    assert (samples[7].utilization_pct, samples[7].error, facts[7].mig) == (None, None, True)
    assert samples[6].utilization_pct == 97


def test_mig_instances_have_their_memory_and_their_processes(nvml: Nvml) -> None:
    nvml.set(7, mig=1).instance(7, 1, "3g.40gb", 40_000, 31_000).instance(7, 5, "1g.10gb", 9_728, 14, ci=1)
    nvml.process(7, 4_190_000, 30_000, instance=1).process(7, 4_190_001, 9, instance=5).process(7, 4_190_002, 5)
    nvml.set(6, mig=0).instance(6, 1, "3g.40gb", 40_000, 31_000)
    samples, facts = first(nvml)
    seven = facts[7]
    assert [(one.id, one.profile, one.memory_used_mib, one.memory_total_mib) for one in seven.instances] == [
        ("1", "3g.40gb", 31_000, 40_000), ("5/1", "1g.10gb", 14, 9_728),
    ]  # fmt: skip
    assert {one.utilization for one in seven.instances} == {"not measured by NVML"}
    assert (seven.instances[0].uuid or "").startswith("MIG-")
    assert [(one.pid, one.instance, one.memory_mib) for one in seven.processes] == [
        (4_190_000, "1", 30_000), (4_190_001, "5/1", 9), (4_190_002, None, 5),
    ]  # fmt: skip
    assert (samples[7].memory_used_mib, seven.memory_total_mib) == (19_819, 81_559), "those of the whole GPU"
    assert facts[6].instances == ()


def test_without_the_right_to_read_a_whole_gpu_its_memory_is_that_of_its_instances(nvml: Nvml) -> None:
    nvml.set(7, mig=1).instance(7, 1, "3g.40gb", 40_000, 31_000).instance(7, 2, "3g.40gb", 40_000, 5_000)
    nvml.error(7, "whole_memory", NO_PERMISSION).error(7, "nvmlDeviceGetMemoryInfo", NO_PERMISSION)
    with probe(nvml) as running:
        row = running.wait(GpuSamples, lambda line: whole(line) and line.g[7].memory_used_mib).g[7]
        assert (row.memory_used_mib, row.error) == (36_000, None)
        assert running.wait(GpuFactsAll, lambda line: len(line.g) == 8 and line.g[7].memory_total_mib == 80_000)


def test_the_memory_that_the_driver_keeps_is_not_counted_as_used(nvml: Nvml) -> None:
    nvml.set("*", memory_used=1 << 30, memory_reserved=600 << 20)
    assert first(nvml)[0][0].memory_used_mib == 1024
    nvml.error("*", "nvmlDeviceGetMemoryInfo_v2", 13)
    assert first(nvml)[0][0].memory_used_mib == 1624, "an old driver has the first version of the call alone"


def test_an_old_drivers_and_a_new_drivers_names_are_both_known(nvml: Nvml) -> None:
    nvml.set("*", throttle=0x20)
    nvml.error("*", "nvmlDeviceGetCurrentClocksEventReasons", 13).error("*", "nvmlDeviceGetTemperature", 13)
    samples, _ = first(nvml)
    assert (samples[0].throttle_mask, samples[0].temperature_c, samples[0].error) == (0x20, 41, None)


def test_processes_have_users_and_commands_and_are_listed_once(nvml: Nvml) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "input()", "--lr", "3e-4", "x" * 500], stdin=subprocess.PIPE
    ) as trainer:
        nvml.process(2, trainer.pid, 70_000).process(2, trainer.pid, 12, "g").process(2, 4_190_000, 100)
        _, facts = first(nvml)
        assert trainer.stdin is not None
        trainer.communicate(b"\n")
    ours, other = facts[2].processes
    assert (ours.pid, ours.memory_mib, ours.user) == (trainer.pid, 70_000, pwd.getpwuid(os.getuid()).pw_name)
    assert ours.command is not None
    assert ours.command.startswith(f"{sys.executable} -c input() --lr 3e-4 xxx")
    assert len(ours.command) == 200
    assert (other.pid, other.user, other.command) == (4_190_000, None, None)
    assert facts[3].processes == ()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (VERSION_MISMATCH, "Driver/library version mismatch"),
        (DRIVER_NOT_LOADED, "Driver Not Loaded"),
        (UNKNOWN, "Unknown"),
    ],
)
def test_a_driver_that_does_not_start_is_the_nodes_note(nvml: Nvml, code: int, words: str) -> None:
    nvml.error("*", "nvmlInitWithFlags", code)
    with probe(nvml) as running:
        hello = running.wait(Hello)
        assert hello.probe == "none"
        assert words in (hello.note or "")
        running.wait(HostSample)
        nvml.clear()
        assert running.wait(Hello, lambda line: line.probe == "nvml").note is None
        running.wait(GpuSamples, whole)


def test_a_driver_that_is_reloaded_is_opened_anew(nvml: Nvml) -> None:
    with probe(nvml) as running:
        running.wait(GpuSamples, whole)
        nvml.error("*", "*", DRIVER_NOT_LOADED)
        rows = running.wait_anew(GpuSamples, lambda line: whole(line) and all(row.error for row in line.g)).g
        assert len(rows) == 8
        nvml.clear().say("driver 590.48.01")
        running.wait_anew(GpuSamples, lambda line: whole(line) and all(row.temperature_c == 41 for row in line.g))
        assert running.wait(Hello, lambda line: line.driver == "590.48.01").probe == "nvml"


def test_a_node_without_gpus_has_none_and_no_trouble(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(tmp_path)}
    with RunningProbe(environment, python=sys.executable) as running:
        hello = running.wait(Hello)
        running.wait(HostSample)
        assert (hello.probe, hello.note, hello.driver) == ("none", None, None)
        until(lambda: len(running.readings) > 5)
        assert not [line for line in running.readings if isinstance(line, (GpuSamples, GpuFactsAll))]


LOOK = """
import json, sys
from collectors.probe.gpu.nvml import Gpus
gpus = Gpus({}, sys.argv[1])
for _ in range(2):
    for name, operation in gpus.operations(True):
        for line in operation() or ():
            print(json.dumps(line))
"""


def seen_by(root: Path, environment: dict[str, str]) -> list[dict[str, Any]]:
    """What the GPU section says in two slow rounds, with eight GPUs on the PCI bus under a root."""
    for number in range(8):
        device = root / f"sys/bus/pci/devices/0000:0{number}:00.0"
        device.mkdir(parents=True, exist_ok=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text("0x030200\n")
    argv = [sys.executable, "-c", LOOK, str(root)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def expected(lines: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(len(line["g"]), line["expected"]) for line in lines if line["k"] == "gpus"]


def test_an_nvml_without_gpus_says_so_at_once(tmp_path: Path) -> None:
    with probe(Nvml(tmp_path, gpus=0)) as running:
        assert running.wait(Hello).probe == "nvml"
        facts = running.wait(GpuFactsAll)
    assert (facts.g, facts.expected) == ((), 0)


def test_gpus_of_the_pci_bus_that_nvml_does_not_list_are_expected(tmp_path: Path, nvml: Nvml) -> None:
    nvml.clear(gpus=0)
    lines = seen_by(tmp_path, nvml.environment())
    assert [(line["probe"], line["note"], line["confined"]) for line in lines if line["k"] == "hello"] == [
        ("nvml", None, False)
    ]
    assert expected(lines) == [(0, 8)]


def test_gpus_of_the_pci_bus_without_nvml_are_expected(tmp_path: Path, nvml: Nvml) -> None:
    nvml.error("*", "nvmlInitWithFlags", VERSION_MISMATCH)
    assert expected(seen_by(tmp_path / "mismatch", nvml.environment())) == [(0, 8)] * 2
    missing = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    lines = seen_by(tmp_path / "missing", missing)
    assert expected(lines) == [(0, 8)] * 2
    assert lines[0]["note"] == "8 NVIDIA GPUs, but no libnvidia-ml.so.1: is the driver installed?"


def test_in_a_container_gpus_that_are_not_shown_are_not_expected(tmp_path: Path, nvml: Nvml) -> None:
    cgroup = tmp_path / "proc/self/cgroup"
    cgroup.parent.mkdir(parents=True)
    cgroup.write_text("0::/kubepods/besteffort/pod12\n")
    lines = seen_by(tmp_path, {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PATH": "/usr/bin:/bin"})
    assert (expected(lines), lines[0]["note"], lines[0]["confined"]) == ([], None, True)


@pytest.mark.parametrize("error", [None, NO_PERMISSION])
def test_in_a_step_of_a_job_a_cgroup_that_hides_all_gpus_is_said_so(
    tmp_path: Path, nvml: Nvml, error: int | None
) -> None:
    cgroup = tmp_path / "proc/self/cgroup"
    cgroup.parent.mkdir(parents=True)
    cgroup.write_text("0::/system.slice/slurmstepd.scope/job_7/step_1/user/task_0\n")
    nvml.clear(gpus=0)
    if error is not None:
        nvml.error("*", "nvmlInitWithFlags", error)
    lines = seen_by(tmp_path, {**nvml.environment(), "TRAINMON_STEP": "1"})
    assert lines[0]["note"] == "NVML shows no GPU here: a cgroup hides the 8 GPUs of this node"
    assert expected(lines) == [(0, 0)] * (error is None)
    assert seen_by(tmp_path, nvml.environment())[0]["note"] != lines[0]["note"]


def test_an_xid_comes_with_its_gpu_and_once(nvml: Nvml) -> None:
    with probe(nvml) as running:
        running.wait(GpuSamples, whole)
        nvml.xid(3, 79).xid(6, 63)
        assert running.wait(Xid, lambda line: line.code == 79).index == 3
        last = running.wait(Xid, lambda line: line.code == 63)
        assert (last.index, last.source) == (6, "nvml")
        running.wait_anew(GpuFactsAll)
        assert len([line for line in running.readings if isinstance(line, Xid)]) == 2


def test_a_driver_without_events_reports_everything_else(nvml: Nvml) -> None:
    nvml.error("*", "nvmlEventSetCreate", NOT_SUPPORTED)
    samples, _ = first(nvml)
    assert [row.error for row in samples] == [None] * 8
