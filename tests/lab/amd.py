"""Trees of /sys and /opt as the driver amdgpu and ROCm make them, for nodes with AMD GPUs.

The names and the units are those of the kernel (Documentation/gpu/amdgpu, drivers/gpu/drm/amd/include/
kgd_pp_interface.h, drivers/gpu/drm/amd/amdkfd/kfd_topology.c); the numbers are ours.
"""

from __future__ import annotations

import struct
from pathlib import Path

INSTINCT = {
    "revision": "0x00", "product_name": "AMD Instinct MI300X OAM", "unique_id": "a1b2c3d4e5f60718",
    "power/runtime_status": "active", "gpu_busy_percent": "97", "mem_info_vram_total": str(192 << 30),
    "mem_info_vram_used": str(150 << 30), "current_link_speed": "32.0 GT/s PCIe", "current_link_width": "16",
    "max_link_width": "16", "pcie_replay_count": "0", "current_compute_partition": "SPX",
    "hwmon/hwmon4/temp2_input": "71000", "hwmon/hwmon4/temp2_crit": "100000", "hwmon/hwmon4/temp2_emergency": "110000",
    "hwmon/hwmon4/temp3_input": "62000", "hwmon/hwmon4/temp3_crit": "105000",
    "hwmon/hwmon4/power1_input": "712000000", "hwmon/hwmon4/power1_cap": "750000000",
    "hwmon/hwmon4/freq1_input": "2100000000", "ras/umc_err_count": "ue: 0\nce: 3", "ras/gfx_err_count": "ue: 0\nce: 0",
    "ras/xgmi_wafl_err_count": "ue: 0\nce: 0", "ras/features": "feature mask: 0x5f",
}  # fmt: skip
"""A training MI300X: no sensor at the edge, power1_input instead of an average."""

RADEON = {
    "revision": "0xC1", "unique_id": "1f2e3d4c5b6a7980", "power/runtime_status": "active", "gpu_busy_percent": "3",
    "mem_info_vram_total": str(16 << 30), "mem_info_vram_used": str(1 << 30), "current_link_speed": "16.0 GT/s PCIe",
    "current_link_width": "8", "max_link_width": "16", "pcie_replay_count": "3",
    "hwmon/hwmon2/temp1_input": "56000", "hwmon/hwmon2/temp1_crit": "100000",
    "hwmon/hwmon2/temp2_input": "59000", "hwmon/hwmon2/temp2_crit": "110000",
    "hwmon/hwmon2/temp3_input": "54000", "hwmon/hwmon2/temp3_crit": "100000",
    "hwmon/hwmon2/power1_average": "36000000", "hwmon/hwmon2/power1_cap": "289000000",
    "hwmon/hwmon2/freq1_input": "500000000",
}  # fmt: skip

APU = {
    "revision": "0xD1", "power/runtime_status": "active", "gpu_busy_percent": "0", "mem_info_vram_total": "0",
    "mem_info_vram_used": "0", "hwmon/hwmon6/temp1_input": "38000", "hwmon/hwmon6/power1_average": "9087000",
    "hwmon/hwmon6/freq1_input": "848000000",
}  # fmt: skip
"""Part of a CPU: its memory is that of the host, and the driver gives no limits."""

DEVICES = {id(INSTINCT): "1002:74A1", id(RADEON): "1002:73BF", id(APU): "1002:150E"}


def metrics_1_3(throttlers: int) -> bytes:
    """gpu_metrics of version 1.3: all unknown but indep_throttle_status."""
    return struct.pack("<HBB", 120, 1, 3) + b"\xff" * 108 + struct.pack("<Q", throttlers)


def metrics_1_7(cycles: int, residencies: tuple[int, ...], xgmi: tuple[int, int] = (16, 32)) -> bytes:
    """gpu_metrics of version 1.7: the counters of the throttlers, and the XGMI link."""
    head = struct.pack("<HBB", 400, 1, 7) + b"\xff" * 36
    counters = struct.pack("<6I", cycles, *residencies)
    return (head + counters + b"\xff" * 8 + struct.pack("<HH", *xgmi)).ljust(400, b"\xff")


