"""The sh probe, as a node without python3 runs it: under dash and busybox, with a stand-in for nvidia-smi."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.lab.hung_mount import HungMount
from trainmon.model import probe_wire as readings


def test_it_says_who_it_is_and_how_the_host_is(shell: str, start: Any):
    fallback = start(shell)
    hello = fallback.line()
    assert (hello.host, hello.probe, hello.python) == (os.uname().nodename, "sh", None)
    assert hello.note == "no usable python3: only the main numbers, no logs, switches, checkpoints or W&B files"
    assert hello.cpu_count == os.cpu_count()
    assert abs(hello.t - time.time()) < 5
    host = fallback.first(readings.HostSample)
    assert host.load1 is not None
    assert 0 < host.memory_used_mib < host.memory_total_mib == hello.memory_total_mib
    assert host.boot_time == hello.boot_time > 1e9
    assert host.oom_kills is not None
    assert fallback.first(readings.HostSample).t >= host.t
    assert fallback.stderr() == ""


def test_disks_are_those_of_statvfs_and_errors_are_reported(shell: str, start: Any, tmp_path: Path):
    disks = {}
    fallback = start(shell, str(tmp_path), str(tmp_path / "no"), "/proc")
    while len(disks) < 3:
        [sample] = fallback.first(readings.DiskSamples).d
        disks[sample.path] = sample
    here, found = disks[str(tmp_path)], os.statvfs(tmp_path)
    assert here.total_bytes == found.f_blocks * found.f_frsize
    assert abs(here.free_bytes - found.f_bavail * found.f_frsize) < 1 << 30
    assert here.total_inodes in (found.f_files, None if not found.f_files else found.f_files)
    assert (here.state, here.read_only, bool(here.mount), bool(here.filesystem)) == ("ok", False, True, True)
    missing = disks[str(tmp_path / "no")]
    assert (missing.state, missing.error, missing.total_bytes) == ("error", "does not exist", None)
    assert (disks["/proc"].filesystem, disks["/proc"].total_bytes) == ("proc", None)


NASTY = ["a'; echo foo", 'b"c', "d\ne", "$(id)", "e f\\g", "läufe\t1", "*"]


def test_paths_with_nasty_names_are_given_back_as_they_came(shell: str, start: Any, tmp_path: Path):
    for name in NASTY:
        (tmp_path / name).mkdir()
    fallback = start(shell, *(str(tmp_path / name) for name in NASTY))
    found = {}
    while len(found) < len(NASTY):
        [sample] = fallback.first(readings.DiskSamples).d
        found[sample.path] = sample.state
    assert found == {str(tmp_path / name): "ok" for name in NASTY}


def test_gpus_are_read_by_nvidia_smi_and_what_it_refuses_is_null(shell: str, start: Any):
    fallback = start(shell, story="well")
    assert fallback.line().probe == "nvidia-smi"
    facts = fallback.first(readings.GpuFactsAll)
    assert facts.g[1] == readings.GpuFacts(
        index=1, uuid="GPU-1", name="NVIDIA H100 80GB HBM3", memory_total_mib=81559, power_limit_w=700.0,
        temperature_margin_c=46, mig=False, ecc_uncorrected=0, ecc_corrected=0, remap_pending=False, remap_failed=None,
    )  # fmt: skip
    sample = fallback.first(readings.GpuSamples)
    assert sample.g[0] == readings.GpuSample(
        index=0, temperature_c=41, memory_temperature_c=48, memory_used_mib=19818, utilization_pct=None, power_w=631.95,
        sm_clock_mhz=1980, throttle_mask=0x84,
    )  # fmt: skip
    assert len(sample.g) == 2


@pytest.mark.parametrize(
    ("story", "error", "lost"),
    [
        ("lost", "GPU is lost", True),
        ("handle", "Unable to determine the device handle for GPU0000:4F:00.0: Unknown Error", False),
    ],
)
def test_one_bad_gpu_is_reported_and_the_other_goes_on(shell: str, start: Any, story: str, error: str, lost: bool):
    sample = start(shell, story=story).first(readings.GpuSamples)
    assert (sample.g[0].error, sample.g[0].temperature_c) == (None, 41)
    assert (sample.g[1].error, sample.g[1].lost, sample.g[1].temperature_c) == (error, lost, None)


@pytest.mark.parametrize(("story", "memory"), [("old-driver", None), ("inforom", 48)])
def test_an_old_driver_and_a_bad_inforom_still_give_their_numbers(shell: str, start: Any, story: str, memory: Any):
    sample = start(shell, story=story).first(readings.GpuSamples)
    assert [(gpu.temperature_c, gpu.memory_temperature_c) for gpu in sample.g] == [(41, memory)] * 2


def test_a_driver_that_cannot_be_queried_is_a_trouble_that_ends(shell: str, start: Any, tmp_path: Path):
    fallback = start(shell, story="mismatch")
    trouble = fallback.first(readings.Trouble)
    assert trouble.part == "gpu"
    assert trouble.text == ("Failed to initialize NVML: Driver/library version mismatch NVML library version: 580.126")
    (tmp_path / "story").write_text("well")
    assert fallback.until(lambda r: isinstance(r, readings.Trouble) and r.text is None)
    assert len(fallback.first(readings.GpuSamples).g) == 2


def test_gpus_that_nothing_reads_are_counted_on_the_pci_bus(shell: str, start: Any, tmp_path: Path):
    for name, kind, driver in (
        ("01:00.0", "0x030200", None),
        ("01:00.1", "0x040300", "snd_hda_intel"),
        ("02:00.0", "0x030000", "nvidia"),
        ("03:00.0", "0x030200", "vfio-pci"),
        ("04:00.0", "0x068000", None),
    ):
        device = tmp_path / "pci" / f"0000:{name}"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text(f"{kind}\n")
        if driver is not None:
            (device / "driver").symlink_to(f"../drivers/{driver}")
    facts = start(shell, TRAINMON_PCI=str(tmp_path / "pci")).first(readings.GpuFactsAll)
    assert (facts.g, facts.expected) == ((), 2)


def test_a_hung_nvidia_smi_is_reported_and_the_rest_goes_on(shell: str, start: Any):
    fallback = start(shell, "/", story="hung", TRAINMON_PATIENCE="1")
    assert fallback.first(readings.Trouble).text == "nvidia-smi does not answer"
    assert fallback.first(readings.HostSample)


def test_a_hung_disk_is_reported_and_the_rest_goes_on(shell: str, start: Any, tmp_path: Path):
    mount = HungMount.at(tmp_path / "dead", tmp_path)
    mount.hang()
    mine = {name: value for name, value in mount.env.items() if name.startswith(("LD_", "HUNG_"))}
    fallback = start(shell, str(mount.folder), "/", TRAINMON_PATIENCE="3", **mine)
    [alive] = fallback.first(readings.DiskSamples).d
    assert (alive.path, alive.state) == ("/", "ok")
    [hung] = fallback.first(readings.DiskSamples).d
    assert (hung.path, hung.state, hung.total_bytes) == (str(mount.folder), "hung", None)
    assert fallback.first(readings.HostSample)
    mount.recover()
