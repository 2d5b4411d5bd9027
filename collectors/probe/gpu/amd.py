"""AMD GPUs: by amdsmi, the Python package of ROCm, where the node has it, else from sysfs, which needs no ROCm.

Each number that amdsmi does not give comes from sysfs. The units are those of the kernel's documents of amdgpu: thermal
for hwmon, driver-misc and ras for the others; gpu_metrics is a struct of kgd_pp_interface.h. 0xffff and more ones mean
that there is no such number.
"""

import os
import sys

from collectors.probe.gpu.card import HOTTEST, MIB
from collectors.probe.host import field, number, total
from collectors.probe.paths import listed, read
from collectors.probe.stdlib import Any, Line

IDLE, SW_POWER_CAP, SW_THERMAL, HW_THERMAL = 0x1, 0x4, 0x20, 0x40
"""NVML's bits (model.probe_wire.THROTTLE), as which the reasons of AMD are reported."""

THROTTLERS = (
    (SW_POWER_CAP, 0x00FF00FF | 1 << 56),
    (SW_THERMAL, 0xFFF << 32),
    (HW_THERMAL, 0xF << 44),
)
"""Of indep_throttle_status (SMU_THROTTLER_… of amdgpu_smu.h): limits of power and current; temperatures; VRHOT and
PROCHOT, by which a voltage regulator or the board slows the GPU down."""

RESIDENCIES = (HW_THERMAL, SW_POWER_CAP, SW_THERMAL, SW_THERMAL, SW_THERMAL)
"""Of prochot, ppt, socket_thm, vr_thm and hbm_thm: counters of the time for which the GPU was slowed down."""

STATUS_AT = {3: 112}
RESIDENCIES_AT = {6: 32, 7: 40, 8: 40}
XGMI_AT = {4: 52, 5: 116, 6: 64, 7: 72, 8: 72}
"""By minor version of gpu_metrics 1: where indep_throttle_status, the counters, and the width of XGMI are. The
throttle_status of other versions has the bits of its chip."""

PACKAGES = ("opt/rocm/share/amd_smi", "usr/lib/python3/dist-packages")
"""Where amdsmi may be."""

NOWHERE = "/dev/null"

STRONGEST = 4000
"""W. A higher power is unknown: no GPU draws half of it."""


def degrees(smi: "Any", gpu: "Any", sensor: str, metric: str) -> int:
    """As in sysfs: m°C. Some releases give °C."""
    found = smi.amdsmi_get_temp_metric(
        gpu, getattr(smi.AmdSmiTemperatureType, sensor), getattr(smi.AmdSmiTemperatureMetric, metric)
    )
    return int(found if found > 1000 and found != 0xFFFF else 1000 * found)


def watts(smi: "Any", gpu: "Any") -> int:
    """As in sysfs: µW. A name for each kind of chip, and the other one is `N/A` or 0."""
    found = smi.amdsmi_get_power_info(gpu)
    powers = (found.get("current_socket_power"), found.get("average_socket_power"))
    return max(int(power * 1e6) for power in powers if power not in (None, "N/A"))


ASK = {
    "mem_info_vram_used": lambda smi, gpu: smi.amdsmi_get_gpu_vram_usage(gpu)["vram_used"] * MIB,
    "mem_info_vram_total": lambda smi, gpu: smi.amdsmi_get_gpu_vram_usage(gpu)["vram_total"] * MIB,
    "gpu_busy_percent": lambda smi, gpu: smi.amdsmi_get_gpu_activity(gpu)["gfx_activity"],
    "power1_average": watts,
    "power1_cap": lambda smi, gpu: smi.amdsmi_get_power_cap_info(gpu)["power_cap"],
    "freq1_input": lambda smi, gpu: smi.amdsmi_get_clock_info(gpu, smi.AmdSmiClkType.GFX)["clk"] * 1000000,
    "ue": lambda smi, gpu: smi.amdsmi_get_gpu_total_ecc_count(gpu)["uncorrectable_count"],
    "ce": lambda smi, gpu: smi.amdsmi_get_gpu_total_ecc_count(gpu)["correctable_count"],
    "pcie_replay_count": lambda smi, gpu: smi.amdsmi_get_pcie_info(gpu)["pcie_metric"]["pcie_replay_count"],
    "current_link_width": lambda smi, gpu: smi.amdsmi_get_pcie_info(gpu)["pcie_metric"]["pcie_width"],
    "max_link_width": lambda smi, gpu: smi.amdsmi_get_pcie_info(gpu)["pcie_static"]["max_pcie_width"],
}  # type: dict[str, Any]
"""By the name in sysfs, and in its unit."""

