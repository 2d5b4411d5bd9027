"""AMD GPUs: what sysfs and amdsmi say becomes the rows and the facts of any GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from collectors.probe.gpu.amd import AmdGpus
from tests.collectors.probe import interpreters
from tests.lab.amd import AMDSMI, APU, INSTINCT, RADEON, AmdTree, metrics_1_3, metrics_1_7
from tests.lab.nvml import Nvml
from trainmon.model import GpuFacts, GpuInstance, GpuLinks, GpuSample, throttle_names

SLOT = "0000:0c:00.0"


@pytest.fixture
def tree(tmp_path: Path) -> AmdTree:
    return AmdTree(tmp_path)


def row(gpus: AmdGpus, index: int = 0) -> GpuSample:
    return msgspec.convert(gpus.cards[index].fast(), GpuSample)


def facts(gpus: AmdGpus, index: int = 0) -> GpuFacts:
    gpus.cards[index].slow()
    return msgspec.convert(gpus.cards[index].facts, GpuFacts)


def only(tree: AmdTree) -> AmdGpus:
    gpus = AmdGpus(str(tree.root), [])
    gpus.find(0)
    return gpus


def test_an_instinct_has_its_numbers_its_limits_and_its_links(tree: AmdTree) -> None:
    tree.card(SLOT, INSTINCT, metrics_1_7(100, (0,) * 5))
    gpus = only(tree)
    assert row(gpus) == GpuSample(0, None, False, 71, 62, 150 << 10, 97, 712.0, 2100, None)
    assert facts(gpus) == GpuFacts(
        index=0, uuid="GPU-a1b2c3d4e5f60718", name="AMD Instinct MI300X OAM", memory_total_mib=192 << 10,
        power_limit_w=750, temperature_margin_c=29, ecc_uncorrected=0, ecc_corrected=3,
        links=GpuLinks(32.0, 16, 16, 0, 16, 32, 0),
    )  # fmt: skip


def test_the_temperature_is_that_of_the_junction_and_the_edge_is_beside_it(tree: AmdTree) -> None:
    tree.card(SLOT, RADEON, metrics_1_3(0))
    found = row(only(tree))
    assert (found.temperature_c, found.edge_temperature_c, found.memory_temperature_c) == (59, 56, 54)
    assert (found.power_w, found.throttle_mask) == (36.0, 0)
    slow = facts(only(tree))
    assert (slow.temperature_margin_c, slow.name, slow.ecc_uncorrected) == (44, "AMD Radeon RX 6900 XT", None)
    assert slow.links == GpuLinks(16.0, 8, 16, 3)


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        ([0], ("sw_power_cap",)),  # PPT0
        ([22, 56], ("sw_power_cap",)),  # EDC_GFX, PPM
        ([36], ("sw_thermal",)),  # TEMP_HOTSPOT
        ([34, 44], ("sw_thermal", "hw_thermal")),  # TEMP_MEM, VRHOT0
        ([47], ("hw_thermal",)),  # PROCHOT_GFX
        ([57], ()),  # FIT
    ],
)
def test_the_throttlers_of_a_gpu_are_named_as_those_of_nvidia(
    tree: AmdTree, bits: list[int], names: tuple[str, ...]
) -> None:
    tree.card(SLOT, RADEON, metrics_1_3(sum(1 << bit for bit in bits)))
    assert throttle_names(row(only(tree)).throttle_mask) == names


def test_a_counter_of_a_throttler_that_grows_is_a_reason(tree: AmdTree) -> None:
    folder = tree.card(SLOT, INSTINCT, metrics_1_7(1000, (5, 900, 7, 0, 0)))
    gpus = only(tree)
    assert row(gpus).throttle_mask is None, "what was before is of any time"
    for cycles, counters, names in (
        (3000, (5, 2400, 7, 0, 0), ("sw_power_cap",)),
        (5000, (5, 2400, 7, 0, 500), ("sw_thermal",)),
        (7000, (105, 2410, 8, 0, 501), ("hw_thermal",)),
        (9000, (105, 2410, 8, 0, 501), ()),
    ):
        (folder / "gpu_metrics").write_bytes(metrics_1_7(cycles, counters))
        assert throttle_names(row(gpus).throttle_mask) == names


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x78\x00\x01\x03",
        b"\x08\x01\x03\x00" + b"\0" * 260,
        metrics_1_3(2**64 - 1),
        metrics_1_3(2**36)[:119],
        b"\3\0\1",
        b"\x90\1\1\7" + b"\x5a" * 390,
    ],
)
def test_gpu_metrics_of_another_version_or_cut_are_unknown(tree: AmdTree, data: bytes) -> None:
    tree.card(SLOT, RADEON, data)
    found = row(only(tree))
    assert (found.throttle_mask, found.temperature_c, found.error) == (None, 59, None)
    links = facts(only(tree)).links
    assert links is not None
    assert (links.xgmi_width, links.xgmi_gbps) == (None, None)


def test_gpu_metrics_that_the_kernel_fills_up_to_a_page_are_read(tree: AmdTree) -> None:
    """So it is of the RX 6900 XT in LACT's snapshots of /sys."""
    tree.card(SLOT, RADEON, metrics_1_3(1 << 36).ljust(4096, b"\0"))
    assert throttle_names(row(only(tree)).throttle_mask) == ("sw_thermal",)