class AmdTree:
    """A root with the files of some AMD GPUs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cards = 0
        (root / "sys/module/amdgpu").mkdir(parents=True)
        ids = root / "usr/share/libdrm/amdgpu.ids"
        ids.parent.mkdir(parents=True)
        ids.write_text(
            "# List of AMDGPU IDs\n1.0.0\n73BF,\tC0,\tAMD Radeon RX 6900\n73BF,\tC1,\tAMD Radeon RX 6900 XT\n"
        )

    def card(self, slot: str, files: dict[str, str], metrics: bytes = b"", **changed: str) -> Path:
        """Add a GPU; `changed`: other contents, by name. Gives its folder."""
        folder = self.root / f"sys/class/drm/card{self.cards}/device"
        self.cards += 1
        kind = "120000" if files is INSTINCT else "30000"
        uevent = f"DRIVER=amdgpu\nPCI_CLASS={kind}\nPCI_ID={DEVICES[id(files)]}\nPCI_SLOT_NAME={slot}\n"
        for name, text in {**files, "uevent": uevent, **changed}.items():
            self.write(folder / name, text.rstrip("\n") + "\n")
        if metrics:
            (folder / "gpu_metrics").write_bytes(metrics)
        pci = self.root / "sys/bus/pci/devices" / slot
        for name, text in (("vendor", "0x1002"), ("class", f"0x{kind:0>6}")):
            self.write(pci / name, text + "\n")
        return folder

    def link(self, slot: str, folder: Path) -> None:
        """As in the kernel: the folder of a card is that of its PCI device, which keeps its address."""
        for path in (self.root / "sys/bus/pci/devices" / slot).iterdir():
            path.rename(folder / path.name)
        path.parent.rmdir()
        path.parent.symlink_to(folder)

    def partition(self, platform: int) -> None:
        """A DRM card of a partition: a platform device without numbers."""
        folder = self.root / f"sys/class/drm/card{self.cards}/device"
        self.cards += 1
        self.write(folder / "uevent", f"DRIVER=amdgpu_xcp\nMODALIAS=platform:amdgpu_xcp_{platform}\n")

    def node(self, number: int, gpu_id: int, slot: str, gib: int, partition: int = 0) -> None:
        """A node of the topology of KFD."""
        domain, bus, device = (int(part, 16) for part in slot.partition(".")[0].split(":"))
        folder = self.root / f"sys/class/kfd/kfd/topology/nodes/{number}"
        location = partition << 28 | bus << 8 | device << 3
        self.write(folder / "properties", f"cpu_cores_count 0\nlocation_id {location}\ndomain {domain}\n")
        self.write(folder / "gpu_id", f"{gpu_id}\n")
        self.write(folder / "mem_banks/0/properties", f"heap_type 1\nsize_in_bytes {gib << 30}\n")

    def process(self, pid: int, gpu_id: int, mib: int) -> None:
        self.write(self.root / f"sys/class/kfd/kfd/proc/{pid}/vram_{gpu_id}", f"{mib << 20}\n")

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def amdsmi(self, text: str) -> None:
        """A package of ROCm that answers as this code says."""
        self.write(self.root / "opt/rocm/share/amd_smi/amdsmi/__init__.py", text)


AMDSMI = '''
"""A stand-in for amdsmi: the functions of py-interface/README.md of ROCm/amdsmi, for two GPUs."""
from enum import IntEnum

class AmdSmiException(Exception): pass
class AmdSmiTemperatureType(IntEnum): EDGE, HOTSPOT, VRAM = 0, 1, 2
class AmdSmiTemperatureMetric(IntEnum): CURRENT, CRITICAL, EMERGENCY = 0, 5, 7
class AmdSmiClkType(IntEnum): SYS, GFX = 0, 0

def amdsmi_init(flag=2): print("a word that is no JSON")
def amdsmi_get_processor_handles(): return ["0000:0C:00.0", "0000:38:00.0"]
def amdsmi_get_gpu_device_bdf(gpu): return gpu
def amdsmi_get_temp_metric(gpu, sensor, metric):
    if sensor == AmdSmiTemperatureType.EDGE: raise AmdSmiException("AMDSMI_STATUS_NOT_SUPPORTED")
    return {0: 81, 5: 100, 7: 110}[metric]
def amdsmi_get_gpu_vram_usage(gpu): return {"vram_total": 196592, "vram_used": 180000}
def amdsmi_get_gpu_activity(gpu): return {"gfx_activity": 88, "umc_activity": 40, "mm_activity": "N/A"}
def amdsmi_get_power_info(gpu): return {"current_socket_power": 640, "average_socket_power": "N/A", "power_limit": 750}
def amdsmi_get_power_cap_info(gpu): return {"power_cap": 750000000}
def amdsmi_get_clock_info(gpu, kind): return {"clk": 1980, "min_clk": 132, "max_clk": 2100}
def amdsmi_get_gpu_total_ecc_count(gpu): return {"correctable_count": 7, "uncorrectable_count": 2}
def amdsmi_get_pcie_info(gpu):
    return {"pcie_static": {"max_pcie_width": 16}, "pcie_metric": {"pcie_width": 16, "pcie_replay_count": "N/A"}}
'''