ASK.update(
    (channel + suffix, lambda smi, gpu, of=(sensor, metric): degrees(smi, gpu, *of))
    for channel, sensor in (("temp1", "EDGE"), ("temp2", "HOTSPOT"), ("temp3", "VRAM"))
    for suffix, metric in (("_input", "CURRENT"), ("_crit", "CRITICAL"), ("_emergency", "EMERGENCY"))
)


def market_name(root: str, device: str, revision: str) -> "str | None":
    """The name in libdrm's list, which most systems have, such as `AMD Radeon RX 6900 XT`."""
    paths = (os.path.join(root, folder, "share/libdrm/amdgpu.ids") for folder in ("usr", "opt/amdgpu"))
    lines = (line.split(",\t") for path in paths for line in read(path, MIB).splitlines())
    return next((cells[2] for cells in lines if cells[:2] == [device, revision[2:].upper()]), None)


class AmdCard:
    """A GPU of the driver amdgpu, read as a Card of NVML is."""

    handle, closed, lost = True, False, False
    smi = gpu = error = None  # type: Any

    def __init__(self, root: str, index: int, slot: str, folder: str) -> None:
        self.root, self.index, self.slot, self.folder = root, index, slot, folder
        self.refused = set()  # type: set[str]
        """What amdsmi does not give: sysfs is read instead from then on."""
        self.counts = []  # type: list[int]
        self.running = []  # type: list[tuple[int, int | None, str | None]]
        self.facts = {"index": index}  # type: Line

    def names(self) -> "Line":
        device, unique = self.text("uevent").partition("PCI_ID=1002:")[2][:4], self.text("unique_id")
        name = (
            self.text("product_name")
            or market_name(self.root, device, self.text("revision"))
            or ("AMD " + device if device else None)
        )
        return {"index": self.index, "uuid": "GPU-" + unique if unique else None, "name": name}

    def text(self, name: str) -> str:
        return read(os.path.join(self.folder, name)).strip("\0 \n")

    def number(self, name: str) -> "int | None":
        """A number by its name in sysfs."""
        if self.smi is not None and name in ASK and name not in self.refused:
            try:
                return int(ASK[name](self.smi, self.gpu))
            except Exception:  # the library's own, or "N/A" in place of a number
                self.refused.add(name)
        is_sensor = name.startswith(("temp", "power1", "freq"))
        sensors = listed(os.path.join(self.folder, "hwmon"))[:1] if is_sensor else []
        return number(self.text(os.path.join("hwmon", sensors[0], name) if sensors else name))

    def scaled(self, name: str, unit: int, most: int) -> "int | None":
        """A number in this unit; None above the highest one that can be."""
        value = self.number(name)
        return round(value / unit) if value is not None and 0 <= value < most * unit else None

    def is_suspended(self) -> bool:
        """Whether it sleeps: to read a number would wake it."""
        return self.text("power/runtime_status").startswith("suspend")

    def fast(self) -> "list[Any]":
        """The wire's row of fast numbers (model.GpuSample)."""
        self.lost = self.folder != NOWHERE and not os.path.exists(os.path.join(self.folder, "uevent"))
        self.error = "GPU has vanished: the driver no longer lists it" if self.lost else None
        if self.lost or self.is_suspended():
            return [self.index, self.error, self.lost] if self.lost else [self.index, None, False, *[None] * 6, IDLE]
        edge, junction, memory = (self.scaled("temp%d_input" % one, 1000, HOTTEST) for one in (1, 2, 3))
        powers = (self.scaled(name, 100000, 10 * STRONGEST) for name in ("power1_average", "power1_input"))
        power = next((tenths / 10 for tenths in powers if tenths is not None), None)
        numbers = [
            edge if junction is None else junction,
            memory or None,  # 0 °C: there is no such sensor
            self.scaled("mem_info_vram_used", MIB, MIB << 10),
            self.scaled("gpu_busy_percent", 1, 101),
            power,
            self.scaled("freq1_input", 1000000, 0xFFFF),
        ]
        self.error = None if any(one is not None for one in numbers) else "the driver gives no number of it"
        return [self.index, self.error, False, *numbers, self.throttling(), edge]

    def metric(self, at: "dict[int, int]", size: int, count: int = 1) -> "list[int]":
        """Numbers of gpu_metrics that lie behind each other; none if it is cut, or has none of them."""
        data = read(os.path.join(self.folder, "gpu_metrics"), 4096, "latin-1").encode("latin-1")
        whole = int.from_bytes(data[:2], "little")
        is_known = 3 < whole <= len(data) and data[2] == 1 and not data[whole:].strip(b"\0")  # some kernels pad it
        start = at.get(data[3]) if is_known else None
        if start is None or start + size * count > whole:
            return []
        found = [int.from_bytes(data[start + size * one :][:size], "little") for one in range(count)]
        return [] if (1 << 8 * size) - 1 in found else found

    def throttling(self) -> "int | None":
        """Why its clock is lowered, as NVML's bits. A counter of a reason counts if it grew in 1% of the time."""
        status = self.metric(STATUS_AT, 8)
        if status:
            return sum(bit for bit, mask in THROTTLERS if status[0] & mask)
        before, self.counts = self.counts, self.metric(RESIDENCIES_AT, 4, 1 + len(RESIDENCIES))
        if not before or not self.counts:
            return None
        passed, *grown = [now - then for now, then in zip(self.counts, before)]  # noqa: B905 strict= needs 3.10
        return sum({bit for bit, by in zip(RESIDENCIES, grown) if 0 < passed <= 100 * by})  # noqa: B905

    def slow(self) -> None:
        """Read the slow facts (model.GpuFacts) and the processes."""
        if "name" not in self.facts:
            self.facts = self.names()
        self.running = []
        if self.is_suspended():
            return
        ends = "crit", "emergency", "input"
        sensors = [[self.scaled("temp%d_%s" % (one, end), 1000, HOTTEST) for end in ends] for one in (1, 2, 3)]
        margins = [(crit or most or 0) - now for crit, most, now in sensors if (crit or most) and now is not None]
        width, speed = self.metric(XGMI_AT, 2, 2) or (None, None)
        link = self.text("current_link_speed").partition(" ")[0]
        nodes = self.nodes()
        self.running = [process for node in nodes for process in self.processes(node)]
        self.facts = dict(
            self.facts,
            memory_total_mib=self.scaled("mem_info_vram_total", MIB, MIB << 10) or None,
            power_limit_w=self.scaled("power1_cap", 1000000, STRONGEST) or None,
            temperature_margin_c=min(margins) if margins else None,
            ecc_uncorrected=self.errors("ue"),
            ecc_corrected=self.errors("ce"),
            links={
                "pcie_gts": float(link) if link.replace(".", "", 1).isdecimal() and len(link) < 6 else None,
                "pcie_width": self.scaled("current_link_width", 1, 0xFF),
                "pcie_width_max": self.scaled("max_link_width", 1, 0xFF),
                "pcie_replays": self.scaled("pcie_replay_count", 1, 1 << 32),
                "xgmi_width": width,
                "xgmi_gbps": speed,
                "xgmi_errors": total([self.errors(kind, "xgmi_wafl") for kind in ("ue", "ce")]),
            },
            instances=[self.instance(node) for node in nodes if node[2] is not None],
        )

    def errors(self, kind: str, block: str = "") -> "int | None":
        """The RAS errors since the driver was loaded: `ue`, uncorrectable, or `ce`; of all blocks, or of one."""
        known = self.number(kind) if self.smi is not None and not block else None
        names = [block + "_err_count"] if block else listed(os.path.join(self.folder, "ras"))
        counts = (field(self.text("ras/" + name), kind + ":") for name in names if name.endswith("_err_count"))
        return total(list(counts)) if known is None else known

    # -- what the compute driver, KFD, knows --------------------------------------------------------------------

    def nodes(self) -> "list[tuple[str, str, str | None]]":
        """The nodes of its topology that are this GPU: folder, id, and the partition's number if there are several."""
        base = os.path.join(self.root, "sys/class/kfd/kfd/topology/nodes")
        domain, bus, device = (int(part, 16) for part in self.slot.partition(".")[0].split(":"))
        texts = ((name, read(os.path.join(base, name, "properties"))) for name in listed(base))
        places = {
            name: field(text, "location_id") or 0 for name, text in texts if (field(text, "domain") or 0) == domain
        }
        mine = [name for name, place in places.items() if place and place & 0xFFFF == bus << 8 | device << 3]
        return [
            (
                os.path.join(base, name),
                read(os.path.join(base, name, "gpu_id")).strip(),
                str(places[name] >> 28) if len(mine) > 1 else None,
            )
            for name in mine
        ]

    def processes(self, node: "tuple[str, str, str | None]") -> "list[tuple[int, int | None, str | None]]":
        """The processes of all users that hold memory there."""
        base = os.path.join(self.root, "sys/class/kfd/kfd/proc")
        used = [(name, number(read(os.path.join(base, name, "vram_" + node[1])))) for name in listed(base)]
        return [(int(name), size, node[2]) for name, size in used if size and name.isdigit()]

    def instance(self, node: "tuple[str, str, str | None]") -> "Line":
        """A partition (model.GpuInstance). Its memory in use is that of its processes."""
        size = field(read(os.path.join(node[0], "mem_banks/0/properties")), "size_in_bytes")
        return {
            "id": node[2],
            "profile": self.text("current_compute_partition") or None,
            "memory_used_mib": sum(used or 0 for _, used, partition in self.running if partition == node[2]) // MIB,
            "memory_total_mib": size and size // MIB,
            "utilization": "not measured by the driver",
        }