def test_numbers_that_mean_unknown_are_null(tree: AmdTree) -> None:
    hwmon = {f"hwmon/hwmon4/{name}": text for name, text in (
        ("temp2_input", str(0xFFFF * 1000)), ("temp3_input", "0"), ("power1_input", str(0xFFFF * 10**6)),
        ("freq1_input", str(0xFFFF * 10**6)), ("power1_cap", "N/A"), ("temp2_crit", "0"), ("temp3_crit", "0"),
        ("temp2_emergency", "-273150"),
    )}  # fmt: skip
    blank = {"gpu_busy_percent": "65535", "mem_info_vram_used": str(2**64 - 1), "mem_info_vram_total": str(2**64 - 1)}
    tree.card(SLOT, INSTINCT, **hwmon, **blank, current_link_speed="Unknown", current_link_width="255")
    gpus = only(tree)
    assert row(gpus) == GpuSample(0, "the driver gives no number of it")
    found = facts(gpus)
    assert (found.memory_total_mib, found.power_limit_w, found.temperature_margin_c) == (None, None, None)
    assert found.links == GpuLinks(None, None, 16, 0, None, None, 0)


@pytest.mark.parametrize("text", ["0", "\u00b2", "9" * 5000, "1.2.3 GT/s", "-1", "64000000000", "\x1b[31m"])
def test_a_file_with_nonsense_is_unknown(tree: AmdTree, text: str) -> None:
    tree.card(SLOT, INSTINCT, **{"hwmon/hwmon4/power1_cap": text, "current_link_speed": text})
    found = facts(only(tree))
    assert found.power_limit_w is None
    assert found.links is not None
    assert not found.links.pcie_gts


def test_an_apu_has_no_memory_of_its_own(tree: AmdTree) -> None:
    tree.card("0000:c1:00.0", APU)
    assert row(only(tree)) == GpuSample(0, None, False, 38, None, 0, 0, 9.1, 848, None, 38)
    found = facts(only(tree))
    assert (found.memory_total_mib, found.temperature_margin_c, found.name) == (None, None, "AMD 150E")


def test_a_gpu_that_sleeps_is_not_woken(tree: AmdTree) -> None:
    folder = tree.card(SLOT, RADEON, **{"power/runtime_status": "suspended"})
    tree.amdsmi(AMDSMI)
    gpus = only(tree)
    for name in ("hwmon/hwmon2/temp1_input", "gpu_busy_percent", "mem_info_vram_used", "current_link_speed"):
        (folder / name).unlink()
        os.mkfifo(folder / name)  # to open it would hang
    gpus.load()
    assert gpus.source == "sysfs", "the start of amdsmi opens all GPUs"
    assert row(gpus) == GpuSample(0, throttle_mask=0x1)
    assert facts(gpus).name == "AMD Radeon RX 6900 XT"


def test_a_gpu_that_has_gone_to_sleep_has_no_processes(tree: AmdTree) -> None:
    folder = tree.card(SLOT, RADEON)
    tree.node(1, 700, SLOT, 16)
    tree.process(4711, 700, 9_000)
    gpus = only(tree)
    facts(gpus)
    assert gpus.cards[0].running == [(4711, 9_000 << 20, None)]
    tree.write(folder / "power/runtime_status", "suspended")
    facts(gpus)
    assert gpus.cards[0].running == []


