"""GPUs through nvidia-smi, where no libnvidia-ml can be loaded: a fake command prints what real ones have printed."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors.probe.gpu import driver_text as smi_text
from tests.lab.probe import RunningProbe, until
from tests.lab.processes import gone
from trainmon.model import DiskSamples, GpuFactsAll, GpuSample, GpuSamples, Hello, HostSample, Trouble

SCRIPT = """#!/bin/sh
cd {folder}
echo "$$ $*" >>calls
[ ! -e hang ] || {{ sleep 1000 & wait; }}
case "$*" in
*--help-query-gpu*) cat help ;;
*--query-compute-apps*) cat apps ;;
*) case $1 in -i) name=one-$2 ;; *) name=query ;; esac
   cat $name
   read -r status <status && exit "$status" ;;
esac
"""
HELP = 'List of valid properties to query for the switch "--query-gpu":\n' + "".join(
    f'"{field}"\nWords about it.\n' for field in smi_text.FIELDS if not field.startswith("remapped")
).replace('"clocks_throttle', '"clocks_event_reasons.active" or "clocks_throttle')
HEALTHY = (
    "{index}, GPU-{index}, NVIDIA H100 80GB HBM3, 00000000:{bus:02X}:00.0, Disabled, 100, 81559, 19818, 59, 26, 54, "
    "631.95, 700.00, 1980, 0x0000000000000000, 0, 0"
)
LOST = "{index}, GPU-{index}, NVIDIA H100 80GB HBM3, 00000000:{bus:02X}:00.0" + ", [GPU is lost]" * 13


class FakeSmi:
    """A folder with a command in it, and the texts that it prints."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = folder / "nvidia-smi"
        command.write_text(SCRIPT.format(folder=folder))
        command.chmod(0o755)
        self.say(help=HELP, apps="", status="0\n", query=self.rows(8))

    def rows(self, gpus: int, **other: str) -> str:
        return "".join(
            other.get(f"gpu{index}", HEALTHY).format(index=index, bus=16 * (index + 1)) + "\n" for index in range(gpus)
        )

    def say(self, **texts: str) -> None:
        for name, text in texts.items():
            fresh = self.folder / f"{name}.new"
            fresh.write_text(text)
            fresh.rename(self.folder / name.replace("one_", "one-"))

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.folder}:{os.environ['PATH']}", "LD_LIBRARY_PATH": str(self.folder)}


@pytest.fixture
def smi(tmp_path: Path) -> FakeSmi:
    return FakeSmi(tmp_path)


@pytest.fixture
def running(smi: FakeSmi) -> Iterator[RunningProbe]:
    with RunningProbe(smi.environment(), python=sys.executable, period=0.05, slow=0.3, smi_patience=0.8) as running:
        yield running


def whole(line: GpuSamples) -> bool:
    return len(line.g) == 8


def test_it_says_that_nvidia_smi_is_read_and_reads_it(running: RunningProbe, smi: FakeSmi) -> None:
    smi.say(
        apps="GPU-2, 11345, ./gpu_burn, 15690\nGPU-2, 12, python, a.py, [N/A]\nGPU-3, [Not Found], [Not Found], 1\n"
    )
    hello = running.wait(Hello)
    assert hello.probe == "nvidia-smi"
    assert hello.note == "libnvidia-ml.so.1 cannot be loaded: nvidia-smi is read instead"
    samples = running.wait(GpuSamples, whole).g
    assert samples[7] == GpuSample(7, None, False, 59, 54, 19818, 100, 631.95, 1980, 0)
    facts = running.wait(GpuFactsAll, lambda line: line.g[2].processes)
    assert facts.expected == 8
    two = facts.g[2]
    assert (two.uuid, two.memory_total_mib, two.power_limit_w, two.temperature_margin_c) == ("GPU-2", 81559, 700.0, 26)
    assert (two.mig, two.ecc_corrected, two.remap_pending) == (False, 0, None)
    assert [(process.pid, process.memory_mib, process.command) for process in two.processes] == [
        (11345, 15690, "./gpu_burn"),
        (12, None, "python, a.py"),
    ]
    assert facts.g[3].processes == ()
    assert "remapped_rows" not in smi.calls()[1], "a field that this driver does not know fails the whole call"


def test_a_lost_gpu_in_the_answer_is_one_row(running: RunningProbe, smi: FakeSmi) -> None:
    running.wait(GpuSamples, whole)
    smi.say(query=smi.rows(8, gpu5=LOST))
    rows = running.wait_anew(GpuSamples, lambda line: line.g[5].error).g
    assert (rows[5].error, rows[5].lost, rows[5].temperature_c) == ("GPU is lost", True, None)
    assert rows[4].temperature_c == 59


def test_a_gpu_that_fails_the_whole_call_costs_its_row_alone(running: RunningProbe, smi: FakeSmi) -> None:
    running.wait(GpuSamples, whole)
    failure = "Unable to determine the device handle for GPU0000:60:00.0: Unknown Error\n"
    for index in range(8):
        smi.say(**{f"one_{index}": failure if index == 5 else smi.rows(8).splitlines()[index] + "\n"})
    smi.say(query=failure, status="255\n")
    rows = running.wait_anew(GpuSamples, lambda line: len(line.g) == 8 and line.g[5].error).g
    assert (rows[5].error, rows[5].temperature_c) == ("Unknown Error", None)
    assert [row.temperature_c for row in rows if row.index != 5] == [59] * 7