class AmdGpus:
    """All GPUs of amdgpu, each under the index of its first appearance."""

    is_tried = False
    """Whether amdsmi was loaded, or cannot be."""

    def __init__(self, root: str, known: "list[list[Any]]") -> None:
        """`known`: index and PCI address of those that a worker before this one has found."""
        self.root, self.source = root, "sysfs"
        pci = os.path.join(root, "sys/bus/pci/devices")
        self.cards = {index: AmdCard(root, index, slot, os.path.join(pci, slot)) for index, slot in known}

    def find(self, first: int) -> None:
        """The cards of /sys/class/drm. A partition has no PCI address of its own. `first`: the index of the first one,
        above 0 beside GPUs of NVIDIA: then display adapters do not count."""
        drm = os.path.join(self.root, "sys/class/drm")
        names = (name for name in listed(drm) if name[:4] == "card" and name[4:].isdigit())
        texts = {name: read(os.path.join(drm, name, "device/uevent")) for name in names}
        slots = {
            text.partition("PCI_SLOT_NAME=")[2].split()[0]: os.path.join(drm, name, "device")
            for name, text in texts.items()
            if "DRIVER=amdgpu\n" in text and "PCI_SLOT_NAME=" in text and not (first and "PCI_CLASS=30000\n" in text)
        }
        known = {card.slot: index for index, card in self.cards.items()}
        for slot in sorted(slots):
            if slot in known:
                self.cards[known[slot]].folder = slots[slot]
            else:
                index = max([first - 1, *self.cards]) + 1
                self.cards[index] = AmdCard(self.root, index, slot, slots[slot])

    def load(self) -> None:
        """Load amdsmi, unless a GPU sleeps: its start would wake it."""
        self.is_tried = True
        folders = (os.path.join(self.root, folder) for folder in PACKAGES)
        package = next((one for one in folders if os.path.isdir(os.path.join(one, "amdsmi"))), None)
        if package is None or any(card.is_suspended() for card in self.cards.values()):
            return
        sys.path.append(package)
        sys.stdout = None  # it prints that it finds no library
        try:
            smi = __import__("amdsmi")
            smi.amdsmi_init()
            handles = {smi.amdsmi_get_gpu_device_bdf(gpu).lower(): gpu for gpu in smi.amdsmi_get_processor_handles()}
        except (Exception, SystemExit):  # of another release of ROCm or Python: sysfs has all that counts
            return
        self.source = "amdsmi"
        for card in self.cards.values():
            is_whole = card.slot in handles and len(card.nodes()) < 2  # else it may say what one partition has
            card.gpu, card.smi = handles.get(card.slot), smi if is_whole else None