def test_the_ras_errors_are_those_of_all_blocks(tree: AmdTree) -> None:
    ras = {"ras/umc_err_count": "ue: 2\nce: 9\nde: 1", "ras/xgmi_wafl_err_count": "ue: 1\nce: 4"}
    tree.card(SLOT, INSTINCT, **ras)
    found = facts(only(tree))
    assert (found.ecc_uncorrected, found.ecc_corrected) == (3, 13)
    assert found.links is not None
    assert found.links.xgmi_errors == 5


def test_partitions_are_instances_with_their_memory_and_their_processes(tree: AmdTree) -> None:
    tree.card(SLOT, INSTINCT, current_compute_partition="CPX")
    for number in range(3):
        tree.partition(number)
        tree.node(2 + number, 60_000 + number, SLOT, 48, partition=number)
    tree.node(0, 0, "0000:00:00.0", 512)
    tree.card("0000:22:00.0", INSTINCT)
    tree.node(9, 700, "0000:22:00.0", 192)
    tree.process(4711, 60_000, 30_000)
    tree.process(4712, 60_001, 20_000)
    tree.process(4712, 700, 10)
    tree.process(4713, 60_002, 0)
    gpus = only(tree)
    first = facts(gpus)
    assert [*gpus.cards] == [0, 1]
    assert first.instances == tuple(
        GpuInstance(str(number), "CPX", None, used, 48 << 10, "not measured by the driver")
        for number, used in enumerate((30_000, 20_000, 0))
    )
    assert gpus.cards[0].running == [(4711, 30_000 << 20, "0"), (4712, 20_000 << 20, "1")]
    assert facts(gpus, 1).instances == ()
    assert gpus.cards[1].running == [(4712, 10 << 20, None)]


def test_a_gpu_that_vanishes_is_lost_and_keeps_its_index(tree: AmdTree) -> None:
    tree.card(SLOT, INSTINCT)
    tree.card("0000:22:00.0", INSTINCT)
    gpus = only(tree)
    folder = tree.root / "sys/class/drm/card0"
    folder.rename(tree.root / "gone")
    gpus.find(0)
    assert row(gpus) == GpuSample(0, "GPU has vanished: the driver no longer lists it", True)
    assert row(gpus, 1).temperature_c == 71
    (tree.root / "gone").rename(tree.root / "sys/class/drm/card7")  # so after a reset
    gpus.find(0)
    assert row(gpus).temperature_c == 71
    known = [[index, card.slot] for index, card in gpus.cards.items()]
    folder.with_name("card7").rename(tree.root / "gone")
    assert row(AmdGpus(str(tree.root), known)).lost, "also for the next worker"