def test_a_gpu_that_is_no_longer_listed_has_vanished(running: RunningProbe, smi: FakeSmi) -> None:
    running.wait(GpuSamples, whole)
    smi.say(query=smi.rows(7))
    row = running.wait_anew(GpuSamples, lambda line: line.g[7].error).g[7]
    assert row == GpuSample(7, "GPU has vanished: nvidia-smi no longer lists it", True)


@pytest.mark.parametrize(
    "words",
    [
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
        "NVIDIA driver is installed and running.",
        "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.126",
        "No devices were found",
    ],
)
def test_a_call_that_fails_whole_is_reported_in_its_own_words(running: RunningProbe, smi: FakeSmi, words: str) -> None:
    running.wait(GpuSamples, whole)
    smi.say(query=words + "\n", status="9\n")
    assert running.wait(Trouble, lambda line: line.part == "gpu").text == words.partition("\n")[0]
    assert running.wait_anew(GpuSamples).g[0].error == words.partition("\n")[0]
    smi.say(query=smi.rows(8), status="0\n")
    running.wait_anew(GpuSamples, lambda line: line.g[0].temperature_c == 59)
    running.wait(Trouble, lambda line: line.part == "gpu" and line.text is None)


def test_one_that_hangs_is_killed_with_all_that_it_started_and_costs_nothing_else(smi: FakeSmi) -> None:
    spec: dict[str, Any] = {"period": 0.05, "slow": 0.3, "smi_patience": 0.8, "disks": ["/"]}
    with RunningProbe(smi.environment(), python=sys.executable, **spec) as running:
        running.wait(GpuSamples, whole)
        running.wait(DiskSamples)
        (smi.folder / "hang").touch()
        before = len(smi.calls())
        until(lambda: len(smi.calls()) > before)
        worker = running.tree()[1]
        hung = running.tree()[2:]
        running.wait_anew(HostSample)
        row = running.wait_anew(GpuSamples, lambda line: line.g[0].error).g[0]
        assert row.error is not None
        assert row.error.startswith("nvidia-smi: no answer for ")
        until(lambda: all(gone(pid) for pid in hung))
        assert running.tree()[1] == worker, "the worker is not the one that is killed"
        (smi.folder / "hang").unlink()
        running.wait_anew(GpuSamples, lambda line: line.g[0].temperature_c == 59)


def test_the_probes_end_is_the_end_of_a_hung_command(smi: FakeSmi) -> None:
    (smi.folder / "hang").touch()
    with RunningProbe(smi.environment(), python=sys.executable) as running:
        running.wait(Hello)
        until(lambda: len(running.tree()) == 4)
        tree = running.tree()
        assert running.process.stdin is not None
        running.process.stdin.close()
        running.ended()
        until(lambda: all(gone(pid) for pid in tree))


@pytest.mark.parametrize("cell", sorted(smi_text.ABSENT))
def test_a_cell_that_says_absent_is_null_and_no_error(cell: str) -> None:
    fields = ["index", "temperature.gpu", "clocks_throttle_reasons.active", "mig.mode.current", "power.draw"]
    row = smi_text.rows(f"3, {cell}, {cell}, {cell}, {cell}\n", fields)[3]
    assert row.sample() == [3, None, False] + [None] * 7
    assert row.described()["mig"] is None


@pytest.mark.parametrize("cell", sorted(smi_text.FAULTS))
def test_a_cell_that_says_fault_is_the_gpus_error(cell: str) -> None:
    row = smi_text.rows(f"3, {cell}, 40\n", ["index", "temperature.gpu", "temperature.memory"])[3]
    assert row.error == smi_text.FAULTS[cell]
    assert row.sample()[3:5] == [None, 40]


def test_a_cut_answer_gives_the_whole_lines_alone() -> None:
    fields = list(smi_text.FIELDS[:17])
    text = "WARNING: infoROM is corrupted at gpu 0000:10:00.0\n" + HEALTHY.format(index=0, bus=16) + "\n1, GPU-1, NVI"
    assert list(smi_text.rows(text, fields)) == [0]


@pytest.mark.parametrize(
    ("line", "pci", "error"),
    [
        ("Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error", "0000:0b:00", "Unknown Error"),
        ("Unable to determine the device handle for GPU0000:4F:00.0: Unknown Error", "0000:4f:00", "Unknown Error"),
        (
            "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system to recover "
            "this GPU",
            "0000:02:00",
            "GPU is lost.  Reboot the system to recover this GPU",
        ),
    ],
)
def test_the_spellings_of_a_device_handle_that_cannot_be_had(line: str, pci: str, error: str) -> None:
    assert smi_text.failed(line + "\n") == {pci: error}


def test_under_mig_the_utilisation_is_null() -> None:
    fields = ["index", "mig.mode.current", "utilization.gpu"]
    assert smi_text.rows("0, Enabled, 0\n", fields)[0].sample()[6] is None
    assert smi_text.rows("0, Disabled, 0\n", fields)[0].sample()[6] == 0


def test_a_sick_node_that_only_its_throttle_bits_show() -> None:
    """All GPUs at 86 MHz and 67 W, no error, no heat: hardware slowdown by the power brake."""
    fields = ["index", "clocks_throttle_reasons.active", "clocks.current.sm"]
    assert smi_text.rows("0, 0x0000000000000088, 86\n", fields)[0].sample()[8:] == [86, 0x88]