def test_numbers_come_from_amdsmi_and_what_it_lacks_from_sysfs(
    tree: AmdTree, capfd: pytest.CaptureFixture[str]
) -> None:
    tree.card(SLOT, INSTINCT, metrics_1_7(100, (0,) * 5))
    tree.card("0000:22:00.0", INSTINCT)
    tree.amdsmi(AMDSMI)
    tree.card("0000:38:00.0", INSTINCT)
    for number in range(2):
        tree.node(5 + number, 800 + number, "0000:38:00.0", 96, partition=number)
    code = (
        "import json, sys; from collectors.probe.gpu.amd import AmdGpus;"
        "gpus = AmdGpus(sys.argv[1], []); gpus.find(0); gpus.load();"
        "first = gpus.cards[0]; rows = [card.fast() for card in gpus.cards.values()]; first.slow();"
        "sys.stderr.write(json.dumps([gpus.source, rows, first.facts]))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tree.root)], capture_output=True, text=True, check=True)
    source, rows, found = json.loads(done.stderr)
    assert (source, done.stdout) == ("amdsmi", ""), "what it prints is no line of the probe"
    assert msgspec.convert(rows[0], GpuSample) == GpuSample(0, None, False, 81, 81, 180_000, 88, 640.0, 1980, None)
    blank = AMDSMI.replace("{0: 81,", "{0: 0xFFFF,")
    tree.amdsmi(blank)
    done = subprocess.run([sys.executable, "-c", code, str(tree.root)], capture_output=True, text=True, check=True)
    assert json.loads(done.stderr)[1][0][3] is None, "an empty register is no temperature of 66 °C"
    assert rows[1][3] == 71, "amdsmi does not list the second one"
    assert rows[2][3] == 71, "it may say what one partition of it has"
    slow = msgspec.convert(found, GpuFacts)
    assert (slow.ecc_uncorrected, slow.ecc_corrected, slow.temperature_margin_c) == (2, 7, 19)
    assert (slow.memory_total_mib, slow.links) == (196_592, GpuLinks(32.0, 16, 16, 0, 16, 32, 0))


@pytest.mark.parametrize("text", ["raise ImportError('libamd_smi.so')", "raise SystemExit(1)", "x ="])
def test_an_amdsmi_that_does_not_load_costs_nothing(tree: AmdTree, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.card(SLOT, INSTINCT)
    tree.amdsmi(text)
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    monkeypatch.setattr(sys, "path", [*sys.path])
    gpus = only(tree)
    gpus.load()
    assert (gpus.source, gpus.is_tried, row(gpus).temperature_c) == ("sysfs", True, 71)


# ---- together with NVML ---------------------------------------------------------------------------------------------

LOOK = """
import json, sys
from collectors.probe.gpu.nvml import Gpus
gpus = Gpus({}, sys.argv[1])
for _ in range(3):
    for name, operation in gpus.operations(True):
        for line in operation() or ():
            print(json.dumps(dict(line, operation=name)))
print(json.dumps({"k": "state", "state": gpus.state()}))
"""


def lines(tree: AmdTree, environment: dict[str, str] | None = None) -> list[dict[str, Any]]:
    bare = {**os.environ, "LD_LIBRARY_PATH": str(tree.root), "PATH": "/usr/bin:/bin"}
    argv = [sys.executable, "-c", LOOK, str(tree.root)]
    done = subprocess.run(argv, env=environment or bare, capture_output=True, text=True, timeout=60, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


NAMES = """
import sys
from collectors.probe.gpu.nvml import Gpus
print([name for name, _ in Gpus({}, sys.argv[1]).operations(True)])
"""


@pytest.mark.parametrize("name", ["uevent", "unique_id", "product_name", "gpu_busy_percent"])
def test_only_operations_open_files_of_a_gpu(tree: AmdTree, name: str) -> None:
    """What hangs outside an operation is not seen by the parent, and stops the whole probe."""
    folder = tree.card(SLOT, INSTINCT)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    done = subprocess.run(
        [sys.executable, "-c", NAMES, str(tree.root)], capture_output=True, text=True, timeout=30, check=True
    )
    assert "amdgpu" in done.stdout


@pytest.mark.parametrize("name", ["uevent", "unique_id"])
def test_a_worker_after_one_that_hung_reads_the_other_gpus(tree: AmdTree, name: str) -> None:
    hung, well = tree.card(SLOT, INSTINCT), tree.card("0000:22:00.0", INSTINCT)
    for slot, folder in ((SLOT, hung), ("0000:22:00.0", well)):
        tree.link(slot, folder)
    (hung / name).unlink()
    os.mkfifo(hung / name)
    code = (
        "import sys; from collectors.probe.gpu.nvml import Gpus; gpus = Gpus({}, sys.argv[1]);"
        f"state = dict(gpus.state(), amd=[[0, '{SLOT}'], [1, '0000:22:00.0']]); gpus.restore(state);"
        "print(dict(gpus.operations(True))['amd:1']()[0]['g'][0][3])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tree.root)], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "71\n"


def test_a_node_with_amd_alone_says_how_it_is_read(tree: AmdTree) -> None:
    for bus in (0x0C, 0x22):
        tree.card(f"0000:{bus:02x}:00.0", INSTINCT)
    found = lines(tree)
    (hello,) = (line for line in found if line["k"] == "hello")
    assert (hello["probe"], hello["note"]) == ("sysfs", None)
    (facts, *_) = [line for line in found if line["k"] == "gpus"]
    assert (len(facts["g"]), facts["expected"]) == (2, 2)
    assert [line["g"][0][3] for line in found if line["k"] == "gpu"] == [71] * 4
    assert {line["operation"] for line in found if line["k"] == "gpu"} == {"amd:0", "amd:1"}
    assert found[-1]["state"]["amd"] == [[0, "0000:0c:00.0"], [1, "0000:22:00.0"]]


def test_gpus_of_both_vendors_have_rows_side_by_side(tree: AmdTree, tmp_path: Path) -> None:
    tree.card("0000:00:05.0", APU)  # in the CPU: for a display
    tree.card(SLOT, INSTINCT)
    for bus in (1, 2):
        pci = tree.root / f"sys/bus/pci/devices/0000:0{bus}:00.0"
        tree.write(pci / "vendor", "0x10de\n")
        tree.write(pci / "class", "0x030200\n")
    found = lines(tree, Nvml(tmp_path, gpus=2).environment())
    (hello,) = (line for line in found if line["k"] == "hello")
    assert hello["probe"] == "nvml"
    facts = [line for line in found if line["k"] == "gpus"][-1]
    assert [(one["index"], one["name"]) for one in facts["g"]] == [
        (0, "NVIDIA H100 80GB HBM3"), (1, "NVIDIA H100 80GB HBM3"), (2, "AMD Instinct MI300X OAM"),
    ]  # fmt: skip
    assert facts["expected"] == 3


ROCM = {
    "card0": {
        "PCI Bus": "0000:0C:00.0", "Card Series": "AMD Instinct MI300X OAM", "Unique ID": "0xa1b2c3",
        "GPU use (%)": "64",
        "Temperature (Sensor edge) (C)": "41.0", "Temperature (Sensor junction) (C)": "44.0",
        "Temperature (Sensor memory) (C)": "46.0", "Average Graphics Package Power (W)": "93.5",
        "Max Graphics Package Power (W)": "560.0", "VRAM Total Memory (B)": str(64 << 30),
        "VRAM Total Used Memory (B)": str(1 << 30), "sclk clock speed:": "(1700Mhz)",
    },
    "card1": {
        "GPU use (%)": "N/A", "Current Socket Graphics Package Power (W)": "90.0", "Card series": "N/A",
        "Unique ID": "N/A", "PCI Bus": "N/A", "VRAM Total Memory (B)": 1,
    },
    "card2": "N/A", "system": {"Driver version": "6.8.5"},
}  # fmt: skip
"""The names of rocm-smi --json; the numbers are ours."""

ROUNDS = """
import json, sys, time
from collectors.probe.gpu.nvml import Gpus
gpus = Gpus({"smi_patience": 0.2}, sys.argv[1])
deadline = time.time() + 20
found = []
while time.time() < deadline and not any(line["k"] in sys.argv[2:] for line in found):
    for name, operation in gpus.operations(True):
        begun = time.time()
        found += operation() or ()
        assert time.time() - begun < 5
    time.sleep(0.02)
print(json.dumps(found))
"""


def rounds_of(script: str, root: Path, *wanted: str) -> list[dict[str, Any]]:
    command = root / "bin/rocm-smi"
    command.parent.mkdir()
    command.write_text("#!/bin/sh\n" + script)
    command.chmod(0o755)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(root), "PATH": f"{command.parent}:/usr/bin:/bin"}
    argv = [sys.executable, "-c", ROUNDS, str(root), *wanted]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=True)
    return list(json.loads(done.stdout))


def test_without_sysfs_rocm_smi_is_read(tmp_path: Path) -> None:
    AmdTree(tmp_path)
    found = rounds_of(f"echo 'WARNING: x'; echo '{json.dumps(ROCM)}'; echo 'WARNING: y'", tmp_path, "gpu")
    hello, facts, rows = found[0], found[-2], found[-1]
    assert (hello["probe"], hello["note"]) == ("rocm-smi", "/sys shows no GPU of amdgpu: rocm-smi is read instead")
    first, second = (msgspec.convert(row, GpuSample) for row in rows["g"])
    assert first == GpuSample(0, None, False, 44, 46, 1024, 64, 93.5, 1700, None, 41)
    assert (second.utilization_pct, second.power_w, second.error) == (None, 90.0, None)
    slow = msgspec.convert(facts["g"][0], GpuFacts)
    assert (slow.uuid, slow.name, slow.memory_total_mib, slow.power_limit_w) == (
        "GPU-a1b2c3", "AMD Instinct MI300X OAM", 64 << 10, 560,
    )  # fmt: skip
    other = msgspec.convert(facts["g"][1], GpuFacts)
    assert (other.uuid, other.name) == (None, None), "N/A is no name"


def test_a_rocm_smi_that_hangs_or_fails_blocks_nothing(tmp_path: Path) -> None:
    AmdTree(tmp_path / "hangs")
    AmdTree(tmp_path / "fails")
    hangs = rounds_of("exec sleep 600", tmp_path / "hangs", "trouble")[-1]
    assert hangs["text"] == "rocm-smi does not answer; it is not started again before it has returned"
    fails = rounds_of("echo 'ERROR: no amdgpu'; exit 2", tmp_path / "fails", "trouble")[-1]
    assert fails["text"] == "rocm-smi ended with status 2: ERROR: no amdgpu"


@pytest.mark.parametrize("cards", [0, 8])
def test_rocm_smi_is_not_asked_where_the_driver_is_not_loaded(cards: int, tmp_path: Path) -> None:
    """So on a login node with ROCm; and on a node whose driver failed, which must say so."""
    tree = AmdTree(tmp_path)
    for bus in range(cards):
        tree.card(f"0000:0{bus}:00.0", INSTINCT)
    (tmp_path / "sys/class").rename(tmp_path / "none") if cards else None
    (tmp_path / "sys/module/amdgpu").rmdir()
    found = rounds_of("echo 'ERROR: Driver not initialized (amdgpu not found in modules)'; exit 2", tmp_path, "hello")
    note = "8 AMD GPUs, but no amdgpu: is the driver loaded?" if cards else None
    assert (found[0]["probe"], found[0]["note"]) == ("none", note)
    assert [line["expected"] for line in found if line["k"] == "gpus"] == ([8] if cards else [])


def test_the_cards_of_a_driver_that_was_still_being_loaded_are_found(tmp_path: Path) -> None:
    tree = AmdTree(tmp_path)
    tree.card(SLOT, INSTINCT)
    (tmp_path / "sys/class/drm").rename(tmp_path / "later")
    loads = f"mv {tmp_path}/later {tmp_path}/sys/class/drm; echo 'ERROR'; exit 2"
    found = rounds_of(loads, tmp_path, "gpu")
    assert [line["probe"] for line in found if line["k"] == "hello"] == ["rocm-smi", "sysfs"]
    assert next(line for line in found if line["k"] == "gpu")["g"][0][3] == 71


def test_an_nvml_without_gpus_does_not_hide_how_amds_are_read(tree: AmdTree, tmp_path: Path) -> None:
    tree.card(SLOT, INSTINCT)
    hello = next(line for line in lines(tree, Nvml(tmp_path, gpus=0).environment()) if line["k"] == "hello")
    assert (hello["probe"], hello["note"]) == ("sysfs", None)


def test_amd_gpus_without_the_driver_are_named(tree: AmdTree) -> None:
    tree.card(SLOT, INSTINCT)
    (tree.root / "sys/class/drm").rename(tree.root / "none")
    (tree.root / "sys/module/amdgpu").rmdir()
    hello = lines(tree)[0]
    assert (hello["probe"], hello["note"]) == ("none", "1 AMD GPUs, but no amdgpu: is the driver loaded?")


@pytest.mark.parametrize("version", interpreters.found())
def test_every_python_of_a_node_reads_them(version: str, tree: AmdTree) -> None:
    tree.card(SLOT, INSTINCT, metrics_1_7(100, (0,) * 5))
    tree.node(1, 700, SLOT, 192)
    tree.process(1, 700, 100)
    code = (
        "import sys; sys.path.insert(0, sys.argv[2]); from collectors.probe.gpu.amd import AmdGpus;"
        "gpus = AmdGpus(sys.argv[1], []); gpus.find(0); card = gpus.cards[0];"
        "row = card.fast(); card.slow(); print(row, card.running)"
    )
    argv = [interpreters.found()[version], "-I", "-S", "-c", code, str(tree.root), str(Path(__file__).parents[4])]
    done = subprocess.run(argv, env={"LANG": "C"}, capture_output=True, text=True, timeout=60, check=True)
    wanted = [0, None, False, 71, 62, 150 << 10, 97, 712.0, 2100, None, None]
    assert done.stdout.strip() == f"{wanted} [(1, {100 << 20}, None)]"
